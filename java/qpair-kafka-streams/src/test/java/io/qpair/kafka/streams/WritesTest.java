package io.qpair.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class WritesTest {
    /** The order is made after so many of 2,000 writes, or never. */
    @ParameterizedTest
    @ValueSource(ints = {0, 1, 1000, 1999, -1})
    void writesAreThoseOfAMap(int sortedAt) {
        Random random = new Random(sortedAt);
        TreeMap<byte[], byte[]> model = new TreeMap<>(Arrays::compareUnsigned);
        Writes writes = Writes.after(null);
        for (int at = 0; at < 2000; at++) {
            if (at == sortedAt) {
                assertEquals(model.size(), writes.sorted().size());
            }
            byte[] key = new byte[1 + random.nextInt(2)];
            random.nextBytes(key);
            byte[] value = {(byte) at};
            assertArrayEquals(model.get(key), writes.get(key));
            assertArrayEquals(model.put(key, value), writes.put(key, value));
        }
        List<String> rows = new ArrayList<>();
        writes.forEach((key, value) -> rows.add(Arrays.toString(key) + Arrays.toString(value)));
        List<String> expected = new ArrayList<>();
        model.forEach((key, value) -> expected.add(Arrays.toString(key) + Arrays.toString(value)));
        assertEquals(expected, rows);
        assertEquals(model.size(), writes.size());
        assertEquals(model.size(), writes.values().size());
        Writes next = Writes.after(writes);
        assertTrue(next.isEmpty());
        assertNull(next.get(new byte[] {1}));
    }

    /** Keys that differ late, early or in their length only come in their order. */
    @ParameterizedTest
    @ValueSource(ints = {0, 1, 7, 8, 40})
    void rowsComeInTheOrderOfTheirKeys(int prefix) {
        Random random = new Random(prefix);
        TreeMap<byte[], byte[]> model = new TreeMap<>(Arrays::compareUnsigned);
        Writes writes = Writes.after(null);
        for (int at = 0; at < 3000; at++) {
            byte[] key = new byte[prefix + random.nextInt(20)];
            for (int place = prefix; place < key.length; place++) {
                key[place] = (byte) (random.nextInt(3) - 1);
            }
            model.put(key, key);
            writes.put(key, key);
        }
        List<byte[]> rows = new ArrayList<>();
        writes.forEach((key, value) -> rows.add(key));
        assertArrayEquals(model.keySet().toArray(), rows.toArray());
        Writes one = Writes.after(writes);
        one.put(new byte[] {1}, new byte[] {2});
        one.forEach((key, value) -> assertArrayEquals(new byte[] {2}, value));
    }

    /** Readers that make the order, beside the thread that writes, miss nothing that was there before. */
    @Test
    void theOrderIsMadeBesideWrites() throws Exception {
        for (int round = 0; round < 200; round++) {
            Writes writes = Writes.after(null);
            byte[] first = {-1, -1};
            writes.put(first, first);
            AtomicBoolean missed = new AtomicBoolean();
            Thread reader = new Thread(() -> {
                while (writes.sorted().size() < 500) {
                    missed.compareAndSet(false, writes.sorted().get(first) == null || writes.get(first) == null);
                }
            });
            for (int at = 0; at < 500; at++) {
                byte[] key = {(byte) (at >> 8), (byte) at};
                writes.put(key, key);
                assertArrayEquals(key, writes.get(key));
                if (at == 100) {
                    reader.start();
                }
            }
            reader.join(10_000);
            assertEquals(501, writes.sorted().size());
            assertEquals(false, missed.get());
        }
    }
}
