package io.qpair.kafka.streams;

import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.StreamsTestUtils;

/**
 * The time of store calls: qpair and RocksDB as Streams configures it, in one JVM, in slices that take turns. Each slice ends with a commit.
 *
 * <pre>StoreCalls FOLDER [RECORDS [SLICES [CALLS [NAME=VALUE...]]]]</pre>
 *
 * <p>For a profile, the system property {@code kinds} has the kinds of calls, and {@code alone=true} leaves RocksDB out.
 */
public final class StoreCalls {
    private static final TopicPartition CHANGELOG = new TopicPartition("changelog", 0);

    private record Side(String name, KeyValueStore<Bytes, byte[]> store, double[] wall, double[] processor) {}

    private StoreCalls() {}

    private static Bytes key(long number) {
        // A mixed number, so that neighbours in time are none in order.
        return Bytes.wrap(ByteBuffer.allocate(16).putLong(number * 0x9E3779B97F4A7C15L).putLong(number).array());
    }

    private static Side side(String name, KeyValueBytesStoreSupplier supplier, File folder, int slices, String[] arguments) {
        Properties configs = StreamsTestUtils.getStreamsConfig();
        Map<String, Object> all = new HashMap<>();
        configs.forEach((key, value) -> all.put(key.toString(), value));
        all.put("enable.transactional.statestores", "true");
        for (int at = 4; at < arguments.length; at++) {
            String[] setting = arguments[at].split("=", 2);
            all.put(setting[0], setting[1]);
        }
        File task = new File(folder, name + "/0_0");
        task.mkdirs();
        InternalMockProcessorContext<String, String> context = new InternalMockProcessorContext<>(task, Serdes.String(), Serdes.String(), new StreamsConfig(configs)) {
            @Override
            public Map<String, Object> appConfigs() {
                return all;
            }
        };
        KeyValueStore<Bytes, byte[]> store = supplier.get();
        store.init(context, store);
        return new Side(name, store, new double[slices], new double[slices]);
    }

    private static double median(double[] values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }

    public static void main(String[] arguments) {
        File folder = new File(arguments[0]);
        int records = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 400_000;
        int slices = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 60;
        int calls = arguments.length > 3 ? Integer.parseInt(arguments[3]) : 20_000;
        OperatingSystemMXBean machine = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        Side[] sides = {side("qpair", QpairStores.keyValueStore("store"), folder, slices, arguments),
            side("rocksdb", Stores.persistentKeyValueStore("store"), folder, slices, arguments)};
        boolean alone = Boolean.getBoolean("alone");
        for (Side side : alone ? new Side[] {sides[0]} : sides) {
            for (int at = 0; at < records; at++) {
                side.store.put(key(at), new byte[120]);
                if (at % calls == 0) {
                    side.store.commit(Map.of(CHANGELOG, (long) at));
                }
            }
            side.store.commit(Map.of(CHANGELOG, (long) records));
        }
        String[] kinds = System.getProperty("kinds", "get,get + put,put,scan").split(",");
        for (String kind : kinds) {
            for (int slice = -10; slice < slices; slice++) {
                for (int turn = 0; turn < 2; turn++) {
                    Side side = sides[(slice & 1) ^ turn];
                    if (alone && side != sides[0]) {
                        continue;
                    }
                    Random random = new Random(slice);
                    long processor = machine.getProcessCpuTime();
                    long begun = System.nanoTime();
                    run(kind, side.store, records, calls, random);
                    if (slice >= 0) {
                        side.wall[slice] = (System.nanoTime() - begun) / 1e3 / calls;
                        side.processor[slice] = (machine.getProcessCpuTime() - processor) / 1e3 / calls;
                    }
                }
            }
            double[] ratios = new double[slices];
            for (int slice = 0; slice < slices; slice++) {
                ratios[slice] = sides[0].wall[slice] / sides[1].wall[slice];
            }
            System.out.printf("%-10s qpair %.2f us (processor %.2f), rocksdb %.2f us (processor %.2f), ratio of time %.2f%n", kind, median(sides[0].wall),
                    median(sides[0].processor), median(sides[1].wall), median(sides[1].processor), median(ratios));
        }
        for (Side side : sides) {
            side.store.close();
        }
    }

    private static void run(String kind, KeyValueStore<Bytes, byte[]> store, int records, int calls, Random random) {
        if (kind.equals("scan")) {
            int left = calls;
            while (left > 0) {
                try (KeyValueIterator<Bytes, byte[]> rows = store.range(key(random.nextInt(records)), null)) {
                    for (int at = 0; at < 1000 && left > 0 && rows.hasNext(); at++, left--) {
                        rows.next();
                    }
                }
                left--;
            }
            return;
        }
        for (int call = 0; call < calls; call++) {
            Bytes key = key(random.nextInt(records));
            byte[] value = new byte[120];
            if (!kind.equals("put")) {
                byte[] found = store.get(key);
                value[0] = (byte) (found[0] + 1);
            }
            if (!kind.equals("get")) {
                store.put(key, value);
            }
        }
        if (!kind.equals("get")) {
            store.commit(Map.of(CHANGELOG, random.nextLong() >>> 1));
        }
    }
}
