package io.qpair;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class StoreTest {
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

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    @Test
    void recordsAreReadAsTheyWereWritten() {
        assertNull(table.get(bytes("a")));
        assertFalse(table.put(bytes("a"), bytes("1")));
        assertTrue(table.put(bytes("a"), bytes("2")));
        assertArrayEquals(bytes("2"), table.get(bytes("a")));
        table.put(bytes("empty"), new byte[0]);
        assertEquals(0, table.get(bytes("empty")).length);
        byte[] large = new byte[3 << 20];
        large[large.length - 1] = 7;
        table.put(bytes("large"), large);
        assertArrayEquals(large, table.get(bytes("large")));
        assertTrue(table.delete(bytes("a")));
        assertNull(table.get(bytes("a")));
    }

    @Test
    void rangesGoBothWays() {
        for (String key : List.of("a", "b", "c", "d")) {
            table.put(bytes(key), bytes(key));
        }
        assertEquals("bc", keys(table.range(bytes("b"), bytes("d"), false, false)));
        assertEquals("dcb", keys(table.range(bytes("b"), bytes("d"), true, true)));
        assertEquals("abcd", keys(table.range()));
        assertEquals("", keys(table.range(bytes("d"), bytes("a"), true, false)));
        assertEquals("", keys(table.range(bytes("b"), bytes("b"), false, false)));
        assertEquals("b", keys(table.range(bytes("b"), bytes("b"), true, false)));
        try (Snapshot snapshot = store.snapshot()) {
            table.deleteRange(bytes("a"), bytes("c"));
            assertEquals("abcd", keys(snapshot.range(table, null, null, false, false)));
            assertArrayEquals(bytes("a"), snapshot.get(table, bytes("a")));
        }
        assertEquals("cd", keys(table.range()));
    }

    private static String keys(Range range) {
        StringBuilder keys = new StringBuilder();
        try (range) {
            range.forEachRemaining(entry -> keys.append(new String(entry.key(), StandardCharsets.UTF_8)));
        }
        return keys.toString();
    }

    @Test
    void batchesAndTransactionsAreAllOrNothing() {
        try (Batch batch = store.batch()) {
            batch.put(table, bytes("a"), bytes("1"));
            batch.put(table, new byte[66_000], bytes("too long"));
            assertEquals(QpairException.KEY_TOO_LONG, assertThrows(QpairException.class, batch::write).code());
            assertNull(table.get(bytes("a")));
            batch.clear();
            batch.put(table, bytes("a"), bytes("1"));
            batch.write();
        }
        try (Transaction transaction = store.begin()) {
            transaction.put(table, bytes("a"), bytes("2"));
            assertArrayEquals(bytes("2"), transaction.get(table, bytes("a")));
        }
        assertArrayEquals(bytes("1"), table.get(bytes("a")));
        try (Transaction one = store.begin(); Transaction two = store.begin()) {
            one.get(table, bytes("a"));
            two.get(table, bytes("a"));
            one.put(table, bytes("a"), bytes("3"));
            one.commit();
            QpairException conflict = assertThrows(QpairException.class, () -> {
                two.put(table, bytes("a"), bytes("4"));
                two.commit();
            });
            assertEquals(QpairException.CONFLICT, conflict.code());
        }
    }

    @Test
    void misuseIsAnException() throws Exception {
        Range range = table.range();
        Batch batch = store.batch();
        batch.close();
        batch.close();
        assertEquals(QpairException.MISUSE, assertThrows(QpairException.class, batch::write).code());
        Table other = store.table("t");
        other.close();
        assertThrows(QpairException.class, () -> other.get(bytes("a")));
        range.close();
        range.close();
        assertFalse(range.hasNext());
        Transaction transaction = store.begin();
        transaction.commit();
        assertThrows(QpairException.class, transaction::commit);
        transaction.close();
        Table left = store.table("t");
        Range open = left.range();
        store.close();
        assertEquals(QpairException.CLOSED, assertThrows(QpairException.class, () -> left.get(bytes("a"))).code());
        assertThrows(QpairException.class, open::hasNext);
        left.close();
        assertThrows(QpairException.class, () -> store.table("x"));
    }

    @Test
    void closingUnderOtherThreadsIsAnException() throws Exception {
        for (int at = 0; at < 1000; at++) {
            table.put(bytes("key" + at), new byte[200]);
        }
        for (int round = 0; round < 50; round++) {
            Table shared = store.table("t");
            Range range = shared.range();
            AtomicBoolean closed = new AtomicBoolean();
            AtomicReference<Throwable> wrong = new AtomicReference<>();
            List<Thread> threads = new ArrayList<>();
            for (int thread = 0; thread < 4; thread++) {
                boolean ranges = thread % 2 == 0;
                threads.add(new Thread(() -> {
                    try {
                        for (int at = 0; ; at++) {
                            if (ranges && range.hasNext()) {
                                range.next();
                            } else {
                                shared.get(bytes("key" + at % 1000));
                            }
                        }
                    } catch (QpairException | java.util.NoSuchElementException expected) {
                        if (!closed.get() && expected instanceof QpairException) {
                            wrong.set(expected);
                        }
                    } catch (Throwable error) {
                        wrong.set(error);
                    }
                }));
                threads.get(thread).start();
            }
            Thread.sleep(2);
            closed.set(true);
            range.close();
            shared.close();
            for (Thread thread : threads) {
                thread.join();
            }
            assertNull(wrong.get());
        }
    }

    /** A million iterators, one in ten forgotten: the collector closes those. */
    @Test
    void millionIterators() throws Exception {
        for (int at = 0; at < 10; at++) {
            table.put(bytes("key" + at), new byte[100]);
        }
        long before = 0;
        for (int at = 0; at < 1_000_000; at++) {
            Range range = table.range();
            range.next();
            if (at % 10 != 0) {
                range.close();
            } else if (at % 10_000 == 0) {
                System.gc();
                Thread.sleep(1);
            }
            if (at == 200_000) {
                before = residentBytes();
            }
        }
        long grown = residentBytes() - before;
        assertTrue(grown < 300L << 20, "the process grew by " + grown + " bytes");
        for (int wait = 0; wait < 100 && Store.openHandles() > 20; wait++) {
            System.gc();
            Thread.sleep(20);
        }
        assertTrue(Store.openHandles() <= 20, Store.openHandles() + " handles are open");
    }

    private static long residentBytes() throws Exception {
        return Long.parseLong(Files.readString(Path.of("/proc/self/statm")).split(" ")[1]) * 4096;
    }

    @Test
    void directoriesOfTheLibraryCanBeChosen() {
        assertTrue(store.statistics().startsWith("{"));
        assertEquals("[\"t\"]", store.tableNames().trim());
    }
}
