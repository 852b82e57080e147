package io.qpair;

import java.lang.ref.Cleaner;

/**
 * A handle of the library: closed once, by {@link #close} or, if it was forgotten, after the garbage collector has found it.
 *
 * <p>A call with a closed handle throws a {@link QpairException}. Closing twice does nothing.
 */
abstract sealed class Handle implements AutoCloseable permits Store, Table, Batch, Transaction, Snapshot, Range {
    private static final Cleaner CLEANER = Cleaner.create();
    private static final int BUSY_MS_MAX = 2_000;

    private final State state;
    private final Cleaner.Cleanable cleanable;

    Handle(Binding.Kind kind, long handle) {
        state = new State(kind, handle);
        cleanable = CLEANER.register(this, state);
    }

    final long handle() {
        long handle = state.handle;
        if (handle == 0) {
            throw new QpairException(QpairException.MISUSE, "The " + state.kind.name().toLowerCase() + " is closed: use it before its close");
        }
        return handle;
    }

    /** Returns whether {@link #close} has not been called. */
    public final boolean isOpen() {
        return state.handle != 0;
    }

    /** Forgets the handle, which a call of the library has closed. */
    final void forget() {
        state.handle = 0;
        cleanable.clean();
    }

    /** Closes the handle. Waits while other threads are in calls with it, for up to two seconds. */
    @Override
    public void close() {
        state.close();
        cleanable.clean();
    }

    private static final class State implements Runnable {
        private final Binding.Kind kind;
        private volatile long handle;

        State(Binding.Kind kind, long handle) {
            this.kind = kind;
            this.handle = handle;
        }

        synchronized void close() {
            long closing = handle;
            for (int waited = 0; closing != 0; waited++) {
                try {
                    handle = 0;
                    Library.CALLS.close(kind, closing);
                    return;
                } catch (QpairException error) {
                    if (error.code() != QpairException.BUSY || waited == BUSY_MS_MAX) {
                        handle = error.code() == QpairException.BUSY ? closing : 0;
                        throw error;
                    }
                }
                try {
                    Thread.sleep(1);
                } catch (InterruptedException error) {
                    handle = closing;
                    Thread.currentThread().interrupt();
                    throw new QpairException(QpairException.BUSY, "The close was interrupted while another thread used the handle: close it again");
                }
            }
        }

        @Override
        public void run() {
            try {
                close();
            } catch (QpairException error) {
                // Nobody is left who could be told; the library has closed the handle, or the process is ending.
                handle = 0;
            }
        }
    }
}
