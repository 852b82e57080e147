package io.qpair.kafka.streams;

import io.qpair.QpairException;
import io.qpair.Store;
import io.qpair.Table;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The qpair store of an application's instance, shared by all its state stores: open from the first one's opening until the last one's close.
 *
 * <p>{@link #OPEN} guards the counts; a store is opened and closed under its lock.
 */
final class Instance {
    private static final Logger LOG = LoggerFactory.getLogger(Instance.class);
    private static final Map<String, Instance> OPEN = new HashMap<>();

    private final String path;
    private final Store store;
    private final Table meta;
    private final InstanceMetrics metrics;
    private int users;

    private Instance(Settings settings) {
        path = settings.path();
        store = opened(settings);
        meta = store.table("meta");
        metrics = new InstanceMetrics(path, store);
    }

    /** Returns the instance of a path, opened if need be. Each call needs a {@link #release}. */
    static Instance acquire(Settings settings) {
        synchronized (OPEN) {
            Instance instance = OPEN.get(settings.path());
            if (instance == null) {
                try {
                    instance = new Instance(settings);
                } catch (QpairException error) {
                    throw new ProcessorStateException("The qpair store " + settings.path() + " cannot be opened", error);
                }
                OPEN.put(settings.path(), instance);
            }
            instance.users++;
            return instance;
        }
    }

    void release() {
        synchronized (OPEN) {
            if (--users == 0) {
                OPEN.remove(path);
                metrics.close();
                meta.close();
                store.close();
            }
        }
    }

    private static Store opened(Settings settings) {
        try {
            Path folder = Path.of(settings.path()).toAbsolutePath().getParent();
            if (folder != null && settings.path().startsWith("/")) {
                Files.createDirectories(folder);
            }
        } catch (IOException error) {
            throw new ProcessorStateException("The folder of the qpair store " + settings.path() + " cannot be made", error);
        }
        try {
            return Store.open(settings.path(), settings.store());
        } catch (QpairException error) {
            if (error.code() != QpairException.UNSUPPORTED || settings.store().containsKey("buffered")) {
                throw error;
            }
            LOG.warn("The file system of {} has no direct I/O, so the store uses the page cache; set qpair.store.buffered=true to say so", settings.path(), error);
            Map<String, String> buffered = new LinkedHashMap<>(settings.store());
            buffered.put("buffered", "true");
            return Store.open(settings.path(), buffered);
        }
    }

    Store store() {
        return store;
    }

    Table meta() {
        return meta;
    }
}
