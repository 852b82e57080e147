package org.apache.kafka.streams.tests;

import java.io.FileInputStream;
import java.util.Properties;

/** Runs the application of Kafka's smoke test until it is killed: {@code SmokeProcess NAME PROPERTIES}. */
public final class SmokeProcess {
    private SmokeProcess() {}

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream in = new FileInputStream(arguments[1])) {
            properties.load(in);
        }
        new SmokeTestClient(arguments[0]).start(properties);
    }
}
