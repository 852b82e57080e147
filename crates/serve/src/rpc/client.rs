//! A client of the socket: its requests, one JSON value after the other, and their answers.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use serde_json::{Value, json};
use tracing::info;

use super::manager::Manager;
use super::params::Failure;

/// The maximum size of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 256 << 10;
/// The maximum number of bytes of answers that wait to be taken. Beyond it, the client's next
/// request waits.
const ANSWER_BYTES_MAX: usize = 256 << 10;

pub(super) struct Client {
    /// The connection, which is non-blocking.
    stream: UnixStream,
    /// Received bytes that were not answered yet.
    incoming: Vec<u8>,
    /// Answers that the client has not taken.
    outgoing: Vec<u8>,
    /// The time at which the client last sent or took something.
    pub(super) since: Instant,
    /// Whether the client has sent a whole request before.
    is_known: bool,
    /// Whether the connection ends once the client has taken its answers.
    ends: bool,
}

impl Client {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            since: Instant::now(),
            is_known: false,
            ends: false,
        }
    }

    pub(super) fn has_answers(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Returns the number of bytes of an incomplete request.
    pub(super) fn unfinished_bytes(&self) -> usize {
        self.incoming.len()
    }

    /// Whether the client must act soon. A client that has sent no request yet must do so if other
    /// clients wait to be accepted.
    pub(super) fn is_busy(&self, others_wait: bool) -> bool {
        self.has_answers() || !self.incoming.is_empty() || (others_wait && !self.is_known)
    }

    /// Receives and answers requests. Returns false if the client has gone or is to be
    /// disconnected.
    pub(super) fn turn(&mut self, manager: &Manager) -> bool {
        if self.give().is_err() {
            return false;
        }
        let mut part = [0; 4096];
        while !self.ends && self.outgoing.len() < ANSWER_BYTES_MAX {
            // Answer complete requests before reading more, so that the buffer never has more than
            // one request and a part of one.
            match self.stream.read(&mut part) {
                Ok(0) => self.ends = true,
                Ok(count) => {
                    self.since = Instant::now();
                    self.incoming.extend_from_slice(&part[..count]);
                    self.answer(manager);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        self.give().is_ok() && !(self.ends && self.outgoing.is_empty())
    }

    /// Sends as many bytes of the answers as the client takes now.
    fn give(&mut self) -> io::Result<()> {
        let mut given = 0;
        while given < self.outgoing.len() {
            match self.stream.write(&self.outgoing[given..]) {
                Ok(count) => given += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if given > 0 {
            self.since = Instant::now();
        }
        if given == self.outgoing.len() {
            // Free the memory of a long answer.
            self.outgoing = Vec::new();
        } else {
            self.outgoing.drain(..given);
        }
        Ok(())
    }

    /// Answers the complete requests.
    fn answer(&mut self, manager: &Manager) {
        let mut values = serde_json::Deserializer::from_slice(&self.incoming).into_iter::<Value>();
        let mut answers = Vec::new();
        let mut broken = None;
        let mut taken = 0;
        loop {
            match values.next() {
                Some(Ok(value)) => {
                    answers.extend(answer(manager, value));
                    taken = values.byte_offset();
                    self.is_known = true;
                }
                Some(Err(error)) if error.is_eof() => break,
                Some(Err(error)) => {
                    broken = Some(error.to_string());
                    break;
                }
                None => {
                    taken = self.incoming.len();
                    break;
                }
            }
        }
        self.incoming.drain(..taken);
        if self.incoming.is_empty() {
            self.incoming = Vec::new();
        }
        if self.incoming.len() > REQUEST_BYTES_MAX {
            broken = Some(format!("a request of more than {REQUEST_BYTES_MAX} bytes"));
        }
        if let Some(why) = broken {
            info!(name: "refused", error = why, "what a client of JSON-RPC says makes no sense");
            answers.push(error_of(&Value::Null, &Failure::new(Failure::PARSE, why)));
            // After invalid JSON, the server does not know where the next request begins.
            (self.ends, self.incoming) = (true, Vec::new());
        }
        for answer in answers {
            self.outgoing.extend_from_slice(answer.to_string().as_bytes());
            self.outgoing.push(b'\n');
        }
    }

    /// Disconnects a client that is late, and tells it so if it takes the message now.
    pub(super) fn tell_late(mut self) {
        let message = "the request is not finished, or its answer not taken: send the whole request at once, and read the answer";
        let late = error_of(&Value::Null, &Failure::new(Failure::PARSE, message));
        if self.outgoing.is_empty() {
            // If the client does not take the message, nothing is lost.
            let _ = self.stream.write(format!("{late}\n").as_bytes());
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn error_of(id: &Value, failure: &Failure) -> Value {
    let error = json!({"code": failure.code, "message": failure.message});
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

/// Returns the answer to a value. A request without an id has no answer, and a list has a list of
/// answers.
fn answer(manager: &Manager, value: Value) -> Option<Value> {
    let Value::Array(batch) = value else { return answer_one(manager, value) };
    if batch.is_empty() {
        let failure = Failure::new(Failure::REQUEST, "a batch has at least one request");
        return Some(error_of(&Value::Null, &failure));
    }
    let answers: Vec<Value> =
        batch.into_iter().filter_map(|value| answer_one(manager, value)).collect();
    (!answers.is_empty()).then_some(Value::Array(answers))
}

fn answer_one(manager: &Manager, mut value: Value) -> Option<Value> {
    let wrong = |id: &Value, what: &str| Some(error_of(id, &Failure::new(Failure::REQUEST, what)));
    let Some(request) = value.as_object_mut() else {
        return wrong(&Value::Null, "a request must be an object");
    };
    let id = request.remove("id");
    let shown = id.clone().unwrap_or(Value::Null);
    if !matches!(shown, Value::Null | Value::String(_) | Value::Number(_)) {
        return wrong(&Value::Null, "an id must be a string or a number");
    }
    if request.get("jsonrpc").is_some_and(|version| version != "2.0") {
        return wrong(&shown, "the version must be \"2.0\"");
    }
    let Some(Value::String(method)) = request.remove("method") else {
        return wrong(&shown, "the request has no method");
    };
    let result = manager.call(&method, request.remove("params"));
    let id = id?;
    Some(match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(failure) => error_of(&id, &failure),
    })
}
