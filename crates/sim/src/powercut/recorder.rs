//! The place where the logs of all devices arrive, in one order.
//!
//! Each `blklogwrites` node writes its log to an NBD server of this process. The order in which
//! these writes arrive is the record's time: a request of a device was submitted before its entry
//! arrived, and was answered after it. Marks of the load go into the same order. So whatever a mark
//! says had happened before each entry behind it.

use qpair_block::locks::Mutex;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::format::HEADER_BYTES;
use crate::nbd::{self, Medium};

/// Bytes that a log may come to. A load of a few seconds writes a hundredth of it.
const LOG_BYTES_MAX: u64 = 1 << 30;

/// Something that the load knew at a moment of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The store was open, and what a crash before had left had been read.
    Opened,
    /// A command of the program is run from here on.
    Command,
    /// This operation of this writer had returned; `durable` if it had to survive a loss of power
    /// from then on, with all before it.
    Returned { writer: usize, operation: usize, durable: bool },
    /// A store that was made beside the first one was whole.
    Made,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Bytes at a place of a device's log. Most are an entry.
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

    /// Listens at a socket for the daemon that writes the log of a device, and serves it on a
    /// thread until it goes.
    pub(super) fn listen(&self, device: usize, socket: &Path) -> io::Result<()> {
        let listener = UnixListener::bind(socket)?;
        let mut log = Log { recorder: self.clone(), device };
        let server =
            std::thread::Builder::new().name(format!("log-{device}")).spawn(move || {
                if let Ok((client, _)) = listener.accept() {
                    // A daemon that was ended took no leave; its log is judged as it is.
                    let _ = nbd::serve(client, &mut log);
                }
            })?;
        self.0.lock().servers.push(server);
        Ok(())
    }

    /// Waits until all that the daemon sent has arrived, once it has ended.
    pub(super) fn wait(&self) {
        let servers = std::mem::take(&mut self.0.lock().servers);
        for server in servers {
            // One that panicked lacks an entry, which the record notices.
            let _ = server.join();
        }
    }

    /// The logs and all that arrived, once the daemon has ended.
    pub(super) fn take(&self) -> (Vec<Vec<u8>>, Vec<Arrival>) {
        let state = std::mem::take(&mut *self.0.lock());
        (state.logs, state.arrivals)
    }
}

/// The log of one device, as the server has it.
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
        // Below the server's size, which is below what memory can have.
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
