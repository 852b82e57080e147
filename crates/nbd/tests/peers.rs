//! The client at servers of others: nbdkit and qemu-nbd. Without them the tests are skipped, and
//! say so.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qpair_block::{Arena, BlockDevice, ChannelOptions, ErrorKind, Request, WaitOptions};
use qpair_conformance::{Options, run};
use qpair_nbd::{NbdDevice, NbdOptions};

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server, and waits until it listens, which it does some time after its socket is there.
/// Returns `None` if the program is not installed.
#[allow(clippy::print_stderr, reason = "a skip is reported")]
fn serve(socket: &Path, command: &mut Command) -> Option<Server> {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(child) = child else {
        eprintln!("skipped: {:?} is not installed", command.get_program());
        return None;
    };
    let server = Server(child);
    let start = Instant::now();
    while UnixStream::connect(socket).is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "{command:?} does not listen");
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

/// Writes and reads blocks while the server is killed and started again.
#[test]
fn a_server_that_is_killed_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, image) = (folder.path().join("n.sock"), folder.path().join("image"));
    std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let start = || {
        let mut command = Command::new("qemu-nbd");
        command.args(["-t", "-f", "raw", "--shared=0", "-k"]).arg(&socket).arg(&image);
        serve(&socket, &mut command)
    };
    let Some(server) = start() else { return };
    let name = format!("unix:{}", socket.display());
    let device = NbdDevice::open(&name, NbdOptions::default()).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicU64::new(0));
    let load = std::thread::spawn({
        let (is_over, rounds) = (is_over.clone(), rounds.clone());
        move || {
            let arena = Arena::new(4096, 8, device.info().arena_options()).unwrap();
            let options = ChannelOptions { depth: 8, arenas: vec![arena.clone()], wake: None };
            let mut channel = device.open_channel(&options).unwrap();
            let (mut round, mut done) = (0u64, Vec::new());
            while !is_over.load(Ordering::Relaxed) || round % 2 == 1 {
                for slot in 0..8 {
                    let (at, mut buffer) =
                        ((round / 2 % 64 * 8 + slot) * 4096, arena.lease().unwrap());
                    let fill = (round / 2 + slot) as u8;
                    let request = if round % 2 == 0 {
                        buffer.copy_from(0, &[fill; 4096]);
                        Request::write(at, 4096, buffer, fill.into())
                    } else {
                        Request::read(at, 4096, buffer, fill.into())
                    };
                    channel.submit(request).unwrap();
                }
                let all = WaitOptions { want: 8, linger: Duration::ZERO, timeout: None };
                while done.len() < 8 {
                    channel.wait(&mut done, all);
                }
                for it in done.drain(..) {
                    it.result.unwrap();
                    let buffer = it.buffer.unwrap();
                    assert!(
                        buffer.as_slice()[..4096].iter().all(|byte| u64::from(*byte) == it.tag)
                    );
                }
                round += 1;
                rounds.store(round, Ordering::Relaxed);
            }
            device.resets()
        }
    });
    // Returns when the load has made some rounds, or has ended by a failure.
    let await_rounds = || {
        let enough = rounds.load(Ordering::Relaxed) + 10;
        while rounds.load(Ordering::Relaxed) < enough && !load.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let mut server = Some(server);
    for _ in 0..3 {
        await_rounds();
        std::thread::sleep(Duration::from_millis(200));
        drop(server.take());
        // The socket of a killed server stays.
        std::fs::remove_file(&socket).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        server = start();
    }
    await_rounds();
    is_over.store(true, Ordering::Relaxed);
    assert!(load.join().unwrap() >= 3);
}
