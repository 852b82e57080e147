//! SCSI hosts, virtio disks and disks of the command line are devices like others. A regression: no
//! method accepted them.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use qpair_block::{BlockDevice, SerialChannel};
use qpair_serve::{BlkOptions, Manager, Target, TargetOptions};
use serde_json::{Value, json};

use crate::rig::{Rig, ram};

fn names(rig: &mut Rig) -> Vec<String> {
    let all = rig.ok("bdev_get_bdevs", Value::Null);
    let name = |bdev: &Value| bdev["name"].as_str().unwrap().to_owned();
    all.as_array().unwrap().iter().map(name).filter(|name| name != "base").collect()
}

const ATTACH: &str = "bdev_scsi_attach_controller";

#[test]
fn units_of_a_scsi_host_are_devices() {
    let mut rig = Rig::start(&ram());
    rig.host.plug(0, 0);
    rig.host.plug(0, 2);
    rig.host.plug(9, 0);
    let attached = rig.ok(ATTACH, json!({"name": "S", "traddr": "scsi:soft"}));
    assert_eq!(attached, json!(["St0", "St0l2"]));
    rig.refused(-114, ATTACH, json!({"name": "S", "traddr": "0000:03:00.0"}));
    rig.refused(-17, ATTACH, json!({"name": "T", "traddr": "soft"}));
    rig.refused(-19, ATTACH, json!({"name": "T", "traddr": "nowhere"}));
    rig.refused(
        -114,
        "bdev_nvme_attach_controller",
        json!({"name": "S", "trtype": "PCIe", "traddr": "0000:01:00.0"}),
    );
    let told = rig.ok("bdev_scsi_get_controllers", json!({"name": "S"}));
    let refused = json!([{"target": 9, "lun": 0, "error": "it is a tape"}]);
    assert_eq!((&told[0]["traddr"], &told[0]["refused"]), (&json!("soft"), &refused));
    rig.refused(-19, "bdev_scsi_get_controllers", json!({"name": "T"}));
    // Each protocol and each layer accepts them.
    rig.ok("bdev_scsi_create", json!({"name": "custom", "device": "St0", "blocks": 64}));
    rig.ok("vhost_create_blk_controller", json!({"ctrlr": "c.sock", "dev_name": "custom"}));
    rig.ok("bdev_split_create", json!({"base_bdev": "St0l2", "split_count": 2}));
    rig.refused(-16, "bdev_scsi_detach_controller", json!({"name": "S"}));
    rig.ok("vhost_delete_controller", json!({"ctrlr": "c.sock"}));
    rig.ok("bdev_scsi_delete", json!({"name": "custom"}));
    rig.ok("bdev_split_delete", json!({"base_bdev": "St0l2"}));
    rig.ok("bdev_scsi_detach_controller", json!({"name": "S"}));
    rig.refused(-19, "bdev_scsi_detach_controller", json!({"name": "S"}));
    assert!(names(&mut rig).is_empty());
    assert_eq!(
        rig.ok("framework_get_config", json!({"name": "bdev"})).as_array().unwrap().len(),
        1
    );
}

#[test]
fn units_come_and_go() {
    let mut rig = Rig::start(&ram());
    assert_eq!(rig.ok(ATTACH, json!({"name": "S", "traddr": "soft"})), json!([]));
    rig.host.plug(3, 0);
    rig.host.plug(4, 0);
    rig.manager.look_after();
    assert_eq!(names(&mut rig), ["St3", "St4"]);
    rig.ok("vhost_create_blk_controller", json!({"ctrlr": "v.sock", "dev_name": "St3"}));
    rig.ok("bdev_set_qos_limit", json!({"name": "St4", "rw_ios_per_sec": 5000}));
    rig.host.pull(3);
    rig.host.pull(4);
    rig.manager.look_after();
    // A device in use stays until its claim ends.
    assert_eq!(names(&mut rig), ["St3"]);
    let told = rig.ok("bdev_scsi_get_controllers", Value::Null);
    assert_eq!(
        told[0]["units"],
        json!([{"target": 3, "lun": 0, "bdev_name": "St3", "is_gone": true}])
    );
    let saved = rig.manager.save().to_string();
    assert!(!saved.contains("bdev_set_qos_limit"), "{saved}");
    rig.host.plug(3, 0);
    rig.manager.look_after();
    assert_eq!(rig.ok("bdev_scsi_get_controllers", Value::Null)[0]["units"][0]["is_gone"], false);
    rig.host.pull(3);
    rig.manager.look_after();
    rig.ok("vhost_delete_controller", json!({"ctrlr": "v.sock"}));
    rig.manager.look_after();
    assert!(names(&mut rig).is_empty());
    // Another unit has the place of one that was removed.
    rig.host.plug(4, 0);
    rig.manager.look_after();
    rig.host.pull(4);
    rig.host.plug(4, 0);
    rig.manager.look_after();
    assert_eq!(names(&mut rig), ["St4"]);
}

#[test]
fn virtio_disks_are_devices() {
    let mut rig = Rig::start(&ram());
    let attach = "bdev_virtio_attach_controller";
    let virtio = |name: &str, trtype: &str, traddr: &str, dev_type: &str| json!({"name": name, "trtype": trtype, "traddr": traddr, "dev_type": dev_type});
    assert_eq!(rig.ok(attach, virtio("V", "user", "/run/other.sock", "blk")), json!(["V"]));
    rig.refused(-17, attach, virtio("V", "user", "/run/other.sock", "blk"));
    rig.refused(-19, attach, virtio("W", "user", "/run/none.sock", "blk"));
    rig.refused(-95, attach, virtio("W", "user", "/run/other.sock", "scsi"));
    rig.refused(-95, attach, virtio("W", "pci", "0000:03:00.0", "blk"));
    rig.refused(-22, attach, virtio("W", "tcp", "/run/other.sock", "blk"));
    rig.host.plug(1, 0);
    assert_eq!(rig.ok(attach, virtio("X", "pci", "0000:03:00.0", "scsi")), json!(["Xt1"]));
    rig.refused(-19, "bdev_scsi_detach_controller", json!({"name": "X"}));
    rig.ok("vhost_create_blk_controller", json!({"ctrlr": "v.sock", "dev_name": "V"}));
    let detach = "bdev_virtio_detach_controller";
    rig.refused(-16, detach, json!({"name": "V"}));
    rig.ok("vhost_delete_controller", json!({"ctrlr": "v.sock"}));
    rig.ok(detach, json!({"name": "V"}));
    rig.ok(detach, json!({"name": "X"}));
    rig.refused(-19, detach, json!({"name": "X"}));
    assert!(names(&mut rig).is_empty());
}

/// The socket of a disk of `--disk` is closed when a call takes the device, and is opened again if
/// the call fails.
#[test]
fn disks_of_the_command_line_are_devices() {
    let mut rig = Rig::start(&ram());
    rig.manager.add_disk("d", ram(), BlkOptions::default()).unwrap();
    rig.manager.add_disk("e", ram(), BlkOptions::default()).unwrap();
    assert!(rig.manager.add_disk("d", ram(), BlkOptions::default()).is_err());
    assert_eq!(names(&mut rig), ["d", "e"]);
    let told = rig.ok("bdev_scsi_get_devices", json!({"name": "d"}));
    assert_eq!(told[0]["num_blocks"], (32 << 20) / 512, "{told}");
    let (d, e) = (rig.folder.path().join("d.sock"), rig.folder.path().join("e.sock"));
    // Without a size the call fails, and nothing has changed.
    rig.refused(-32602, "bdev_scsi_create", json!({"name": "custom", "device": "d"}));
    let guest = UnixStream::connect(&d).unwrap();
    let has_client = |rig: &Rig| rig.target.exports().iter().any(|export| export.has_client);
    while !has_client(&rig) {
        std::thread::yield_now();
    }
    drop(guest);
    while has_client(&rig) {
        std::thread::yield_now();
    }
    rig.ok("bdev_scsi_create", json!({"name": "custom", "device": "d", "blocks": 64}));
    rig.ok("bdev_scsi_create", json!({"name": "second", "device": "d", "blocks": 64}));
    assert!(UnixStream::connect(&d).is_err());
    rig.ok("vhost_create_blk_controller", json!({"ctrlr": "v.sock", "dev_name": "custom"}));
    // A connected front end keeps its disk.
    let split = || json!({"base_bdev": "e", "split_count": 2});
    let guest = qpair_vhost_user::VhostUserBlk::open(&e, Default::default()).unwrap();
    rig.refused(-16, "bdev_split_create", split());
    let mut bytes = [0; 512];
    SerialChannel::open(&guest).unwrap().read(0, &mut bytes).unwrap();
    drop(guest);
    while rig.target.exports().iter().any(|export| export.name == "e" && export.has_client) {
        std::thread::yield_now();
    }
    assert_eq!(rig.ok("bdev_split_create", split()), json!(["ep0", "ep1"]));
    rig.ok("nvmf_create_transport", json!({"trtype": "VFIOUSER"}));
    rig.ok("nvmf_create_subsystem", json!({"nqn": "nqn.2026-11.invalid.example:s"}));
    let namespace =
        json!({"nqn": "nqn.2026-11.invalid.example:s", "namespace": {"bdev_name": "ep1"}});
    rig.ok("nvmf_subsystem_add_ns", namespace);
}

/// A target with the same disks and hosts restores a saved configuration.
#[test]
fn a_configuration_comes_back() {
    let device = ram();
    let mut rig = Rig::start(&device);
    rig.host.plug(0, 0);
    let disk: Arc<dyn BlockDevice> = ram();
    rig.manager.add_disk("d", disk.clone(), BlkOptions::default()).unwrap();
    rig.ok(ATTACH, json!({"name": "S", "traddr": "soft"}));
    let virtio =
        json!({"name": "V", "trtype": "user", "traddr": "/run/other.sock", "dev_type": "blk"});
    rig.ok("bdev_virtio_attach_controller", virtio);
    rig.ok("bdev_scsi_create", json!({"name": "custom", "device": "d", "blocks": 64}));
    rig.ok("bdev_raid_create", json!({"name": "R", "raid_level": "0", "base_bdevs": ["St0", "V"]}));
    let saved = rig.manager.save();
    let (before, host) = (names(&mut rig), rig.host.clone());
    drop(rig);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let target = Arc::new(Target::new(TargetOptions::default()).unwrap());
    let open = Box::new(move |_: &std::path::Path, _: &str, _| Ok(device.clone()));
    let manager = Manager::new(target, open, folder.path().to_owned(), "1.2.3");
    manager.attach_with(qpair_serve::Attach {
        nvme: Box::new(|_| Ok(Vec::new())),
        scsi: Box::new(move |_| Ok(host.clone())),
        vhost_user: Box::new(|_| Ok(ram())),
    });
    manager.add_disk("d", disk, BlkOptions::default()).unwrap();
    manager.load(&saved).unwrap();
    assert_eq!(manager.save(), saved);
    assert_eq!(before, ["R", "St0", "V", "custom", "d"]);
}
