package io.qpair.kafka.streams;

import io.qpair.Batch;
import io.qpair.Entry;
import io.qpair.QpairException;
import io.qpair.Range;
import io.qpair.Snapshot;
import io.qpair.Table;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.state.internals.PositionSerde;

/**
 * The rows of a state store of one task: a table, and the writes since the last commit in a map above it.
 *
 * <p>One thread writes; others may read at any time. A commit writes the map to the table and then replaces it by an empty one: who iterates over
 * the old map keeps it, and so misses nothing. {@link #DELETED} stands for a removed row.
 */
final class Rows implements Reader {
    private static final byte[] DELETED = new byte[0];
    private static final int ROW_BYTES = 96;

    private final Instance instance;
    private final Settings settings;
    private final String name;
    private final Meta meta;
    private final Batch batch;
    private final Set<Cursor> cursors = ConcurrentHashMap.newKeySet();
    private final Reader committed = new Committed();
    private Table table;
    private volatile Writes writes = Writes.after(null);
    private volatile long writesBytes;
    private volatile boolean closed;

    Rows(Instance instance, Settings settings, String name) {
        this.instance = instance;
        this.settings = settings;
        this.name = name;
        meta = new Meta(instance.meta(), name);
        batch = instance.store().batch();
    }

    /** Opens the table. Rows of another incarnation of the task's folder are removed first. */
    void open(byte[] incarnation, String format) {
        byte[] found = meta.get(Meta.INCARNATION);
        if (!Arrays.equals(found, incarnation)) {
            wipe(incarnation, format);
        }
        byte[] before = meta.get(Meta.FORMAT);
        if (before != null && !new String(before).equals(format)) {
            throw new ProcessorStateException("The store " + name + " has rows of the format " + new String(before) + " and is opened as "
                    + format + ": remove the state folder of the task, and Streams restores the store");
        }
        table = instance.store().table(name);
    }

    private void wipe(byte[] incarnation, String format) {
        instance.store().drop(name);
        meta.deleteAll(batch, "");
        meta.put(batch, Meta.INCARNATION, incarnation);
        meta.put(batch, Meta.FORMAT, format.getBytes());
        batch.write();
        batch.clear();
    }

    /**
     * Marks the store as open until its clean close. Returns false, after it has removed all rows, if the mark is there already: the rows may be
     * those of transactions of Kafka that were aborted.
     */
    boolean markOpen(byte[] incarnation, String format) {
        boolean clean = meta.get(Meta.OPEN) == null;
        if (!clean) {
            table.close();
            wipe(incarnation, format);
            table = instance.store().table(name);
        } else if (settings.exactlyOnce() && !settings.transactional()) {
            meta.put(Meta.OPEN, new byte[] {1});
        }
        return clean;
    }

    Position position() {
        byte[] stored = meta.get(Meta.POSITION);
        return stored == null ? Position.emptyPosition() : PositionSerde.deserialize(ByteBuffer.wrap(stored));
    }

    Long offset(TopicPartition partition) {
        return meta.offset(partition);
    }

    void put(byte[] key, byte[] value) {
        byte[] old = writes.put(key, value == null ? DELETED : value);
        long bytes = value == null ? 0 : value.length;
        writesBytes += old == null ? key.length + ROW_BYTES + bytes : bytes - old.length;
        if (!settings.transactional() && writesBytes > settings.writeBufferBytes()) {
            write(null, null);
        }
    }

    /** Writes what a restore has put, which is committed in Kafka, before it takes too much memory. */
    void restored() {
        if (writesBytes > settings.writeBufferBytes()) {
            write(null, null);
        }
    }

    long uncommittedBytes() {
        return writesBytes;
    }

    /** Makes the writes visible and recoverable, all at once, with offsets and position unless they are null. */
    void write(Map<TopicPartition, Long> offsets, Position position) {
        Writes now = writes;
        try {
            now.forEach((key, value) -> {
                if (value == DELETED) {
                    batch.delete(table, key);
                } else {
                    batch.put(table, key, value);
                }
            });
            if (offsets != null) {
                meta.offsets(batch, offsets);
            }
            if (position != null) {
                meta.put(batch, Meta.POSITION, PositionSerde.serialize(position).array());
            }
            batch.write();
        } catch (QpairException error) {
            throw new ProcessorStateException("The store " + name + " cannot write " + now.size() + " rows"
                    + (error.code() == QpairException.KEY_TOO_LONG ? ": a key, with the time of a window, has at most 65,535 bytes in qpair" : ""), error);
        } finally {
            batch.clear();
        }
        writes = Writes.after(now);
        writesBytes = 0;
    }

    /** Removes the rows below a key that no read returns any more. */
    void expire(byte[] from, byte[] to) {
        writes.sorted().subMap(from, to).clear();
        table.deleteRange(from, to);
    }

    /** Returns the reads without the writes since the last commit. */
    Reader committed() {
        return committed;
    }

    @Override
    public byte[] get(byte[] key) {
        byte[] value = writes.get(key);
        if (value != null) {
            return value == DELETED ? null : value;
        }
        return table.get(key);
    }

    @Override
    public Cursor range(byte[] from, byte[] to, boolean withTo, boolean reverse) {
        if (none(from, to, withTo)) {
            return Cursor.empty();
        }
        // In this order: a row that a commit moves meanwhile is seen in one of them at least.
        NavigableMap<byte[], byte[]> above = between(from, to, withTo);
        Range below = table.range(from, to, withTo, reverse);
        return new Merged((reverse ? above.descendingMap() : above).entrySet().iterator(), below, reverse, null);
    }

    private static boolean none(byte[] from, byte[] to, boolean withTo) {
        if (from == null || to == null) {
            return false;
        }
        int order = Arrays.compareUnsigned(from, to);
        return order > 0 || order == 0 && !withTo;
    }

    private NavigableMap<byte[], byte[]> between(byte[] from, byte[] to, boolean withTo) {
        NavigableMap<byte[], byte[]> all = writes.sorted();
        if (from != null && to != null) {
            return all.subMap(from, true, to, withTo);
        }
        if (from != null) {
            return all.tailMap(from, true);
        }
        return to == null ? all : all.headMap(to, withTo);
    }

    @Override
    public long approximateCount() {
        long counted = table.countEstimate();
        for (byte[] value : writes.values()) {
            counted += value == DELETED ? 0 : 1;
        }
        return counted;
    }

    /** Closes the rows. Writes since the last commit are written first if they need none. */
    void close() {
        if (closed) {
            return;
        }
        closed = true;
        for (Cursor cursor : cursors) {
            cursor.close();
        }
        try {
            if (table != null && !settings.transactional() && !writes.isEmpty()) {
                write(null, null);
            }
            if (table != null) {
                meta.delete(Meta.OPEN);
            }
        } finally {
            release();
        }
    }

    /** Closes the rows of a store that was not opened. */
    void release() {
        closed = true;
        batch.close();
        if (table != null) {
            table.close();
        }
        instance.release();
    }

    private final class Committed implements Reader {
        @Override
        public byte[] get(byte[] key) {
            return table.get(key);
        }

        @Override
        public Cursor range(byte[] from, byte[] to, boolean withTo, boolean reverse) {
            if (none(from, to, withTo)) {
                return Cursor.empty();
            }
            Snapshot snapshot = instance.store().snapshot();
            Range below = snapshot.range(table, from, to, withTo, reverse);
            return new Merged(java.util.Collections.emptyIterator(), below, reverse, snapshot);
        }

        @Override
        public long approximateCount() {
            return table.countEstimate();
        }
    }

    /** The rows of a range of the map and of the table, where a row of the map hides that of the table. */
    private final class Merged implements Cursor {
        private final java.util.Iterator<Map.Entry<byte[], byte[]>> above;
        private final Range below;
        private final boolean reverse;
        private final Snapshot snapshot;
        private Map.Entry<byte[], byte[]> next;
        private volatile boolean ended;

        Merged(java.util.Iterator<Map.Entry<byte[], byte[]>> above, Range below, boolean reverse, Snapshot snapshot) {
            this.above = above;
            this.below = below;
            this.reverse = reverse;
            this.snapshot = snapshot;
            cursors.add(this);
        }

        @Override
        public Entry next() {
            if (ended) {
                throw new InvalidStateStoreException("The iterator over the store " + name + " is closed");
            }
            while (true) {
                if (next == null && above.hasNext()) {
                    next = above.next();
                }
                Entry stored = below.peek();
                if (next == null) {
                    return stored == null ? null : below.next();
                }
                int order = stored == null ? -1 : Arrays.compareUnsigned(next.getKey(), stored.key()) * (reverse ? -1 : 1);
                if (order > 0) {
                    return below.next();
                }
                if (order == 0) {
                    below.next();
                }
                Map.Entry<byte[], byte[]> row = next;
                next = null;
                if (row.getValue() != DELETED) {
                    return new Entry(row.getKey(), row.getValue());
                }
            }
        }

        @Override
        public boolean isClosed() {
            return ended;
        }

        @Override
        public void close() {
            ended = true;
            cursors.remove(this);
            below.close();
            if (snapshot != null) {
                snapshot.close();
            }
        }
    }
}
