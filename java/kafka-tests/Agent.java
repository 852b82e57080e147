import static net.bytebuddy.matcher.ElementMatchers.isConstructor;
import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.nameStartsWith;
import static net.bytebuddy.matcher.ElementMatchers.takesArgument;

import io.qpair.kafka.streams.QpairDslStoreSuppliers;
import io.qpair.kafka.streams.QpairStores;
import java.lang.instrument.Instrumentation;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Properties;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.implementation.MethodDelegation;
import net.bytebuddy.implementation.bind.annotation.AllArguments;
import net.bytebuddy.implementation.bind.annotation.Origin;
import net.bytebuddy.implementation.bind.annotation.RuntimeType;
import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslWindowParams;

/**
 * Puts the persistent stores of Kafka's tests into qpair: {@code Stores.persistent...} and the RocksDB suppliers of topologies return suppliers of
 * qpair's stores. Kafka's tests stay as they were compiled.
 *
 * <p>Brokers keep all records. Some tests write records of the year 1970, which a broker removes 30 s after its start, by its default of seven days:
 * on a slow machine before the application has read them. The argument {@code rocksdb} does that alone, and leaves the stores as they are.
 *
 * <p>The number of suppliers that were made is printed at the end, so that a run whose stores were RocksDB's is told from one over qpair.
 */
public final class Agent {
    private static final java.util.concurrent.atomic.AtomicInteger MADE = new java.util.concurrent.atomic.AtomicInteger();

    private Agent() {}

    /** Called by the JVM before the tests. */
    public static void premain(String arguments, Instrumentation instrumentation) {
        AgentBuilder builders = new AgentBuilder.Default()
                .type(named("org.apache.kafka.streams.integration.utils.EmbeddedKafkaCluster"))
                .transform((builder, type, loader, module, domain) ->
                        builder.visit(Advice.to(Retention.class).on(isConstructor().and(takesArgument(1, Properties.class)))));
        if ("rocksdb".equals(arguments)) {
            builders.installOn(instrumentation);
            return;
        }
        builders.type(named("org.apache.kafka.streams.state.Stores"))
                .transform((builder, type, loader, module, domain) ->
                        builder.method(nameStartsWith("persistent")).intercept(MethodDelegation.to(Agent.class)))
                .type(named("org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$RocksDBDslStoreSuppliers"))
                .transform((builder, type, loader, module, domain) ->
                        builder.method(named("keyValueStore").or(named("windowStore")).or(named("sessionStore"))).intercept(MethodDelegation.to(Agent.class)))
                .installOn(instrumentation);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("suppliers of qpair: " + MADE.get())));
    }

    /** What a constructor of a cluster does first: its brokers keep all records. */
    public static final class Retention {
        private Retention() {}

        /** Sets the retention, unless the test has. */
        @Advice.OnMethodEnter
        public static void keep(@Advice.Argument(1) Properties brokers) {
            brokers.putIfAbsent("log.retention.ms", "-1");
        }
    }

    /** Returns qpair's supplier in place of the one that was asked for. */
    @RuntimeType
    public static Object supplier(@Origin Method method, @AllArguments Object[] given) {
        MADE.incrementAndGet();
        QpairDslStoreSuppliers topology = new QpairDslStoreSuppliers();
        return switch (method.getName()) {
            case "keyValueStore" -> topology.keyValueStore((DslKeyValueParams) given[0]);
            case "windowStore" -> topology.windowStore((DslWindowParams) given[0]);
            case "sessionStore" -> topology.sessionStore((DslSessionParams) given[0]);
            case "persistentKeyValueStore" -> QpairStores.keyValueStore((String) given[0]);
            case "persistentTimestampedKeyValueStore" -> QpairStores.timestampedKeyValueStore((String) given[0]);
            case "persistentTimestampedKeyValueStoreWithHeaders" -> QpairStores.keyValueStoreWithHeaders((String) given[0]);
            case "persistentVersionedKeyValueStore" -> QpairStores.versionedKeyValueStore((String) given[0], (Duration) given[1]);
            case "persistentWindowStore" ->
                QpairStores.windowStore((String) given[0], (Duration) given[1], (Duration) given[2], (boolean) given[3]);
            case "persistentTimestampedWindowStore" ->
                QpairStores.timestampedWindowStore((String) given[0], (Duration) given[1], (Duration) given[2], (boolean) given[3]);
            case "persistentTimestampedWindowStoreWithHeaders" ->
                QpairStores.windowStoreWithHeaders((String) given[0], (Duration) given[1], (Duration) given[2], (boolean) given[3]);
            case "persistentSessionStore" -> QpairStores.sessionStore((String) given[0], (Duration) given[1]);
            case "persistentSessionStoreWithHeaders" -> QpairStores.sessionStoreWithHeaders((String) given[0], (Duration) given[1]);
            default -> throw new IllegalStateException(method + " has no counterpart in QpairStores");
        };
    }
}
