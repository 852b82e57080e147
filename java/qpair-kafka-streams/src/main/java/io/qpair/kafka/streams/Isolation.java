package io.qpair.kafka.streams;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.query.QueryConfig;

/** The isolation level of a query, which {@link QueryConfig} has since 4.4. */
final class Isolation {
    private static final MethodHandle LEVEL = level();

    private Isolation() {}

    private static MethodHandle level() {
        try {
            return MethodHandles.publicLookup().findVirtual(QueryConfig.class, "getIsolationLevel", MethodType.methodType(IsolationLevel.class));
        } catch (ReflectiveOperationException error) {
            return null;
        }
    }

    static boolean committed(QueryConfig config) {
        try {
            return LEVEL != null && (IsolationLevel) LEVEL.invokeExact(config) == IsolationLevel.READ_COMMITTED;
        } catch (Throwable error) {
            throw new IllegalStateException(error);
        }
    }

    /** Returns the store that answers a query: itself, or its committed rows alone. */
    static StateStore of(QpairStore store, QueryConfig config) {
        return committed(config) ? store.committedStore() : store;
    }
}
