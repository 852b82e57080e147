package io.qpair.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.StreamsTestUtils;
import org.apache.kafka.test.TestUtils;
import org.apache.kafka.streams.StreamsConfig;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class VersionedStoreTest {
    private static final long RETENTION = 300_000;
    private QpairVersionedStore store;

    @BeforeEach
    void open() {
        InternalMockProcessorContext<String, String> context = new InternalMockProcessorContext<>(TestUtils.tempDirectory(), Serdes.String(), Serdes.String(),
                new StreamsConfig(StreamsTestUtils.getStreamsConfig()));
        context.setTime(10);
        store = new QpairVersionedStore("versions", RETENTION);
        store.init(context, store);
    }

    @AfterEach
    void close() {
        store.close();
    }

    private static Bytes key(String key) {
        return Bytes.wrap(key.getBytes());
    }

    private long put(String key, String value, long time) {
        return store.put(key(key), value == null ? null : value.getBytes(), time);
    }

    private String at(String key, long time) {
        VersionedRecord<byte[]> found = store.get(key(key), time);
        return found == null ? null : new String(found.value()) + "@" + found.timestamp() + found.validTo().map(to -> "-" + to).orElse("");
    }

    @Test
    void olderVersionsEndWhereNewerBegin() {
        assertEquals(-1, put("k", "v", 10));
        assertEquals(-1, put("k", "w", 20));
        assertEquals(20, put("k", "x", 15));
        assertEquals("v@10-15", at("k", 12));
        assertEquals("x@15-20", at("k", 19));
        assertEquals("w@20", at("k", 100));
        assertNull(at("k", 9));
        assertEquals("w@20", "" + new String(store.delete(key("k"), 30).value()) + "@20");
        assertNull(store.get(key("k")));
        assertEquals(30, put("k", "y", 25));
        assertEquals("y@25-30", at("k", 29));
    }

    @Test
    void expiredVersionsAreGone() {
        put("k", "old", 10);
        put("k", "new", 20);
        put("other", "o", 15);
        put("far", "f", 20 + 3 * RETENTION);
        assertNull(at("k", 12));
        assertEquals("new@20", at("k", 21));
        assertEquals("o@15", at("other", 16));
        assertEquals(Long.MIN_VALUE, put("k", "late", 30));
    }

    @Test
    void storeEqualsModel() {
        Random random = new Random(7);
        Map<String, TreeMap<Long, String>> model = new TreeMap<>();
        long now = 0;
        for (int step = 0; step < 20_000; step++) {
            now += random.nextInt(200);
            String key = "k" + random.nextInt(20);
            long time = Math.max(0, now - random.nextInt(400_000));
            if (random.nextInt(3) > 0) {
                String value = random.nextInt(5) == 0 ? null : "v" + step;
                if (time >= now - RETENTION) {
                    // The stream time of the store may be behind `now` only if nothing was put at it.
                    put("clock", "c", now);
                    put(key, value, time);
                    model.computeIfAbsent(key, any -> new TreeMap<>()).put(time, value == null ? "" : value);
                }
            } else if (time >= now - RETENTION + 400 && model.containsKey(key)) {
                Map.Entry<Long, String> found = model.get(key).floorEntry(time);
                String value = found == null || found.getValue().isEmpty() ? null : found.getValue();
                VersionedRecord<byte[]> got = store.get(key(key), time);
                assertEquals(value, got == null ? null : new String(got.value()), "step " + step);
            }
            if (step % 1000 == 0) {
                store.commit(Map.of());
            }
        }
    }
}
