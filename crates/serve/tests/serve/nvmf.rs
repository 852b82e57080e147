//! Subsystems, by JSON-RPC, and our NVMe driver on their controllers.
//!
//! Long, because the tests share one host.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]
#![allow(clippy::print_stdout, reason = "seeds and skips are reported")]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::narrow::Narrow;
use crate::rig::{Rig, ram};
use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, DeviceInfo, ErrorKind, FaultDevice,
    FaultOptions, IoChannel, IoError, Op, RamDevice, RamOptions, Request, SerialChannel,
    WaitOptions,
};
use qpair_conformance::{Options, run};
use qpair_nvme::{Controller, ControllerOptions, WaitMode};
use qpair_nvme_wire::Command;
use qpair_nvme_wire::command::{admin, io};
use qpair_nvme_wire::registers::{ACQ, AQA, ASQ, CC, CC_RUN, doorbell};
use qpair_pci::PciFunction;
use qpair_vfio_user::{Client, ClientOptions};
use serde_json::{Value, json};

const NQN: &str = "nqn.2026-11.invalid.example:s";

fn namespace(bdev: &str) -> Value {
    json!({"nqn": NQN, "namespace": {"bdev_name": bdev}})
}

fn listener(traddr: &str) -> Value {
    json!({"nqn": NQN, "listen_address": {"trtype": "VFIOUSER", "traddr": traddr}})
}

/// Makes a subsystem of these devices with these controllers.
fn serve(rig: &mut Rig, bdevs: &[&str], controllers: &[&str]) {
    rig.ok("nvmf_create_transport", json!({"trtype": "VFIOUSER"}));
    rig.ok("nvmf_create_subsystem", json!({"nqn": NQN, "allow_any_host": true}));
    for (bdev, nsid) in bdevs.iter().zip(1..) {
        assert_eq!(rig.ok("nvmf_subsystem_add_ns", namespace(bdev)), nsid);
    }
    for controller in controllers {
        assert_eq!(rig.ok("nvmf_subsystem_add_listener", listener(controller)), true);
    }
}

#[track_caller]
fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_there() {
        assert!(Instant::now() < until, "waited for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Connects once the previous client has disconnected.
fn connect(path: &Path) -> Arc<Client> {
    let mut client = None;
    wait_for("the client before to be gone", || {
        match Client::connect(path, &ClientOptions::default()) {
            Ok(connected) => client = Some(connected),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
        }
        client.is_some()
    });
    Arc::new(client.unwrap())
}

fn open(rig: &Rig, controller: &str, wait: WaitMode) -> Arc<Controller> {
    open_at(&rig.folder.path().join(controller), wait)
}

fn open_at(path: &Path, wait: WaitMode) -> Arc<Controller> {
    let options = ControllerOptions { wait, ..ControllerOptions::default() };
    Controller::open(connect(path), options).unwrap()
}

#[test]
fn our_driver_on_our_target() {
    for (block_size, wait) in [(512, WaitMode::Poll), (4096, WaitMode::Sleep)] {
        let mut rig = Rig::start(&ram());
        let disk =
            json!({"name": "M", "num_blocks": (8 << 20) / block_size, "block_size": block_size});
        rig.ok("bdev_malloc_create", disk);
        serve(&mut rig, &["M"], &["a.sock"]);
        let make = || {
            let device = open(&rig, "a.sock", wait).open_default_namespace(None).unwrap();
            assert_eq!(device.info().logical_block_bytes, block_size);
            Arc::new(device) as Arc<dyn BlockDevice>
        };
        let report = run(make, Options { rounds: 60, ..Options::default() });
        report.assert_passed();
        let skipped: Vec<_> = report.skipped().map(|(name, _)| name).collect();
        assert_eq!(skipped, ["grow", "read_only_refuses_writes", "reset"], "{report}");
    }
}

/// Devices require an alignment that drivers' memory does not have, and drivers send larger
/// requests than devices accept.
#[test]
fn data_are_copied_and_cut_where_they_must_be() {
    let of_inner = ram();
    let info = DeviceInfo { transfer_bytes_max: 8192, depth_max: 2, ..of_inner.info().clone() };
    // No memory has this alignment.
    let picky = DeviceInfo { memory_alignment_bytes: 1 << 30, ..info.clone() };
    for (info, bounces) in [(info, false), (picky, true)] {
        cut(Arc::new(Narrow { info, inner: of_inner.clone() }), bounces);
    }
}

fn cut(base: Arc<dyn BlockDevice>, bounces: bool) {
    let mut rig = Rig::start(&base);
    serve(&mut rig, &["base"], &["a.sock"]);
    let controller = open(&rig, "a.sock", WaitMode::Poll);
    let device = controller.open_default_namespace(None).unwrap();
    let mut channel = SerialChannel::open(&device).unwrap();
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    channel.write(4096, &bytes).unwrap();
    let mut read = vec![0; bytes.len()];
    channel.read(4096, &mut read).unwrap();
    assert!(read == bytes);
    let stat = rig.ok("bdev_get_iostat", json!({"names": ["base"]}));
    assert_eq!(stat["bdevs"][0]["bytes_written"], 1 << 20);
    assert_eq!(stat["bdevs"][0]["bytes_read"], 1 << 20);
    assert_eq!(stat["bdevs"][0]["driver_specific"]["resets"], 3);
    let served = rig.target.namespaces();
    assert!(served[0].has_client && served[0].name == format!("{NQN}/1"));
    let bounced = served[0].disks()[0].counters().bounced;
    assert_eq!(bounced > 0, bounces, "{bounced} of 16 commands at least");
}

/// Executes requests without data, one after the other on a separate channel.
fn done<const N: usize>(device: &impl BlockDevice, requests: [Request; N]) {
    let options = ChannelOptions { depth: 1, arenas: Vec::new(), wake: None };
    let mut channel = device.open_channel(&options).unwrap();
    let mut completions = Vec::new();
    let one = WaitOptions { want: 1, linger: Duration::MAX, timeout: None };
    for request in requests {
        channel.submit(request).unwrap();
        channel.kick();
        channel.wait(&mut completions, one);
        completions.pop().unwrap().result.unwrap();
    }
}

/// Identify Controller describes all namespaces at once. Zeroes are written on a namespace whose
/// device cannot write them by itself, and deallocation has no effect if a device does not support
/// it.
#[test]
fn verbs_that_a_device_lacks() {
    let faulty = |discards, writes_zeroes| {
        let inner = ram();
        let max = 8192;
        let info =
            DeviceInfo { discards, writes_zeroes, transfer_bytes_max: max, ..inner.info().clone() };
        let faults = FaultDevice::new(Arc::new(Narrow { info, inner }), FaultOptions::default());
        let faults = faults.unwrap();
        let control = faults.control();
        control.set_error(IoError::UNSUPPORTED);
        (Arc::new(faults) as Arc<dyn BlockDevice>, control)
    };
    // The device reports neither operation; or it reports both, and refuses them.
    for (says, asked) in [(false, 0), (true, 1)] {
        let (device, control) = faulty(says, says);
        let mut rig = Rig::start(&device);
        serve(&mut rig, &["base"], &["a.sock"]);
        let controller = open(&rig, "a.sock", WaitMode::Poll);
        let device = controller.open_default_namespace(None).unwrap();
        assert_eq!((device.info().discards, device.info().writes_zeroes), (says, true));
        let mut channel = SerialChannel::open(&device).unwrap();
        let bytes = vec![7; 32 << 10];
        channel.write(0, &bytes).unwrap();
        // All operations that change the device are counted together.
        let before = control.seen(Op::Write);
        control.fail_next(Op::Write, asked);
        done(&device, [0, 1].map(|tag| Request::write_zeroes(4096, (16 << 10) + 512, tag)));
        let mut read = bytes.clone();
        channel.read(0, &mut read).unwrap();
        let (zeroes_at, zeroes_end) = (4096, 4096 + (16 << 10) + 512);
        assert!(read[zeroes_at..zeroes_end].iter().all(|byte| *byte == 0));
        assert!(read[..zeroes_at].iter().chain(&read[zeroes_end..]).all(|byte| *byte == 7));
        // Two times three writes. Before them, the device is asked until it has refused.
        assert_eq!(control.seen(Op::Write) - before, asked + 2 * 3);
        // With a device that supports deallocation beside it, all namespaces may be asked. One
        // without support succeeds without doing anything.
        rig.ok("bdev_malloc_create", json!({"name": "M", "num_blocks": 256, "block_size": 4096}));
        rig.ok("nvmf_subsystem_add_ns", namespace("M"));
        drop((channel, device, controller));
        let controller = open(&rig, "a.sock", WaitMode::Poll);
        let device = controller.open_namespace(1).unwrap();
        assert!(device.info().discards);
        let before = control.seen(Op::Write);
        control.fail_next(Op::Discard, asked);
        done(&device, [Request::discard(0, 1 << 20, 0)]);
        assert_eq!(control.seen(Op::Write) - before, asked);
    }
}

#[test]
fn several_namespaces_at_several_controllers() {
    let mut rig = Rig::start(&ram());
    rig.ok("bdev_malloc_create", json!({"name": "M", "num_blocks": 256, "block_size": 4096}));
    std::fs::create_dir(rig.folder.path().join("b")).unwrap();
    serve(&mut rig, &["base", "M"], &["a.sock", "b"]);
    rig.refused(-16, "bdev_malloc_delete", json!({"name": "M"}));
    let all = rig.ok("nvmf_get_subsystems", json!({"nqn": NQN}));
    let found = &all[0];
    assert_eq!(found["namespaces"][1]["bdev_name"], "M", "{all}");
    assert_eq!(found["listen_addresses"][1]["traddr"], "b", "{all}");
    let uuid = rig.ok("bdev_get_bdevs", json!({"name": "M"}))[0]["uuid"].clone();
    assert_eq!(found["namespaces"][1]["uuid"], uuid, "{all}");
    // In a folder, the socket has SPDK's name.
    let (one, other) =
        (open(&rig, "a.sock", WaitMode::Poll), open(&rig, "b/cntrl", WaitMode::Sleep));
    let ids = [&one, &other].map(|it| it.info().identify.controller_id);
    assert_eq!(ids, [1, 2]);
    assert_eq!(one.info().identify.subsystem, NQN);
    for nsid in [1, 2] {
        let (writes, reads) =
            (one.open_namespace(nsid).unwrap(), other.open_namespace(nsid).unwrap());
        let bytes = vec![nsid as u8; 4096];
        SerialChannel::open(&writes).unwrap().write(8192, &bytes).unwrap();
        let mut read = vec![0; 4096];
        SerialChannel::open(&reads).unwrap().read(8192, &mut read).unwrap();
        assert_eq!(read, bytes);
        assert_ne!(writes.size_bytes(), 0);
    }
    assert_eq!(one.open_namespace(2).unwrap().size_bytes(), 1 << 20);
}

/// Polls a channel until the driver reports an event.
fn hear(what: &str, controller: &Controller, channel: &mut SerialChannel, events: u64) {
    wait_for(what, || {
        // The read may fail, because the namespace may be gone.
        let _ = channel.read(0, &mut [0; 4096]);
        controller.events() == events
    });
}

#[test]
fn drivers_are_told_of_changes() {
    let options = RamOptions { size_bytes: 8 << 20, growable: true, ..RamOptions::default() };
    let base: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(options).unwrap());
    let mut rig = Rig::start(&base);
    rig.ok("bdev_malloc_create", json!({"name": "M", "num_blocks": 256, "block_size": 4096}));
    serve(&mut rig, &["base"], &["a.sock"]);
    let controller = open(&rig, "a.sock", WaitMode::Poll);
    let device = controller.open_namespace(1).unwrap();
    let mut channel = SerialChannel::open(&device).unwrap();
    channel.write(0, &[1; 4096]).unwrap();
    assert_eq!(controller.events(), 0);
    base.grow(16 << 20).unwrap();
    hear("an event of a resize", &controller, &mut channel, 1);
    assert_eq!(rig.ok("nvmf_subsystem_add_ns", namespace("M")), 2);
    hear("an event of a namespace that came", &controller, &mut channel, 2);
    // The namespace stays attached until a call removes it.
    let remove = json!({"nqn": NQN, "nsid": 1});
    rig.refused(-16, "nvmf_subsystem_remove_ns", remove);
    channel.write(0, &[2; 4096]).unwrap();
    rig.ok("nvmf_subsystem_remove_ns", json!({"nqn": NQN, "nsid": 1, "force": true}));
    hear("an event of a namespace that went", &controller, &mut channel, 3);
    let error = channel.write(0, &[3; 4096]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
    rig.ok("bdev_aio_delete", json!({"name": "base"}));
    drop((channel, device, controller));
    let again = open(&rig, "a.sock", WaitMode::Poll);
    assert_eq!(again.namespaces().iter().map(|it| it.nsid).collect::<Vec<_>>(), [2]);
    SerialChannel::open(base.as_ref()).unwrap().read(0, &mut [0; 512]).unwrap();
}

#[test]
fn a_resize_is_seen_by_who_looks() {
    let options = RamOptions { size_bytes: 8 << 20, growable: true, ..RamOptions::default() };
    let base: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(options).unwrap());
    let mut rig = Rig::start(&base);
    serve(&mut rig, &["base"], &["a.sock"]);
    let controller = open(&rig, "a.sock", WaitMode::Poll);
    let device = controller.open_namespace(1).unwrap();
    let mut channel = SerialChannel::open(&device).unwrap();
    base.grow(16 << 20).unwrap();
    hear("an event of a resize", &controller, &mut channel, 1);
    drop((channel, device, controller));
    let controller = open(&rig, "a.sock", WaitMode::Poll);
    let device = controller.open_namespace(1).unwrap();
    assert_eq!(device.size_bytes(), 16 << 20);
    SerialChannel::open(&device).unwrap().write((16 << 20) - 4096, &[1; 4096]).unwrap();
}

#[test]
fn errors_of_devices_reach_the_driver() {
    let options = RamOptions { size_bytes: 8 << 20, read_only: true, ..RamOptions::default() };
    let mut rig = Rig::start(&(Arc::new(RamDevice::new(options).unwrap()) as Arc<dyn BlockDevice>));
    rig.ok("bdev_malloc_create", json!({"name": "M", "num_blocks": 256, "block_size": 4096}));
    rig.ok("bdev_error_create", json!({"base_name": "M"}));
    serve(&mut rig, &["EE_M", "base"], &["a.sock"]);
    let controller = open(&rig, "a.sock", WaitMode::Poll);
    let device = controller.open_namespace(1).unwrap();
    let mut channel = SerialChannel::open(&device).unwrap();
    let mut bytes = [0; 4096];
    channel.write(0, &bytes).unwrap();
    let fault = |io_type: &str| json!({"name": "EE_M", "io_type": io_type, "error_type": "failure", "num": 1});
    rig.ok("bdev_error_inject_error", fault("read"));
    assert_eq!(channel.read(0, &mut bytes).unwrap_err().kind(), ErrorKind::Io);
    channel.read(0, &mut bytes).unwrap();
    rig.ok("bdev_error_inject_error", fault("flush"));
    assert_eq!(channel.flush().unwrap_err().kind(), ErrorKind::Io);
    channel.flush().unwrap();
    let read_only = controller.open_namespace(2).unwrap();
    let mut channel = SerialChannel::open(&read_only).unwrap();
    channel.read(0, &mut bytes).unwrap();
    assert_eq!(channel.write(0, &bytes).unwrap_err().kind(), ErrorKind::ReadOnly);
}

/// Slow commands complete by themselves, the worker does other work meanwhile, and a reset waits
/// for them.
#[test]
fn slow_devices_hold_nobody_up() {
    let mut rig = Rig::start(&ram());
    rig.ok("bdev_malloc_create", json!({"name": "M", "num_blocks": 256, "block_size": 4096}));
    let delay = json!({
        "name": "D", "base_bdev_name": "M", "avg_read_latency": 500_000, "p99_read_latency": 500_000,
        "avg_write_latency": 0, "p99_write_latency": 0,
    });
    rig.ok("bdev_delay_create", delay);
    serve(&mut rig, &["D", "base"], &["a.sock", "b.sock"]);
    let (slow, fast) =
        (open(&rig, "a.sock", WaitMode::Sleep), open(&rig, "b.sock", WaitMode::Poll));
    let device = slow.open_namespace(1).unwrap();
    let arena = Arena::new(4096, 16, device.info().arena_options()).unwrap();
    let options = ChannelOptions { depth: 16, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&options).unwrap();
    let submit = |channel: &mut Box<dyn IoChannel>| {
        for tag in 0..16 {
            let request = Request::read(tag * 4096, 4096, arena.lease().unwrap(), tag);
            channel.submit(request).unwrap();
        }
        channel.kick();
    };
    submit(&mut channel);
    let other = fast.open_namespace(2).unwrap();
    let mut other = SerialChannel::open(&other).unwrap();
    let mut others = 0;
    let mut done = Vec::new();
    while done.len() < 16 {
        other.write(0, &[1; 4096]).unwrap();
        others += 1;
        channel.poll(&mut done);
    }
    assert!(done.iter().all(|it| it.result.is_ok()));
    // If the reads delayed them, the second write would be the last.
    assert!(others > 2, "{others} writes beside reads that take 0.5 s together");
    done.clear();
    submit(&mut channel);
    slow.reset().unwrap();
    let all = WaitOptions { want: 16, linger: Duration::MAX, timeout: None };
    channel.wait(&mut done, all);
    assert_eq!(done.len(), 16);
    assert!(done.iter().all(|it| it.result.is_ok() || it.result == Err(IoError::CANCELED)));
    done.clear();
    submit(&mut channel);
    channel.wait(&mut done, all);
    assert!(done.len() == 16 && done.iter().all(|it| it.result.is_ok()));
}

#[test]
fn calls_that_make_no_sense_change_nothing() {
    let mut rig = Rig::start(&ram());
    rig.refused(-32602, "nvmf_subsystem_add_listener", listener("a.sock"));
    rig.refused(-32602, "nvmf_create_transport", json!({"trtype": "RDMA"}));
    rig.refused(-32602, "nvmf_create_transport", json!({"trtype": "VFIOUSER", "max_io_size": 1}));
    serve(&mut rig, &["base"], &["a.sock"]);
    let other = "nqn.2026-11.invalid.example:other";
    let of =
        |nsid: u64, bdev: &str| json!({"nqn": NQN, "namespace": {"bdev_name": bdev, "nsid": nsid}});
    rig.ok("bdev_malloc_create", json!({"name": "M", "num_blocks": 256, "block_size": 4096}));
    for (code, method, params) in [
        (-32603, "nvmf_create_transport", json!({"trtype": "VFIOUSER"})),
        (-16, "nvmf_delete_transport", json!({"trtype": "VFIOUSER"})),
        (-17, "nvmf_create_subsystem", json!({"nqn": NQN})),
        (-32602, "nvmf_create_subsystem", json!({"nqn": "x"})),
        (-32602, "nvmf_create_subsystem", json!({"nqn": other, "max_namespaces": 0})),
        (-32602, "nvmf_create_subsystem", json!({"nqn": other, "serial_number": "x".repeat(21)})),
        (-16, "nvmf_subsystem_add_ns", namespace("base")),
        (-32602, "nvmf_subsystem_add_ns", namespace("none")),
        (-17, "nvmf_subsystem_add_ns", of(1, "M")),
        (-32602, "nvmf_subsystem_add_ns", of(33, "M")),
        (
            -32602,
            "nvmf_subsystem_add_ns",
            json!({"nqn": NQN, "namespace": {"bdev_name": "M", "uuid": "odd"}}),
        ),
        (
            -32602,
            "nvmf_subsystem_add_ns",
            json!({"nqn": NQN, "namespace": {"bdev_name": "M", "odd": 1}}),
        ),
        (-32602, "nvmf_subsystem_remove_ns", json!({"nqn": NQN, "nsid": 2})),
        (-32602, "nvmf_subsystem_remove_ns", json!({"nqn": other, "nsid": 1})),
        (-17, "nvmf_subsystem_add_listener", listener("a.sock")),
        (-32602, "nvmf_subsystem_remove_listener", listener("b.sock")),
        (-32602, "nvmf_delete_subsystem", json!({"nqn": other})),
        (-32602, "nvmf_get_subsystems", json!({"nqn": other})),
    ] {
        rig.refused(code, method, params);
    }
    let controller = open(&rig, "a.sock", WaitMode::Poll);
    rig.refused(-16, "nvmf_subsystem_remove_listener", listener("a.sock"));
    rig.refused(-16, "nvmf_delete_subsystem", json!({"nqn": NQN}));
    drop(controller);
    wait_for("the driver to be gone", || {
        rig.call("nvmf_subsystem_remove_listener", &listener("a.sock"))["result"] == true
    });
    assert!(!rig.folder.path().join("a.sock").exists());
    rig.ok("nvmf_delete_transport", json!({"trtype": "VFIOUSER"}));
    rig.ok("nvmf_delete_subsystem", json!({"nqn": NQN}));
    rig.ok("bdev_aio_delete", json!({"name": "base"}));
    assert_eq!(rig.ok("framework_get_config", json!({"name": "nvmf"})), json!([]));
}

#[test]
fn a_subsystem_goes_with_all_that_it_has() {
    let mut rig = Rig::start(&ram());
    serve(&mut rig, &["base"], &["a.sock", "b.sock"]);
    let controller = open(&rig, "a.sock", WaitMode::Poll);
    let device = controller.open_namespace(1).unwrap();
    let mut channel = SerialChannel::open(&device).unwrap();
    channel.write(0, &[1; 4096]).unwrap();
    rig.ok("nvmf_delete_subsystem", json!({"nqn": NQN, "force": true}));
    assert!(channel.write(0, &[1; 4096]).is_err());
    rig.ok("bdev_aio_delete", json!({"name": "base"}));
    let left = rig.ok("framework_get_config", json!({"name": "nvmf"}));
    assert_eq!(left.as_array().unwrap().len(), 1, "the transport: {left}");
    rig.ok("nvmf_create_subsystem", json!({"nqn": NQN}));
}

/// A driver that sends random commands, and then suddenly closes its memory, deletes its queues and
/// disconnects.
fn hostile(path: &Path, random: &mut fastrand::Rng) {
    let client = connect(path);
    let arena =
        Arena::new(4096, 64, ArenaOptions { shared: true, ..ArenaOptions::ordinary_pages() });
    let arena = arena.unwrap();
    let Ok(iova) = client.map_dma(&arena) else { return };
    let mut pages: Vec<_> = (0..64).map(|_| arena.lease().unwrap()).collect();
    let base = pages.iter().map(|page| page.as_ptr().addr()).min().unwrap();
    let place = |at: usize| iova + (pages[at].as_ptr().addr() - base) as u64;
    let places: Vec<u64> = (0..64).map(place).collect();
    let write32 = |offset, value: u32| client.write_bar(0, offset, &value.to_le_bytes());
    let write64 = |offset, value: u64| {
        write32(offset, value as u32).and_then(|()| write32(offset + 4, (value >> 32) as u32))
    };
    let entries = 16u32;
    let set_up = write32(AQA, (entries - 1) | (entries - 1) << 16)
        .and_then(|()| write64(ASQ, places[0]))
        .and_then(|()| write64(ACQ, places[1]))
        .and_then(|()| write32(CC, CC_RUN));
    if set_up.is_err() {
        return;
    }
    let mut tails = [0u32; 3];
    let mut push = |pages: &mut Vec<qpair_block::Buffer>, number: u16, command: &Command| {
        let tail = &mut tails[usize::from(number)];
        let page = if number == 0 { 0 } else { 2 * usize::from(number) };
        pages[page].copy_from(*tail as usize * 64, &command.encode());
        *tail = (*tail + 1) % entries;
        write32(doorbell(number, false, 4), *tail)
    };
    for number in [1, 2] {
        let at = 2 * usize::from(number);
        let _ = push(&mut pages, 0, &Command::create_cq(number, entries, places[at + 1], None));
        let _ = push(&mut pages, 0, &Command::create_sq(number, entries, places[at]));
    }
    for _ in 0..random.usize(1..200) {
        let number = random.u16(0..3);
        let mut command = match random.u8(0..4) {
            0 if number == 0 => Command::delete_queue(
                *random.choice(&[admin::DELETE_SQ, admin::DELETE_CQ]).unwrap(),
                random.u16(0..4),
            ),
            0 => Command(std::array::from_fn(|_| random.u32(..))),
            _ => {
                let verbs =
                    [io::READ, io::WRITE, io::FLUSH, io::WRITE_ZEROES, io::DATASET_MANAGEMENT];
                let first = random.u64(0..1 << 12);
                let verb = *random.choice(&verbs).unwrap();
                Command::blocks_of(verb, random.u32(0..4), first, random.u32(1..300))
            }
        };
        let page = |random: &mut fastrand::Rng| match random.u8(0..8) {
            0 => random.u64(..),
            _ => places[random.usize(8..64)] + random.u64(0..4) * 4 * random.u64(0..2),
        };
        if random.u8(..) < 200 {
            command.set_prps(page(random), page(random));
        }
        command.set_cid(random.u16(..));
        if push(&mut pages, number, &command).is_err() {
            return;
        }
        let odd = match random.u16(0..200) {
            0 => write32(CC, 0).and_then(|()| write32(CC, CC_RUN)),
            1 => write32(doorbell(random.u16(0..8), random.bool(), 4), random.u32(0..40)),
            2 => return,
            3 => client.unmap_dma(&arena),
            4 => client.reset(),
            _ => Ok(()),
        };
        if odd.is_err() {
            return;
        }
        // The driver ignores completions, but moves the heads.
        let _ = write32(doorbell(number, true, 4), random.u32(0..entries));
    }
}

#[test]
fn hostile_drivers_end_nobody_elses_work() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut rig = Rig::start(&ram());
    rig.ok("bdev_malloc_create", json!({"name": "M", "num_blocks": 2048, "block_size": 4096}));
    serve(&mut rig, &["M"], &["bad.sock"]);
    let other = "nqn.2026-11.invalid.example:good";
    rig.ok("nvmf_create_subsystem", json!({"nqn": other}));
    rig.ok("nvmf_subsystem_add_ns", json!({"nqn": other, "namespace": {"bdev_name": "base"}}));
    let good =
        json!({"nqn": other, "listen_address": {"trtype": "VFIOUSER", "traddr": "good.sock"}});
    rig.ok("nvmf_subsystem_add_listener", good);
    let is_over = Arc::new(AtomicBool::new(false));
    let path = rig.folder.path().join("good.sock");
    let guest = std::thread::spawn({
        let is_over = is_over.clone();
        move || {
            let controller = open_at(&path, WaitMode::Poll);
            let device = controller.open_default_namespace(None).unwrap();
            let mut channel = SerialChannel::open(&device).unwrap();
            let mut rounds = 0u64;
            while !is_over.load(Ordering::Relaxed) {
                rounds += 1;
                let at = rounds % 512 * 8192;
                let bytes: Vec<u8> = (0..8192).map(|byte| (byte + rounds) as u8).collect();
                channel.write(at, &bytes).unwrap();
                let mut read = vec![0; 8192];
                channel.read(at, &mut read).unwrap();
                assert!(read == bytes, "round {rounds}");
            }
            (rounds, controller.resets())
        }
    });
    let bad = rig.folder.path().join("bad.sock");
    for round in 0..60 {
        if round % 4 == 3 {
            // Send bytes that are not even the protocol.
            let noise: Vec<u8> = (0..random.usize(0..200)).map(|_| random.u8(..)).collect();
            let _ = UnixStream::connect(&bad).unwrap().write_all(&noise);
            continue;
        }
        hostile(&bad, &mut random);
    }
    is_over.store(true, Ordering::Relaxed);
    let (rounds, resets) = guest.join().unwrap();
    assert!(rounds > 0 && resets == 0);
    // The next driver can use the controller.
    let controller = open(&rig, "bad.sock", WaitMode::Poll);
    let device = controller.open_default_namespace(None).unwrap();
    let mut channel = SerialChannel::open(&device).unwrap();
    channel.write(0, &[5; 4096]).unwrap();
    let mut read = [0; 4096];
    channel.read(0, &mut read).unwrap();
    assert_eq!(read, [5; 4096]);
}

/// Returns how often the target's only worker has gone to sleep so far.
fn sleeps(rig: &Rig) -> u64 {
    let tid = rig.target.workers()[0].tid;
    let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// Serves a controller of one device on a target that sleeps, and attaches a driver.
fn shadowed(wait: WaitMode) -> (Rig, Arc<Controller>) {
    let mut rig = Rig::start(&ram());
    serve(&mut rig, &["base"], &["a.sock"]);
    let options = ControllerOptions { wait, timeout_ms: 10_000, ..ControllerOptions::default() };
    let controller = Controller::open(connect(&rig.folder.path().join("a.sock")), options).unwrap();
    assert!(controller.info().doorbells_shadowed);
    (rig, controller)
}

/// Bursts of reads of random blocks.
struct Bursts {
    channel: Box<dyn IoChannel>,
    arena: Arc<Arena>,
    random: fastrand::Rng,
}

impl Bursts {
    const DEPTH: u32 = 64;

    fn new(device: &impl BlockDevice, seed: u64) -> Self {
        let arena = Arena::new(4096, Self::DEPTH, device.info().arena_options()).unwrap();
        let options =
            ChannelOptions { depth: Self::DEPTH, arenas: vec![arena.clone()], wake: None };
        let channel = device.open_channel(&options).unwrap();
        Self { channel, arena, random: fastrand::Rng::with_seed(seed) }
    }

    fn read(&mut self, count: u32) {
        let mut completions = Vec::new();
        for tag in 0..count {
            let buffer = self.arena.lease().unwrap();
            let offset = self.random.u64(0..256) * 4096;
            self.channel.submit(Request::read(offset, 4096, buffer, tag.into())).unwrap();
            // Ring for some of them one by one.
            if self.random.u8(0..4) == 0 {
                self.channel.kick();
            }
        }
        while completions.len() < count as usize {
            let options = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
            self.channel.wait(&mut completions, options);
        }
        for completion in completions {
            completion.result.unwrap();
        }
    }
}

/// A controller whose driver is idle sleeps until the driver rings. A regression: it woke a
/// thousand times a second, because mapped doorbells wake no thread.
#[test]
fn an_idle_controller_sleeps_until_it_is_rung() {
    for wait in [WaitMode::Poll, WaitMode::Sleep] {
        let (rig, controller) = shadowed(wait);
        let device = controller.open_default_namespace(None).unwrap();
        let mut bursts = Bursts::new(&device, 1);
        bursts.read(1);
        // Wait until the controller sleeps.
        let mut before = sleeps(&rig);
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let now = sleeps(&rig);
            if std::mem::replace(&mut before, now) == now {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(sleeps(&rig), before, "an idle controller was woken");
        for count in [1, 5, Bursts::DEPTH] {
            bursts.read(count);
        }
        // The counter works: it changes once the controller has polled long enough to sleep again.
        let mut looks = 0;
        while sleeps(&rig) == before {
            std::thread::sleep(Duration::from_millis(1));
            looks += 1;
            assert!(looks < 10_000, "it does not sleep any more");
        }
        assert_eq!(controller.resets(), 0);
    }
}

/// No wake-up is lost, however a load stops and starts: a missed command would end with a time-out
/// error.
///
/// With `QPAIR_DOORBELL_SECONDS=3600` and `QPAIR_DOORBELL_SEED=N`, the following runs for longer:
/// `cargo test -p qpair-serve --test serve stops_and_starts -- --nocapture`.
#[test]
fn a_load_stops_and_starts() {
    let number = |variable: &str| std::env::var(variable).ok()?.parse::<u64>().ok();
    let seed = number("QPAIR_DOORBELL_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("QPAIR_DOORBELL_SEED={seed}");
    let until = number("QPAIR_DOORBELL_SECONDS")
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (mut bursts_done, mut slept) = (0_u64, 0);
    for wait in [WaitMode::Poll, WaitMode::Sleep] {
        let (rig, controller) = shadowed(wait);
        let device = controller.open_default_namespace(None).unwrap();
        let mut bursts = Bursts::new(&device, seed);
        let mut random = fastrand::Rng::with_seed(seed + 1);
        let before = sleeps(&rig);
        let of_mode = until.map(|until| Instant::now() + (until - Instant::now()) / 2);
        let of_mode = if wait == WaitMode::Sleep { until } else { of_mode };
        for round in 0_u64.. {
            let is_over = of_mode.map_or(round >= 1500, |end| Instant::now() >= end);
            if is_over {
                break;
            }
            bursts.read(match random.u8(0..3) {
                0 => 1,
                1 => random.u32(1..8),
                _ => random.u32(1..=Bursts::DEPTH),
            });
            bursts_done += 1;
            // Shorter than, equal to, and longer than the time that the controller polls before it
            // sleeps.
            let pause = match random.u8(0..4) {
                0 => 0,
                1 => random.u64(0..30),
                2 => random.u64(100..400),
                _ => random.u64(0..2000),
            };
            let end = Instant::now() + Duration::from_micros(pause);
            while Instant::now() < end {
                std::hint::spin_loop();
            }
        }
        slept += sleeps(&rig) - before;
        assert_eq!(controller.resets(), 0, "seed {seed}");
    }
    println!("{bursts_done} bursts, the controller slept {slept} times");
    assert!(slept > 100, "seed {seed}: {slept} sleeps in {bursts_done} bursts");
}
