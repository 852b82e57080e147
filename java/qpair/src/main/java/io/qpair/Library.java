package io.qpair;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationTargetException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.DigestInputStream;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/**
 * The native library: the binding that calls it, and its file, unpacked from the jar if need be.
 *
 * <p>The system property {@code qpair.library} names a file to use instead of the one in the jar. {@code qpair.library.folder} names the folder into
 * which the library is unpacked; default: {@code qpair-USER} in the folder of temporary files. The file is named after its content, so that it
 * is unpacked once, and two versions can be side by side.
 */
final class Library {
    private static final String FOREIGN = "io.qpair.ForeignBinding";

    /** The calls of the library. The system property {@code qpair.binding} chooses {@code jni} or {@code foreign}; default: foreign where Java has it. */
    static final Binding CALLS = binding(System.getProperty("qpair.binding", ""));

    private Library() {}

    private static Binding binding(String name) {
        if (name.equals("jni")) {
            return new JniBinding();
        }
        if (!name.isEmpty() && !name.equals("foreign")) {
            throw new QpairException(QpairException.INVALID, "The system property qpair.binding is " + name + ": give jni or foreign");
        }
        try {
            // The jar has the class for Java 22 and newer.
            return (Binding) Class.forName(FOREIGN).getDeclaredConstructor().newInstance();
        } catch (ClassNotFoundException | UnsupportedClassVersionError error) {
            if (name.isEmpty()) {
                return new JniBinding();
            }
            throw new QpairException(QpairException.UNSUPPORTED, "Java " + Runtime.version().feature()
                    + " has no foreign function API: use Java 22 or newer, or leave qpair.binding out");
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw new IllegalStateException(error.getCause());
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    static Path path() {
        String given = System.getProperty("qpair.library");
        if (given != null) {
            return Path.of(given).toAbsolutePath();
        }
        String resource = "native/" + platform() + "/libqpair_java.so";
        try {
            return unpack(resource, folder());
        } catch (IOException error) {
            throw new UncheckedIOException("The native library of qpair cannot be unpacked to " + folder()
                    + ": choose another folder with -Dqpair.library.folder=FOLDER, on a file system without noexec", error);
        }
    }

    private static Path folder() {
        String given = System.getProperty("qpair.library.folder");
        return given != null ? Path.of(given).toAbsolutePath()
                : Path.of(System.getProperty("java.io.tmpdir"), "qpair-" + System.getProperty("user.name")).toAbsolutePath();
    }

    private static String platform() {
        String os = System.getProperty("os.name").toLowerCase();
        String processor = System.getProperty("os.arch");
        return os + "-" + (processor.equals("amd64") ? "x86_64" : processor);
    }

    private static Path unpack(String resource, Path folder) throws IOException {
        Path made = null;
        Files.createDirectories(folder);
        try (InputStream in = Library.class.getResourceAsStream(resource)) {
            if (in == null) {
                throw new QpairException(QpairException.UNSUPPORTED, "The jar of qpair has no native library for " + platform()
                        + ": build it with crates/jni/build, and name it with -Dqpair.library=FILE");
            }
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            made = Files.createTempFile(folder, "libqpair", ".part");
            Files.copy(new DigestInputStream(in, digest), made, StandardCopyOption.REPLACE_EXISTING);
            Path whole = folder.resolve("libqpair-" + HexFormat.of().formatHex(digest.digest(), 0, 8) + ".so");
            if (!Files.exists(whole)) {
                Files.move(made, whole, StandardCopyOption.ATOMIC_MOVE);
            }
            return whole;
        } catch (FileAlreadyExistsException | NoSuchAlgorithmException error) {
            throw new IOException(error);
        } finally {
            if (made != null) {
                Files.deleteIfExists(made);
            }
        }
    }
}
