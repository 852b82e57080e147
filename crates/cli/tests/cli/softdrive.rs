//! `qpair softdrive` as a separate process, with this program's driver.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Directory, Server};

fn start(directory: &Directory, words: &str) -> Server {
    let mut drive = Server::start(directory.command(&format!("softdrive --json {words}")));
    assert_eq!(drive.next()["event"], "serving");
    drive
}

/// Interrupts the process and returns its last output.
fn end(mut drive: Server) -> Value {
    drive.signal(Signal::INT);
    let last = drive.event("end");
    assert_eq!(drive.code(), Some(0));
    last
}

const VERIFIED: &str = "bench io --rw randwrite --size 4m --iodepth 8 --verify crc32c";

#[test]
fn drives_for_this_program() {
    let directory = Directory::new();
    let drive = start(&directory, "--socket s --size 8MiB --size 8MiB --block 512 --block 4096");
    for namespace in ["/ns1", "/ns2"] {
        let path = directory.path("s");
        directory
            .run(&format!("{VERIFIED} --filename nvme:vfio-user:{}{namespace}", path.display()))
            .done();
    }
    let last = end(drive);
    assert_eq!(last["trapped_doorbells"], 0, "{last}");
    assert_eq!(last["clients"], 2, "{last}");
    assert!(!directory.path("s").exists());

    let drive = start(&directory, "--socket s --size 8MiB --trap-doorbells");
    let path = directory.path("s");
    let run = directory.run(&format!(
        "{VERIFIED} --numjobs 2 --filename nvme:vfio-user:{}/ns1 --output-format json",
        path.display()
    ));
    assert_eq!(run.err.matches("its doorbells cannot be mapped").count(), 1, "{}", run.err);
    let report = run.json();
    assert_eq!(report["jobs"][0]["qpair"]["resets"], 0);
    assert_eq!(report["jobs"][0]["qpair"]["timeouts_polled"], 0);
    assert!(end(drive)["trapped_doorbells"].as_u64().unwrap() > 100);
}

#[test]
fn sockets_that_are_taken_or_left() {
    let directory = Directory::new();
    let mut drive = start(&directory, "--socket s --null");
    let run = directory.run("softdrive --socket s --null");
    run.failed(3, &["another process serves at", "hint: end that one"]);
    drive.child.kill().unwrap();
    drive.child.wait().unwrap();
    assert!(directory.path("s").exists(), "nobody was there to remove it");
    end(start(&directory, "--socket s --null"));
    directory.file("f", "text");
    directory.run("softdrive --socket f --null").failed(3, &["is not a socket"]);
    directory.run("softdrive --socket no/where").failed(3, &["make the folder"]);
    directory.run("softdrive --socket s --idle now").failed(2, &["nap=1000"]);
    directory.run("softdrive --socket s --profile tape").failed(2, &["tape"]);
}

#[test]
fn several_drives() {
    let directory = Directory::new();
    std::fs::create_dir(directory.path("d")).unwrap();
    let drives = start(&directory, "--socket d --drives 2 --null");
    assert!(directory.path("d/1/cntrl").exists() && directory.path("d/2/cntrl").exists());
    end(drives);
    assert_eq!(std::fs::read_dir(directory.path("d")).unwrap().count(), 0, "nothing is left");
    let drives = start(&directory, "--socket s --drives 2 --null");
    assert!(directory.path("s.1").exists() && directory.path("s.2").exists());
    end(drives);
}

#[test]
fn a_driver_s_full_interrupt_stops_no_drive_and_no_end() {
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use qpair_nvme::{Controller, ControllerOptions};
    use qpair_pci::PciFunction;
    use rustix::event::{EventfdFlags, eventfd};

    let directory = Directory::new();
    let drive = start(&directory, "--socket s --size 1MiB");
    let client = qpair_vfio_user::Client::connect(&directory.path("s"), &Default::default());
    let client = Arc::new(client.unwrap());
    // A write to it would block.
    let full = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    client.set_irq(0, Some(full.as_fd())).unwrap();
    // The admin queue signals vector 0 for each command.
    let controller = Controller::open(client, ControllerOptions::default()).unwrap();
    let last = end(drive);
    assert!(last["undelivered_interrupts"].as_u64().unwrap() > 0, "{last}");
    drop(controller);
}

#[test]
fn ctrl_c_ends_the_wait_for_a_silent_device() {
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    let directory = Directory::new();
    // Accepts connections, and never sends a byte.
    let silent = UnixListener::bind(directory.path("silent")).unwrap();
    // The drive completes no I/O command.
    let drive = start(&directory, "--socket mute --size 8MiB --fault timeout_rate=1");
    let job = "bench io --rw randread --size 4m --time_based --runtime 3600 --filename nvme:";
    let interrupt = |name: &str, is_under_way: &mut dyn FnMut()| {
        let path = directory.path(name);
        let mut command = directory.command(&format!("{job}vfio-user:{}", path.display()));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        is_under_way();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (child.wait().unwrap().code(), said)
    };
    let mut asked = None;
    let (code, said) = interrupt("silent", &mut || {
        let (mut stream, _) = silent.accept().unwrap();
        stream.read_exact(&mut [0; 16]).unwrap();
        asked = Some(stream);
    });
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("interrupted") && !said.contains("panicked"), "{said}");

    let mut drive = drive;
    let (code, said) = interrupt("mute", &mut || assert_eq!(drive.next()["event"], "here"));
    assert_eq!(code, Some(130), "{said}");
    end(drive);
}
