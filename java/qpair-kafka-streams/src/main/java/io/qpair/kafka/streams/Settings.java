package io.qpair.kafka.streams;

import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The settings of an instance, from the configuration of the application: all that begins with {@code qpair.}.
 *
 * <p>{@code qpair.path}: file or specifier of the store; default: {@code qpair.store} in the application's state folder.
 * {@code qpair.write.buffer.bytes}: heap that a store's writes take before they go to the table without a commit; default: 4 MiB.
 * Each {@code qpair.store.NAME} is an option of the store, such as {@code qpair.store.memory=1GiB}: the memory of all state stores together.
 */
record Settings(String path, long writeBufferBytes, boolean transactional, boolean exactlyOnce, Map<String, String> store) {
    private static final String STORE = "qpair.store.";

    static Settings of(Map<String, Object> configs, Path folder) {
        Map<String, String> store = new LinkedHashMap<>();
        store.put("memory_up_to", "256MiB");
        store.put("durability", "async");
        // An instance that was killed is to run again within 3 s: a log of rows of 1 kB takes some 2 s for each 128 MiB.
        store.put("checkpoint", "128MiB");
        configs.forEach((key, value) -> {
            if (key.startsWith(STORE) && value != null) {
                store.put(key.substring(STORE.length()), value.toString());
            }
        });
        if (store.containsKey("memory")) {
            store.remove("memory_up_to");
        }
        return new Settings(
                text(configs, "qpair.path", folder.resolve("qpair.store").toString()),
                Long.parseLong(text(configs, "qpair.write.buffer.bytes", Long.toString(4 << 20))),
                Boolean.parseBoolean(text(configs, "enable.transactional.statestores", "false")),
                text(configs, "processing.guarantee", "at_least_once").startsWith("exactly_once"),
                store);
    }

    private static String text(Map<String, Object> configs, String key, String otherwise) {
        Object value = configs.get(key);
        return value == null ? otherwise : value.toString();
    }
}
