package org.apache.kafka.streams.tests;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;

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
        awaitProcessed(bootstrap);
        SmokeTestUtil.VerificationResult result = SmokeTestDriver.verify(bootstrap, produced, RECORDS, true);
        // The verifier reads the end of a topic and then its own position: the application may write between the two.
        while (!result.passed() && result.result().contains("is larger than topic endOffset")) {
            Thread.sleep(5_000);
            result = SmokeTestDriver.verify(bootstrap, produced, RECORDS, true);
        }
        System.out.println(result.result());
        System.exit(result.passed() ? 0 : 1);
    }

    /** Waits, for ten minutes at most, until the application has committed all that was produced. */
    private static void awaitProcessed(String bootstrap) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            for (int second = 0; second < 600; second++) {
                long behind = 0;
                Map<TopicPartition, OffsetAndMetadata> committed = admin.listConsumerGroupOffsets("SmokeTest").partitionsToOffsetAndMetadata().get();
                for (TopicPartitionInfo info : admin.describeTopics(List.of("data")).allTopicNames().get().get("data").partitions()) {
                    TopicPartition partition = new TopicPartition("data", info.partition());
                    long end = admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get().offset();
                    OffsetAndMetadata there = committed.get(partition);
                    behind += end - (there == null ? 0 : there.offset());
                }
                if (behind == 0) {
                    return;
                }
                Thread.sleep(1_000);
            }
        }
    }
}
