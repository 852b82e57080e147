package io.qpair.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.StreamsTestUtils;
import org.apache.kafka.test.TestUtils;
import org.junit.jupiter.api.Test;

/** The order of windows that are emitted on close. */
class WindowOrderTest {
    private static final long RETENTION = 600_000;

    private static WindowStore<Bytes, byte[]> open(File folder) {
        InternalMockProcessorContext<String, String> context = new InternalMockProcessorContext<>(folder, Serdes.String(), Serdes.String(),
                new StreamsConfig(StreamsTestUtils.getStreamsConfig()));
        var supplier = QpairStores.timestampedWindowStore("windows", Duration.ofMillis(RETENTION), Duration.ofMillis(10), false, true);
        WindowStore<Bytes, byte[]> store = supplier.get();
        store.init(context, store);
        return store;
    }

    private static List<String> read(KeyValueIterator<Windowed<Bytes>, byte[]> windows) {
        List<String> found = new ArrayList<>();
        try (windows) {
            windows.forEachRemaining(row -> found.add(row.key.window().start() + "/" + new String(row.key.key().get()) + "=" + new String(row.value)));
        }
        return found;
    }

    @Test
    void windowsOfAllKeysAreInTheOrderOfTime() {
        File folder = TestUtils.tempDirectory();
        WindowStore<Bytes, byte[]> store = open(folder);
        Random random = new Random(7);
        TreeMap<Long, TreeMap<String, String>> model = new TreeMap<>();
        for (int round = 0; round < 3_000; round++) {
            long start = 1_000_000 + random.nextLong(RETENTION - 1);
            String key = "key\0" + random.nextInt(40);
            String value = random.nextInt(5) == 0 ? null : "v" + round;
            store.put(Bytes.wrap(key.getBytes()), value == null ? null : value.getBytes(), start);
            Map<String, String> at = model.computeIfAbsent(start, none -> new TreeMap<>());
            if (value == null) {
                at.remove(key);
            } else {
                at.put(key, value);
            }
            if (round == 1_500) {
                store.commit(Map.of());
                store.close();
                store = open(folder);
            }
        }
        Function<Map<Long, TreeMap<String, String>>, List<String>> rows = windows -> {
            List<String> all = new ArrayList<>();
            windows.forEach((start, keys) -> keys.forEach((key, value) -> all.add(start + "/" + key + "=" + value)));
            return all;
        };
        assertEquals(rows.apply(model), read(store.fetchAll(0, Long.MAX_VALUE)));
        assertEquals(rows.apply(model), read(store.all()));
        List<String> backward = rows.apply(model);
        Collections.reverse(backward);
        assertEquals(backward, read(store.backwardAll()));
        assertEquals(rows.apply(model.subMap(1_100_000L, true, 1_400_000L, true)), read(store.fetchAll(1_100_000, 1_400_000)));
        // A later window, which leaves all segments behind but the newest.
        store.put(Bytes.wrap("late".getBytes()), "v".getBytes(), 5_000_000);
        assertEquals(List.of("5000000/late=v"), read(store.all()));
        assertFalse(read(store.fetchAll(0, 5_000_000)).isEmpty());
        store.close();
    }

    /** A window with no grace closes when its retention ends; the store once returned nothing then, and the window was never emitted. */
    @Test
    void aWindowIsThereWhenItsRetentionEnds() {
        WindowStore<Bytes, byte[]> store = open(TestUtils.tempDirectory());
        store.put(Bytes.wrap("k".getBytes()), "v".getBytes(), 1_000_000);
        store.put(Bytes.wrap("k".getBytes()), "w".getBytes(), 1_000_000 + RETENTION);
        assertEquals(List.of("1000000/k=v"), read(store.fetchAll(0, 1_000_000)));
        store.put(Bytes.wrap("k".getBytes()), "x".getBytes(), 1_000_001 + RETENTION);
        assertEquals(List.of(), read(store.fetchAll(0, 1_000_000)));
        store.close();
    }

    @Test
    void aStoreBelowACacheKeepsTheOrderThatTheCacheMergesBy() {
        var supplier = QpairStores.timestampedWindowStore("windows", Duration.ofMillis(RETENTION), Duration.ofMillis(10), false, true);
        assertFalse(QpairWindowStore.isCached(Stores.timestampedWindowStoreBuilder(supplier, Serdes.Bytes(), Serdes.ByteArray()).build()));
        assertTrue(QpairWindowStore.isCached(Stores.timestampedWindowStoreBuilder(supplier, Serdes.Bytes(), Serdes.ByteArray()).withCachingEnabled().build()));
    }
}
