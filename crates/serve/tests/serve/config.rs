//! Tests of applying a configuration, and of changing it.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use qpair_block::{Error, ErrorKind};
use qpair_serve::{
    Backend, ConfigCall, ConfigChange, Manager, MetricsAddress, MetricsServer, Target,
    TargetOptions,
};
use serde_json::{Value, json};

struct Rig {
    manager: Arc<Manager>,
    target: Arc<Target>,
    folder: tempfile::TempDir,
}

fn rig() -> Rig {
    let folder =
        tempfile::Builder::new().prefix("tc").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let target = Arc::new(Target::new(TargetOptions::default()).unwrap());
    let open = Box::new(|path: &Path, _: &str, _: bool| {
        Err(Error::new(ErrorKind::NotFound, format!("{}: no such file", path.display())))
    });
    let manager = Manager::new(target.clone(), open, folder.path().to_owned(), "0");
    Rig { manager, target, folder }
}

/// Makes a rig and loads a saved configuration.
fn rig_of(saved: &Value) -> Rig {
    let rig = rig();
    rig.manager.load(saved).unwrap();
    rig
}

fn calls(all: &[(&str, Value)]) -> Vec<ConfigCall> {
    let call = |(at, (method, params)): (usize, &(&str, Value))| ConfigCall {
        line: at + 1,
        method: (*method).to_owned(),
        params: params.clone(),
    };
    all.iter().enumerate().map(call).collect()
}

fn malloc(name: &str, blocks: u64) -> (&'static str, Value) {
    ("bdev_malloc_create", json!({"name": name, "num_blocks": blocks, "block_size": 512}))
}

fn served(name: &str, bdev: &str) -> (&'static str, Value) {
    ("vhost_create_blk_controller", json!({"ctrlr": name, "dev_name": bdev}))
}

#[test]
fn only_the_difference_is_made() {
    let Rig { manager, target, folder: _folder } = rig();
    let split = ("bdev_split_create", json!({"base_bdev": "B", "split_count": 2}));
    let first =
        [malloc("A", 2048), malloc("B", 4096), split.clone(), served("a", "A"), served("b", "Bp1")];
    let change = manager.apply(&calls(&first)).unwrap();
    assert_eq!(change, ConfigChange { made: 5, undone: 0 });
    assert_eq!(manager.apply(&calls(&first)).unwrap(), ConfigChange::default());
    // The saved configuration equals the given one, and is the same after loading it elsewhere.
    let saved = manager.save();
    assert_eq!(rig_of(&saved).manager.save(), saved);

    let disk_of = |name: &str| {
        let export = target.exports().into_iter().find(|export| export.name == name);
        export.map(|export| export.disks()[0].clone())
    };
    let kept = disk_of("a").unwrap();
    // B has another size, so everything made of it is made again, while A stays unchanged.
    let second =
        [malloc("A", 2048), malloc("B", 8192), split, served("a", "A"), served("b", "Bp1")];
    let change = manager.apply(&calls(&second)).unwrap();
    assert_eq!(change, ConfigChange { made: 3, undone: 3 });
    assert!(Arc::ptr_eq(&disk_of("a").unwrap(), &kept));
    assert_eq!(disk_of("b").unwrap().device.size_bytes(), 8192 / 2 * 512);
    let change = manager.apply(&calls(&second[..1])).unwrap();
    assert_eq!(change, ConfigChange { made: 0, undone: 4 });
    assert!(target.exports().is_empty());
}

#[test]
fn a_wrong_one_is_named_line_by_line_and_changes_nothing() {
    let Rig { manager, target, folder: _folder } = rig();
    let first = [malloc("A", 2048), served("a", "A")];
    manager.apply(&calls(&first)).unwrap();
    let before = manager.save();
    let lines = |wanted: &[(&str, Value)]| -> Vec<usize> {
        let faults = manager.apply(&calls(wanted)).unwrap_err();
        faults.iter().filter_map(|fault| fault.line).collect()
    };
    assert_eq!(
        lines(&[malloc("A", 2048), ("no_such", json!({})), ("spdk_get_version", json!({}))]),
        [2, 3]
    );
    // A is removed to get another size, and is restored when a later call fails.
    let file = ("bdev_aio_create", json!({"name": "F", "filename": "/nowhere"}));
    let wrong = [malloc("A", 4096), served("a", "A"), file, malloc("C", 64), served("c", "D")];
    assert_eq!(lines(&wrong), [3, 5]);
    assert_eq!(lines(&[("bdev_malloc_create", json!({"name": "E", "blocks": 1}))]), [1]);
    assert_eq!(manager.save(), before);
    let exports = target.exports();
    assert_eq!((exports.len(), exports[0].disks()[0].device.size_bytes()), (1, 2048 * 512));
}

#[test]
fn limits_and_targets_are_made_and_undone() {
    let Rig { manager, target, folder } = rig();
    let limit =
        |name: &str, ios: u64| ("bdev_set_qos_limit", json!({"name": name, "rw_ios_per_sec": ios}));
    let host = ("vhost_create_scsi_controller", json!({"ctrlr": "s"}));
    let in_host = |number: i64, bdev: &str| {
        let params = json!({"ctrlr": "s", "scsi_target_num": number, "bdev_name": bdev});
        ("vhost_scsi_controller_add_target", params)
    };
    let limit_of = |name: &str| {
        let saved = manager.save();
        let subsystems = saved["subsystems"].as_array().unwrap();
        let bdev = subsystems.iter().find(|of| of["subsystem"] == "bdev").unwrap();
        let calls = bdev["config"].as_array().unwrap().clone();
        let its = |call: &&Value| {
            call["method"] == "bdev_set_qos_limit" && call["params"]["name"] == name
        };
        calls.iter().find(its).map(|call| call["params"]["rw_ios_per_sec"].as_u64().unwrap())
    };
    let targets = || -> Vec<(u8, String, u64)> {
        let exports = target.exports();
        let Some(Backend::Scsi { targets }) = exports.first().map(|export| &export.backend) else {
            return vec![];
        };
        targets
            .iter()
            .map(|(number, disk)| (*number, disk.name.clone(), disk.device.size_bytes()))
            .collect()
    };
    let at = |number, name: &str, blocks: u64| (number, name.to_owned(), blocks * 512);
    let first = [
        malloc("A", 2048),
        malloc("B", 64),
        limit("A", 3000),
        host.clone(),
        in_host(-1, "A"),
        in_host(5, "B"),
    ];
    assert_eq!(manager.apply(&calls(&first)).unwrap(), ConfigChange { made: 6, undone: 0 });
    assert_eq!(manager.apply(&calls(&first)).unwrap(), ConfigChange::default());
    assert_eq!((limit_of("A"), targets()), (Some(3000), vec![at(0, "A", 2048), at(5, "B", 64)]));
    let saved = manager.save();
    assert_eq!(rig_of(&saved).manager.save(), saved);

    // A changed limit affects no other call, and a removed one means no limit.
    let mut second = first.clone();
    second[2] = limit("A", 5000);
    assert_eq!(manager.apply(&calls(&second)).unwrap(), ConfigChange { made: 1, undone: 1 });
    assert_eq!(limit_of("A"), Some(5000));
    second[2] = limit("B", 1000);
    manager.apply(&calls(&second)).unwrap();
    assert_eq!((limit_of("A"), limit_of("B")), (None, Some(1000)));
    // A gets another size while a guest uses the host: its target is removed and added again, and
    // so is its limit.
    second[2] = limit("A", 2000);
    manager.apply(&calls(&second)).unwrap();
    let guest = UnixStream::connect(folder.path().join("s")).unwrap();
    while !target.exports()[0].has_client {
        std::thread::yield_now();
    }
    second[0] = malloc("A", 4096);
    assert_eq!(manager.apply(&calls(&second)).unwrap(), ConfigChange { made: 3, undone: 3 });
    assert_eq!((limit_of("A"), targets()), (Some(2000), vec![at(0, "A", 4096), at(5, "B", 64)]));
    let faults = manager.apply(&calls(&second[..2])).unwrap_err();
    assert!(faults[0].what.contains("a guest has it"), "{faults:?}");
    // A failing call undoes the calls made before it, by the numbers that were chosen.
    let before = manager.save();
    let mut wrong = second.to_vec();
    wrong.extend([malloc("C", 64), in_host(-1, "C"), in_host(-1, "D")]);
    assert_eq!(manager.apply(&calls(&wrong)).unwrap_err()[0].line, Some(9));
    assert_eq!(manager.save(), before);
    drop(guest);
    while target.exports()[0].has_client {
        std::thread::yield_now();
    }
    assert_eq!(manager.apply(&calls(&second[..1])).unwrap(), ConfigChange { made: 0, undone: 5 });
    assert_eq!((limit_of("A"), targets()), (None, vec![]));
}

#[test]
fn a_guest_keeps_its_disk() {
    let Rig { manager, target, folder } = rig();
    let first = [malloc("A", 2048), served("a", "A")];
    manager.apply(&calls(&first)).unwrap();
    let guest = UnixStream::connect(folder.path().join("a")).unwrap();
    while !target.exports()[0].has_client {
        std::thread::yield_now();
    }
    for wanted in [vec![], vec![malloc("A", 64), served("a", "A")]] {
        let faults = manager.apply(&calls(&wanted)).unwrap_err();
        assert!(faults[0].what.contains("a guest has it"), "{faults:?}");
    }
    assert!(target.exports()[0].has_client);
    drop(guest);
    while target.exports()[0].has_client {
        std::thread::yield_now();
    }
    manager.apply(&[]).unwrap();
}

#[test]
fn subsystems_are_made_and_undone() {
    let Rig { manager, target, folder } = rig();
    let nqn = "nqn.2026-11.invalid.example:s";
    let transport = ("nvmf_create_transport", json!({"trtype": "VFIOUSER"}));
    let subsystem = ("nvmf_create_subsystem", json!({"nqn": nqn, "ana_reporting": false}));
    let namespace = |bdev: &str| {
        ("nvmf_subsystem_add_ns", json!({"nqn": nqn, "namespace": {"bdev_name": bdev}}))
    };
    let address = json!({"trtype": "VFIOUSER", "traddr": "n.sock"});
    let listener = ("nvmf_subsystem_add_listener", json!({"nqn": nqn, "listen_address": address}));
    let first = [
        malloc("A", 2048),
        malloc("B", 2048),
        transport.clone(),
        subsystem.clone(),
        namespace("A"),
        namespace("B"),
        listener.clone(),
    ];
    let change = manager.apply(&calls(&first)).unwrap();
    assert_eq!(change, ConfigChange { made: 7, undone: 0 });
    assert_eq!(manager.apply(&calls(&first)).unwrap(), ConfigChange::default());
    let saved = manager.save();
    let other = rig();
    other.manager.load(&saved).unwrap();
    assert_eq!(other.manager.save(), saved);
    drop(other);
    let names =
        || target.namespaces().into_iter().map(|it| it.disks()[0].name.clone()).collect::<Vec<_>>();
    assert_eq!(names(), ["A", "B"]);
    // A device of another size becomes a namespace again. A call that cannot be undone changes
    // nothing.
    let mut second = first.clone();
    second[1] = malloc("B", 4096);
    let change = manager.apply(&calls(&second)).unwrap();
    assert_eq!(change, ConfigChange { made: 2, undone: 2 });
    assert_eq!(target.namespaces()[1].disks()[0].device.size_bytes(), 4096 * 512);
    let before = manager.save();
    let wrong = [&second[..5], &[malloc("C", 8), namespace("C"), namespace("D")]].concat();
    let faults = manager.apply(&calls(&wrong)).unwrap_err();
    assert_eq!(faults.iter().filter_map(|fault| fault.line).collect::<Vec<_>>(), [8], "{faults:?}");
    let sorted = |config: &Value| {
        let mut all: Vec<String> = config["subsystems"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|it| it["config"].as_array().unwrap().iter().map(Value::to_string))
            .collect();
        all.sort();
        all
    };
    assert_eq!(sorted(&manager.save()), sorted(&before));
    assert!(folder.path().join("n.sock").exists());
    let change = manager.apply(&calls(&second[..2])).unwrap();
    assert_eq!(change, ConfigChange { made: 0, undone: 5 });
    assert!(target.namespaces().is_empty() && !folder.path().join("n.sock").exists());
}

#[test]
fn counters_are_told_as_prometheus_reads_them() {
    let Rig { manager, target, folder } = rig();
    manager.apply(&calls(&[malloc("A", 2048), served("a", "A")])).unwrap();
    let path = folder.path().join("metrics");
    let server =
        MetricsServer::start(&MetricsAddress::Path(path.clone()), &target, String::new).unwrap();
    let ask = |request: &str| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let text = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.contains("\nqpair_disk_size_bytes{export=\"a\",disk=\"A\"} 1048576\n"), "{text}");
    assert!(text.contains("\n# TYPE qpair_disk_reads_total counter\n"), "{text}");
    assert!(text.contains("\nqpair_worker_queues{worker=\"0\"} 0\n"), "{text}");
    let len: usize =
        text.split_once("Content-Length: ").unwrap().1.split_once('\r').unwrap().0.parse().unwrap();
    assert_eq!(text.split_once("\r\n\r\n").unwrap().1.len(), len);
    assert!(ask("POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    drop(server);
    assert!(!path.exists());

    let any: MetricsAddress = "127.0.0.1:0".parse().unwrap();
    let server = MetricsServer::start(&any, &target, String::new).unwrap();
    let MetricsAddress::Tcp(address) = server.address() else { panic!("no port") };
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("qpair_disk_guests"), "{text}");
    assert!("9100".parse::<MetricsAddress>().is_err());
}
