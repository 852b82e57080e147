package io.qpair.kafka.streams;

import io.qpair.QpairException;
import io.qpair.Store;
import java.lang.management.ManagementFactory;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.management.Attribute;
import javax.management.AttributeList;
import javax.management.AttributeNotFoundException;
import javax.management.DynamicMBean;
import javax.management.JMException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanInfo;
import javax.management.ObjectName;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The statistics of an instance's store in JMX: {@code io.qpair:type=Store,path="..."}, an attribute for each number, and {@code json} with all. */
final class InstanceMetrics implements DynamicMBean, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(InstanceMetrics.class);
    private static final Pattern NUMBER = Pattern.compile("\"([a-z0-9_]+)\"\\s*:\\s*(-?[0-9]+(?:\\.[0-9]+)?)|([{}\\[\\]])");

    private final Store store;
    private ObjectName name;

    InstanceMetrics(String path, Store store) {
        this.store = store;
        try {
            name = new ObjectName("io.qpair:type=Store,path=" + ObjectName.quote(path));
            ManagementFactory.getPlatformMBeanServer().registerMBean(this, name);
        } catch (JMException error) {
            LOG.warn("The metrics of the qpair store {} are not in JMX", path, error);
            name = null;
        }
    }

    /** Returns the numbers at the top of a JSON object. */
    static Map<String, Number> numbers(String json) {
        Map<String, Number> numbers = new TreeMap<>();
        Matcher matcher = NUMBER.matcher(json);
        int depth = 0;
        while (matcher.find()) {
            String bracket = matcher.group(3);
            if (bracket != null) {
                depth += "{[".contains(bracket) ? 1 : -1;
            } else if (depth == 1) {
                String number = matcher.group(2);
                if (number.contains(".")) {
                    numbers.put(matcher.group(1), Double.valueOf(number));
                } else {
                    numbers.put(matcher.group(1), Long.valueOf(number));
                }
            }
        }
        return numbers;
    }

    private String json() {
        try {
            return store.statistics();
        } catch (QpairException error) {
            LOG.debug("The statistics of a qpair store cannot be read", error);
            return "{}";
        }
    }

    @Override
    public Object getAttribute(String attribute) throws AttributeNotFoundException {
        String json = json();
        if (attribute.equals("json")) {
            return json;
        }
        Number number = numbers(json).get(attribute);
        if (number == null) {
            throw new AttributeNotFoundException("The store has no statistic " + attribute);
        }
        return number;
    }

    @Override
    public AttributeList getAttributes(String[] attributes) {
        String json = json();
        Map<String, Number> numbers = numbers(json);
        AttributeList list = new AttributeList();
        for (String attribute : attributes) {
            Object value = attribute.equals("json") ? json : numbers.get(attribute);
            if (value != null) {
                list.add(new Attribute(attribute, value));
            }
        }
        return list;
    }

    @Override
    public MBeanInfo getMBeanInfo() {
        Map<String, Number> numbers = numbers(json());
        MBeanAttributeInfo[] attributes = new MBeanAttributeInfo[numbers.size() + 1];
        attributes[0] = new MBeanAttributeInfo("json", "java.lang.String", "All statistics as JSON", true, false, false);
        int at = 1;
        for (Map.Entry<String, Number> number : numbers.entrySet()) {
            attributes[at++] = new MBeanAttributeInfo(number.getKey(), number.getValue().getClass().getName(), number.getKey(), true, false, false);
        }
        return new MBeanInfo(getClass().getName(), "The qpair store of an instance", attributes, null, null, null);
    }

    @Override
    public void setAttribute(Attribute attribute) throws AttributeNotFoundException {
        throw new AttributeNotFoundException("The statistic " + attribute.getName() + " cannot be set");
    }

    @Override
    public AttributeList setAttributes(AttributeList attributes) {
        return new AttributeList();
    }

    @Override
    public Object invoke(String action, Object[] arguments, String[] signature) {
        throw new UnsupportedOperationException("The store has no operations in JMX");
    }

    @Override
    public void close() {
        if (name == null) {
            return;
        }
        try {
            ManagementFactory.getPlatformMBeanServer().unregisterMBean(name);
        } catch (JMException error) {
            LOG.debug("{} was not in JMX", name, error);
        }
    }
}
