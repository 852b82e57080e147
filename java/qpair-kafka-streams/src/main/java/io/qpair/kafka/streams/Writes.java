package io.qpair.kafka.streams;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
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
    private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);
    private static final int SIZE_AHEAD_MAX = 1 << 15;

    private final ConcurrentMap<Bytes, byte[]> hashed;
    private volatile NavigableMap<byte[], byte[]> sorted;
    private volatile boolean ranged;

    private Writes(int sizeAhead) {
        hashed = new ConcurrentHashMap<>(sizeAhead);
    }

    /** Returns an empty map, which is sorted from the beginning if somebody wanted a range of the one before it. */
    static Writes after(Writes before) {
        Writes writes = new Writes(before == null || before.ranged ? 1 : Math.min(before.hashed.size(), SIZE_AHEAD_MAX));
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
        for (Map.Entry<Bytes, byte[]> row : ordered()) {
            consumer.accept(row.getKey().get(), row.getValue());
        }
    }

    /**
     * Returns the hashed rows in their order. Each is a number: as many bits of its key behind what all keys have in common as there is room for, and its
     * index. Numbers are sorted far sooner than keys are compared; only rows with equal bits are compared afterwards.
     */
    private Map.Entry<Bytes, byte[]>[] ordered() {
        @SuppressWarnings({"unchecked", "rawtypes"})
        Map.Entry<Bytes, byte[]>[] rows = hashed.entrySet().toArray(new Map.Entry[0]);
        if (rows.length < 2) {
            return rows;
        }
        byte[] first = rows[0].getKey().get();
        int common = first.length;
        for (Map.Entry<Bytes, byte[]> row : rows) {
            byte[] key = row.getKey().get();
            int mismatch = Arrays.mismatch(first, 0, common, key, 0, Math.min(common, key.length));
            common = mismatch < 0 ? common : mismatch;
        }
        int indexBits = Integer.SIZE - Integer.numberOfLeadingZeros(rows.length - 1);
        long[] numbers = new long[rows.length];
        for (int at = 0; at < rows.length; at++) {
            long bits = bitsAt(rows[at].getKey().get(), common);
            // Numbers are compared with their sign.
            numbers[at] = (bits >>> indexBits << indexBits | at) ^ Long.MIN_VALUE;
        }
        Arrays.sort(numbers);
        @SuppressWarnings({"unchecked", "rawtypes"})
        Map.Entry<Bytes, byte[]>[] sorted = new Map.Entry[rows.length];
        int begun = 0;
        for (int at = 0; at < rows.length; at++) {
            sorted[at] = rows[(int) (numbers[at] & (1L << indexBits) - 1)];
            if (at + 1 == rows.length || numbers[at + 1] >> indexBits != numbers[at] >> indexBits) {
                if (at > begun) {
                    Arrays.sort(sorted, begun, at + 1, (one, other) -> Arrays.compareUnsigned(one.getKey().get(), other.getKey().get()));
                }
                begun = at + 1;
            }
        }
        return sorted;
    }

    /** Returns the 64 bits of a key behind a place; zeroes where the key has no more. */
    private static long bitsAt(byte[] key, int from) {
        if (key.length - from >= Long.BYTES) {
            return (long) LONGS.get(key, from);
        }
        long bits = 0;
        for (int at = from; at < from + Long.BYTES; at++) {
            bits = bits << 8 | (at < key.length ? key[at] & 0xff : 0);
        }
        return bits;
    }
}
