//! The means of the machine and of a drive, as far as they decide about ways.

use std::sync::Arc;

use super::adaptation::Adaptation;
use super::stored;
use super::way::Way;
use crate::device::try_mode;
use crate::file::File;
use crate::io_uring::poll_queues;
use crate::mode::Mode;

/// The ways of one device.
#[derive(Debug)]
pub(crate) struct Means {
    /// The mode of the channels that stay open: io_uring with interrupts, as it suits the drive.
    pub(crate) base: Mode,
    /// The way to begin with.
    pub(crate) start: Way,
    /// The number of cores that the process may use.
    pub(crate) cores: f64,
    /// The other ways, in the order of trials; without those that need a thread.
    pub(crate) ways: Vec<Way>,
    /// The reason to begin so, as a sentence without a full stop.
    pub(crate) why: String,
    pub(crate) adaptation: Arc<Adaptation>,
}

impl Means {
    /// Asks the machine and the drive. Returns `None` if there is nothing to change to: requests go
    /// through the page cache, or the machine and the drive have no other way.
    pub(crate) fn of(file: &Arc<File>, base: Mode) -> Option<Self> {
        if !file.direct {
            return None;
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
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
                || (way.has_thread() && cores > 1)
        };
        let advice = stored::advice(file).filter(|(way, _)| has_way(*way));
        if advice.as_ref().is_some_and(|(way, _)| *way == Way::Libaio) {
            ways.push(Way::Libaio);
        }
        if ways.is_empty() && cores == 1 {
            return None;
        }
        let (start, because) = advice.map_or_else(
            || (Way::Interrupts, String::new()),
            |(way, reason)| (way, format!(" ({reason})")),
        );
        let may_try = [Way::Interrupts].into_iter().chain(ways.iter().copied());
        let may_try = may_try.chain((cores > 1).then_some(Way::OwnThread));
        let may_try: Vec<String> =
            may_try.filter(|way| *way != start).map(|way| way.to_string()).collect();
        let plural = if cores == 1 { "" } else { "s" };
        let why = format!(
            "{start} is first{because} on a machine with {cores} core{plural}, load {}, {}, and a drive with {polling}; under load it tries {}",
            load(),
            kernel(),
            may_try.join(", "),
        );
        Some(Self {
            base,
            start,
            cores: cores as f64,
            ways,
            adaptation: Arc::new(Adaptation::new(why.clone())),
            why,
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
