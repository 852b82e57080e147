package io.qpair.kafka.streams;

/** Reads of a store's rows, with or without the writes since the last commit. */
interface Reader {
    byte[] get(byte[] key);

    /** Returns the rows of a range. Null is no bound. */
    Cursor range(byte[] from, byte[] to, boolean withTo, boolean reverse);

    long approximateCount();
}
