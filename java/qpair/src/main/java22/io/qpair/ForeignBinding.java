package io.qpair;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BOOLEAN;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * The calls of the C interface by the foreign function API.
 *
 * <p>Each thread has a {@link Scratch} with memory for arguments and results.
 */
final class ForeignBinding implements Binding {
    private static final SymbolLookup SYMBOLS = SymbolLookup.libraryLookup(Library.path(), Arena.global());
    private static final MemorySegment ALL = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);
    private static final ThreadLocal<Scratch> SCRATCH = ThreadLocal.withInitial(Scratch::new);

    private static final MethodHandle ERROR_MESSAGE = longs("qpair_error_message", JAVA_LONG);
    private static final MethodHandle ERROR_FREE = nothing("qpair_error_free", JAVA_LONG);
    private static final MethodHandle OPTIONS_NEW = calls("qpair_options_new", 1);
    private static final MethodHandle OPTIONS_SET = calls("qpair_options_set", 3);
    private static final MethodHandle OPTIONS_FREE = calls("qpair_options_free", 1);
    private static final MethodHandle OPEN = calls("qpair_open", 3);
    private static final MethodHandle TABLE_OPEN = calls("qpair_table_open", 3);
    private static final MethodHandle TABLE_DROP = calls("qpair_table_drop", 2);
    private static final MethodHandle TABLE_NAMES = calls("qpair_table_names", 2);
    private static final MethodHandle CHECKPOINT = calls("qpair_checkpoint", 1);
    private static final MethodHandle STATISTICS = method("qpair_statistics", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_LONG));
    private static final MethodHandle VALUE_TEXT = longs("qpair_value_text", JAVA_LONG);
    private static final MethodHandle VALUE_RELEASE = calls("qpair_value_release", 1);
    private static final MethodHandle GET = calls("qpair_get", "hblblpp");
    private static final MethodHandle TRANSACTION_GET = calls("qpair_transaction_get", "hhblblpp");
    private static final MethodHandle SNAPSHOT_GET = calls("qpair_snapshot_get", "hhblblpp");
    private static final MethodHandle PUT = calls("qpair_put", "hblblpp");
    private static final MethodHandle TRANSACTION_PUT = calls("qpair_transaction_put", "hhblblp");
    private static final MethodHandle BATCH_PUT = calls("qpair_batch_put", "hhblblp");
    private static final MethodHandle DELETE = calls("qpair_delete", "hblpp");
    private static final MethodHandle TRANSACTION_DELETE = calls("qpair_transaction_delete", "hhblpp");
    private static final MethodHandle BATCH_DELETE = calls("qpair_batch_delete", "hhblp");
    private static final MethodHandle COUNT = calls("qpair_count_estimate", 2);
    private static final MethodHandle BATCH_NEW = calls("qpair_batch_new", 1);
    private static final MethodHandle BATCH_CLEAR = calls("qpair_batch_clear", 1);
    private static final MethodHandle WRITE = calls("qpair_write", 2);
    private static final MethodHandle BEGIN = calls("qpair_begin", 3);
    private static final MethodHandle COMMIT = calls("qpair_commit", 2);
    private static final MethodHandle SNAPSHOT_TAKE = calls("qpair_snapshot_take", 2);
    private static final MethodHandle RANGE_OF_TABLE = calls("qpair_range_of_table", 3);
    private static final MethodHandle RANGE_OF_SNAPSHOT = calls("qpair_range_of_snapshot", 4);
    private static final MethodHandle RANGE_NEXT = calls("qpair_range_next", 5);
    private static final MethodHandle DELETE_RANGE = calls("qpair_delete_range", 3);
    private static final MethodHandle OPEN_HANDLES = longs("qpair_open_handles");

    private static final MethodHandle[] CLOSE = Arrays.stream(Kind.values()).map(kind -> calls(kind.close, 1)).toArray(MethodHandle[]::new);

    /** Memory of one thread for arguments and results. */
    static final class Scratch {
        static final int SLOTS = 128;
        private final Arena arena = Arena.ofAuto();
        final MemorySegment slots = arena.allocate(SLOTS, 16);
        final long error = slots.address();
        final long first = error + 8;
        final long second = error + 16;
        private MemorySegment key = arena.allocate(2048, 16);
        private MemorySegment value = Arena.ofAuto().allocate(16 << 10, 16);

        MemorySegment key(byte[] bytes) {
            return key(bytes, null);
        }

        /** Copies one or two keys, the second behind the first. */
        MemorySegment key(byte[] bytes, byte[] more) {
            long need = bytes.length + (more == null ? 0 : more.length);
            if (need > key.byteSize()) {
                key = Arena.ofAuto().allocate(need, 16);
            }
            MemorySegment.copy(bytes, 0, key, JAVA_BYTE, 0, bytes.length);
            if (more != null) {
                MemorySegment.copy(more, 0, key, JAVA_BYTE, bytes.length, more.length);
            }
            return key;
        }

        MemorySegment value(long capacity) {
            if (capacity > value.byteSize()) {
                // Kept for the thread's next calls. Values have at most 16 MiB.
                value = Arena.ofAuto().allocate(capacity, 16);
            }
            return value;
        }

        MemorySegment value(byte[] bytes) {
            MemorySegment into = value(bytes.length);
            MemorySegment.copy(bytes, 0, into, JAVA_BYTE, 0, bytes.length);
            return into;
        }

        long result() {
            return slots.get(JAVA_LONG, 8);
        }
    }

    private static MethodHandle method(String name, FunctionDescriptor descriptor) {
        MemorySegment symbol = SYMBOLS.find(name).orElseThrow(() -> new QpairException(QpairException.UNSUPPORTED,
                "The native library of qpair has no function " + name + ": it is older than this jar"));
        return Linker.nativeLinker().downcallHandle(symbol, descriptor);
    }

    private static MethodHandle calls(String name, int arguments) {
        return calls(name, "p".repeat(arguments) + "p");
    }

    /** Returns a function whose arguments are bytes (b), which stay alive during the call, or handles, lengths and pointers (other letters). */
    private static MethodHandle calls(String name, String arguments) {
        MemoryLayout[] layouts = arguments.chars().mapToObj(letter -> letter == 'b' ? ADDRESS : JAVA_LONG).toArray(MemoryLayout[]::new);
        return method(name, FunctionDescriptor.of(JAVA_INT, layouts));
    }

    private static MethodHandle longs(String name, MemoryLayout... arguments) {
        return method(name, FunctionDescriptor.of(JAVA_LONG, arguments));
    }

    private static MethodHandle nothing(String name, MemoryLayout... arguments) {
        return method(name, FunctionDescriptor.ofVoid(arguments));
    }

    private static RuntimeException thrown(Throwable error) {
        if (error instanceof RuntimeException runtime) {
            return runtime;
        }
        if (error instanceof Error fatal) {
            throw fatal;
        }
        return new IllegalStateException(error);
    }

    private static String text(long pointer) {
        return pointer == 0 ? null : ALL.asSlice(pointer).getString(0);
    }

    private static long text(Arena arena, String text) {
        return arena.allocateFrom(JAVA_BYTE, Binding.text(text)).address();
    }

    private static void check(int code, Scratch scratch) throws Throwable {
        if (code == 0) {
            return;
        }
        long error = scratch.slots.get(JAVA_LONG, 0);
        String message = "qpair returned the code " + code;
        if (error != 0) {
            message = text((long) ERROR_MESSAGE.invokeExact(error));
            ERROR_FREE.invokeExact(error);
        }
        throw new QpairException(code, message);
    }

    @Override
    public long open(String specifier, String[] options) {
        Scratch scratch = SCRATCH.get();
        try (Arena arena = Arena.ofConfined()) {
            check((int) OPTIONS_NEW.invokeExact(scratch.first, scratch.error), scratch);
            long handle = scratch.result();
            try {
                for (int at = 0; at < options.length; at += 2) {
                    check((int) OPTIONS_SET.invokeExact(handle, text(arena, options[at]),
                            text(arena, options[at + 1]), scratch.error), scratch);
                }
                check((int) OPEN.invokeExact(text(arena, specifier), handle, scratch.first, scratch.error), scratch);
                return scratch.result();
            } finally {
                int ignored = (int) OPTIONS_FREE.invokeExact(handle, 0L);
            }
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public void close(Kind kind, long handle) {
        Scratch scratch = SCRATCH.get();
        try {
            check((int) CLOSE[kind.ordinal()].invokeExact(handle, scratch.error), scratch);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public long openHandles() {
        try {
            return (long) OPEN_HANDLES.invokeExact();
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public long tableOpen(long store, String name) {
        Scratch scratch = SCRATCH.get();
        try (Arena arena = Arena.ofConfined()) {
            check((int) TABLE_OPEN.invokeExact(store, text(arena, name), scratch.first, scratch.error), scratch);
            return scratch.result();
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public void tableDrop(long store, String name) {
        Scratch scratch = SCRATCH.get();
        try (Arena arena = Arena.ofConfined()) {
            check((int) TABLE_DROP.invokeExact(store, text(arena, name), scratch.error), scratch);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public String tableNames(long store) {
        Scratch scratch = SCRATCH.get();
        try {
            check((int) TABLE_NAMES.invokeExact(store, scratch.first, scratch.error), scratch);
            return released(scratch.result());
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public String statistics(long store, int form) {
        Scratch scratch = SCRATCH.get();
        try {
            check((int) STATISTICS.invokeExact(store, form, scratch.first, scratch.error), scratch);
            return released(scratch.result());
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    private static String released(long value) throws Throwable {
        try {
            return text((long) VALUE_TEXT.invokeExact(value));
        } finally {
            int ignored = (int) VALUE_RELEASE.invokeExact(value, 0L);
        }
    }

    @Override
    public void checkpoint(long store) {
        Scratch scratch = SCRATCH.get();
        try {
            check((int) CHECKPOINT.invokeExact(store, scratch.error), scratch);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    /** Copies a value as far as there is room, and returns its length. */
    private static long read(Scratch scratch, int place, long within, long table, MemorySegment key, long keyLen, MemorySegment into, long capacity)
            throws Throwable {
        check(switch (place) {
            case TABLE -> (int) GET.invokeExact(table, key, keyLen, into, capacity, scratch.first, scratch.error);
            case TRANSACTION -> (int) TRANSACTION_GET.invokeExact(within, table, key, keyLen, into, capacity, scratch.first, scratch.error);
            default -> (int) SNAPSHOT_GET.invokeExact(within, table, key, keyLen, into, capacity, scratch.first, scratch.error);
        }, scratch);
        return scratch.result();
    }

    @Override
    public byte[] get(int place, long within, long table, byte[] key) {
        Scratch scratch = SCRATCH.get();
        try {
            MemorySegment at = scratch.key(key);
            MemorySegment into = scratch.value(0L);
            while (true) {
                long len = read(scratch, place, within, table, at, key.length, into, into.byteSize());
                if (len == NO_RECORD) {
                    return null;
                }
                if (len <= into.byteSize()) {
                    return copy(into, len);
                }
                into = scratch.value(len);
            }
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public long get(int place, long within, long table, ByteBuffer key, ByteBuffer value) {
        Scratch scratch = SCRATCH.get();
        try {
            MemorySegment from = MemorySegment.ofBuffer(key);
            MemorySegment into = MemorySegment.ofBuffer(value);
            long keyLen = from.byteSize();
            if (from.asOverlappingSlice(into).isPresent()) {
                // A key must not change with the value.
                from = scratch.key(from.toArray(JAVA_BYTE));
            }
            return read(scratch, place, within, table, from, keyLen, into, into.byteSize());
        } catch (Throwable error) {
            throw thrown(error);
        } finally {
            Reference.reachabilityFence(key);
            Reference.reachabilityFence(value);
        }
    }

    private static byte[] copy(MemorySegment from, long len) {
        byte[] bytes = new byte[(int) len];
        MemorySegment.copy(from, JAVA_BYTE, 0, bytes, 0, bytes.length);
        return bytes;
    }

    private static boolean write(Scratch scratch, int place, long within, long table, MemorySegment key, long keyLen, MemorySegment value, long valueLen)
            throws Throwable {
        check(switch (place) {
            case TABLE -> (int) PUT.invokeExact(table, key, keyLen, value, valueLen, scratch.first, scratch.error);
            case TRANSACTION -> (int) TRANSACTION_PUT.invokeExact(within, table, key, keyLen, value, valueLen, scratch.error);
            default -> (int) BATCH_PUT.invokeExact(within, table, key, keyLen, value, valueLen, scratch.error);
        }, scratch);
        return place == TABLE && scratch.slots.get(JAVA_BOOLEAN, 8);
    }

    @Override
    public boolean put(int place, long within, long table, byte[] key, byte[] value) {
        Scratch scratch = SCRATCH.get();
        try {
            return write(scratch, place, within, table, scratch.key(key), key.length, scratch.value(value), value.length);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public boolean put(int place, long within, long table, ByteBuffer key, ByteBuffer value) {
        try {
            MemorySegment from = MemorySegment.ofBuffer(key);
            MemorySegment of = MemorySegment.ofBuffer(value);
            return write(SCRATCH.get(), place, within, table, from, from.byteSize(), of, of.byteSize());
        } catch (Throwable error) {
            throw thrown(error);
        } finally {
            Reference.reachabilityFence(key);
            Reference.reachabilityFence(value);
        }
    }

    private static boolean remove(Scratch scratch, int place, long within, long table, MemorySegment key, long keyLen) throws Throwable {
        check(switch (place) {
            case TABLE -> (int) DELETE.invokeExact(table, key, keyLen, scratch.first, scratch.error);
            case TRANSACTION -> (int) TRANSACTION_DELETE.invokeExact(within, table, key, keyLen, scratch.first, scratch.error);
            default -> (int) BATCH_DELETE.invokeExact(within, table, key, keyLen, scratch.error);
        }, scratch);
        return place != BATCH && scratch.slots.get(JAVA_BOOLEAN, 8);
    }

    @Override
    public boolean delete(int place, long within, long table, byte[] key) {
        Scratch scratch = SCRATCH.get();
        try {
            return remove(scratch, place, within, table, scratch.key(key), key.length);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public boolean delete(int place, long within, long table, ByteBuffer key) {
        try {
            MemorySegment from = MemorySegment.ofBuffer(key);
            return remove(SCRATCH.get(), place, within, table, from, from.byteSize());
        } catch (Throwable error) {
            throw thrown(error);
        } finally {
            Reference.reachabilityFence(key);
        }
    }

    @Override
    public long countEstimate(long table) {
        Scratch scratch = SCRATCH.get();
        try {
            check((int) COUNT.invokeExact(table, scratch.first, scratch.error), scratch);
            return scratch.result();
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public long batchNew() {
        Scratch scratch = SCRATCH.get();
        try {
            check((int) BATCH_NEW.invokeExact(scratch.first, scratch.error), scratch);
            return scratch.result();
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public void batchClear(long batch) {
        Scratch scratch = SCRATCH.get();
        try {
            check((int) BATCH_CLEAR.invokeExact(batch, scratch.error), scratch);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public void write(long store, long batch) {
        Scratch scratch = SCRATCH.get();
        try {
            check((int) WRITE.invokeExact(store, batch, scratch.error), scratch);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public long begin(long store) {
        Scratch scratch = SCRATCH.get();
        try {
            check((int) BEGIN.invokeExact(store, 0L, scratch.first, scratch.error), scratch);
            return scratch.result();
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public long commit(long transaction) {
        Scratch scratch = SCRATCH.get();
        try {
            check((int) COMMIT.invokeExact(transaction, scratch.first, scratch.error), scratch);
            return scratch.result();
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public long snapshotTake(long store) {
        Scratch scratch = SCRATCH.get();
        try {
            check((int) SNAPSHOT_TAKE.invokeExact(store, scratch.first, scratch.error), scratch);
            return scratch.result();
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    /** Fills a `qpair_range_options` in the slots, and returns its address. */
    private static long bounds(Scratch scratch, byte[] from, byte[] to, int flags, long limit) {
        byte[] low = from == null ? new byte[0] : from;
        long keys = scratch.key(low, to).address();
        MemorySegment slots = scratch.slots;
        int at = 24;
        slots.set(JAVA_LONG, at, 72);
        slots.set(JAVA_LONG, at + 8, flags);
        slots.set(JAVA_LONG, at + 16, from == null ? 0 : keys);
        slots.set(JAVA_LONG, at + 24, low.length);
        slots.set(JAVA_LONG, at + 32, to == null ? 0 : keys + low.length);
        slots.set(JAVA_LONG, at + 40, to == null ? 0 : to.length);
        slots.set(JAVA_LONG, at + 48, 0);
        slots.set(JAVA_LONG, at + 56, 0);
        slots.set(JAVA_LONG, at + 64, limit);
        return slots.address() + at;
    }

    @Override
    public long range(long snapshot, long table, byte[] from, byte[] to, int flags, long limit) {
        Scratch scratch = SCRATCH.get();
        try {
            long options = bounds(scratch, from, to, flags, limit);
            int code = snapshot == 0 ? (int) RANGE_OF_TABLE.invokeExact(table, options, scratch.first, scratch.error)
                    : (int) RANGE_OF_SNAPSHOT.invokeExact(snapshot, table, options, scratch.first, scratch.error);
            check(code, scratch);
            return scratch.result();
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public Entry rangeNext(long range) {
        Scratch scratch = SCRATCH.get();
        MemorySegment slots = scratch.slots;
        long at = slots.address() + 24;
        try {
            check((int) RANGE_NEXT.invokeExact(range, at, at + 8, at + 16, at + 24, scratch.error), scratch);
            long key = slots.get(JAVA_LONG, 24);
            if (key == 0) {
                return null;
            }
            return new Entry(copy(ALL.asSlice(key), slots.get(JAVA_LONG, 32)), copy(ALL.asSlice(slots.get(JAVA_LONG, 40)), slots.get(JAVA_LONG, 48)));
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    @Override
    public long deleteRange(long table, byte[] from, byte[] to) {
        Scratch scratch = SCRATCH.get();
        try {
            check((int) DELETE_RANGE.invokeExact(table, bounds(scratch, from, to, 0, 0), scratch.first, scratch.error), scratch);
            return scratch.result();
        } catch (Throwable error) {
            throw thrown(error);
        }
    }
}
