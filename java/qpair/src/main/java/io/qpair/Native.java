package io.qpair;

import java.nio.ByteBuffer;

/** The native methods, which {@code crates/jni} has. Texts are UTF-8; those of arguments end with a zero byte. */
final class Native {
    static {
        System.load(Library.path().toString());
    }

    private Native() {}

    /** Opens a store. The texts are the specifier, and names and values of options by turns. */
    static native long open(byte[] texts);

    static native void close(int kind, long handle);

    static native long openHandles();

    static native long tableOpen(long store, byte[] name);

    static native void tableDrop(long store, byte[] name);

    static native byte[] tableNames(long store);

    static native byte[] statistics(long store, int form);

    static native void checkpoint(long store);

    static native long countEstimate(long table);

    static native byte[] read(int place, long within, long table, byte[] key);

    static native long readInto(int place, long within, long table, ByteBuffer key, int keyAt, int keyLen, ByteBuffer value, int valueAt, int valueLen);

    static native boolean write(int place, long within, long table, byte[] key, byte[] value);

    static native boolean writeFrom(int place, long within, long table, ByteBuffer key, int keyAt, int keyLen, ByteBuffer value, int valueAt, int valueLen);

    static native boolean remove(int place, long within, long table, byte[] key);

    static native boolean removeFrom(int place, long within, long table, ByteBuffer key, int keyAt, int keyLen);

    static native long batchNew();

    static native void batchClear(long batch);

    static native void batchWrite(long store, long batch);

    static native long begin(long store);

    static native long commit(long transaction);

    static native long snapshotTake(long store);

    static native long range(long snapshot, long table, byte[] from, byte[] to, int flags, long limit);

    /** Puts the next key and value into the two elements of an array, and returns whether there was a record. */
    static native boolean rangeNext(long range, byte[][] record);

    static native long deleteRange(long table, byte[] from, byte[] to);
}
