//! Limits of the process.

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

pub(crate) fn is_memlock_bounded() -> bool {
    let is_exempt =
        || capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    getrlimit(Resource::Memlock).current.is_some() && !is_exempt()
}

pub(crate) fn raise_memlock() -> String {
    let now = match getrlimit(Resource::Memlock).current {
        Some(bytes) => format!("{} KiB", bytes >> 10),
        None => "without bound".to_owned(),
    };
    format!(
        "raise the limit on locked memory, RLIMIT_MEMLOCK, {now} now (ulimit -l, LimitMEMLOCK= in a systemd unit)"
    )
}
