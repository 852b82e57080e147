package io.qpair.kafka.streams;

/** Reads of a store's rows, with or without the writes since the last commit. */
interface Reader {
    /** The reads of a session store that is closed: Kafka's tests want them to find nothing. */
    Reader NOTHING = new Reader() {
        @Override
        public byte[] get(byte[] key) {
            return null;
        }

        @Override
        public Cursor range(byte[] from, byte[] to, boolean withTo, boolean reverse) {
            return Cursor.empty();
        }

        @Override
        public long approximateCount() {
            return 0;
        }
    };

    byte[] get(byte[] key);

    /** Returns the rows of a range. Null is no bound. */
    Cursor range(byte[] from, byte[] to, boolean withTo, boolean reverse);

    long approximateCount();
}
