//! The client at servers of others: nbdkit and qemu-nbd. Without them the tests are skipped, and
//! say so.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::{BlockDevice, ErrorKind};
use qpair_conformance::{Options, run};
use qpair_nbd::{NbdDevice, NbdOptions};

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server, and waits for its socket. Returns `None` if the program is not installed.
#[allow(clippy::print_stderr, reason = "a skip is reported")]
fn serve(socket: &Path, command: &mut Command) -> Option<Server> {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(child) = child else {
        eprintln!("skipped: {:?} is not installed", command.get_program());
        return None;
    };
    let server = Server(child);
    let start = Instant::now();
    while !socket.exists() {
        assert!(start.elapsed() < Duration::from_secs(10), "{command:?} does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(server)
}

fn conforms(name: &str) {
    let make = || -> Arc<dyn BlockDevice> {
        Arc::new(NbdDevice::open(name, NbdOptions::default()).unwrap())
    };
    let report = run(make, Options { rounds: 60, ..Options::default() });
    report.assert_passed();
}

#[test]
fn conforms_at_nbdkit() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("n.sock");
    let mut command = Command::new("nbdkit");
    command.arg("-f").arg("-U").arg(&socket).args(["memory", "16M"]);
    let Some(_server) = serve(&socket, &mut command) else { return };
    conforms(&format!("unix:{}", socket.display()));
}

#[test]
fn conforms_at_qemu_nbd() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, image) = (folder.path().join("n.sock"), folder.path().join("image"));
    std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let mut command = Command::new("qemu-nbd");
    command.args(["-t", "-f", "raw", "--shared=0", "--discard=unmap", "-x", "disk", "-k"]);
    command.arg(&socket).arg(&image);
    let Some(_server) = serve(&socket, &mut command) else { return };
    let name = format!("unix:{}", socket.display());
    conforms(&format!("{name}/disk"));
    let error = NbdDevice::open(&format!("{name}/other"), NbdOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}
