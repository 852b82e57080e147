import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * A count of records by key, to be killed.
 *
 * <pre>
 * Count produce BOOTSTRAP UPDATES KEYS
 * Count run BOOTSTRAP FOLDER UPDATES KEYS [NAME=VALUE...]     runs until it is killed; says what it restored and when all counts are right
 * </pre>
 */
public final class Count {
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("produce")) {
            produce(arguments[1], Long.parseLong(arguments[2]), Long.parseLong(arguments[3]));
        } else {
            run(arguments);
        }
    }

    private static void produce(String bootstrap, long updates, long keys) throws Exception {
        Map<String, Object> configs = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", "20", "batch.size", "131072"));
        try (Admin admin = Admin.create(configs)) {
            if (!admin.listTopics().names().get().contains("in")) {
                admin.createTopics(java.util.List.of(new NewTopic("in", 1, (short) 1), new NewTopic("out", 1, (short) 1))).all().get();
            }
        }
        try (KafkaProducer<Long, Long> producer = new KafkaProducer<>(configs, new LongSerializer(), new LongSerializer())) {
            for (long at = 0; at < updates; at++) {
                producer.send(new ProducerRecord<>("in", 0, at % keys, at));
            }
        }
        System.out.println("produced " + updates);
    }

    private static void run(String[] arguments) throws Exception {
        long updates = Long.parseLong(arguments[3]);
        long keys = Long.parseLong(arguments[4]);
        Properties configs = new Properties();
        configs.put("application.id", "count");
        configs.put("bootstrap.servers", arguments[1]);
        configs.put("state.dir", arguments[2]);
        configs.put("default.key.serde", Serdes.LongSerde.class.getName());
        configs.put("default.value.serde", Serdes.LongSerde.class.getName());
        configs.put("processing.guarantee", "exactly_once_v2");
        configs.put("commit.interval.ms", "200");
        configs.put("consumer.auto.offset.reset", "earliest");
        configs.put("consumer.session.timeout.ms", "6000");
        configs.put("statestore.cache.max.bytes", "0");
        for (int at = 5; at < arguments.length; at++) {
            String[] setting = arguments[at].split("=", 2);
            configs.put(setting[0], setting[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.<Long, Long>stream("in").groupByKey().count(Materialized.as("counts")).toStream().to("out");
        long begun = System.nanoTime();
        AtomicLong restored = new AtomicLong();
        KafkaStreams streams = new KafkaStreams(builder.build(configs), configs);
        streams.setGlobalStateRestoreListener(new StateRestoreListener() {
            @Override
            public void onRestoreStart(TopicPartition partition, String store, long from, long to) {}

            @Override
            public void onBatchRestored(TopicPartition partition, String store, long end, long count) {}

            @Override
            public void onRestoreEnd(TopicPartition partition, String store, long total) {
                restored.addAndGet(total);
            }
        });
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.printf("running after %d ms, restored %d%n", (System.nanoTime() - begun) / 1_000_000, restored.get());
            }
        });
        streams.start();
        while (true) {
            Thread.sleep(200);
            if (streams.state() != KafkaStreams.State.RUNNING) {
                continue;
            }
            ReadOnlyKeyValueStore<Long, Long> store = streams.store(StoreQueryParameters.fromNameAndType("counts", QueryableStoreTypes.keyValueStore()));
            long sum = 0;
            long wrong = 0;
            long found = 0;
            try (KeyValueIterator<Long, Long> all = store.all()) {
                while (all.hasNext()) {
                    var row = all.next();
                    sum += row.value;
                    found++;
                    if (row.value != updates / keys) {
                        wrong++;
                    }
                }
            } catch (org.apache.kafka.streams.errors.InvalidStateStoreException error) {
                continue;
            }
            if (sum >= updates) {
                System.out.printf("counted %d updates of %d keys, %d counts wrong, after %d ms%n", sum, found, wrong, (System.nanoTime() - begun) / 1_000_000);
                Thread.sleep(Duration.ofHours(1).toMillis());
            }
        }
    }
}
