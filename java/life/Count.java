import java.time.Duration;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
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
 * Count produce BOOTSTRAP UPDATES KEYS [PARTITIONS [UPDATES_PER_SECOND]]
 * Count output BOOTSTRAP UPDATES                          waits for all results, and says a digest of each key's results in order
 * Count run BOOTSTRAP FOLDER UPDATES KEYS [NAME=VALUE...]     runs until it is killed; says what it restored and when all counts are right
 * </pre>
 */
public final class Count {
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("produce")) {
            produce(arguments[1], Long.parseLong(arguments[2]), Long.parseLong(arguments[3]),
                    arguments.length > 4 ? Integer.parseInt(arguments[4]) : 1, arguments.length > 5 ? Long.parseLong(arguments[5]) : Long.MAX_VALUE);
        } else if (arguments[0].equals("output")) {
            output(arguments[1], Long.parseLong(arguments[2]));
        } else {
            run(arguments);
        }
    }

    private static void produce(String bootstrap, long updates, long keys, int partitions, long perSecond) throws Exception {
        Map<String, Object> configs = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", "20", "batch.size", "131072"));
        try (Admin admin = Admin.create(configs)) {
            if (!admin.listTopics().names().get().contains("in")) {
                admin.createTopics(List.of(new NewTopic("in", partitions, (short) 1), new NewTopic("out", partitions, (short) 1))).all().get();
            }
        }
        try (KafkaProducer<Long, Long> producer = new KafkaProducer<>(configs, new LongSerializer(), new LongSerializer())) {
            long begun = System.nanoTime();
            for (long at = 0; at < updates; at++) {
                // A key's records are in one partition, of all records the same ones each time.
                producer.send(new ProducerRecord<>("in", (int) (at % keys % partitions), at % keys, at));
                if (at % 100 == 0 && perSecond < Long.MAX_VALUE) {
                    long early = at * 1_000 / perSecond - (System.nanoTime() - begun) / 1_000_000;
                    if (early > 0) {
                        Thread.sleep(early);
                    }
                }
            }
        }
        System.out.println("produced " + updates);
    }

    private static void output(String bootstrap, long updates) throws Exception {
        Map<String, Object> configs = Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed");
        java.util.TreeMap<Long, StringBuilder> results = new java.util.TreeMap<>();
        long found = 0;
        try (KafkaConsumer<Long, Long> consumer = new KafkaConsumer<>(configs, new LongDeserializer(), new LongDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor("out").stream().map(info -> new TopicPartition("out", info.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long last = System.nanoTime();
            // What comes after the last expected result would be one too many: 3 s for it.
            while (System.nanoTime() - last < (found < updates ? 120 : 3) * 1_000_000_000L) {
                for (ConsumerRecord<Long, Long> record : consumer.poll(Duration.ofMillis(200))) {
                    results.computeIfAbsent(record.key(), none -> new StringBuilder()).append(record.value()).append(' ');
                    found++;
                    last = System.nanoTime();
                }
            }
        }
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        results.forEach((key, values) -> digest.update((key + ": " + values + "\n").getBytes()));
        System.out.println("output " + found + " results of " + results.size() + " keys, " + HexFormat.of().formatHex(digest.digest(), 0, 8));
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
