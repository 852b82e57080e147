//! A directory for one test, and a way to run the command in it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Bytes at the start of a store, and of a log device, that are superblocks; pages of 4096 bytes
/// follow.
pub(crate) const LABEL_BYTES: usize = 64 << 10;

/// A directory that is removed after the test.
pub(crate) struct Directory(TempDir);

/// The output of a run of the command.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Directory {
    pub(crate) fn new() -> Self {
        // The build directory is on a file system with direct I/O, which /tmp may not be.
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes an input file.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.path(name), content).unwrap();
        self
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Returns the command, to be run in the directory.
    pub(crate) fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_qpair"));
        command.current_dir(self.0.path()).args(words.split_whitespace()).stdin(Stdio::null());
        command
    }

    /// Returns the command with a time limit: a command that hangs fails its own test, and does not
    /// block the others.
    fn limited(&self, words: &str) -> Command {
        let mut command = Command::new("timeout");
        command.current_dir(self.0.path()).args(["-k", "1", "120", env!("CARGO_BIN_EXE_qpair")]);
        command.args(words.split_whitespace()).stdin(Stdio::null());
        command
    }

    /// Runs the command. `words` are separated by spaces.
    pub(crate) fn run(&self, words: &str) -> Run {
        Run::from_output(self.limited(words).output().unwrap())
    }

    /// Runs the command, which is to succeed and to print one JSON document.
    #[track_caller]
    pub(crate) fn json(&self, words: &str) -> Value {
        self.run(words).json()
    }

    /// Runs the command in a shell, between what is before and after it there.
    pub(crate) fn shell(&self, before: &str, words: &str) -> Run {
        let qpair = env!("CARGO_BIN_EXE_qpair");
        let script = format!("{before}; exec timeout -k 1 120 {qpair} {words}");
        let mut shell = Command::new("sh");
        shell.current_dir(self.0.path()).args(["-c", &script]);
        Run::from_output(shell.output().unwrap())
    }

    /// Starts the command, with pipes to it.
    pub(crate) fn spawn(&self, words: &str) -> Child {
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Runs the command with input.
    pub(crate) fn run_on(&self, input: impl AsRef<[u8]>, words: &str) -> Run {
        let mut command = self.limited(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that refuses its input closes it early.
        let _ = child.stdin.take().unwrap().write_all(input.as_ref());
        Run::from_output(child.wait_with_output().unwrap())
    }
}

impl Run {
    pub(crate) fn from_output(output: std::process::Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Asserts that the command succeeded, and returns its output.
    #[track_caller]
    pub(crate) fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }

    /// Asserts that the command succeeded, and returns the JSON document that it printed.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.done()).unwrap()
    }

    /// Asserts that the command failed with this code and named all `words` on standard error.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        for word in words {
            assert!(self.err.contains(word), "no \"{word}\" in: {}", self.err);
        }
    }
}

/// A number of a JSON document, by its path.
#[track_caller]
pub(crate) fn number(json: &Value, path: &str) -> f64 {
    let value = json.pointer(path).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no number at {path}: {json}"))
}

/// Interrupts a running command at once, and returns its output. The command may have ended
/// already.
pub(crate) fn interrupted(child: Child) -> Run {
    for one in [Signal::STOP, Signal::INT, Signal::CONT] {
        let _ = kill_process(Pid::from_child(&child), one);
    }
    Run::from_output(child.wait_with_output().unwrap())
}

/// Waits until a condition is true, for up to 20 seconds.
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Lines of records: as many, by key.
pub(crate) fn records(count: u32) -> String {
    (0..count).map(|i| format!("key {i:05}\tvalue {i}\n")).collect()
}

/// A load that is given these records, and waits for more.
pub(crate) fn waiting_load(directory: &Directory, words: &str, records: &str) -> Child {
    let words = format!("load s - --format tsv --memory 1MiB --workers 1 {words}");
    let mut child = directory.spawn(&words);
    child.stdin.as_mut().unwrap().write_all(records.as_bytes()).unwrap();
    child
}

/// Kills such a load once this is so; whether it was. Its input is still open then, so that it
/// cannot close the store.
pub(crate) fn crash(
    directory: &Directory,
    words: &str,
    records: &str,
    is_so: impl Fn() -> bool,
) -> bool {
    let mut child = waiting_load(directory, words, records);
    wait_until(&is_so);
    child.kill().unwrap();
    child.wait().unwrap();
    is_so()
}

/// Whether a file holds a text.
pub(crate) fn holds(path: &Path, text: &[u8]) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.windows(text.len()).any(|window| window == text))
}

/// A command that serves something, and prints events as lines of JSON; killed when dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) says: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Self { child, says }
    }

    /// The next event.
    pub(crate) fn next(&mut self) -> Value {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no event: {line:?}"))
    }

    /// The next event of a kind.
    pub(crate) fn event(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next();
            if event["event"] == kind {
                return event;
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The exit code.
    pub(crate) fn code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Changes bytes of a file.
pub(crate) fn patch(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}
