//! Limits of the process, in words for errors.

/// How to raise the limit on locked memory, and what it is now.
pub(crate) fn raise_memlock() -> String {
    // SAFETY: the kernel fills the structure, for which all-zero is a value.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        (libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) == 0).then_some(limit.rlim_cur)
    };
    let now = match limit {
        Some(libc::RLIM_INFINITY) => "without bound".to_owned(),
        Some(bytes) => format!("{} KiB", bytes >> 10),
        None => "unknown".to_owned(),
    };
    format!(
        "raise the limit on locked memory, RLIMIT_MEMLOCK, {now} now (ulimit -l, LimitMEMLOCK= in a systemd unit)"
    )
}
