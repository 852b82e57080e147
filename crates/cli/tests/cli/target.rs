//! `qpair target` as a service: its configuration file, its signals, and its messages.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Directory, Server};

fn start(directory: &Directory, words: &str) -> Server {
    let mut command = directory.command(&format!("target --json {words}"));
    command.env("NOTIFY_SOCKET", directory.path("notify")).env("WATCHDOG_USEC", "200000");
    Server::start(command)
}

/// Returns the target's next message to systemd that is not a watchdog message.
fn told(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 256];
    loop {
        let count = socket.recv(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
        if text != "WATCHDOG=1" {
            return text;
        }
    }
}

const DISK: &str = "
[target]
folder = \"d\"
rpc = \"d/rpc\"
metrics = \"d/metrics\"

[[bdev_malloc_create]]
name = \"M\"
num_blocks = 2048
block_size = 512

[[vhost_create_blk_controller]]
ctrlr = \"m\"
dev_name = \"M\"
";

const MORE: &str = "
[[bdev_null_create]]
name = \"N\"
num_blocks = 1024
block_size = 512
";

#[test]
fn a_service() {
    let directory = Directory::new();
    let notify = UnixDatagram::bind(directory.path("notify")).unwrap();
    directory.file("t.toml", DISK);
    let mut target = start(&directory, "--config t.toml");
    assert_eq!(target.event("serving")["disks"][0]["name"], "M");
    assert!(told(&notify).starts_with("READY=1\n"));
    let saved = || directory.run("rpc --socket d/rpc save_config --toml").done();
    assert!(saved().contains("[[vhost_create_blk_controller]]\nctrlr = \"m\"\ndev_name = \"M\"\n"));

    directory.file("t.toml", format!("{DISK}{MORE}"));
    target.signal(Signal::HUP);
    let change = target.event("configured");
    assert_eq!((&change["made"], &change["undone"]), (&1.into(), &0.into()));
    let reloaded = || {
        assert!(told(&notify).starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert!(told(&notify).starts_with("READY=1\n"));
    };
    reloaded();
    // The configuration can be saved and loaded again, and is the same.
    let text = saved();
    assert!(text.contains("[[bdev_null_create]]"), "{text}");
    directory.file("t.toml", text);
    target.signal(Signal::HUP);
    let change = target.event("configured");
    assert_eq!((&change["made"], &change["undone"]), (&0.into(), &0.into()));
    reloaded();

    let before = saved();
    directory.file(
        "t.toml",
        format!("{DISK}\n[[bdev_split_create]]\nbase_bdev = \"X\"\nsplit_count = 2\n[[no]]\n"),
    );
    target.signal(Signal::HUP);
    let fault = target.event("fault");
    assert_eq!((&fault["line"], &fault["file"]), (&19.into(), &"t.toml".into()), "{fault}");
    assert_eq!(target.event("refused")["faults"], 1);
    assert_eq!(saved(), before);
    reloaded();

    // The log levels are part of the saved configuration.
    let log = |levels: &str| {
        let disk = DISK.replace("[target]\n", &format!("[target]\nlog = \"{levels}\"\n"));
        directory.file("t.toml", format!("{disk}{MORE}"));
    };
    log("error,qpair_serve=debug");
    target.signal(Signal::HUP);
    target.event("configured");
    reloaded();
    let level = directory.run("rpc --socket d/rpc log_get_level").done();
    assert_eq!(level.trim(), "\"ERROR\"");
    let called = target.event("called");
    assert_eq!((&called["method"], &called["level"]), (&"log_get_level".into(), &"DEBUG".into()));
    log("notice");
    target.signal(Signal::HUP);
    target.event("configured");
    reloaded();

    let guest = UnixStream::connect(directory.path("d/m")).unwrap();
    target.event("connected");
    directory
        .run("rpc --socket d/rpc vhost_delete_controller ctrlr=m")
        .failed(1, &["Device or resource busy", "-32602"]);
    let looked = directory.run("top --target d/metrics --once").done();
    assert!(looked.contains("worker 0:") && looked.contains("yes"), "{looked}");
    let json = directory.json("top --target d/metrics --once --json");
    assert_eq!(json["qpair_disk_size_bytes"]["export=\"m\",disk=\"M\""], 1_048_576.0);
    directory.run("rpc --socket d/rpc vhost_delete_controller ctrlr=m force=true").done();
    drop(guest);
    // From here on only errors are logged.
    directory.run("rpc --socket d/rpc log_set_level level=ERROR").done();
    directory.run("rpc --socket d/rpc log_set_level level=LOUD").failed(1, &["WARNING"]);
    target.signal(Signal::TERM);
    let mut rest = String::new();
    for line in (&mut target.says).lines() {
        rest += &line.unwrap();
    }
    assert!(rest.contains("a front end has m") && !rest.contains("LOUD"), "{rest}");
    assert_eq!(target.code(), Some(0));
    assert_eq!(told(&notify), "STOPPING=1");
}

/// The crate of the drive's driver, and no other, logs the drive's fault: only its level was
/// raised.
#[test]
fn a_driver_s_crate_can_be_turned_up_alone() {
    let directory = Directory::new();
    let drive = "softnvme:size=16MiB,fatal_after=100";
    let words =
        format!("--folder d --disk d={drive} --log error,qpair_nvme=debug --metrics d/metrics");
    let mut target = start(&directory, &words);
    target.event("serving");
    // Requests in flight when the drive stopped fail.
    let _ = directory.run("bench io --name=f --filename=vhost-user:d/d.sock --rw=randread --bs=4k --iodepth=8 --size=4m");
    let reset = target.event("reset");
    assert_eq!((&reset["crate"], &reset["controller"]), (&"qpair_nvme".into(), &drive.into()));
    assert!(reset["error"].as_str().unwrap().contains("fatal"), "{reset}");
    assert_eq!(
        (&reset["level"], &target.event("running")["level"]),
        (&"WARN".into(), &"INFO".into())
    );
    let looked = directory.run("top --target d/metrics --once").done();
    assert!(looked.contains("d: resets of the device since the start: 1"), "{looked}");
    assert!(looked.contains("requests that it did not answer in time"), "{looked}");
    target.signal(Signal::INT);
    for line in (&mut target.says).lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert!(event["crate"].is_null() || event["crate"] == "qpair_nvme", "{event}");
        if event["event"] == "ended" {
            assert_eq!(event["resets"], 1, "{event}");
            assert!(event["timeouts"].as_u64() > Some(0), "{event}");
        }
    }
    assert_eq!(target.code(), Some(0));
}

#[test]
fn a_front_end_that_makes_no_sense_is_told_of() {
    let directory = Directory::new();
    let mut command = directory.command("target --folder d --disk d=ram:size=1MiB");
    command.stderr(Stdio::piped());
    let mut target = Server::start(command);
    let mut tells = BufReader::new(target.child.stderr.take().unwrap()).lines();
    assert!((&mut target.says).lines().any(|line| line.unwrap().starts_with("Ctrl-C")));
    let mut guest = UnixStream::connect(directory.path("d/d.sock")).unwrap();
    // A header: request 99, version 1, no payload.
    guest.write_all(&[99, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    let line = tells.find(|line| line.as_ref().unwrap().contains("sent away")).unwrap().unwrap();
    for word in [" WARN qpair_serve", "disk=\"d\"", "request 99 is unknown"] {
        assert!(line.contains(word), "{line}");
    }
    assert!(!line.contains('\u{1b}'), "coloured, and no terminal: {line}");
    directory.run("target --rpc r --log loud").failed(2, &["'loud' is not a level", "notice"]);
    directory.run("target --rpc r --log qpair_nvm=debug").failed(2, &["not a crate", "qpair_nvme"]);
}

/// A guest connects, sends an invalid message and is disconnected, over and over, beside one that
/// connects once.
#[test]
fn a_guest_cannot_flood_the_log() {
    let directory = Directory::new();
    let mut target =
        start(&directory, "--folder d --disk bad=ram:size=1MiB --disk good=ram:size=1MiB");
    target.event("serving");
    const TIMES: u64 = 200;
    for _ in 0..TIMES {
        let mut guest = UnixStream::connect(directory.path("d/bad.sock")).unwrap();
        let _ = guest.write_all(&[99, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        // The target disconnects it.
        let _ = guest.read(&mut [0; 16]);
    }
    let good = UnixStream::connect(directory.path("d/good.sock")).unwrap();
    let mut events = Vec::new();
    while events.last().is_none_or(|event: &Value| event["disk"] != "good") {
        events.push(target.next());
    }
    target.signal(Signal::INT);
    events.extend((&mut target.says).lines().map(|it| serde_json::from_str(&it.unwrap()).unwrap()));
    drop(good);
    assert_eq!(target.code(), Some(0));
    let is_of = |event: &&Value| event["event"] == "connected" && event["disk"] == "bad";
    let logged = events.iter().filter(is_of).count() as u64;
    let told = |event: &Value| {
        (event["kind"] == "connected" && event["peer"] == "bad").then(|| event["more"].as_u64())
    };
    let more: u64 = events.iter().filter_map(told).flatten().sum();
    // At most 10 events in 10 seconds, and this test is shorter on any machine.
    assert!(logged < TIMES / 2 && logged + more == TIMES, "{logged} and {more}");
}

#[test]
fn a_file_that_is_wrong_from_the_start() {
    let directory = Directory::new();
    directory
        .file("t.toml", "[target]\nworkers = 0\nhouse = 1\n[[bdev_malloc_create]]\nname = 1\n");
    directory
        .run("target --config t.toml")
        .failed(3, &["t.toml:2: workers", "t.toml:3: [target] has no house"]);
    directory.file("t.toml", "[target]\nfolder = \"d\"\n[[bdev_malloc_create]]\nname = \"M\"\n");
    directory
        .run("target --config t.toml")
        .failed(3, &["t.toml:3: bdev_malloc_create: num_blocks is missing"]);
    directory.run("target --config none.toml").failed(3, &["none.toml"]);
}
