//! Namespaces that targets serve by NVMe/TCP: `[KEY=VALUE,...:]tcp:HOST:PORT/NQN[/nsN]`, behind
//! `nvme:`.

use std::sync::Arc;

use qpair_block::keys::{Key, Keys, key, millis, one_of, quoted};
use qpair_block::{BlockDevice, Result};
use qpair_nvme_tcp::{NvmeTcpDevice, NvmeTcpOptions};

/// Returns the options and the place in the name of a device of the NVMe driver; `None` if the name
/// is that of a controller which is not reached over TCP.
pub(crate) fn split(name: &str) -> Option<(&str, &str)> {
    if let Some(place) = name.strip_prefix("tcp:") {
        return Some(("", place));
    }
    // Options hold paths and names, and so slashes and colons.
    match name.find(":tcp:") {
        Some(at) if name[..at].contains('=') => Some((&name[..at], &name[at + ":tcp:".len()..])),
        _ => None,
    }
}

pub(crate) fn open((options, place): (&str, &str)) -> Result<Arc<dyn BlockDevice>> {
    Ok(Arc::new(NvmeTcpDevice::open(place, KEYS.read(options)?)?))
}

const SWITCH: [(&str, bool); 2] = [("on", true), ("off", false)];

const TABLE: &[Key<NvmeTcpOptions>] = &[
    key("header_digest", "a sum of each header", |o| one_of(&mut o.digests.header, &SWITCH)),
    key("data_digest", "a sum of all data", |o| one_of(&mut o.digests.data, &SWITCH)),
    key("wait", "how to wait for the target: sleep is the default", |o| {
        one_of(&mut o.polls, &[("poll", true), ("sleep", false)])
    }),
    key("timeout_ms", "time limit of connecting", |o| millis(&mut o.timeout)),
    key("reconnect_ms", "time limit of a request, and for which the target may be gone", |o| {
        millis(&mut o.request_timeout)
    }),
    key("keep_alive_ms", "time after which the target may give this host up", |o| {
        millis(&mut o.keep_alive)
    }),
    key("dhchap_key", "the file with the key by which this host proves who it is", |o| {
        quoted(&mut o.dhchap_key, "a file that only its owner may read")
    }),
    key("dhchap_ctrlr_key", "the file with the key by which the target must prove the same", |o| {
        quoted(&mut o.dhchap_ctrlr_key, "a file that only its owner may read")
    }),
    key("tls_psk", "the file with the key of TLS; without TLS the connection then fails", |o| {
        quoted(&mut o.tls_psk, "a file that only its owner may read")
    }),
];

/// The keys of the options.
pub(crate) const KEYS: Keys<NvmeTcpOptions> = Keys { of: "nvme:tcp:", repeats: true, keys: TABLE };

#[cfg(test)]
mod tests {
    use qpair_block::ErrorKind;

    use super::*;

    #[test]
    fn names_are_read() {
        let (options, place) = split("header_digest=on,timeout_ms=7:tcp:h:4420/nqn.a:b").unwrap();
        let options = KEYS.read(options).unwrap();
        assert_eq!((options.digests.bits(), options.timeout.as_millis()), (1, 7));
        assert_eq!(place, "h:4420/nqn.a:b");
        let name = "dhchap_key=/etc/a b/key:tcp:h:4420/nqn.a=b";
        assert_eq!(split(name), Some(("dhchap_key=/etc/a b/key", "h:4420/nqn.a=b")));
        assert_eq!(split("tcp:h:4420/nqn=a:tcp:b"), Some(("", "h:4420/nqn=a:tcp:b")));
        assert!(split("0000:3b:00.0").is_none() && split("wait=sleep:0000:3b:00.0").is_none());
        for name in ["tcp:h", "tea=1:tcp:h:1/n", "data_digest=7:tcp:h:1/n"] {
            let error = open(split(name).unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{name}");
        }
    }
}
