//! JSON-RPC over its socket: custom disks, limits, faults, controllers.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod attached;
mod flood;

use std::path::Path;

use crate::rig::{Rig, ram};
use qpair_block::SerialChannel;
use qpair_vhost_user::{VhostUserBlk, VhostUserOptions};
use serde_json::{Value, json};

/// Connects a front end to `v.sock`, once the previous one has disconnected.
fn front_end(rig: &Rig) -> VhostUserBlk {
    let path = rig.folder.path().join("v.sock");
    let mut tries = 0;
    loop {
        match VhostUserBlk::open(&path, VhostUserOptions::default()) {
            Ok(guest) => return guest,
            Err(error) => assert!(tries < 1000, "{error}"),
        }
        tries += 1;
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn custom_disks_lie_on_their_device() {
    let device = ram();
    let mut rig = Rig::start(&device);
    let create = "bdev_scsi_create";
    let (offset, blocks) = (10 << 11, 8 << 11);
    let exact = json!({"name": "a", "device": "base", "blocks": blocks, "offset": offset});
    assert_eq!(rig.ok(create, exact.clone()), "a");
    assert_eq!(rig.ok(create, json!({"name": "b", "device": "base", "blocks": 8})), "b");
    for (code, params) in [
        (-17, exact.clone()),
        (-22, json!({"name": "c", "device": "base", "blocks": 8, "offset": offset + 1})),
        (-22, json!({"name": "c", "device": "base", "blocks": 8, "offset": 0})),
        (-28, json!({"name": "c", "device": "base", "size_gb": 1})),
        (-28, json!({"name": "c", "device": "base", "blocks": 8, "offset": 1u64 << 40})),
        (-22, json!({"name": "c", "device": "a", "blocks": 8})),
        (-19, json!({"name": "c", "device": "none", "blocks": 8})),
        (-32602, json!({"name": "c", "device": "base"})),
        (-32602, json!({"name": "c", "device": "base", "blocks": 8, "size_gb": 1})),
        (-22, json!({"name": "c/d", "device": "base", "blocks": 8})),
    ] {
        rig.refused(code, create, params);
    }
    rig.refused(-16, "bdev_aio_delete", json!({"name": "base"}));
    rig.refused(-16, "bdev_split_create", json!({"base_bdev": "base", "split_count": 2}));
    let devices = rig.ok("bdev_scsi_get_devices", json!({"name": "base"}));
    let disks = &devices[0]["disks"];
    assert_eq!(disks.as_array().unwrap().len(), 2, "{devices}");
    let about =
        |disk: &Value| [&disk["name"], &disk["offset"], &disk["num_blocks"]].map(Value::clone);
    assert_eq!(about(&disks[1]), [json!("a"), json!(offset), json!(blocks)]);
    let uuid = rig.ok("bdev_get_bdevs", json!({"name": "a"}))[0]["uuid"].clone();
    let config = rig.ok("framework_get_config", json!({"name": "bdev"}));
    drop(rig);

    // Another target finds the slices on the device, by the saved calls or without knowing their
    // sizes.
    let mut rig = Rig::start(&device);
    let saved =
        config.as_array().unwrap().iter().find(|call| call["params"]["name"] == "a").unwrap();
    rig.ok(create, saved["params"].clone());
    assert_eq!(rig.ok("bdev_get_bdevs", json!({"name": "a"}))[0]["uuid"], uuid);
    rig.refused(-17, create, json!({"name": "b", "device": "base", "blocks": 16}));
    rig.ok(create, json!({"name": "b", "device": "base"}));
    rig.ok("bdev_scsi_delete", json!({"name": "b", "keep": true}));
    rig.ok(create, json!({"name": "b", "device": "base"}));
    rig.ok("bdev_scsi_delete", json!({"name": "a"}));
    rig.refused(-19, "bdev_scsi_delete", json!({"name": "a"}));
    rig.refused(-19, "bdev_scsi_delete", json!({"name": "base"}));
    drop(rig);
    let mut rig = Rig::start(&device);
    rig.refused(-32602, create, json!({"name": "a", "device": "base"}));
}

#[test]
fn carving_takes_a_word_where_something_is() {
    let device = ram();
    SerialChannel::open(device.as_ref()).unwrap().write(4096, &[1; 512]).unwrap();
    let mut rig = Rig::start(&device);
    rig.refused(-17, "bdev_scsi_create", json!({"name": "a", "device": "base", "blocks": 8}));
    let by_force = json!({"name": "a", "device": "base", "blocks": 8, "force": true});
    rig.ok("bdev_scsi_create", by_force);
}

#[test]
fn limits_are_set_and_saved() {
    let mut rig = Rig::start(&ram());
    let set = "bdev_set_qos_limit";
    rig.refused(-22, set, json!({"name": "base"}));
    rig.refused(-19, set, json!({"name": "none", "rw_ios_per_sec": 1}));
    rig.refused(-32602, set, json!({"name": "base", "rw_ios_per_sec": u64::MAX}));
    rig.refused(-32602, set, json!({"name": "base", "w_mbytes_per_sec": u64::MAX}));
    assert_eq!(rig.ok(set, json!({"name": "base", "rw_ios_per_sec": 1500})), true);
    rig.ok(set, json!({"name": "base", "r_mbytes_per_sec": 7}));
    let expected = json!({
        "rw_ios_per_sec": 2000, "rw_mbytes_per_sec": 0, "r_mbytes_per_sec": 7, "w_mbytes_per_sec": 0
    });
    let limits = |rig: &mut Rig| {
        rig.ok("bdev_get_bdevs", json!({"name": "base"}))[0]["assigned_rate_limits"].clone()
    };
    assert_eq!(limits(&mut rig), expected);
    let saved = |rig: &mut Rig| {
        let config = rig.ok("framework_get_config", json!({"name": "bdev"}));
        let calls = config.as_array().unwrap().iter().filter(|call| call["method"] == set);
        calls.map(|call| call["params"].clone()).collect::<Vec<_>>()
    };
    let calls = saved(&mut rig);
    assert_eq!(calls.len(), 1);
    rig.ok(set, json!({"name": "base", "rw_ios_per_sec": 0, "r_mbytes_per_sec": 0}));
    assert_eq!(saved(&mut rig), Vec::<Value>::new());
    rig.ok(set, calls[0].clone());
    assert_eq!(limits(&mut rig), expected);
    rig.ok("bdev_aio_delete", json!({"name": "base"}));
    assert_eq!(rig.ok("framework_get_config", json!({"name": "bdev"})), json!([]));
}

/// A sleeping worker is woken when requests held back by a limit may run, even if the limit was set
/// after the guest connected.
#[test]
fn requests_that_wait_for_a_limit_come_back() {
    let mut rig = Rig::start(&ram());
    rig.ok("vhost_create_blk_controller", json!({"ctrlr": "v.sock", "dev_name": "base"}));
    let guest = front_end(&rig);
    let mut channel = SerialChannel::open(&guest).unwrap();
    let mut bytes = vec![0; 256 << 10];
    channel.read(0, &mut bytes).unwrap();
    rig.ok("bdev_set_qos_limit", json!({"name": "base", "r_mbytes_per_sec": 2}));
    for _ in 0..3 {
        channel.read(0, &mut bytes).unwrap();
    }
    drop((channel, guest));
    let guest = front_end(&rig);
    let mut channel = SerialChannel::open(&guest).unwrap();
    for _ in 0..3 {
        channel.read(0, &mut bytes).unwrap();
    }
}

#[test]
fn faults_are_injected_and_cleared() {
    let mut rig = Rig::start(&ram());
    assert_eq!(rig.ok("bdev_error_create", json!({"base_name": "base"})), true);
    rig.ok("vhost_create_blk_controller", json!({"ctrlr": "v.sock", "dev_name": "EE_base"}));
    let guest = front_end(&rig);
    let mut channel = SerialChannel::open(&guest).unwrap();
    let inject = "bdev_error_inject_error";
    let fault = |io_type: &str, num: u64| json!({"name": "EE_base", "io_type": io_type, "error_type": "failure", "num": num});
    let mut bytes = [0; 512];
    rig.ok(inject, fault("read", 2));
    let reads: Vec<bool> = (0..3).map(|_| channel.read(0, &mut bytes).is_ok()).collect();
    assert_eq!(reads, [false, false, true]);
    rig.ok(inject, fault("all", 100));
    assert!(channel.write(0, &bytes).is_err() && channel.flush().is_err());
    rig.ok(inject, fault("clear", 0));
    channel.write(0, &bytes).unwrap();
    channel.read(0, &mut bytes).unwrap();
    // Two reads, a write, a flush.
    let counted = rig.ok("bdev_get_iostat", json!({"names": ["EE_base"]}));
    assert_eq!(counted["bdevs"][0]["io_error"], json!({"failed": 4, "timed_out": 0}), "{counted}");
    rig.refused(-19, inject, json!({"name": "base", "io_type": "read", "error_type": "failure"}));
    rig.refused(-95, inject, json!({"name": "EE_base", "io_type": "read", "error_type": "nomem"}));
    rig.refused(
        -32602,
        inject,
        json!({"name": "EE_base", "io_type": "odd", "error_type": "failure"}),
    );
    rig.refused(-16, "bdev_error_delete", json!({"name": "EE_base"}));
}

#[test]
fn controllers_come_with_their_namespaces() {
    let mut rig = Rig::start(&ram());
    let attach = "bdev_nvme_attach_controller";
    let nvme = |name: &str, traddr: &str| json!({"name": name, "trtype": "PCIe", "traddr": traddr});
    assert_eq!(rig.ok(attach, nvme("N", "0000:01:00.0")), json!(["Nn1", "Nn3"]));
    rig.refused(-114, attach, nvme("N", "0000:01:00.0"));
    rig.refused(-19, attach, nvme("M", "0000:02:00.0"));
    rig.refused(-95, attach, json!({"name": "M", "trtype": "TCP", "traddr": "::1"}));
    let all = rig.ok("bdev_nvme_get_controllers", Value::Null);
    assert_eq!(all[0]["ctrlrs"][0]["trid"]["traddr"], "0000:01:00.0", "{all}");
    rig.refused(-22, "bdev_nvme_get_controllers", json!({"name": "M"}));
    rig.ok("bdev_scsi_create", json!({"name": "s", "device": "Nn3", "blocks": 8}));
    rig.refused(-16, "bdev_nvme_detach_controller", json!({"name": "N"}));
    rig.ok("bdev_scsi_delete", json!({"name": "s"}));
    rig.ok("bdev_nvme_detach_controller", json!({"name": "N"}));
    rig.refused(-19, "bdev_nvme_detach_controller", json!({"name": "N"}));
    assert_eq!(rig.ok("bdev_get_bdevs", Value::Null).as_array().unwrap().len(), 1);
}

#[test]
fn a_scsi_host_has_targets() {
    let mut rig = Rig::start(&ram());
    let (create, add) = ("vhost_create_scsi_controller", "vhost_scsi_controller_add_target");
    let remove = "vhost_scsi_controller_remove_target";
    rig.ok("bdev_malloc_create", json!({"name": "M", "num_blocks": 64, "block_size": 512}));
    let target = |number: i64, bdev: &str| json!({"ctrlr": "s", "scsi_target_num": number, "bdev_name": bdev});
    rig.refused(-32602, add, target(0, "M"));
    assert_eq!(rig.ok(create, json!({"ctrlr": "s", "delay": false})), true);
    rig.refused(-32602, create, json!({"ctrlr": "s"}));
    rig.refused(-32602, create, json!({"ctrlr": "../s"}));
    rig.refused(-95, create, json!({"ctrlr": "t", "delay": true}));
    assert_eq!(rig.ok(add, target(3, "M")), 3);
    assert_eq!(rig.ok(add, target(-1, "base")), 0);
    for (code, wrong) in
        [(-32602, target(1, "M")), (-19, target(1, "none")), (-32602, target(8, "base"))]
    {
        rig.refused(code, add, wrong);
    }
    rig.refused(-32602, add, target(-2, "base"));
    rig.refused(-16, "bdev_malloc_delete", json!({"name": "M"}));
    rig.refused(-32602, "vhost_delete_controller", json!({"ctrlr": "s"}));
    let shown = rig.ok("vhost_get_controllers", json!({"name": "s"}));
    let targets = shown[0]["backend_specific"]["scsi"].as_array().unwrap().clone();
    let about =
        |target: &Value| (target["scsi_dev_num"].clone(), target["luns"][0]["bdev_name"].clone());
    let expected = [(json!(0), json!("base")), (json!(3), json!("M"))];
    assert_eq!(targets.iter().map(about).collect::<Vec<_>>(), expected);
    let saved = rig.ok("framework_get_config", json!({"name": "vhost_scsi"}));
    let saved: Vec<_> = saved
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["params"]["scsi_target_num"].clone())
        .collect();
    assert_eq!(saved, [Value::Null, json!(3), json!(0)]);
    rig.refused(-32602, remove, json!({"ctrlr": "s", "scsi_target_num": 1}));
    assert_eq!(rig.ok(remove, json!({"ctrlr": "s", "scsi_target_num": 3})), true);
    rig.ok("bdev_malloc_delete", json!({"name": "M"}));
    rig.ok("vhost_delete_controller", json!({"ctrlr": "s", "force": true}));
    assert_eq!(rig.ok("framework_get_config", json!({"name": "vhost_scsi"})), json!([]));
    rig.ok("bdev_aio_delete", json!({"name": "base"}));
}

/// The page in the documentation matches the table. `QPAIR_WRITE_REFERENCE=1 cargo test -p
/// qpair-serve --test serve` writes it.
#[test]
fn the_reference_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/rpc.md");
    let page = qpair_serve::reference();
    if std::env::var_os("QPAIR_WRITE_REFERENCE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/reference/rpc.md is out of date: QPAIR_WRITE_REFERENCE=1 writes it"
    );
}
