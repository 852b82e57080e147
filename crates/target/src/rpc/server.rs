//! The socket: requests as they come, one JSON value after the other, and their answers.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use qpair_block::{Error, Result};
use qpair_socket::Listener;
use rustix::net::Shutdown;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::manager::Manager;
use super::params::Failure;
use crate::service::{Service, Stop};

/// Most bytes of one request.
const REQUEST_BYTES_MAX: usize = 256 << 10;
/// Clients at a time.
const CLIENTS_MAX: u32 = 64;
/// How long a client may take to take an answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Clients {
    streams: Mutex<Vec<(u64, UnixStream)>>,
    count: AtomicU32,
}

/// A socket that answers JSON-RPC 2.0. Dropped, it closes, and the path goes.
pub struct RpcServer {
    path: PathBuf,
    _service: Service,
}

impl RpcServer {
    /// Listens at `path`, for the owner of the process alone.
    ///
    /// # Errors
    /// What binding the socket says.
    pub fn start(path: &Path, manager: Arc<Manager>) -> Result<Self> {
        let listener = Listener::bind(path)?;
        let path = listener.path().to_owned();
        let shown = path.display();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
            .map_err(|cause| Error::os(cause, format!("{shown}: setting who may use it")))?;
        let serve = move |stop: &Stop| accept(&listener, stop, &manager);
        let service = Service::start("qpair-rpc", "a socket for JSON-RPC", serve)?;
        Ok(Self { path, _service: service })
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn accept(listener: &Listener, stop: &Stop, manager: &Arc<Manager>) {
    let clients = Arc::new(Clients::default());
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut next = 0u64;
    loop {
        let client = listener.wait(stop.as_fd());
        if stop.is_over() {
            break;
        }
        threads.retain(|thread| !thread.is_finished());
        let Some(stream) = client else { continue };
        // One too many is closed again.
        if clients.count.load(Ordering::Relaxed) >= CLIENTS_MAX {
            warn!(name: "refused", most = CLIENTS_MAX, "a client too many of JSON-RPC");
            continue;
        }
        let is_ready = stream.set_nonblocking(false).is_ok()
            && stream.set_write_timeout(Some(PATIENCE)).is_ok();
        let (true, Ok(other)) = (is_ready, stream.try_clone()) else { continue };
        next += 1;
        clients.streams.lock().unwrap_or_else(PoisonError::into_inner).push((next, other));
        clients.count.fetch_add(1, Ordering::Relaxed);
        let (manager, its, number) = (manager.clone(), clients.clone(), next);
        let started =
            std::thread::Builder::new().name("qpair-rpc-client".into()).spawn(move || {
                // A client that breaks off is gone.
                let _ = serve(stream, &manager);
                let mut streams = its.streams.lock().unwrap_or_else(PoisonError::into_inner);
                streams.retain(|(other, _)| *other != number);
                its.count.fetch_sub(1, Ordering::Relaxed);
            });
        threads.extend(started.ok());
    }
    for (_, stream) in &*clients.streams.lock().unwrap_or_else(PoisonError::into_inner) {
        let _ = rustix::net::shutdown(stream, Shutdown::Both);
    }
    for thread in threads {
        let _ = thread.join();
    }
}

fn serve(mut stream: UnixStream, manager: &Manager) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&part[..count]);
        let mut values = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>();
        let mut answers = Vec::new();
        let mut broken = None;
        let mut taken = 0;
        loop {
            match values.next() {
                Some(Ok(value)) => {
                    answers.extend(answer(manager, value));
                    taken = values.byte_offset();
                }
                Some(Err(error)) if error.is_eof() => break,
                Some(Err(error)) => {
                    broken = Some(error.to_string());
                    break;
                }
                None => {
                    taken = bytes.len();
                    break;
                }
            }
        }
        bytes.drain(..taken);
        if bytes.len() > REQUEST_BYTES_MAX {
            broken = Some(format!("a request of more than {REQUEST_BYTES_MAX} bytes"));
        }
        if let Some(why) = &broken {
            info!(name: "refused", error = why, "what a client of JSON-RPC says makes no sense");
            answers.push(error_of(&Value::Null, &Failure::new(Failure::PARSE, why.clone())));
        }
        for answer in answers {
            let mut text = answer.to_string();
            text.push('\n');
            stream.write_all(text.as_bytes())?;
        }
        if broken.is_some() {
            // The server does not know where the next request begins.
            return Ok(());
        }
    }
}

fn error_of(id: &Value, failure: &Failure) -> Value {
    let error = json!({"code": failure.code, "message": failure.message});
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

/// The answer to a value: none to a request without an id, a list to a list.
fn answer(manager: &Manager, value: Value) -> Option<Value> {
    let Value::Array(batch) = value else { return answer_one(manager, value) };
    if batch.is_empty() {
        let failure = Failure::new(Failure::REQUEST, "a batch of no requests");
        return Some(error_of(&Value::Null, &failure));
    }
    let answers: Vec<Value> =
        batch.into_iter().filter_map(|value| answer_one(manager, value)).collect();
    (!answers.is_empty()).then_some(Value::Array(answers))
}

fn answer_one(manager: &Manager, mut value: Value) -> Option<Value> {
    let wrong = |id: &Value, what: &str| Some(error_of(id, &Failure::new(Failure::REQUEST, what)));
    let Some(request) = value.as_object_mut() else {
        return wrong(&Value::Null, "a request is an object");
    };
    let id = request.remove("id");
    let shown = id.clone().unwrap_or(Value::Null);
    if !matches!(shown, Value::Null | Value::String(_) | Value::Number(_)) {
        return wrong(&Value::Null, "an id is a string or a number");
    }
    if request.get("jsonrpc").is_some_and(|version| version != "2.0") {
        return wrong(&shown, "this is JSON-RPC 2.0");
    }
    let Some(Value::String(method)) = request.remove("method") else {
        return wrong(&shown, "a request without a method");
    };
    let result = manager.call(&method, request.remove("params"));
    let id = id?;
    Some(match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(failure) => error_of(&id, &failure),
    })
}
