//! Collects the logs of all devices, in one order.
//!
//! Each `blklogwrites` node writes its log to an NBD server of this process. The order in which
//! these writes arrive is the record's time: a device's request was submitted before its entry
//! arrived, and was answered after that. Marks of the load enter the same order. A mark therefore
//! precedes every entry behind it.

use qpair_block::locks::Mutex;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::format::HEADER_BYTES;
use crate::nbd::{self, Medium};

/// The maximum size of a log, in bytes. A load of a few seconds writes a hundredth of this.
const LOG_BYTES_MAX: u64 = 1 << 30;

/// A fact that the load knew at a moment of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The store was open, and the state that the last crash had left was read.
    Opened,
    /// A command of the program begins.
    Command,
    /// This operation of this writer had returned. If `durable`, it and all earlier operations had
    /// to survive a loss of power from then on.
    Returned { writer: usize, operation: usize, durable: bool },
    /// A store that was made beside the first one was complete.
    Made,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Bytes written to a device's log. Most such writes are one entry.
    Log {
        device: usize,
        at: u64,
    },
    Mark(Mark),
}

#[derive(Default)]
struct State {
    logs: Vec<Vec<u8>>,
    arrivals: Vec<Arrival>,
    servers: Vec<JoinHandle<()>>,
}

/// Collects the logs of the devices of one recording.
#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<State>>);

impl Recorder {
    pub(super) fn new(devices: usize) -> Self {
        let state = State { logs: vec![Vec::new(); devices], ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    pub(super) fn mark(&self, mark: Mark) {
        self.0.lock().arrivals.push(Arrival::Mark(mark));
    }

    /// Listens on a socket for the daemon that writes the log of a device, and serves it on a
    /// thread until it disconnects.
    pub(super) fn listen(&self, device: usize, socket: &Path) -> io::Result<()> {
        let listener = UnixListener::bind(socket)?;
        let mut log = Log { recorder: self.clone(), device };
        let server =
            std::thread::Builder::new().name(format!("log-{device}")).spawn(move || {
                if let Ok((client, _)) = listener.accept() {
                    // A daemon that was killed disconnects without a request. Its log is judged as
                    // it is.
                    let _ = nbd::serve(client, &mut log);
                }
            })?;
        self.0.lock().servers.push(server);
        Ok(())
    }

    /// Waits until all that the daemon sent has arrived. The daemon must have ended.
    pub(super) fn wait(&self) {
        let servers = std::mem::take(&mut self.0.lock().servers);
        for server in servers {
            // A server that panicked lost an entry, which is noticed when the record is parsed.
            let _ = server.join();
        }
    }

    /// Returns the logs and all arrivals. The daemon must have ended.
    pub(super) fn take(&self) -> (Vec<Vec<u8>>, Vec<Arrival>) {
        let state = std::mem::take(&mut *self.0.lock());
        (state.logs, state.arrivals)
    }
}

/// The log of one device, as an NBD medium.
struct Log {
    recorder: Recorder,
    device: usize,
}

impl Medium for Log {
    fn size_bytes(&self) -> u64 {
        LOG_BYTES_MAX
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let state = self.recorder.0.lock();
        let log = state.logs.get(self.device).map_or(&[][..], Vec::as_slice);
        let there = log.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let len = there.len().min(bytes.len());
        bytes[..len].copy_from_slice(&there[..len]);
        bytes[len..].fill(0);
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8], _forced: bool) -> io::Result<()> {
        let mut state = self.recorder.0.lock();
        let State { logs, arrivals, .. } = &mut *state;
        let Some(log) = logs.get_mut(self.device) else { return Ok(()) };
        // The offset is below the server's size, which fits in memory.
        let at = offset as usize;
        let end = at + bytes.len();
        if log.len() < end {
            log.resize(end, 0);
        }
        log[at..end].copy_from_slice(bytes);
        if at > 0 && bytes.len() >= HEADER_BYTES {
            arrivals.push(Arrival::Log { device: self.device, at: offset });
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
