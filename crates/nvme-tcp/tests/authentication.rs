//! Hosts that prove who they are, at our own target over loopback.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod rig {
    pub(crate) mod keyed;
}

use std::sync::Arc;

use qpair_block::{BlockDevice, ErrorKind};
use qpair_nvme_auth::{Group, Hash, HostKeys, Policy, Secret};
use qpair_nvme_tcp::wire::{Digests, put};
use qpair_nvme_tcp::{HostPort, NvmeTcpDevice, NvmeTcpOptions};
use qpair_nvme_wire::fabrics::{AUTHENTICATION_REQUIRED, Sgl, sgl};
use qpair_nvme_wire::{Command, Status};
use qpair_serve::{Disk, Target};
use rig::keyed::{NQN, OTHER_PROOF, PROOF, Rig, answers, connect, host, verify};

/// Serves a disk to a host that has the first key of proof, at a target that has this one.
fn serve(controller: Option<&str>) -> impl Fn(&Target, &HostPort, Arc<Disk>) -> HostPort {
    let controller = controller.map(|text| Secret::parse(text).unwrap());
    move |target, address, disk| {
        let address = target.serve_nvme_tcp(address, NQN, &[disk]).unwrap();
        let keys = HostKeys { host: Secret::parse(PROOF).unwrap(), controller: controller.clone() };
        target.set_nvme_tcp_keys(NQN, &host(), Some(keys)).unwrap();
        address
    }
}

/// Opens the device with the keys in these files.
fn open(rig: &Rig, key: &str, controller: &str) -> Result<NvmeTcpDevice, ErrorKind> {
    rig.open(NvmeTcpOptions {
        dhchap_key: rig.path(key),
        dhchap_ctrlr_key: rig.path(controller),
        ..NvmeTcpOptions::default()
    })
}

#[test]
fn keys_decide_who_connects() {
    let rig = Rig::new("auth-keys", serve(Some(OTHER_PROOF)));
    for hash in Hash::ALL {
        for group in [Group::Null, Group::Ffdhe2048, Group::Ffdhe3072] {
            let policy = Policy { hashes: vec![hash], groups: vec![group] };
            rig.target().set_nvme_tcp_policy(policy);
            verify(&open(&rig, "proof", "").unwrap(), 2, |_| {});
            verify(&open(&rig, "proof", "other").unwrap(), 2, |_| {});
        }
    }
    assert_eq!(open(&rig, "other", "").unwrap_err(), ErrorKind::Denied);
    assert_eq!(open(&rig, "", "").unwrap_err(), ErrorKind::Denied);
    assert_eq!(open(&rig, "proof", "proof").unwrap_err(), ErrorKind::Denied, "the target's key");
    assert_eq!(open(&rig, "", "proof").unwrap_err(), ErrorKind::Invalid);
    assert_eq!(open(&rig, "none", "").unwrap_err(), ErrorKind::NotFound);
    verify(&open(&rig, "proof", "other").unwrap(), 2, |_| {});
}

#[test]
fn a_target_that_does_not_authenticate_is_refused() {
    let rig = Rig::new("auth-open", serve(None));
    assert_eq!(open(&rig, "proof", "other").unwrap_err(), ErrorKind::Denied);
    rig.target().set_nvme_tcp_keys(NQN, &host(), None).unwrap();
    // An impostor would not ask.
    assert_eq!(open(&rig, "proof", "other").unwrap_err(), ErrorKind::Denied);
    verify(&open(&rig, "proof", "").unwrap(), 1, |_| {});
    verify(&open(&rig, "", "").unwrap(), 1, |_| {});
}

#[test]
fn a_host_authenticates_again_when_it_reconnects() {
    let mut rig = Rig::new("auth-again", serve(Some(OTHER_PROOF)));
    let device = open(&rig, "proof", "other").unwrap();
    verify(&device, 6, |time| {
        if time % 2 == 1 {
            rig.start(serve(Some(OTHER_PROOF)));
        }
    });
    assert!(device.resets() >= 2);
}

#[test]
fn nothing_is_carried_out_before_the_proof() {
    let rig = Rig::new("auth-raw", serve(None));
    let plain = Digests::default();
    let command = |mut command: Command, data: &[u8]| {
        let kind = if data.is_empty() { sgl::TRANSPORT } else { sgl::IN_CAPSULE };
        command.set_sgl(Sgl { address: 0, len_bytes: data.len().max(4096) as u32, kind });
        let mut bytes = Vec::new();
        put::command(&mut bytes, plain, &command, data.len() as u32);
        bytes.extend(data);
        bytes
    };
    let before = [
        command(Command::property_get(0, true), &[]),
        command(Command::property_set(0x14, 0x46_0001), &[]),
        command(Command::identify(1, 0, 0), &[]),
        command(Command::new(0x18, 0), &[]),
        command(Command::new(0x81, 0), &[9; 4096]),
    ];
    let mut stream = rig.connect();
    let all = [connect(&host(), NQN), before.concat()].concat();
    let found = answers(&mut stream, &all, 6);
    assert_eq!(found[0].0, Status::SUCCESS);
    assert!(found[0].1 & AUTHENTICATION_REQUIRED != 0);
    assert_eq!(found.len(), 6);
    assert!(found[1..].iter().all(|it| it.0 == Status::AUTHENTICATION_REQUIRED), "{found:?}");
    drop(stream);
    verify(&open(&rig, "proof", "").unwrap(), 1, |_| {});
}
