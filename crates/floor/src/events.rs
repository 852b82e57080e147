//! Measures where an I/O spends its time in the kernel, by the tracepoints of the block layer.
//!
//! Invariant: tracing uses an instance of its own, so other programs' tracing is not affected.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use qpair_block::{Error, Result};

/// Possible mount points of the kernel's tracing file system.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const NAME: &str = "qpair-floor";
const EVENTS: [&str; 3] = ["block_bio_queue", "block_rq_issue", "block_rq_complete"];

/// The mean times of the I/Os that were seen at every tracepoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spans {
    pub(crate) ios: u64,
    /// The time from the block layer's queue to the driver, in microseconds.
    pub(crate) block_us: f64,
    /// The time from the driver to the completion, in microseconds.
    pub(crate) driver_us: f64,
}

/// Kernel tracing of one drive.
pub(crate) struct Events {
    folder: PathBuf,
    device: String,
}

impl Events {
    /// Begins tracing. Returns the reason as `Err` if nothing can be traced on this machine.
    pub(crate) fn begin(device: &Path) -> std::result::Result<Self, String> {
        let is_it = |mount: &&&str| {
            EVENTS.iter().all(|event| Path::new(mount).join("events/block").join(event).exists())
        };
        let mount = MOUNTS.iter().find(is_it).ok_or(
            "/sys/kernel/tracing has no tracepoints of the block layer (sudo mount -t tracefs none /sys/kernel/tracing)",
        )?;
        let number = fs::metadata(device).map_err(|cause| cause.to_string())?.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let folder = Path::new(mount).join("instances").join(NAME);
        // The folder may be left from a process that was killed.
        let _ = fs::remove_dir(&folder);
        fs::create_dir(&folder).map_err(|cause| format!("{}: {cause}", folder.display()))?;
        let events = Self { folder, device: format!("{major},{minor}") };
        // By default, each processor has its own clock.
        events.say("trace_clock", "mono")?;
        for event in EVENTS {
            events.say(&format!("events/block/{event}/enable"), "1")?;
        }
        Ok(events)
    }

    fn say(&self, leaf: &str, word: &str) -> std::result::Result<(), String> {
        let path = self.folder.join(leaf);
        fs::write(&path, word).map_err(|cause| format!("{}: {cause}", path.display()))
    }

    /// Returns the times seen so far; `None` if no I/O was seen from its queue to its completion.
    pub(crate) fn end(self) -> Result<Option<Spans>> {
        let path = self.folder.join("trace");
        let failed = |cause| Error::os(cause, path.display().to_string());
        let _ = self.say("tracing_on", "0");
        let bytes = fs::read(&path).map_err(failed)?;
        Ok(spans(&String::from_utf8_lossy(&bytes), &self.device))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = self.say("events/enable", "0");
        let _ = fs::remove_dir(&self.folder);
    }
}

struct Line<'a> {
    event: &'a str,
    device: &'a str,
    us: f64,
    /// The first sector and the number of sectors.
    place: (u64, u64),
}

/// Parses a line such as "fio-12 [001] ..... 12.345678: block_rq_issue: 259,0 R 4096 () 128 + 8
/// [fio]".
fn parse(line: &str) -> Option<Line<'_>> {
    let at = line.find(": block_")?;
    let seconds: f64 = line[..at].rsplit(' ').next()?.parse().ok()?;
    let (event, rest) = line[at + 2..].split_once(':')?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let plus = words.iter().position(|word| *word == "+")?;
    let number = |at: usize| words.get(at)?.parse().ok();
    let place = (number(plus.checked_sub(1)?)?, number(plus + 1)?);
    Some(Line { event, device: words.first()?, us: seconds * 1e6, place })
}

/// Computes the mean times from a trace. The clock has a resolution of one microsecond; the mean
/// over many I/Os is finer.
fn spans(text: &str, device: &str) -> Option<Spans> {
    // The times when a request was queued and when the driver got it, by place. With several paths
    // to a drive, a request may name the device of one path.
    let mut open: HashMap<(u64, u64), (f64, Option<f64>)> = HashMap::new();
    let mut found = Spans { ios: 0, block_us: 0.0, driver_us: 0.0 };
    for line in text.lines().filter_map(parse) {
        match line.event {
            "block_bio_queue" if line.device == device => {
                open.insert(line.place, (line.us, None));
            }
            "block_rq_issue" => {
                if let Some((_, issued)) = open.get_mut(&line.place) {
                    *issued = Some(line.us);
                }
            }
            "block_rq_complete" => {
                if let Some((queued, Some(issued))) = open.remove(&line.place) {
                    found.ios += 1;
                    found.block_us += issued - queued;
                    found.driver_us += line.us - issued;
                }
            }
            _ => {}
        }
    }
    let ios = found.ios as f64;
    let mean = |sum: f64| sum / ios;
    (found.ios > 0).then(|| Spans {
        block_us: mean(found.block_us),
        driver_us: mean(found.driver_us),
        ..found
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_a_trace() {
        let text = "\
# tracer: nop
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
           qpair-90      [000] .....    10.000000: block_bio_queue: 259,0 R 128 + 8 [qpair]
           other-91      [001] .....    10.000000: block_bio_queue: 8,0 R 256 + 8 [other]
           qpair-90      [000] .....    10.000002: block_rq_issue: 259,0 R 4096 () 128 + 8 none,0,0 [qpair]
          <idle>-0       [000] d.h1.    10.000012: block_rq_complete: 259,0 R () 128 + 8 none,0,0 [0]
           qpair-90      [000] .....    10.000020: block_bio_queue: 259,0 R 64 + 8 [qpair]
           qpair-90      [000] .....    10.000024: block_rq_issue: 259,0 R 4096 () 64 + 8 [qpair]
          <idle>-0       [000] d.h1.    10.000044: block_rq_complete: 259,0 R () 64 + 8 [0]
          <idle>-0       [000] d.h1.    10.000050: block_rq_complete: 8,0 R () 256 + 8 [0]
           qpair-90      [000] .....    10.000060: block_bio_queue: 259,0 R 512 + 8 [qpair]
";
        let found = spans(text, "259,0").unwrap();
        assert_eq!(found.ios, 2, "{found:?}");
        assert!((found.block_us - 3.0).abs() < 0.01 && (found.driver_us - 15.0).abs() < 0.01);
        assert_eq!(spans(text, "7,7"), None);
        assert_eq!(spans("nonsense: block_ + \n: block_x: + +", "259,0"), None);
    }
}
