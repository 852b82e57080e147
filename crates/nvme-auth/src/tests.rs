//! Keys and responses beside those of Python (`tests/vectors.py`), and both ends together.

use std::sync::Arc;

use crate::message::{self, Message, reason};
use crate::psk::{InterchangeKey, Version};
use crate::secret::Challenge;
use crate::{Controller, Fault, Group, Hash, Host, HostKeys, Names, Policy, Secret};

const VECTORS: &str = include_str!("../tests/vectors.txt");

fn names() -> Names {
    Names {
        host: "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001".into(),
        subsystem: "nqn.2026-11.example:disks".into(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn responses_are_those_of_python() {
    let mut count = 0;
    for line in VECTORS.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let ["chap", key, number, host, dh, controller] = fields[..] else { continue };
        let key = Secret::parse(key).unwrap();
        let hash = Hash::of(number.parse().unwrap()).unwrap();
        let value = vec![0xC0 + hash.number(); hash.len_bytes()];
        let shared = [7; 256];
        let challenge = |shared| Challenge {
            hash,
            value: &value,
            sequence: 0x0102_0304,
            transaction: 0x0506,
            shared,
        };
        assert_eq!(hex(&challenge(None).of_host(&key, &names())), host);
        assert_eq!(hex(&challenge(Some(&shared)).of_host(&key, &names())), dh);
        assert_eq!(hex(&challenge(None).of_controller(&key, &names())), controller);
        count += 1;
    }
    assert_eq!(count, 12);
}

#[test]
fn keys_of_tls_are_those_of_python() {
    let mut count = 0;
    for line in VECTORS.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let ["tls", key, version, identity, derived] = fields[..] else { continue };
        let version = if version == "0" { Version::V0 } else { Version::V1 };
        let interchange = InterchangeKey::parse(key).unwrap();
        let key = interchange.derive(&names(), version).unwrap();
        assert_eq!(interchange.find(&names(), &key.identity), Some(key.clone()));
        let changed = [&key.identity[1..], " ", &key.identity[..60], &format!("{}=", key.identity)];
        for other in changed.into_iter().chain([&*key.identity.replace("NVMe", "NVMf")]) {
            assert_eq!(interchange.find(&names(), other), None, "{other}");
        }
        let others = Names { host: "nqn.other".into(), ..names() };
        assert_eq!(interchange.find(&others, &key.identity), None);
        assert_eq!(key.identity.replace(' ', "_"), identity);
        assert_eq!(hex(&key.key), derived);
        count += 1;
    }
    assert_eq!(count, 8);
    let key = InterchangeKey::parse(VECTORS.split(' ').find(|it| it.starts_with("NVMe")).unwrap());
    let long = Names { host: "h".repeat(223), subsystem: "s".repeat(223) };
    let key = key.unwrap();
    assert!(key.derive(&long, Version::V0).is_err() && key.derive(&long, Version::V1).is_ok());
}

const KEY: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const OTHER: &str =
    "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";

#[test]
fn wrong_keys_are_refused_and_not_shown() {
    let body = &KEY[10..];
    for wrong in [
        "",
        "DHHC-1",
        "DHHC-1:00:",
        &KEY[..KEY.len() - 1],
        &format!("DHHC-1:04:{body}"),
        &format!("DHHC-1:0:{body}"),
        &format!("DHHC-2:00:{body}"),
        &format!("{KEY}:"),
        &KEY.replace("AAEC", "AAED"),
        "DHHC-1:00:AAAAAAA=:",
        "DHHC-1:00:AAAA AAAA:",
    ] {
        let error = Secret::parse(wrong).unwrap_err();
        assert_eq!(error.kind(), qpair_block::ErrorKind::Invalid, "{wrong}");
        assert!(!error.to_string().contains("AA"), "{error}");
        assert!(InterchangeKey::parse(wrong).is_err());
    }
    let keys = HostKeys { host: Secret::parse(KEY).unwrap(), controller: None };
    assert_eq!(format!("{keys:?}"), "HostKeys { host: Secret, controller: None }");
    // A key is of its function's length.
    let short = "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    assert!(InterchangeKey::parse(short).is_err());
}

#[test]
fn keys_in_files_are_for_their_owner() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("qpair-nvme-auth-{}", std::process::id()));
    std::fs::write(&path, format!("{KEY}\n")).unwrap();
    for (mode, is_right) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(Secret::read(&path).is_ok(), is_right, "{mode:o}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(Secret::read(&path).unwrap_err().to_string().contains("qpair-nvme-auth"));
}

fn keys(host: &str, controller: Option<&str>) -> Arc<HostKeys> {
    let controller = controller.map(|text| Secret::parse(text).unwrap());
    Arc::new(HostKeys { host: Secret::parse(host).unwrap(), controller })
}

const ROOM: usize = 4096;

/// Lets both ends talk. Returns the controller, and the host's fault.
fn talk(
    host_keys: &HostKeys,
    keys: &Arc<HostKeys>,
    policy: Policy,
) -> (Controller, Result<(), Fault>) {
    let mut controller = Controller::new(keys.clone(), names(), Arc::new(policy));
    let result = once(host_keys, &mut controller, 7);
    (controller, result)
}

fn once(host_keys: &HostKeys, controller: &mut Controller, transaction: u16) -> Result<(), Fault> {
    let (mut host, offer) = Host::begin(host_keys, names(), transaction);
    controller.take(&offer);
    let before = controller.is_authenticated();
    let mut rest = || {
        let reply = host.answer(&controller.give(ROOM).unwrap())?;
        controller.take(&reply);
        if let Some(last) = host.finish(&controller.give(ROOM).unwrap())? {
            assert_eq!(controller.is_authenticated(), before);
            controller.take(&last);
        }
        Ok(())
    };
    let result: Result<(), Fault> = rest();
    if let Err(fault) = result.as_ref()
        && !fault.is_told
    {
        controller.take(&host.failure(*fault));
    }
    result
}

#[test]
fn hosts_with_the_key_are_let_in() {
    let mut policies = Vec::new();
    for hash in Hash::ALL {
        for group in &Group::ALL[..3] {
            policies.push(Policy { hashes: vec![hash], groups: vec![*group] });
        }
    }
    policies.push(Policy { hashes: vec![Hash::Sha512], groups: vec![Group::Ffdhe8192] });
    policies.push(Policy::default());
    for policy in policies {
        for controller_key in [None, Some(OTHER)] {
            let both = keys(KEY, controller_key);
            let (controller, result) = talk(&both, &both, policy.clone());
            assert_eq!(result, Ok(()), "{policy:?}");
            assert!(controller.is_authenticated() && !controller.has_failed());
        }
    }
    // The host need not ask the controller.
    let (controller, result) = talk(&keys(KEY, None), &keys(KEY, Some(OTHER)), Policy::default());
    assert!(result.is_ok() && controller.is_authenticated());
}

#[test]
fn an_authentication_can_be_repeated() {
    let both = keys(KEY, Some(OTHER));
    let (mut controller, result) = talk(&both, &both, Policy::default());
    assert!(result.is_ok());
    assert_eq!(once(&both, &mut controller, 8), Ok(()));
    assert!(controller.is_authenticated());
    assert!(once(&keys(OTHER, None), &mut controller, 9).is_err());
    assert!(!controller.is_authenticated() && controller.has_failed());
}

#[test]
fn hosts_without_the_key_are_refused() {
    for groups in [vec![Group::Null], vec![Group::Ffdhe2048]] {
        let policy = Policy { groups, ..Policy::default() };
        let (controller, result) = talk(&keys(OTHER, None), &keys(KEY, None), policy);
        assert_eq!(result, Err(Fault { reason: reason::FAILED, is_told: true }));
        assert!(!controller.is_authenticated() && controller.has_failed());
    }
}

#[test]
fn controllers_without_the_key_are_refused() {
    let policy = || Policy { groups: vec![Group::Null], ..Policy::default() };
    // Another key.
    let (controller, result) = talk(&keys(KEY, Some(OTHER)), &keys(KEY, Some(KEY)), policy());
    assert_eq!(result, Err(Fault { reason: reason::FAILED, is_told: false }));
    assert!(!controller.is_authenticated() && controller.has_failed());
    // No key: the controller says so.
    let (controller, result) = talk(&keys(KEY, Some(OTHER)), &keys(KEY, None), policy());
    assert!(result.is_err() && !controller.is_authenticated());
    // A controller that skips its response.
    let host_keys = keys(KEY, Some(OTHER));
    let (mut host, _) = Host::begin(&host_keys, names(), 3);
    let value = [1; 32];
    let challenge = message::challenge(3, (Hash::Sha256, Group::Null), 1, &value, &[]);
    host.answer(&challenge).unwrap();
    assert!(host.finish(&message::success1(3, Hash::Sha256, None)).is_err());
}

#[test]
fn messages_out_of_sequence_fail() {
    let both = keys(KEY, None);
    let fresh = || Controller::new(both.clone(), names(), Arc::new(Policy::default()));
    let offer = message::negotiate(1, &Hash::ALL, &Group::ALL);
    // Nothing but an offer comes first, and success cannot be claimed.
    for first in [message::success2(0), message::reply(0, &[0; 32], None, &[]), vec![0; 64], vec![]]
    {
        let mut controller = fresh();
        assert!(controller.give(ROOM).is_none() || controller.has_failed());
        let mut controller = fresh();
        controller.take(&first);
        let failure = controller.give(ROOM).unwrap();
        assert!(matches!(message::parse(&failure), Ok(Message::Failure1 { .. })));
        assert!(controller.has_failed() && !controller.is_authenticated());
        controller.take(&offer);
        assert!(controller.give(ROOM).is_none());
    }
    // An exchange for each offer would be work without end.
    let mut controller = fresh();
    controller.take(&offer);
    controller.take(&offer);
    assert!(matches!(
        message::parse(&controller.give(ROOM).unwrap()),
        Ok(Message::Failure1 { .. })
    ));
    // Another transaction, and no room.
    let mut controller = fresh();
    controller.take(&offer);
    assert!(controller.give(100).is_none());
    let mut controller = fresh();
    controller.take(&offer);
    controller.give(ROOM).unwrap();
    controller.take(&message::reply(2, &[0; 32], None, &[]));
    assert!(matches!(
        message::parse(&controller.give(ROOM).unwrap()),
        Ok(Message::Failure1 { .. })
    ));
    // Nothing in common, and TLS that should follow.
    for (hashes, groups) in [(&[][..], &Group::ALL[..]), (&Hash::ALL[..], &[][..])] {
        let mut controller = fresh();
        controller.take(&message::negotiate(1, hashes, groups));
        let failure = controller.give(ROOM).unwrap();
        assert!(matches!(message::parse(&failure), Ok(Message::Failure1 { .. })));
    }
    let mut wants_tls = offer.clone();
    wants_tls[6] = 2;
    let mut controller = fresh();
    controller.take(&wants_tls);
    assert_eq!(
        message::parse(&controller.give(ROOM).unwrap()),
        Ok(Message::Failure1 { transaction: 1, reason: reason::CONCATENATION })
    );
}

#[test]
fn a_challenge_that_is_sent_back_is_not_answered() {
    let both = keys(KEY, Some(KEY));
    let policy = Policy { hashes: vec![Hash::Sha256], groups: vec![Group::Null] };
    let mut controller = Controller::new(both.clone(), names(), Arc::new(policy));
    let (mut host, offer) = Host::begin(&both, names(), 5);
    controller.take(&offer);
    let challenge = controller.give(ROOM).unwrap();
    let mut reply = host.answer(&challenge).unwrap();
    reply[48..80].copy_from_slice(&challenge[16..48]);
    controller.take(&reply);
    let failure = controller.give(ROOM).unwrap();
    assert_eq!(
        message::parse(&failure),
        Ok(Message::Failure1 { transaction: 5, reason: reason::FAILED })
    );
}

#[test]
fn short_messages_are_refused() {
    let messages = [
        message::negotiate(1, &Hash::ALL, &Group::ALL),
        message::challenge(1, (Hash::Sha384, Group::Ffdhe2048), 9, &[3; 48], &[4; 256]),
        message::reply(1, &[1; 64], Some((7, &[2; 64])), &[5; 256]),
        message::success1(1, Hash::Sha256, Some(&[6; 32])),
    ];
    for message in messages {
        assert!(message.len() <= crate::MESSAGE_BYTES_MAX);
        assert!(message::parse(&message).is_ok());
        for len in 0..message.len() {
            assert!(message::parse(&message[..len]).is_err(), "{len} of {}", message.len());
        }
    }
}
