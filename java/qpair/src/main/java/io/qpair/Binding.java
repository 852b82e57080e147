package io.qpair;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * The calls of the C interface: by JNI ({@link JniBinding}) or by the foreign function API. Handles are {@code long}.
 *
 * <p>The library checks handles at each call, so a wrong one is an exception. What it cannot check is a lent pointer: {@link #rangeNext} copies
 * before it returns, and its caller keeps other threads out.
 */
interface Binding {
    int RANGE_WITH_TO = 2;
    int RANGE_REVERSE = 4;

    /** The length that a key without a record has. */
    long NO_RECORD = -1;

    /** Where a record is read or written: a table. */
    int TABLE = 0;
    /** A transaction. */
    int TRANSACTION = 1;
    /** A snapshot. */
    int SNAPSHOT = 2;
    /** A batch. */
    int BATCH = 3;

    /** What a handle is of. The native methods know the order. */
    enum Kind {
        STORE("qpair_close"),
        TABLE("qpair_table_close"),
        BATCH("qpair_batch_free"),
        TRANSACTION("qpair_rollback"),
        SNAPSHOT("qpair_snapshot_release"),
        RANGE("qpair_range_close");

        /** The function that closes a handle. */
        final String close;

        Kind(String close) {
            this.close = close;
        }
    }

    /** Returns a text in UTF-8, with a zero byte behind it. */
    static byte[] text(String text) {
        if (text.indexOf('\0') >= 0) {
            throw new QpairException(QpairException.INVALID, "A name or path with a zero character cannot be passed to qpair: remove the character");
        }
        return (text + '\0').getBytes(StandardCharsets.UTF_8);
    }

    /** Opens a store. Options are names and values by turns. */
    long open(String specifier, String[] options);

    void close(Kind kind, long handle);

    long openHandles();

    long tableOpen(long store, String name);

    void tableDrop(long store, String name);

    String tableNames(long store);

    String statistics(long store, int form);

    void checkpoint(long store);

    long countEstimate(long table);

    /** Returns the value of a key of a table, or as a transaction or snapshot has it; null without a record. */
    byte[] get(int place, long within, long table, byte[] key);

    /** Copies a value into a direct buffer as far as there is room, and returns the value's length, or {@link #NO_RECORD}. Moves no position. */
    long get(int place, long within, long table, ByteBuffer key, ByteBuffer value);

    /** Puts a record into a table, and returns whether there was one; or into a transaction or batch, and returns false. */
    boolean put(int place, long within, long table, byte[] key, byte[] value);

    /** Puts a record from direct buffers. Moves no position. */
    boolean put(int place, long within, long table, ByteBuffer key, ByteBuffer value);

    /** Removes a record from a table or transaction, and returns whether there was one; or by a batch, and returns false. */
    boolean delete(int place, long within, long table, byte[] key);

    /** Removes the record of a key in a direct buffer. Moves no position. */
    boolean delete(int place, long within, long table, ByteBuffer key);

    long batchNew();

    void batchClear(long batch);

    void write(long store, long batch);

    long begin(long store);

    long commit(long transaction);

    long snapshotTake(long store);

    /** Begins a range of a table, or as a snapshot has it if {@code snapshot} is not 0. Null is no bound. */
    long range(long snapshot, long table, byte[] from, byte[] to, int flags, long limit);

    /** Returns the next record of a range, or null after the last one. */
    Entry rangeNext(long range);

    long deleteRange(long table, byte[] from, byte[] to);
}
