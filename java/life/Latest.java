import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;

/**
 * The latest value of each key: a large state, of which each update reads and writes one row.
 *
 * <pre>
 * Latest produce BOOTSTRAP KEYS UPDATES VALUE_BYTES       each key once in a mixed order, then updates of random keys
 * Latest run BOOTSTRAP FOLDER KEYS UPDATES [NAME=VALUE...]     runs until it is killed; says when keys and updates were processed
 * </pre>
 */
public final class Latest {
    private Latest() {}

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("produce")) {
            produce(arguments[1], Long.parseLong(arguments[2]), Long.parseLong(arguments[3]), Integer.parseInt(arguments[4]));
        } else {
            run(arguments);
        }
    }

    private static void produce(String bootstrap, long keys, long updates, int valueBytes) throws Exception {
        Map<String, Object> configs = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", "20", "batch.size", "262144"));
        try (Admin admin = Admin.create(configs)) {
            admin.createTopics(List.of(new NewTopic("in", 1, (short) 1))).all().get();
        }
        Random random = new Random(1);
        byte[] value = new byte[valueBytes];
        try (KafkaProducer<Long, byte[]> producer = new KafkaProducer<>(configs, new LongSerializer(), new ByteArraySerializer())) {
            for (long at = 0; at < keys + updates; at++) {
                // Multiplication by an odd number is one to one; a key's number is its place in that order.
                long key = (at < keys ? at : random.nextLong(keys)) * 0x9E3779B97F4A7C15L;
                random.nextBytes(value);
                ByteBuffer.wrap(value).putLong(at);
                producer.send(new ProducerRecord<>("in", key, value.clone()));
            }
        }
        System.out.println("produced " + (keys + updates));
    }

    private static void run(String[] arguments) throws Exception {
        long keys = Long.parseLong(arguments[3]);
        long updates = Long.parseLong(arguments[4]);
        Properties configs = new Properties();
        configs.put("application.id", "latest");
        configs.put("bootstrap.servers", arguments[1]);
        configs.put("state.dir", arguments[2]);
        configs.put("default.key.serde", Serdes.LongSerde.class.getName());
        configs.put("default.value.serde", Serdes.ByteArraySerde.class.getName());
        configs.put("processing.guarantee", "exactly_once_v2");
        configs.put("commit.interval.ms", "200");
        configs.put("consumer.auto.offset.reset", "earliest");
        configs.put("consumer.session.timeout.ms", "6000");
        configs.put("statestore.cache.max.bytes", "0");
        for (int at = 5; at < arguments.length; at++) {
            String[] setting = arguments[at].split("=", 2);
            configs.put(setting[0], setting[1]);
        }
        AtomicLong processed = new AtomicLong();
        AtomicLong restored = new AtomicLong();
        StreamsBuilder builder = new StreamsBuilder();
        builder.<Long, byte[]>stream("in").groupByKey().reduce((before, now) -> now, Materialized.as("latest")).toStream()
                .foreach((key, value) -> processed.incrementAndGet());
        long begun = System.nanoTime();
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
        long filled = 0;
        while (true) {
            Thread.sleep(20);
            long now = System.nanoTime();
            if (filled == 0 && processed.get() >= keys) {
                filled = now;
                System.out.printf("filled %d keys after %d ms%n", keys, (now - begun) / 1_000_000);
            }
            if (filled != 0 && processed.get() >= keys + updates) {
                System.out.printf("updated %d in %d ms: %.0f a second%n", updates, (now - filled) / 1_000_000, updates * 1e9 / (now - filled));
                Thread.sleep(Duration.ofHours(1).toMillis());
            }
        }
    }
}
