//! Messages of DH-HMAC-CHAP: to the parser, to a controller and to a host, in any order. No peer
//! without the key is authenticated.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use qpair_nvme_auth::{Controller, Group, Hash, Host, HostKeys, Names, Policy, Secret, message};

const KEY: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

fuzz_target!(|input: (u8, Vec<Vec<u8>>)| {
    let (first, messages) = input;
    let Ok(key) = Secret::parse(KEY) else { return };
    let keys = Arc::new(HostKeys { host: key.clone(), controller: Some(key) });
    let names = Names { host: "host".into(), subsystem: "subsystem".into() };
    // Larger groups would only cost time.
    let policy = Policy { hashes: Hash::ALL.to_vec(), groups: vec![Group::Null, Group::Ffdhe2048] };
    let mut controller = Controller::new(keys.clone(), names.clone(), Arc::new(policy));
    let (mut host, offer) = Host::begin(&keys, names, first.into());
    if first % 2 == 0 {
        controller.take(&offer);
    }
    for (number, bytes) in messages.iter().enumerate() {
        let _ = message::parse(bytes);
        if (usize::from(first) + number) % 3 == 0 {
            controller.give(bytes.len());
        }
        controller.take(bytes);
        // A controller that chooses a large group makes the host work, once.
        if bytes.get(9).is_none_or(|group| *group <= 1) {
            let _ = host.answer(bytes);
        }
        assert!(host.finish(bytes).is_err());
        assert!(!controller.is_authenticated());
    }
    let text = String::from_utf8_lossy(messages.first().map_or(&[][..], |it| &it[..]));
    let _ = Secret::parse(&text);
});
