package io.qpair.kafka.streams;

import java.util.Arrays;
import java.util.Collection;
import java.util.Map;
import java.util.NavigableMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.function.BiConsumer;
import org.apache.kafka.common.utils.Bytes;

/**
 * The writes since the last commit: hashed by key, until somebody wants a range of them, and sorted from then on.
 *
 * <p>A hashed write or lookup costs a fraction of a sorted one, and a store whose ranges nobody reads pays for the order once, in its commit. One
 * thread writes; others may read at any time. The lock keeps writes away while the order is made.
 */
final class Writes {
    private final ConcurrentMap<Bytes, byte[]> hashed = new ConcurrentHashMap<>();
    private volatile NavigableMap<byte[], byte[]> sorted;
    private volatile boolean ranged;

    /** Returns an empty map, which is sorted from the beginning if somebody wanted a range of the one before it. */
    static Writes after(Writes before) {
        Writes writes = new Writes();
        if (before != null && before.ranged) {
            writes.sorted = empty();
        }
        return writes;
    }

    private static NavigableMap<byte[], byte[]> empty() {
        return new ConcurrentSkipListMap<>(Arrays::compareUnsigned);
    }

    /** Returns the value before, or null. */
    byte[] put(byte[] key, byte[] value) {
        if (sorted == null) {
            synchronized (this) {
                if (sorted == null) {
                    return hashed.put(Bytes.wrap(key), value);
                }
            }
        }
        return sorted.put(key, value);
    }

    byte[] get(byte[] key) {
        NavigableMap<byte[], byte[]> ordered = sorted;
        return ordered != null ? ordered.get(key) : hashed.isEmpty() ? null : hashed.get(Bytes.wrap(key));
    }

    boolean isEmpty() {
        return sorted != null ? sorted.isEmpty() : hashed.isEmpty();
    }

    int size() {
        return sorted != null ? sorted.size() : hashed.size();
    }

    Collection<byte[]> values() {
        return sorted != null ? sorted.values() : hashed.values();
    }

    /** Returns the writes in their order, which has those that follow too. */
    NavigableMap<byte[], byte[]> sorted() {
        ranged = true;
        if (sorted == null) {
            synchronized (this) {
                if (sorted == null) {
                    NavigableMap<byte[], byte[]> ordered = empty();
                    hashed.forEach((key, value) -> ordered.put(key.get(), value));
                    sorted = ordered;
                }
            }
        }
        return sorted;
    }

    /** Passes all writes to a consumer, in ascending order of their keys. */
    void forEach(BiConsumer<byte[], byte[]> consumer) {
        if (sorted != null) {
            sorted.forEach(consumer);
            return;
        }
        @SuppressWarnings({"unchecked", "rawtypes"})
        Map.Entry<Bytes, byte[]>[] rows = hashed.entrySet().toArray(new Map.Entry[0]);
        Arrays.sort(rows, (one, other) -> Arrays.compareUnsigned(one.getKey().get(), other.getKey().get()));
        for (Map.Entry<Bytes, byte[]> row : rows) {
            consumer.accept(row.getKey().get(), row.getValue());
        }
    }
}
