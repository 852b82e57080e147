package io.qpair;

/** An error of the store: a code for programs and a sentence for people. */
public class QpairException extends RuntimeException {
    public static final int INVALID = 1;
    public static final int KEY_TOO_LONG = 2;
    public static final int VALUE_TOO_LONG = 3;
    public static final int NOT_FOUND = 4;
    public static final int EXISTS = 5;
    public static final int BUSY = 7;
    public static final int CORRUPT = 12;
    public static final int NO_SPACE = 13;
    public static final int UNSUPPORTED = 15;
    public static final int READ_ONLY = 17;
    public static final int IO = 18;
    public static final int CLOSED = 19;
    public static final int CONFLICT = 20;
    public static final int TIMED_OUT = 21;
    public static final int TOO_LARGE = 22;
    public static final int SNAPSHOT_LOST = 23;
    public static final int MISUSE = 26;
    public static final int FORKED = 27;

    private static final long serialVersionUID = 1L;
    private final int code;

    QpairException(int code, String message) {
        super(message);
        this.code = code;
    }

    /** Returns the code of the C interface, such as {@link #CONFLICT}. */
    public int code() {
        return code;
    }
}
