package io.qpair;

import java.nio.ByteBuffer;

/**
 * The calls with {@link ByteBuffer}. Direct buffers go to the library as they are; heap buffers through direct memory of the thread.
 *
 * <p>The bindings get duplicates, whose bounds were checked when they were made, and which no other thread can move.
 */
final class Buffers {
    private static final int SPARE_LEN = 4096;
    private static final ThreadLocal<ByteBuffer[]> SPARE = ThreadLocal.withInitial(() -> new ByteBuffer[2]);

    private Buffers() {}

    /** Copies a value to the position of a buffer, as far as there is room, and moves the position. Returns the value's length, or -1. */
    static int get(int place, long within, long table, ByteBuffer key, ByteBuffer value) {
        if (value.isReadOnly()) {
            throw new QpairException(QpairException.MISUSE, "The buffer for the value is read-only: give one that can be written");
        }
        try {
            ByteBuffer view = value.duplicate();
            ByteBuffer into = view.isDirect() ? checked(view) : spare(1, view.remaining());
            long len = Library.CALLS.get(place, within, table, direct(key, 0), into);
            if (len == Binding.NO_RECORD) {
                return -1;
            }
            int copied = (int) Math.min(len, view.remaining());
            if (into != view) {
                view.put(view.position(), into, 0, copied);
            }
            value.position(view.position() + copied);
            return (int) len;
        } catch (RuntimeException error) {
            throw misuse(error);
        }
    }

    static boolean put(int place, long within, long table, ByteBuffer key, ByteBuffer value) {
        try {
            return Library.CALLS.put(place, within, table, direct(key, 0), direct(value, 1));
        } catch (RuntimeException error) {
            throw misuse(error);
        }
    }

    static boolean delete(int place, long within, long table, ByteBuffer key) {
        try {
            return Library.CALLS.delete(place, within, table, direct(key, 0));
        } catch (RuntimeException error) {
            throw misuse(error);
        }
    }

    /** Returns a direct buffer with the bytes of another. */
    private static ByteBuffer direct(ByteBuffer buffer, int place) {
        ByteBuffer view = buffer.duplicate();
        if (view.isDirect()) {
            return checked(view);
        }
        int len = view.remaining();
        return spare(place, len).put(0, view, view.position(), len);
    }

    /** Reads a byte, which fails if the memory is that of a closed arena or of another thread's. */
    private static ByteBuffer checked(ByteBuffer buffer) {
        if (buffer.hasRemaining()) {
            buffer.get(buffer.position());
        }
        return buffer;
    }

    /** Returns one of the thread's two buffers, with so many bytes. */
    private static ByteBuffer spare(int place, int len) {
        ByteBuffer[] spares = SPARE.get();
        ByteBuffer spare = spares[place];
        if (spare == null || spare.capacity() < len) {
            spare = ByteBuffer.allocateDirect(Math.max(len, SPARE_LEN));
            spares[place] = spare;
        }
        return spare.clear().limit(len);
    }

    private static RuntimeException misuse(RuntimeException error) {
        if (error instanceof QpairException || error instanceof NullPointerException) {
            return error;
        }
        // Of closed arenas, of arenas of other threads, and of bounds that another thread has changed.
        QpairException misuse = new QpairException(QpairException.MISUSE, "A buffer cannot be used here: " + error.getMessage());
        misuse.initCause(error);
        return misuse;
    }
}
