import org.apache.kafka.common.test.KafkaClusterTestKit;
import org.apache.kafka.common.test.TestKitNodes;

/** A Kafka broker of one process, with KRaft. Prints its address, and ends with its standard input. */
public final class Broker {
    public static void main(String[] arguments) throws Exception {
        TestKitNodes nodes = new TestKitNodes.Builder().setCombined(true).setNumBrokerNodes(1).setNumControllerNodes(1).build();
        KafkaClusterTestKit.Builder builder = new KafkaClusterTestKit.Builder(nodes);
        String[] ones = {"offsets.topic.replication.factor", "transaction.state.log.replication.factor", "transaction.state.log.min.isr",
            "transaction.state.log.num.partitions", "offsets.topic.num.partitions", "share.coordinator.state.topic.replication.factor",
            "share.coordinator.state.topic.min.isr"};
        for (String one : ones) {
            builder.setConfigProp(one, "1");
        }
        builder.setConfigProp("group.initial.rebalance.delay.ms", "0");
        try (KafkaClusterTestKit cluster = builder.build()) {
            cluster.format();
            cluster.startup();
            cluster.waitForReadyBrokers();
            System.out.println("broker " + cluster.bootstrapServers());
            while (System.in.read() >= 0) {
                // Until the end of the input.
            }
        }
    }
}
