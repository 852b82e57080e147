//! Asks the machine and a drive of the kernel for the ways to it.

use std::sync::Arc;

use qpair_block::ChannelOptions;

use super::adaptation::Adaptation;
use super::stored;
use super::way::{KERNEL, Way};
use super::ways::{self, Ways};
use crate::device::{open_channel, try_mode};
use crate::file::File;
use crate::io_uring::poll_queues;
use crate::mode::Mode;

impl Ways {
    /// Asks the machine and the drive. Returns `None` if there is nothing to change to: requests go
    /// through the page cache, or the machine and the drive have no other way.
    ///
    /// `base` is the mode of the channels that stay open: io_uring with interrupts, as it suits the
    /// drive.
    pub(crate) fn of(file: &Arc<File>, base: Mode) -> Option<Self> {
        if !file.direct {
            return None;
        }
        let cores = ways::cores();
        let mut ways = Vec::new();
        if file.needs_threads() {
            ways.push(Way::Calls);
        }
        let polls = match poll_queues::check(file) {
            Ok(_) => try_mode(file, Way::Polling.mode()).map(drop),
            Err(error) => Err(error),
        };
        let polling = match polls {
            Ok(()) => "poll queues",
            Err(_) => "no poll queues",
        };
        if polls.is_ok() {
            ways.push(Way::Polling);
        }
        let has_way = |way: Way| {
            matches!(way, Way::Interrupts | Way::Libaio)
                || ways.contains(&way)
                || (way.has_thread() && cores > 1.0)
        };
        let advice = stored::advice(file).filter(|(way, _)| has_way(*way));
        if advice.as_ref().is_some_and(|(way, _)| *way == Way::Libaio) {
            ways.push(Way::Libaio);
        }
        if ways.is_empty() && cores < 2.0 {
            return None;
        }
        let (start, because) = advice.map_or_else(
            || (Way::Interrupts, String::new()),
            |(way, reason)| (way, format!(" ({reason})")),
        );
        let may_try = [Way::Interrupts].into_iter().chain(ways.iter().copied());
        let may_try = may_try.chain((cores > 1.0).then_some(Way::OwnThread));
        let may_try: Vec<String> =
            may_try.filter(|way| *way != start).map(|way| way.to_string()).collect();
        let plural = if cores < 2.0 { "" } else { "s" };
        let why = format!(
            "{start} is first{because} on a machine with {cores:.0} core{plural}, load {}, {}, and a drive with {polling}; under load it tries {}",
            load(),
            kernel(),
            may_try.join(", "),
        );
        let file = file.clone();
        let open = move |way: Way, options: &ChannelOptions| match way {
            Way::Interrupts => open_channel(&file, base, options),
            _ => open_channel(&file, way.mode(), options),
        };
        Some(Self {
            family: &KERNEL,
            start,
            cores,
            others: ways,
            has_threads: true,
            adaptation: Arc::new(Adaptation::new(&KERNEL, why.clone())),
            why,
            open: Box::new(open),
        })
    }
}

/// Returns the mean load of the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_ascii_whitespace().next().unwrap_or("unknown").to_owned()
}

fn kernel() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy())
}
