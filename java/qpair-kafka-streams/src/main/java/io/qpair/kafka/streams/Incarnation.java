package io.qpair.kafka.streams;

import java.io.File;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.security.SecureRandom;
import org.apache.kafka.streams.errors.ProcessorStateException;

/** The random number of a task's folder, in its file {@code qpair.incarnation}. A folder that was wiped has another one. */
final class Incarnation {
    static final String FILE = "qpair.incarnation";
    private static final int BYTES = 16;

    private Incarnation() {}

    /** Returns the number of a folder, made if it has none. */
    static synchronized byte[] of(File folder) {
        Path file = folder.toPath().resolve(FILE);
        try {
            byte[] found = Files.readAllBytes(file);
            if (found.length == BYTES) {
                return found;
            }
        } catch (NoSuchFileException error) {
            // A new task, or one that was wiped.
        } catch (IOException error) {
            throw new ProcessorStateException("The incarnation file " + file + " cannot be read", error);
        }
        byte[] made = new byte[BYTES];
        new SecureRandom().nextBytes(made);
        try {
            Files.createDirectories(folder.toPath());
            Path part = Files.createTempFile(folder.toPath(), FILE, ".tmp");
            try (FileChannel channel = FileChannel.open(part, StandardOpenOption.WRITE)) {
                channel.write(java.nio.ByteBuffer.wrap(made));
                channel.force(true);
            }
            Files.move(part, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        } catch (IOException error) {
            throw new ProcessorStateException("The incarnation file " + file + " cannot be written", error);
        }
        return made;
    }
}
