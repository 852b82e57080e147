package io.qpair.kafka.streams;

import org.apache.kafka.common.utils.Bytes;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The bounds of ranges of keys. */
final class Ranges {
    private static final Logger LOG = LoggerFactory.getLogger(Ranges.class);

    private Ranges() {}

    /** Returns whether a range ends before it begins, and warns if so in the words of Kafka's stores. */
    static boolean invalid(Bytes from, Bytes to) {
        if (from == null || to == null || from.compareTo(to) <= 0) {
            return false;
        }
        LOG.warn("Returning empty iterator for fetch with invalid key range: from > to. "
                + "This may be due to range arguments set in the wrong order, "
                + "or serdes that don't preserve ordering when lexicographically comparing the serialized bytes. "
                + "Note that the built-in numerical serdes do not follow this for negative numbers");
        return true;
    }
}
