package io.qpair;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.IntFunction;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class BufferTest {
    private Store store;
    private Table table;

    @BeforeEach
    void open() {
        store = Store.open("ram:size=64MiB", Map.of("memory", "16MiB", "workers", "1"));
        table = store.table("t");
    }

    @AfterEach
    void close() {
        table.close();
        store.close();
    }

    private static IntFunction<ByteBuffer> kind(boolean direct) {
        return direct ? ByteBuffer::allocateDirect : ByteBuffer::allocate;
    }

    /** Returns a buffer with bytes in its middle. */
    private static ByteBuffer within(boolean direct, byte[] bytes) {
        ByteBuffer buffer = kind(direct).apply(bytes.length + 12);
        return buffer.put(5, bytes).position(5).limit(5 + bytes.length);
    }

    private static ByteBuffer within(boolean direct, String text) {
        return within(direct, bytes(text));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String between(ByteBuffer buffer, int from, int to) {
        byte[] bytes = new byte[to - from];
        buffer.get(from, bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    @ParameterizedTest
    @CsvSource({"true,true", "true,false", "false,true", "false,false"})
    void recordsAreReadAsTheyWereWritten(boolean directKey, boolean directValue) {
        ByteBuffer key = within(directKey, "key");
        assertFalse(table.put(key, within(directValue, "first")));
        assertTrue(table.put(key.asReadOnlyBuffer(), within(directValue, "value").slice().asReadOnlyBuffer()));
        assertEquals("5 8", key.position() + " " + key.limit());
        assertArrayEquals(bytes("value"), table.get(bytes("key")));
        ByteBuffer into = kind(directValue).apply(20).position(3).limit(15);
        assertEquals(5, table.get(key, into));
        assertEquals("8 15", into.position() + " " + into.limit());
        assertEquals("value", between(into, 3, 8));
        assertEquals(0, into.get(2) + into.get(8));
        // Less room than the value needs, and none.
        into.clear().position(1).limit(3);
        assertEquals(5, table.get(key, into));
        assertEquals("3 va", into.position() + " " + between(into, 1, 3));
        assertEquals(5, table.get(key, into));
        assertEquals(3, into.position());
        assertEquals(-1, table.get(within(directKey, "none"), into.clear()));
        assertEquals(0, into.position());
        table.put(key, kind(directValue).apply(0));
        assertEquals(0, table.get(key, into));
        assertTrue(table.delete(key));
        assertFalse(table.delete(key));
        assertNull(table.get(bytes("key")));
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void batchesTransactionsAndSnapshotsTakeBuffers(boolean direct) {
        ByteBuffer key = within(direct, "key");
        ByteBuffer into = kind(direct).apply(100);
        try (Batch batch = store.batch()) {
            batch.put(table, key, within(direct, "1"));
            batch.write();
        }
        try (Snapshot snapshot = store.snapshot(); Transaction transaction = store.begin()) {
            transaction.put(table, key, within(direct, "22"));
            assertEquals(2, transaction.get(table, key, into));
            assertTrue(transaction.delete(table, key));
            assertEquals(-1, transaction.get(table, key, into));
            transaction.commit();
            assertEquals(-1, table.get(key, into));
            assertEquals(1, snapshot.get(table, key, into));
            assertEquals("221", between(into, 0, 3));
        }
        table.put(key, key);
        try (Batch batch = store.batch()) {
            batch.delete(table, key);
            batch.write();
        }
        assertNull(table.get(bytes("key")));
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void largeRecords(boolean direct) {
        byte[] key = new byte[60_000];
        byte[] value = new byte[3 << 20];
        new Random(1).nextBytes(key);
        new Random(2).nextBytes(value);
        table.put(within(direct, key), within(direct, value));
        ByteBuffer into = kind(direct).apply(value.length);
        assertEquals(value.length, table.get(within(direct, key), into));
        assertEquals(ByteBuffer.wrap(value), into.flip());
        assertArrayEquals(value, table.get(key));
        try (Range range = table.range()) {
            Entry entry = range.next();
            assertArrayEquals(key, entry.key());
            assertArrayEquals(value, entry.value());
        }
    }

    @Test
    void theKeyMayShareBytesWithTheValue() {
        byte[] value = new byte[64];
        new Random(3).nextBytes(value);
        table.put(bytes("key"), value);
        ByteBuffer both = ByteBuffer.allocateDirect(64).put(0, bytes("key"));
        assertEquals(64, table.get(both.duplicate().limit(3), both));
        assertEquals(ByteBuffer.wrap(value), both.flip());
    }

    @Test
    void misuseIsAnException() {
        ByteBuffer key = within(true, "key");
        ByteBuffer into = ByteBuffer.allocateDirect(10);
        assertEquals(QpairException.MISUSE, assertThrows(QpairException.class, () -> table.get(key, into.asReadOnlyBuffer())).code());
        assertThrows(NullPointerException.class, () -> table.get(null, into));
        assertThrows(NullPointerException.class, () -> table.get(key, null));
        assertThrows(NullPointerException.class, () -> table.put(key, null));
        assertThrows(NullPointerException.class, () -> table.get((byte[]) null));
        assertThrows(NullPointerException.class, () -> table.put(bytes("key"), null));
        assertThrows(NullPointerException.class, () -> store.table(null));
        assertEquals(QpairException.INVALID, assertThrows(QpairException.class, () -> store.table("a\0b")).code());
        assertEquals(QpairException.INVALID, assertThrows(QpairException.class, () -> Store.open("a\0b")).code());
        assertEquals(QpairException.INVALID, assertThrows(QpairException.class, () -> Store.open("ram:size=64MiB", Map.of("none", "1"))).code());
        QpairException tooLong = assertThrows(QpairException.class, () -> table.put(ByteBuffer.allocateDirect(70_000), into));
        assertEquals(QpairException.KEY_TOO_LONG, tooLong.code());
        Table closed = store.table("closed");
        closed.close();
        assertEquals(QpairException.MISUSE, assertThrows(QpairException.class, () -> closed.get(key, into)).code());
        assertEquals(QpairException.MISUSE, assertThrows(QpairException.class, () -> closed.delete(key)).code());
    }

    /** Another thread moves the bounds meanwhile: calls fail or have other bytes, and the machine lives. */
    @Test
    void boundsThatChangeAreHarmless() throws Exception {
        table.put(bytes("key"), new byte[3000]);
        ByteBuffer key = ByteBuffer.allocateDirect(3).put(0, bytes("key"));
        ByteBuffer shared = ByteBuffer.allocateDirect(4096);
        AtomicBoolean done = new AtomicBoolean();
        Thread mover = new Thread(() -> {
            Random random = new Random(4);
            while (!done.get()) {
                shared.clear();
                int limit = random.nextInt(4097);
                shared.position(random.nextInt(limit + 1)).limit(limit);
            }
        });
        mover.start();
        for (int call = 0; call < 100_000; call++) {
            try {
                assertEquals(3000, table.get(key, shared));
            } catch (QpairException | IllegalArgumentException expected) {
                if (expected instanceof QpairException error) {
                    assertEquals(QpairException.MISUSE, error.code());
                }
            }
        }
        done.set(true);
        mover.join(10_000);
        assertEquals(3000, table.get(key, shared.clear()));
    }

    /** Memory of the foreign function API, by reflection: these classes are not in Java 17. */
    @Test
    void memoryOfArenas() throws Exception {
        assumeTrue(Runtime.version().feature() >= 22);
        Class<?> arenas = Class.forName("java.lang.foreign.Arena");
        Class<?> segments = Class.forName("java.lang.foreign.MemorySegment");
        AutoCloseable arena = (AutoCloseable) arenas.getMethod("ofConfined").invoke(null);
        Object segment = arenas.getMethod("allocate", long.class).invoke(arena, 100L);
        ByteBuffer buffer = (ByteBuffer) segments.getMethod("asByteBuffer").invoke(segment);
        ByteBuffer key = within(true, "key");
        table.put(key, buffer);
        assertEquals(100, table.get(key, buffer));
        Throwable[] thrown = new Throwable[1];
        Thread other = new Thread(() -> {
            try {
                table.put(key, buffer.duplicate().clear());
            } catch (Throwable error) {
                thrown[0] = error;
            }
        });
        other.start();
        other.join();
        assertEquals(QpairException.MISUSE, ((QpairException) thrown[0]).code());
        arena.close();
        ByteBuffer whole = buffer.duplicate().clear();
        assertEquals(QpairException.MISUSE, assertThrows(QpairException.class, () -> table.put(key, whole)).code());
        assertEquals(QpairException.MISUSE, assertThrows(QpairException.class, () -> table.get(key, whole)).code());
        assertEquals(QpairException.MISUSE, assertThrows(QpairException.class, () -> table.get(whole, key)).code());
    }

    @Test
    void theBindingIsTheOneThatWasChosen() {
        String chosen = System.getProperty("qpair.binding", Runtime.version().feature() < 22 ? "jni" : "foreign");
        assertEquals(chosen.equals("jni") ? "JniBinding" : "ForeignBinding", Library.CALLS.getClass().getSimpleName());
    }
}
