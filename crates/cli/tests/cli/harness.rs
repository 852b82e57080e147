//! A directory for one test, and a way to run the command in it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

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
    fn from_output(output: std::process::Output) -> Self {
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

    /// Asserts that the command failed with this code and named all `words` on standard error.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        for word in words {
            assert!(self.err.contains(word), "no \"{word}\" in: {}", self.err);
        }
    }
}

/// Interrupts a running command at once, and returns its output. The command may have ended
/// already.
pub(crate) fn interrupted(child: Child) -> Output {
    use rustix::process::{Pid, Signal, kill_process};
    let pid = Pid::from_child(&child);
    for signal in [Signal::STOP, Signal::INT, Signal::CONT] {
        let _ = kill_process(pid, signal);
    }
    child.wait_with_output().unwrap()
}

/// Changes bytes of a file.
pub(crate) fn patch(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}
