package io.qpair;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** The calls of the C interface by JNI. */
final class JniBinding implements Binding {
    @Override
    public long open(String specifier, String[] options) {
        ByteArrayOutputStream texts = new ByteArrayOutputStream();
        texts.writeBytes(Binding.text(specifier));
        for (String option : options) {
            texts.writeBytes(Binding.text(option));
        }
        return Native.open(texts.toByteArray());
    }

    @Override
    public void close(Kind kind, long handle) {
        Native.close(kind.ordinal(), handle);
    }

    @Override
    public long openHandles() {
        return Native.openHandles();
    }

    @Override
    public long tableOpen(long store, String name) {
        return Native.tableOpen(store, Binding.text(name));
    }

    @Override
    public void tableDrop(long store, String name) {
        Native.tableDrop(store, Binding.text(name));
    }

    @Override
    public String tableNames(long store) {
        return new String(Native.tableNames(store), StandardCharsets.UTF_8);
    }

    @Override
    public String statistics(long store, int form) {
        return new String(Native.statistics(store, form), StandardCharsets.UTF_8);
    }

    @Override
    public void checkpoint(long store) {
        Native.checkpoint(store);
    }

    @Override
    public long countEstimate(long table) {
        return Native.countEstimate(table);
    }

    @Override
    public byte[] get(int place, long within, long table, byte[] key) {
        return Native.read(place, within, table, key);
    }

    @Override
    public long get(int place, long within, long table, ByteBuffer key, ByteBuffer value) {
        return Native.readInto(place, within, table, key, key.position(), key.remaining(), value, value.position(), value.remaining());
    }

    @Override
    public boolean put(int place, long within, long table, byte[] key, byte[] value) {
        return Native.write(place, within, table, key, value);
    }

    @Override
    public boolean put(int place, long within, long table, ByteBuffer key, ByteBuffer value) {
        return Native.writeFrom(place, within, table, key, key.position(), key.remaining(), value, value.position(), value.remaining());
    }

    @Override
    public boolean delete(int place, long within, long table, byte[] key) {
        return Native.remove(place, within, table, key);
    }

    @Override
    public boolean delete(int place, long within, long table, ByteBuffer key) {
        return Native.removeFrom(place, within, table, key, key.position(), key.remaining());
    }

    @Override
    public long batchNew() {
        return Native.batchNew();
    }

    @Override
    public void batchClear(long batch) {
        Native.batchClear(batch);
    }

    @Override
    public void write(long store, long batch) {
        Native.batchWrite(store, batch);
    }

    @Override
    public long begin(long store) {
        return Native.begin(store);
    }

    @Override
    public long commit(long transaction) {
        return Native.commit(transaction);
    }

    @Override
    public long snapshotTake(long store) {
        return Native.snapshotTake(store);
    }

    @Override
    public long range(long snapshot, long table, byte[] from, byte[] to, int flags, long limit) {
        return Native.range(snapshot, table, from, to, flags, limit);
    }

    @Override
    public Entry rangeNext(long range) {
        byte[][] record = new byte[2][];
        return Native.rangeNext(range, record) ? new Entry(record[0], record[1]) : null;
    }

    @Override
    public long deleteRange(long table, byte[] from, byte[] to) {
        return Native.deleteRange(table, from, to);
    }
}
