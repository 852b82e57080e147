//! Two soft drives, served by one thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use qpair_softdev::{SoftNvme, SoftNvmeOptions};
use qpair_vfio_user::{Host, Idle, Server, ServerOptions};

pub(super) struct Served {
    paths: Vec<PathBuf>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    folder: PathBuf,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    clients: AtomicU64,
    /// The number of polling rounds of the thread.
    rounds: AtomicU64,
    undelivered: AtomicU64,
}

impl Served {
    pub(super) fn start() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("qpair-hostile-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{folder:?}: {error}"))?;
        let mut drives = Vec::new();
        let mut paths = Vec::new();
        for number in 0..2 {
            let path = folder.join(number.to_string());
            let options = SoftNvmeOptions::parse("size=8MiB,queues=4").map_err(said)?;
            let drive = SoftNvme::new(options).map_err(said)?;
            let server = Server::bind(&path, drive.clone(), ServerOptions::default());
            drives.push((drive, server.map_err(said)?));
            paths.push(path);
        }
        let shared = Arc::new(Shared::default());
        let thread = std::thread::spawn({
            let shared = shared.clone();
            move || {
                let mut host = Host::new(drives, Idle::default());
                while !shared.stop.load(Ordering::Relaxed) {
                    host.run_for(Duration::from_millis(1));
                    let (mut clients, mut undelivered) = (0, 0);
                    for (_, server) in host.drives() {
                        clients += u64::from(server.has_client());
                        undelivered += server.counters().undelivered_irqs;
                    }
                    shared.undelivered.store(undelivered, Ordering::Relaxed);
                    shared.clients.store(clients, Ordering::Relaxed);
                    shared.rounds.fetch_add(1, Ordering::Release);
                }
            }
        });
        Ok(Self { paths, shared, thread: Some(thread), folder })
    }

    pub(super) fn path(&self, drive: usize) -> &Path {
        &self.paths[drive]
    }

    pub(super) fn undelivered(&self) -> u64 {
        self.shared.undelivered.load(Ordering::Relaxed)
    }

    /// Waits until the server has noticed that all clients are gone.
    pub(super) fn wait_until_alone(&self) -> Result<(), String> {
        let start = self.shared.rounds.load(Ordering::Acquire);
        for _ in 0..30_000 {
            let is_seen = self.shared.rounds.load(Ordering::Acquire) > start + 2;
            if is_seen && self.shared.clients.load(Ordering::Relaxed) == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err("the server keeps a client that has gone".to_owned())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Formats an error with all its details.
pub(super) fn said(error: qpair_block::Error) -> String {
    error.to_string()
}
