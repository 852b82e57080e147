//! Clients, and the history of their calls.

use crate::Failure;
use crate::frames::{receive, send};
use crate::member::{Answer, Ask};
use crate::service::{Change, Made};
use serde::Serialize;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

const KEYS: u64 = 12;

/// A call of a client, as the checker reads it. Times are in nanoseconds since the trial began.
#[derive(Serialize)]
struct Event {
    client: u64,
    /// `get`, `put` or `swap`.
    op: &'static str,
    key: String,
    value: u64,
    expected: u64,
    made: bool,
    /// Whether the outcome is known. If not, the call may take effect at any later time, or never.
    known: bool,
    called_ns: u64,
    returned_ns: u64,
}

pub(crate) struct History {
    out: Mutex<std::io::BufWriter<std::fs::File>>,
    began: Instant,
    next_client: AtomicU64,
    next_value: AtomicU64,
    pub(crate) known: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) ended: AtomicBool,
}

impl History {
    pub(crate) fn new(path: &std::path::Path) -> Result<Self, Failure> {
        Ok(Self {
            out: Mutex::new(std::io::BufWriter::new(std::fs::File::create(path)?)),
            began: Instant::now(),
            next_client: AtomicU64::new(0),
            next_value: AtomicU64::new(1),
            known: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        })
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn write(&self, event: &Event) -> Result<(), Failure> {
        let counter = if event.known { &self.known } else { &self.unknown };
        counter.fetch_add(1, Ordering::Relaxed);
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        Ok(self.out.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)?)
    }

    pub(crate) fn finish(&self) -> Result<(), Failure> {
        Ok(self.out.lock().unwrap_or_else(PoisonError::into_inner).flush()?)
    }
}

pub(crate) async fn ask_once(stream: &mut TcpStream, ask: &Ask) -> Result<Answer, Failure> {
    send(stream, ask).await?;
    receive(stream).await
}

/// A client: one call after the other, to a member that it takes for the leader.
pub(crate) async fn run(
    history: Arc<History>,
    members: Vec<String>,
    any_member: bool,
    seed: u64,
) -> Result<(), Failure> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut client = history.next_client.fetch_add(1, Ordering::Relaxed);
    let mut seen = vec![0; KEYS as usize];
    let mut member = random.usize(..members.len());
    let mut stream = None;
    while !history.ended.load(Ordering::Relaxed) {
        let at = random.usize(..seen.len());
        let key = format!("key-{at:02}");
        let value = history.next_value.fetch_add(1, Ordering::Relaxed);
        let (op, expected) = match random.u8(..10) {
            0..5 => ("get", 0),
            5..8 => ("put", 0),
            _ => ("swap", seen[at]),
        };
        let ask = match op {
            "get" => Ask::Get(key.clone()),
            "put" => Ask::Change(Change::Put { key: key.clone(), value }),
            _ => Ask::Change(Change::Swap { key: key.clone(), expected, value }),
        };
        if any_member && op == "get" {
            (member, stream) = (random.usize(..members.len()), None);
        }
        let called_ns = history.now_ns();
        let (answer, sent) = call(&mut stream, &members[member], &ask).await;
        let mut event = Event {
            client,
            op,
            key,
            value,
            expected,
            made: true,
            known: true,
            called_ns,
            returned_ns: history.now_ns(),
        };
        match answer {
            Some(Answer::Number(number)) => {
                event.value = number;
                seen[at] = number;
                history.write(&event)?;
            }
            Some(Answer::Made(Made(made))) => {
                event.made = made;
                if made {
                    seen[at] = value;
                }
                history.write(&event)?;
            }
            _ => {
                let refused = matches!(answer, Some(Answer::Refused)) || !sent;
                if !refused && op != "get" {
                    event.known = false;
                    history.write(&event)?;
                    // A call without an end: what follows is another client's.
                    client = history.next_client.fetch_add(1, Ordering::Relaxed);
                }
                (member, stream) = ((member + 1) % members.len(), None);
                tokio::time::sleep(Duration::from_millis(random.u64(5..30))).await;
            }
        }
    }
    Ok(())
}

/// The answer, if there was one, and whether the call may have reached the member.
async fn call(stream: &mut Option<TcpStream>, address: &str, ask: &Ask) -> (Option<Answer>, bool) {
    let mut connected = match stream.take() {
        Some(stream) => stream,
        None => match TcpStream::connect(address).await {
            Ok(stream) => stream,
            Err(_) => return (None, false),
        },
    };
    // Only a matter of speed.
    let _ = connected.set_nodelay(true);
    let limit = Duration::from_secs(2);
    match tokio::time::timeout(limit, ask_once(&mut connected, ask)).await {
        Ok(Ok(answer)) => {
            *stream = Some(connected);
            (Some(answer), true)
        }
        _ => (None, true),
    }
}
