package io.qpair.kafka.streams;

import io.qpair.Entry;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ReadOnlySessionStore;
import org.apache.kafka.streams.state.SessionStore;

/** A session store. */
class QpairSessionStore extends QpairStore implements SessionStore<Bytes, byte[]> {
    private final Segments segments;
    private Sensor dropped;

    QpairSessionStore(String name, long retention, long interval) {
        this("session", name, retention, interval);
    }

    private QpairSessionStore(String format, String name, long retention, long interval) {
        super(name, format);
        segments = new Segments(retention, interval, false);
    }

    private QpairSessionStore(QpairSessionStore of) {
        super(of.name(), "session");
        segments = of.segments;
    }

    /** A session store whose values begin with headers. */
    static final class WithHeaders extends QpairSessionStore implements HeadersBytesStore {
        WithHeaders(String name, long retention, long interval) {
            super("headers session", name, retention, interval);
        }
    }

    /** Returns the rows to read. */
    Reader reader() {
        return isOpen() ? rows : Reader.NOTHING;
    }

    @Override
    public void init(StateStoreContext stateStoreContext, StateStore root) {
        dropped = Metrics.droppedRecords(stateStoreContext);
        super.init(stateStoreContext, root);
    }

    @Override
    void opened() {
        segments.open(rows);
    }

    private byte[] row(byte[] key, long end, long start) {
        return Keys.of(segments.of(end), key, end, start);
    }

    private static long end(byte[] row) {
        return Keys.time(row, row.length - 16);
    }

    private static long start(byte[] row) {
        return Keys.time(row, row.length - 8);
    }

    private static Windowed<Bytes> windowed(byte[] row) {
        return new Windowed<>(Bytes.wrap(Keys.key(row, 8)), new SessionWindow(start(row), end(row)));
    }

    @Override
    void restore(byte[] key, byte[] value, long timestamp) {
        // The changelog's key: the record's key, the end, the start.
        ByteBuffer tail = ByteBuffer.wrap(key, key.length - 16, 16);
        long end = tail.getLong();
        if (segments.observe(end)) {
            rows.put(row(Arrays.copyOf(key, key.length - 16), end, tail.getLong()), value);
        }
    }

    @Override
    public void put(Windowed<Bytes> session, byte[] aggregate) {
        checkOpen();
        synchronized (position) {
            long end = session.window().end();
            if (segments.observe(end)) {
                rows.put(row(session.key().get(), end, session.window().start()), aggregate);
            } else {
                Metrics.drop(dropped, context);
            }
            updatePosition();
        }
    }

    @Override
    public void remove(Windowed<Bytes> session) {
        checkOpen();
        synchronized (position) {
            if (session.window().end() >= segments.timeMin()) {
                rows.put(row(session.key().get(), session.window().end(), session.window().start()), null);
            }
            updatePosition();
        }
    }

    @Override
    public byte[] fetchSession(Bytes key, long start, long end) {
        Objects.requireNonNull(key, "key cannot be null");
        Reader reader = reader();
        return end < segments.timeMin() ? null : reader.get(row(key.get(), end, start));
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> find(Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart, boolean reverse) {
        Reader reader = reader();
        if (Ranges.invalid(keyFrom, keyTo)) {
            return new RowIterator<>(Cursor.empty(), QpairSessionStore::windowed);
        }
        long first = Math.max(earliestEnd, segments.timeMin());
        boolean one = keyFrom != null && keyFrom.equals(keyTo);
        Cursor rows = segments.between(reader, first, Long.MAX_VALUE, reverse, segment -> {
            byte[] low = one ? Keys.of(segment, keyFrom.get(), first) : Keys.of(segment, keyFrom == null ? null : keyFrom.get(), 0);
            byte[] high = keyTo == null ? Keys.of(segment + 1, null, 0) : Keys.after(Keys.of(segment, keyTo.get(), 0));
            return reader.range(low, high, false, reverse);
        });
        return new RowIterator<>(rows.filter(row -> end(row.key()) >= first && start(row.key()) <= latestStart), QpairSessionStore::windowed);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(Bytes key, long earliestEnd, long latestStart) {
        Objects.requireNonNull(key, "key cannot be null");
        return find(key, key, earliestEnd, latestStart, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(Bytes key, long earliestEnd, long latestStart) {
        Objects.requireNonNull(key, "key cannot be null");
        return find(key, key, earliestEnd, latestStart, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart) {
        return find(keyFrom, keyTo, earliestEnd, latestStart, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart) {
        return find(keyFrom, keyTo, earliestEnd, latestStart, true);
    }

    /** Returns the sessions that end between two times, in the order of their ends: those that a window's close emits. */
    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(long earliestEnd, long latestEnd) {
        Reader reader = reader();
        long first = Math.max(earliestEnd, segments.timeMin());
        List<Entry> found = new ArrayList<>();
        try (Cursor rows = segments.between(reader, first, latestEnd, false,
                segment -> reader.range(Keys.of(segment, null, 0), Keys.of(segment + 1, null, 0), false, false))) {
            for (Entry row = rows.next(); row != null; row = rows.next()) {
                if (end(row.key()) >= first && end(row.key()) <= latestEnd) {
                    found.add(row);
                }
            }
        }
        found.sort(Comparator.comparingLong(row -> end(row.key())));
        return new RowIterator<>(Cursor.of(found.iterator()), QpairSessionStore::windowed);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes key) {
        return findSessions(key, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes key) {
        return backwardFindSessions(key, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo) {
        return findSessions(keyFrom, keyTo, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes keyFrom, Bytes keyTo) {
        return backwardFindSessions(keyFrom, keyTo, 0, Long.MAX_VALUE);
    }

    // Declared since 4.4.
    public ReadOnlySessionStore<Bytes, byte[]> readOnly(IsolationLevel level) {
        checkOpen();
        return level == IsolationLevel.READ_COMMITTED ? (QpairSessionStore) committedStore() : this;
    }

    @Override
    StateStore committedStore() {
        QpairSessionStore all = this;
        return new QpairSessionStore(all) {
            @Override
            Reader reader() {
                return all.isOpen() ? all.rows.committed() : Reader.NOTHING;
            }
        };
    }
}
