//! Disks that other processes serve by vhost-user-blk: `[KEY=VALUE,...:]SOCKET`, or
//! `SOCKET,memory=huge`.

use std::path::Path;
use std::sync::Arc;

use qpair_block::keys::{Key, Keys, key, millis, one_of, split_driver_options};
use qpair_block::{BlockDevice, Result};
use qpair_pci::TimeoutPolicy;
use qpair_vhost_user::{VhostUserBlk, VhostUserOptions};

pub(crate) fn open(name: &str, timeout_policy: TimeoutPolicy) -> Result<Arc<dyn BlockDevice>> {
    let (options, path) = split_options(name)?;
    let options = VhostUserOptions { timeout_policy, ..options };
    Ok(Arc::new(VhostUserBlk::open(Path::new(path), options)?))
}

const TABLE: &[Key<VhostUserOptions>] = &[
    key("timeout_ms", "time limit for an answer of the back end", |o| millis(&mut o.timeout)),
    key("reconnect_ms", "time for which the back end may be gone", |o| millis(&mut o.reconnect)),
    key("memory", "share huge pages only", |o| one_of(&mut o.huge_pages, &[("huge", true)])),
];

/// The keys of the options.
pub(crate) const KEYS: Keys<VhostUserOptions> =
    Keys { of: "vhost-user:", repeats: true, keys: TABLE };

/// Splits off the options, which may also be `,memory=huge` behind the socket.
fn split_options(name: &str) -> Result<(VhostUserOptions, &str)> {
    let without = name.strip_suffix(",memory=huge");
    let (head, path) = split_driver_options(without.unwrap_or(name));
    let mut options = KEYS.read(head)?;
    options.huge_pages |= without.is_some();
    Ok((options, path))
}

#[cfg(test)]
mod tests {
    use qpair_block::ErrorKind;

    use super::*;

    #[test]
    fn names_are_read() {
        let (options, path) = split_options("timeout_ms=7,reconnect_ms=500:/run/a:b.sock").unwrap();
        assert_eq!((options.timeout.as_millis(), options.reconnect.as_millis()), (7, 500));
        assert_eq!(path, "/run/a:b.sock");
        for name in ["memory=huge,timeout_ms=7:/run/a.sock", "timeout_ms=7:/run/a.sock,memory=huge"]
        {
            let (options, path) = split_options(name).unwrap();
            assert_eq!((options.huge_pages, path), (true, "/run/a.sock"), "{name}");
        }
        for path in ["/run/a.sock", "/run/a=1:b.sock", "a:b"] {
            assert_eq!(split_options(path).unwrap().1, path);
        }
        for name in ["reconnect_ms=x:/a", "tea=1:/a", "memory=small:/a", "reconnect_ms=1,:/a"] {
            let error = open(name, TimeoutPolicy::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{name}");
            assert!(error.way_out().is_some());
        }
        assert_eq!(
            open("reconnect_ms=0:/nowhere/a.sock", TimeoutPolicy::default()).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
}
