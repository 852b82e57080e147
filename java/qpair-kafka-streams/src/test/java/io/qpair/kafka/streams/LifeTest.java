package io.qpair.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import javax.management.ObjectName;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.errors.TaskCorruptedException;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.StreamsTestUtils;
import org.apache.kafka.test.TestUtils;
import org.junit.jupiter.api.Test;

/** What a store has after commits, closes and wiped folders. */
class LifeTest {
    private static final TopicPartition CHANGELOG = new TopicPartition("changelog", 0);
    private final File application = TestUtils.tempDirectory();
    private final File task = new File(application, "0_0");

    private QpairKeyValueStore open(String name, String... settings) {
        Properties configs = StreamsTestUtils.getStreamsConfig();
        for (int at = 0; at < settings.length; at += 2) {
            configs.put(settings[at], settings[at + 1]);
        }
        task.mkdirs();
        InternalMockProcessorContext<String, String> context = new InternalMockProcessorContext<>(task, Serdes.String(), Serdes.String(), new StreamsConfig(configs)) {
            @Override
            public Map<String, Object> appConfigs() {
                Map<String, Object> all = new HashMap<>();
                configs.forEach((key, value) -> all.put(key.toString(), value));
                return all;
            }
        };
        QpairKeyValueStore store = new QpairKeyValueStore(name);
        store.init(context, store);
        return store;
    }

    private static Bytes key(int key) {
        return Bytes.wrap(("key" + key).getBytes());
    }

    private static final byte[] VALUE = "value".getBytes();

    @Test
    void rowsAndOffsetsAreThereAfterAClose() {
        QpairKeyValueStore store = open("a");
        store.put(key(1), VALUE);
        store.commit(Map.of(CHANGELOG, 17L));
        store.close();
        store.close();
        store = open("a");
        assertArrayEquals(VALUE, store.get(key(1)));
        assertEquals(17L, store.committedOffset(CHANGELOG));
        store.commit(Map.of());
        assertNull(store.committedOffset(CHANGELOG));
        store.close();
    }

    @Test
    void transactionalWritesAreThereAfterTheirCommitOnly() {
        QpairKeyValueStore store = open("a", "enable.transactional.statestores", "true", "processing.guarantee", "exactly_once_v2");
        store.put(key(1), VALUE);
        store.put(key(2), VALUE);
        store.commit(Map.of(CHANGELOG, 2L));
        store.put(key(2), null);
        store.put(key(3), VALUE);
        assertNull(store.get(key(2)));
        assertArrayEquals(VALUE, store.readOnly(IsolationLevel.READ_COMMITTED).get(key(2)));
        assertNull(store.readOnly(IsolationLevel.READ_COMMITTED).get(key(3)));
        assertNull(store.readOnly(IsolationLevel.READ_UNCOMMITTED).get(key(2)));
        try (var committed = store.readOnly(IsolationLevel.READ_COMMITTED).all()) {
            assertEquals(key(1), committed.next().key);
            assertEquals(key(2), committed.next().key);
            assertFalse(committed.hasNext());
        }
        assertTrue(store.approximateNumUncommittedBytes() > 0);
        store.close();
        store = open("a", "enable.transactional.statestores", "true", "processing.guarantee", "exactly_once_v2");
        assertArrayEquals(VALUE, store.get(key(2)));
        assertNull(store.get(key(3)));
        assertEquals(2L, store.committedOffset(CHANGELOG));
        store.close();
    }

    @Test
    void wipedTaskNeverSeesOldRows() throws Exception {
        QpairKeyValueStore other = open("other");
        other.put(key(1), VALUE);
        QpairKeyValueStore store = open("a");
        store.put(key(1), VALUE);
        store.commit(Map.of(CHANGELOG, 17L));
        store.close();
        org.apache.kafka.common.utils.Utils.delete(task);
        store = open("a");
        assertNull(store.get(key(1)));
        assertNull(store.committedOffset(CHANGELOG));
        store.close();
        other.close();
    }

    @Test
    void exactlyOnceWithoutTransactionsWipesAStoreThatWasNotClosed() {
        String[] exactly = {"processing.guarantee", "exactly_once_v2"};
        QpairKeyValueStore store = open("a", exactly);
        store.put(key(1), VALUE);
        store.commit(Map.of(CHANGELOG, 1L));
        // A second opening while the first is open stands for one after kill -9: the mark is there.
        assertThrows(TaskCorruptedException.class, () -> open("a", exactly));
        QpairKeyValueStore wiped = open("a", exactly);
        assertNull(wiped.get(key(1)));
        wiped.close();
    }

    @Test
    void longKeysAreAnException() {
        QpairKeyValueStore store = open("a");
        store.put(Bytes.wrap(new byte[66_000]), VALUE);
        ProcessorStateException error = assertThrows(ProcessorStateException.class, () -> store.commit(Map.of(CHANGELOG, 1L)));
        assertTrue(error.getMessage().contains("65,535"), error.getMessage());
    }

    @Test
    void statisticsAreInJmx() throws Exception {
        QpairKeyValueStore store = open("a");
        ObjectName name = new ObjectName("io.qpair:type=Store,path=" + ObjectName.quote(application.toPath().toAbsolutePath().normalize().resolve("qpair.store").toString()));
        String json = (String) ManagementFactory.getPlatformMBeanServer().getAttribute(name, "json");
        assertTrue(json.startsWith("{"), json);
        assertTrue(ManagementFactory.getPlatformMBeanServer().getMBeanInfo(name).getAttributes().length > 5, json);
        store.close();
        assertFalse(ManagementFactory.getPlatformMBeanServer().isRegistered(name));
    }
}
