//! Writes a second through `Raft::client_write`, in groups of one member each: what the log and
//! the state machine of a store cost, without a network.
//!
//! `appends STORE GROUPS CLIENTS SECONDS FOLDER`: STORE is `qpair` (openraft 0.10) or `qpair-0.9`,
//! all groups in one store, or `rocksstore` (openraft 0.9, a RocksDB for each group), if built with
//! that feature alone. The clients are shared out among the groups; each waits for its write before
//! it makes the next one.

#![allow(clippy::print_stdout, reason = "a program")]

mod alone;
#[cfg(feature = "qpair")]
mod on_qpair;
#[cfg(feature = "qpair")]
mod on_qpair_0_9;
#[cfg(feature = "rocksstore")]
mod on_rocksstore;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Failure = Box<dyn Error + Send + Sync>;

/// The bytes of a value; a key has 16.
const VALUE_LEN: usize = 128;
const KEYS: u64 = 100_000;

/// A group of one member, which leads it.
trait Group: Clone + Send + 'static {
    fn write(&self, key: String, value: String)
    -> impl Future<Output = Result<(), Failure>> + Send;
}

struct Load {
    clients: usize,
    seconds: f64,
}

impl Load {
    /// Runs the clients, and says how many writes they made.
    async fn run<G: Group>(&self, store: &str, groups: Vec<G>) -> Result<(), Failure> {
        let writes = Arc::new(AtomicU64::new(0));
        let ended = Arc::new(AtomicBool::new(false));
        let mut clients = Vec::new();
        for client in 0..self.clients {
            let (group, writes, ended) =
                (groups[client % groups.len()].clone(), writes.clone(), ended.clone());
            clients.push(tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(client as u64);
                while !ended.load(Ordering::Relaxed) {
                    let key = format!("{:016x}", random.u64(..KEYS));
                    let value = random.alphanumeric().to_string().repeat(VALUE_LEN);
                    group.write(key, value).await?;
                    writes.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), Failure>(())
            }));
        }
        // The first tenth is not counted: logs grow to their size, and threads start.
        tokio::time::sleep(Duration::from_secs_f64(self.seconds / 10.0)).await;
        let (before, began, cpu_before) =
            (writes.load(Ordering::Relaxed), Instant::now(), cpu_seconds());
        tokio::time::sleep(Duration::from_secs_f64(self.seconds)).await;
        let made = writes.load(Ordering::Relaxed) - before;
        let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu_before);
        ended.store(true, Ordering::Relaxed);
        for client in clients {
            client.await??;
        }
        println!(
            "{{\"store\": \"{store}\", \"groups\": {}, \"clients\": {}, \"writes_per_s\": {:.0}, \"cpu_us_per_write\": {:.1}}}",
            groups.len(),
            self.clients,
            made as f64 / seconds,
            cpu * 1e6 / made.max(1) as f64
        );
        Ok(())
    }
}

fn cpu_seconds() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

fn main() -> Result<(), Failure> {
    const USAGE: &str = "usage: appends qpair|qpair-0.9|rocksstore GROUPS CLIENTS SECONDS FOLDER";
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [store, groups, clients, seconds, folder] = &words[..] else { return Err(USAGE.into()) };
    let groups: usize = groups.parse()?;
    let load = Load { clients: clients.parse()?, seconds: seconds.parse()? };
    if groups == 0 {
        return Err(USAGE.into());
    }
    std::fs::create_dir_all(folder)?;
    let folder = Path::new(folder);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match store.as_str() {
            #[cfg(feature = "qpair")]
            "qpair" => load.run(store, on_qpair::groups(folder, groups).await?).await,
            #[cfg(feature = "qpair")]
            "qpair-0.9" => load.run(store, on_qpair_0_9::groups(folder, groups).await?).await,
            #[cfg(feature = "rocksstore")]
            "rocksstore" => load.run(store, on_rocksstore::groups(folder, groups).await?).await,
            _ => Err(USAGE.into()),
        }
    })
}
