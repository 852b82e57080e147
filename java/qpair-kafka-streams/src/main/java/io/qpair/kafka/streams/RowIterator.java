package io.qpair.kafka.streams;

import io.qpair.Entry;
import java.util.NoSuchElementException;
import java.util.function.Function;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.internals.ManagedKeyValueIterator;

/** An iterator of Kafka Streams over a cursor. Since 4.4, queries of plain stores below tables want it to be a managed one. */
class RowIterator<K> implements ManagedKeyValueIterator<K, byte[]> {
    private final Cursor rows;
    private final Function<byte[], K> keys;
    private Entry next;
    private boolean ended;
    private Runnable closed;

    RowIterator(Cursor rows, Function<byte[], K> keys) {
        this.rows = rows;
        this.keys = keys;
    }

    @Override
    public boolean hasNext() {
        if (rows.isClosed()) {
            next = null;
        }
        if (next == null && !ended) {
            next = rows.next();
            ended = next == null;
        }
        return next != null;
    }

    @Override
    public K peekNextKey() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return keys.apply(next.key());
    }

    @Override
    public KeyValue<K, byte[]> next() {
        K key = peekNextKey();
        byte[] value = next.value();
        next = null;
        return KeyValue.pair(key, value);
    }

    @Override
    public void onClose(Runnable callback) {
        closed = callback;
    }

    @Override
    public void close() {
        next = null;
        rows.close();
        Runnable callback = closed;
        closed = null;
        if (callback != null) {
            callback.run();
        }
    }
}
