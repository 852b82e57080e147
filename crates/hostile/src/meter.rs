//! Measures the resources of this process: descriptors, memory, mappings.

use std::fmt;
use std::fs;
use std::time::Duration;

/// Memory growth in KiB that is permitted: the pools of the NBD and the NVMe/TCP server, of 24 MiB
/// each, get their memory as they are used, and allocators keep freed memory.
const SLACK_KIB: u64 = 72 << 10;
/// Memory growth in KiB that is permitted while peers are connected.
const PEAK_KIB: u64 = 128 << 10;
/// The memory in KiB of a driver's buffers: one huge page.
const LOST_KIB: u64 = 2 << 10;

pub(super) struct Meter {
    descriptors: u64,
    mappings: u64,
    threads: u64,
    private_kib: u64,
    shared_kib: u64,
}

impl Meter {
    pub(super) fn now() -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("reading /proc/self: {error}");
        let status = fs::read_to_string("/proc/self/status").map_err(failed)?;
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
            line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        // Count files in memory, also those that were never accessed through a mapping.
        let mut shared_kib = 0;
        let mut descriptors = 0;
        for entry in fs::read_dir("/proc/self/fd").map_err(failed)?.flatten() {
            descriptors += 1;
            let link = fs::read_link(entry.path()).unwrap_or_default();
            if link.to_string_lossy().starts_with("/memfd:") {
                use std::os::unix::fs::MetadataExt;
                shared_kib += fs::metadata(entry.path()).map_or(0, |file| file.blocks() / 2);
            }
        }
        let maps = fs::read_to_string("/proc/self/maps").map_err(failed)?;
        Ok(Self {
            descriptors,
            mappings: maps.lines().filter(|line| line.contains("memfd:")).count() as u64,
            threads: of("Threads:"),
            private_kib: of("RssAnon:"),
            shared_kib: shared_kib.max(of("RssShmem:")),
        })
    }

    /// Measures the resources after asynchronous releases have finished.
    pub(super) fn settled() -> Result<Self, String> {
        let mut last = Self::now()?;
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(20));
            let now = Self::now()?;
            if (now.descriptors, now.threads) == (last.descriptors, last.threads) {
                return Ok(now);
            }
            last = now;
        }
        Ok(last)
    }

    /// Returns an error if `now`, among hostile peers, has much more memory than this.
    pub(super) fn compare_peak(&self, now: &Self) -> Result<(), String> {
        if now.private_kib > self.private_kib + PEAK_KIB {
            let (now, before) = (now.private_kib, self.private_kib);
            return Err(format!("hostile peers occupy {now} KiB of memory, after {before}"));
        }
        Ok(())
    }

    /// Returns an error if `after` has more resources than this and those of `lost` sessions whose
    /// driver left its buffer to a device that could not be stopped: a file in memory each.
    pub(super) fn compare(&self, after: &Self, lost: u64) -> Result<(), String> {
        let counts = [
            ("descriptors", self.descriptors, after.descriptors, lost),
            ("mappings of files in memory", self.mappings, after.mappings, lost),
            ("threads", self.threads, after.threads, 0),
            ("KiB of memory of its own", self.private_kib, after.private_kib, SLACK_KIB),
            (
                "KiB of shared memory",
                self.shared_kib,
                after.shared_kib,
                SLACK_KIB + lost * LOST_KIB,
            ),
        ];
        for (what, before, now, slack) in counts {
            if now > before + slack {
                return Err(format!("{now} {what}, where there were {before}"));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} descriptors, {} mappings, {} threads, {} KiB own, {} KiB shared",
            self.descriptors, self.mappings, self.threads, self.private_kib, self.shared_kib
        )
    }
}
