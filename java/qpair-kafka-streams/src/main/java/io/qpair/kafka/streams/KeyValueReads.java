package io.qpair.kafka.streams;

import java.util.Objects;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/** The reads of a key-value store. */
interface KeyValueReads extends ReadOnlyKeyValueStore<Bytes, byte[]> {
    /** Returns the rows to read, or throws if the store is closed. */
    Reader reader();

    @Override
    default byte[] get(Bytes key) {
        return reader().get(Objects.requireNonNull(key, "key cannot be null").get());
    }

    private KeyValueIterator<Bytes, byte[]> rows(Bytes from, Bytes to, boolean withTo, boolean reverse) {
        Reader reader = reader();
        Ranges.invalid(from, to);
        return new RowIterator<>(reader.range(from == null ? null : from.get(), to == null ? null : to.get(), withTo, reverse), Bytes::wrap);
    }

    @Override
    default KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to) {
        return rows(from, to, true, false);
    }

    @Override
    default KeyValueIterator<Bytes, byte[]> reverseRange(Bytes from, Bytes to) {
        return rows(from, to, true, true);
    }

    @Override
    default KeyValueIterator<Bytes, byte[]> all() {
        return rows(null, null, false, false);
    }

    @Override
    default KeyValueIterator<Bytes, byte[]> reverseAll() {
        return rows(null, null, false, true);
    }

    @Override
    default <PS extends Serializer<P>, P> KeyValueIterator<Bytes, byte[]> prefixScan(P prefix, PS serializer) {
        byte[] from = Objects.requireNonNull(serializer, "prefixKeySerializer cannot be null").serialize(null, Objects.requireNonNull(prefix, "prefix cannot be null"));
        byte[] to = Keys.after(from);
        return rows(Bytes.wrap(from), to == null ? null : Bytes.wrap(to), false, false);
    }

    @Override
    default long approximateNumEntries() {
        return reader().approximateCount();
    }
}
