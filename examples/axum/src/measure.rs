//! `get_async` beside a task on the store's workers: called by itself, and in a handler over HTTP.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use qpair::{Options, Store, Table, WriteBatch};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::Outcome;
use crate::server::{read_spawned, routes};

const RECORDS: u64 = 200_000;
const VALUE: [u8; 120] = [7; 120];
const CLIENTS: usize = 64;
const ROUNDS: usize = 5;
const TURN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Await,
    Spawn,
}

fn key(number: u64) -> String {
    format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// What a turn came to: requests, and microseconds of the processor for each.
struct Turn {
    requests_per_s: f64,
    cpu_us: f64,
}

/// Processor time of this process, all threads, clock ticks of 10 ms.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    Duration::from_millis(10 * fields.filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>())
}

/// Runs `client` for each client for the time of a turn; it gives the requests that it made before
/// the instant it is told.
async fn turn<F>(client: impl Fn(fastrand::Rng, Instant) -> F) -> Outcome<Turn>
where
    F: Future<Output = Outcome<u64>> + Send + 'static,
{
    let (start, before) = (Instant::now(), cpu());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| tokio::spawn(client(fastrand::Rng::with_seed(number as u64), start + TURN)))
        .collect();
    let mut requests = 0;
    for client in clients {
        requests += client.await??;
    }
    let (took, spent) = (start.elapsed(), cpu().saturating_sub(before));
    Ok(Turn {
        requests_per_s: requests as f64 / took.as_secs_f64(),
        cpu_us: spent.as_secs_f64() * 1e6 / requests.max(1) as f64,
    })
}

async fn calls(store: &Store, table: &Table, way: Way) -> Outcome<Turn> {
    turn(|mut rng, until| {
        let (store, table) = (store.clone(), table.clone());
        async move {
            let mut requests = 0;
            while Instant::now() < until {
                let key = key(rng.u64(..RECORDS));
                let value = match way {
                    Way::Await => table.get_async(key.as_bytes()).await?,
                    Way::Spawn => {
                        let task = table.task();
                        store.spawn(move || async move { task.get(key.as_bytes()).await }).await??
                    }
                };
                if value.as_deref() != Some(&VALUE[..]) {
                    return Err("a record is missing".into());
                }
                requests += 1;
                // What is in memory never waits, and the other clients of the thread must run.
                if requests % 64 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            Ok(requests)
        }
    })
    .await
}

/// A server on a port of its own.
async fn listen(app: Router) -> Result<SocketAddr, std::io::Error> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

/// One request at a time over a connection that stays.
async fn http(address: SocketAddr) -> Outcome<Turn> {
    turn(|mut rng, until| async move {
        let mut connection = TcpStream::connect(address).await?;
        connection.set_nodelay(true)?;
        let (mut answer, mut requests) = (Vec::new(), 0);
        while Instant::now() < until {
            let request =
                format!("GET /kv/{} HTTP/1.1\r\nhost: localhost\r\n\r\n", key(rng.u64(..RECORDS)));
            connection.write_all(request.as_bytes()).await?;
            answer.clear();
            // The value is the end of the answer, and its bytes are in no header.
            while !answer.ends_with(&VALUE) {
                if connection.read_buf(&mut answer).await? == 0 || answer.len() > 4096 {
                    return Err(format!("no value: {}", answer.escape_ascii()).into());
                }
            }
            requests += 1;
        }
        Ok(requests)
    })
    .await
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn report(what: &str, turns: &[(Turn, Turn)]) {
    let of = |number: &dyn Fn(&(Turn, Turn)) -> f64| median(turns.iter().map(number).collect());
    println!(
        "{what:<22}{:>12.0}{:>12.0}{:>8.2}{:>10.2}{:>10.2}{:>8.2}",
        of(&|it| it.0.requests_per_s),
        of(&|it| it.1.requests_per_s),
        of(&|it| it.0.requests_per_s / it.1.requests_per_s),
        of(&|it| it.0.cpu_us),
        of(&|it| it.1.cpu_us),
        of(&|it| it.0.cpu_us / it.1.cpu_us),
    );
}

async fn compare(place: &str, store: &Store, table: &Table) -> Outcome {
    let awaited = listen(routes(table.clone())).await?;
    let state = (store.clone(), table.clone());
    let spawned =
        listen(Router::new().route("/kv/{key}", get(read_spawned)).with_state(state)).await?;
    let (mut called, mut served) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        called
            .push((calls(store, table, Way::Await).await?, calls(store, table, Way::Spawn).await?));
        served.push((http(awaited).await?, http(spawned).await?));
    }
    report(&format!("calls, {place}"), &called);
    report(&format!("HTTP, {place}"), &served);
    Ok(())
}

fn fill(path: &str) -> Outcome {
    /// Records of a batch, which is one commit.
    const BATCH: u64 = 1000;
    let store = Options::new(path).format(true).open()?;
    let table = store.table("kv")?;
    for first in (0..RECORDS).step_by(BATCH as usize) {
        let mut batch = WriteBatch::default();
        for number in first..(first + BATCH).min(RECORDS) {
            batch.put(&table, key(number).as_bytes(), &VALUE);
        }
        store.write(&batch)?;
    }
    drop(table);
    Ok(store.close()?)
}

/// Measures both ways over a store in memory, and over one that is far larger than its memory.
pub(crate) fn measure(path: &str) -> Outcome {
    if std::path::Path::new(path).exists() {
        return Err(format!("{path} is there already, and would be written over").into());
    }
    fill(path)?;
    println!(
        "{RECORDS} records of 16 and {} bytes, {CLIENTS} clients, medians of {ROUNDS} turns of {TURN:?}",
        VALUE.len()
    );
    println!(
        "{:<22}{:>12}{:>12}{:>8}{:>10}{:>10}{:>8}",
        "", "await, 1/s", "spawn, 1/s", "ratio", "CPU, us", "CPU, us", "ratio"
    );
    for (place, memory_bytes) in [("in memory", 256 << 20), ("4 MiB of memory", 4 << 20)] {
        let store = Options::new(path).memory_bytes(memory_bytes).open()?;
        let table = store.table("kv")?;
        let runtime = Runtime::new()?;
        let outcome = runtime.block_on(compare(place, &store, &table));
        drop((runtime, table));
        store.close()?;
        outcome?;
    }
    std::fs::remove_file(path)?;
    Ok(())
}
