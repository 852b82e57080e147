package org.apache.kafka.streams.tests;

import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;

/**
 * Makes the topics of Kafka's smoke test, and lets the test's own driver produce and verify: {@code SmokeDriver BOOTSTRAP SECONDS PARTITIONS}.
 * StreamsSmokeTest does the same, but takes 90 s to produce and wants the topics to be there.
 */
public final class SmokeDriver {
    private static final int KEYS = 20;
    private static final int RECORDS = 1_000;

    private SmokeDriver() {}

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        int partitions = Integer.parseInt(arguments[2]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(Arrays.stream(SmokeTestDriver.topics()).map(topic -> new NewTopic(topic, partitions, (short) 1)).toList()).all().get();
        }
        // Each partition has its leader by then: a first batch that fails makes the producer wait for its timeout of two minutes.
        Thread.sleep(2_000);
        System.out.println("topics are there");
        Map<String, Set<Integer>> produced = SmokeTestDriver.generate(bootstrap, KEYS, RECORDS, Duration.ofSeconds(Long.parseLong(arguments[1])));
        System.out.println("all is produced");
        SmokeTestUtil.VerificationResult result = SmokeTestDriver.verify(bootstrap, produced, RECORDS, true);
        System.exit(result.passed() ? 0 : 1);
    }
}
