package io.qpair.kafka.streams;

import java.util.Arrays;

/**
 * Keys of rows that have more than one part.
 *
 * <p>A time is 8 bytes, big-endian with the sign bit inverted. A record's key has its zero bytes written as 00 FF and ends with 00 00, so that the
 * rows of one key are one range, and keys of all lengths sort as they do by themselves.
 */
final class Keys {
    private static final int END = 2;

    private Keys() {}

    /** Returns the least key that is greater than all that begin with a prefix, or null if there is none. */
    static byte[] after(byte[] prefix) {
        for (int last = prefix.length - 1; last >= 0; last--) {
            if (prefix[last] != (byte) 0xFF) {
                byte[] next = Arrays.copyOf(prefix, last + 1);
                next[last]++;
                return next;
            }
        }
        return null;
    }

    static int escapedLen(byte[] key) {
        int len = key.length + END;
        for (byte one : key) {
            if (one == 0) {
                len++;
            }
        }
        return len;
    }

    static int writeEscaped(byte[] into, int at, byte[] key) {
        for (byte one : key) {
            into[at++] = one;
            if (one == 0) {
                into[at++] = (byte) 0xFF;
            }
        }
        return at + END;
    }

    static int writeTime(byte[] into, int at, long time) {
        long flipped = time ^ Long.MIN_VALUE;
        for (int shift = 56; shift >= 0; shift -= 8) {
            into[at++] = (byte) (flipped >>> shift);
        }
        return at;
    }

    static long time(byte[] from, int at) {
        long flipped = 0;
        for (int index = at; index < at + 8; index++) {
            flipped = flipped << 8 | from[index] & 0xFF;
        }
        return flipped ^ Long.MIN_VALUE;
    }

    /** Returns the record's key that begins at {@code at}. */
    static byte[] key(byte[] row, int at) {
        byte[] key = new byte[row.length - at];
        int len = 0;
        for (int index = at; index + 1 < row.length; index++) {
            if (row[index] == 0) {
                if (row[++index] == 0) {
                    break;
                }
                key[len++] = 0;
            } else {
                key[len++] = row[index];
            }
        }
        return Arrays.copyOf(key, len);
    }

    /** Returns a segment, and a key behind it unless it is null, with room for {@code more} bytes at the end. */
    static byte[] of(long segment, byte[] key, int more) {
        byte[] row = new byte[8 + (key == null ? 0 : escapedLen(key)) + more];
        int at = writeTime(row, 0, segment);
        if (key != null) {
            writeEscaped(row, at, key);
        }
        return row;
    }

    /** Returns the key of a window's row, or of a session's with its end and start. */
    static byte[] of(long segment, byte[] key, long time) {
        byte[] row = of(segment, key, 8);
        writeTime(row, row.length - 8, time);
        return row;
    }

    static byte[] of(long segment, byte[] key, long first, long second) {
        byte[] row = of(segment, key, 16);
        writeTime(row, row.length - 16, first);
        writeTime(row, row.length - 8, second);
        return row;
    }

    static byte[] of(long segment, byte[] key, long time, int sequence) {
        byte[] row = of(segment, key, 12);
        writeInt(row, writeTime(row, row.length - 12, time), sequence);
        return row;
    }

    private static void writeInt(byte[] into, int at, int number) {
        for (int shift = 24; shift >= 0; shift -= 8) {
            into[at++] = (byte) (number >>> shift);
        }
    }

    /** Returns the key of a window in an index by time: segment, time, key, sequence number. A null key makes the least one of the time. */
    static byte[] ofTime(long segment, long time, byte[] key, int sequence) {
        byte[] row = new byte[16 + (key == null ? 0 : escapedLen(key) + 4)];
        writeTime(row, writeTime(row, 0, segment), time);
        if (key != null) {
            writeInt(row, writeEscaped(row, 16, key), sequence);
        }
        return row;
    }

    /** Returns the key of the row that a key of an index by time stands for. */
    static byte[] indexed(byte[] index, long segment) {
        byte[] row = new byte[index.length];
        int at = writeTime(row, 0, segment);
        int keyLen = index.length - 20;
        System.arraycopy(index, 16, row, at, keyLen);
        System.arraycopy(index, 8, row, at + keyLen, 8);
        System.arraycopy(index, index.length - 4, row, row.length - 4, 4);
        return row;
    }
}
