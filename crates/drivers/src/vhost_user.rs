//! Disks that other processes serve by vhost-user-blk:
//! `[timeout_ms=N,reconnect_ms=N,memory=huge:]SOCKET`, or `SOCKET,memory=huge`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use qpair_block::{BlockDevice, Error, ErrorKind, Result};
use qpair_pci::TimeoutPolicy;
use qpair_vhost_user::{VhostUserBlk, VhostUserOptions};

/// Opens a disk by its name.
pub(crate) fn open(name: &str, timeout_policy: TimeoutPolicy) -> Result<Arc<dyn BlockDevice>> {
    let (options, path) = split_options(name)?;
    let options = VhostUserOptions { timeout_policy, ..options };
    Ok(Arc::new(VhostUserBlk::open(Path::new(path), options)?))
}

/// Splits off the options before the socket, if there are any: the part before the first colon, if
/// it has a `=`.
fn split_options(name: &str) -> Result<(VhostUserOptions, &str)> {
    let mut options = VhostUserOptions::default();
    let (name, is_huge) = match name.strip_suffix(",memory=huge") {
        Some(name) => (name, true),
        None => (name, false),
    };
    options.huge_pages = is_huge;
    let has_options = |head: &str| head.contains('=') && !head.contains('/');
    let Some((head, path)) = name.split_once(':').filter(|(head, _)| has_options(head)) else {
        return Ok((options, name));
    };
    for option in head.split(',') {
        if option == "memory=huge" {
            options.huge_pages = true;
            continue;
        }
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let to = match key {
            "timeout_ms" => &mut options.timeout,
            "reconnect_ms" => &mut options.reconnect,
            _ => {
                let context = format!("vhost-user:{name}: there is no option {option}");
                return Err(Error::new(ErrorKind::Invalid, context)
                    .hint("the options are timeout_ms, reconnect_ms and memory=huge"));
            }
        };
        let value = value.parse::<u32>().map_err(|_| {
            let context = format!("vhost-user:{name}: {option} is not a number of milliseconds");
            Error::new(ErrorKind::Invalid, context).hint("write a number, as in reconnect_ms=10000")
        })?;
        *to = Duration::from_millis(value.into());
    }
    Ok((options, path))
}

#[cfg(test)]
mod tests {
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
