//! The identities of keys in a ClientHello, and the search for the key of one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qpair_nvme_auth::Names;
use qpair_nvme_auth::psk::InterchangeKey;
use qpair_tls_psk::offered;

const KEY: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

fuzz_target!(|hello: &[u8]| {
    let Ok(key) = InterchangeKey::parse(KEY) else { return };
    let names = Names { host: "h".into(), subsystem: "s".into() };
    for identity in offered(hello) {
        let Ok(identity) = std::str::from_utf8(identity) else { continue };
        if let Some(found) = key.find(&names, identity) {
            assert_eq!(found.identity, identity);
        }
        let _ = InterchangeKey::parse(identity);
    }
});
