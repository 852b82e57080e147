package io.qpair.kafka.streams;

import io.qpair.QpairException;
import java.io.File;
import java.nio.file.Path;
import java.util.Collection;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.errors.TaskCorruptedException;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.ChangelogRecordDeserializationHelper;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;

/** The part that all state stores have: opening, offsets, commits, positions and queries. */
abstract class QpairStore implements StateStore {
    /** The name of the metrics' group and of the store type in JMX. */
    static final String METRICS_SCOPE = "qpair";
    private static final String CONSISTENCY = "__iq.consistency.offset.vector.enabled__";
    private static final Pattern TASK = Pattern.compile("\\d+_\\d+|global");

    private final String name;
    private final String format;
    protected StateStoreContext context;
    protected Position position = Position.emptyPosition();
    protected Rows rows;
    private boolean consistency;
    private volatile boolean open;

    QpairStore(String name, String format) {
        this.name = name;
        this.format = format;
    }

    /** Puts a record of the changelog. */
    abstract void restore(byte[] key, byte[] value, long timestamp);

    /** Returns a store for queries whose reads are of committed rows alone. */
    abstract StateStore committedStore();

    /** Reads what the store keeps in memory about its rows, after they were opened. */
    void opened() {}

    @Override
    public String name() {
        return name;
    }

    @Override
    public void init(StateStoreContext stateStoreContext, StateStore root) {
        context = stateStoreContext;
        if (!open) {
            openRows();
        }
        consistency = Boolean.parseBoolean(String.valueOf(context.appConfigs().get(CONSISTENCY)));
        if (root != null) {
            context.register(root, (RecordBatchingStateRestoreCallback) this::restoreBatch);
        }
    }

    private void openRows() {
        File folder = context.stateDir();
        boolean task = TASK.matcher(folder.getName()).matches();
        Path shared = task && folder.getParentFile() != null ? folder.getParentFile().toPath() : folder.toPath();
        Settings settings = Settings.of(context.appConfigs(), shared.toAbsolutePath().normalize());
        byte[] incarnation = Incarnation.of(folder);
        Instance instance = Instance.acquire(settings);
        String key = (task ? folder.getName() : String.valueOf(context.taskId())) + "/" + name;
        rows = new Rows(instance, settings, key);
        boolean clean;
        try {
            rows.open(incarnation, format);
            clean = rows.markOpen(incarnation, format);
            position = rows.position();
            opened();
        } catch (RuntimeException error) {
            rows.release();
            if (error instanceof QpairException) {
                throw new ProcessorStateException("The store " + name + " cannot be opened", error);
            }
            throw error;
        }
        if (!clean) {
            rows.close();
            throw new TaskCorruptedException(Set.of(context.taskId()));
        }
        open = true;
    }

    private void restoreBatch(Collection<ConsumerRecord<byte[], byte[]>> records) {
        if (!open) {
            openRows();
        }
        synchronized (position) {
            for (ConsumerRecord<byte[], byte[]> record : records) {
                ChangelogRecordDeserializationHelper.applyChecksAndUpdatePosition(record, consistency, position);
                restore(record.key(), record.value(), record.timestamp());
                rows.restored();
            }
        }
    }

    protected final void checkOpen() {
        if (!open) {
            throw new InvalidStateStoreException("The store " + name + " is currently closed");
        }
    }

    protected final void updatePosition() {
        StoreQueryUtils.updatePosition(position, context);
    }

    @Override
    public void commit(Map<TopicPartition, Long> changelogOffsets) {
        checkOpen();
        synchronized (position) {
            rows.write(changelogOffsets, position);
        }
    }

    @Override
    public Long committedOffset(TopicPartition partition) {
        checkOpen();
        return rows.offset(partition);
    }

    @Override
    @SuppressWarnings("deprecation")
    public boolean managesOffsets() {
        return true;
    }

    // Declared since 4.4.
    public long approximateNumUncommittedBytes() {
        return open ? rows.uncommittedBytes() : 0;
    }

    @Override
    public void close() {
        if (open) {
            open = false;
            rows.close();
        }
    }

    @Override
    public boolean persistent() {
        return true;
    }

    @Override
    public boolean isOpen() {
        return open;
    }

    @Override
    public Position getPosition() {
        return position;
    }

    @Override
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        return StoreQueryUtils.handleBasicQueries(query, bound, config, Isolation.of(this, config), position, context);
    }
}
