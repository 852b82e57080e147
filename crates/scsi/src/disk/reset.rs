//! The reset of a disk: the least that works, of its unit, its target, or the controller.

use std::sync::Arc;
use std::time::Duration;

use qpair_block::{Error, ErrorKind, Result, time};

use crate::host::{Host, HostQueue, QueueOptions, Refusal, Report, Task, Unit};

const NAP: Duration = Duration::from_micros(50);

/// Resets a unit. On return no command that was sent before is in flight at the device.
pub(crate) fn reset(host: &Arc<dyn Host>, unit: Unit, task_timeout: Duration) -> Result<()> {
    match host.open_queue(unit, &QueueOptions { depth: 1, arenas: &[], sleeps: false }) {
        Ok(mut queue) => {
            for task in [Task::LunReset, Task::TargetReset] {
                if run(&mut *queue, task, task_timeout) {
                    return Ok(());
                }
            }
        }
        // There was no room for a task. A controller reset needs none.
        Err(error) if error.kind() == ErrorKind::Limit => {}
        Err(error) => return Err(error),
    }
    host.reset()
}

fn run(queue: &mut dyn HostQueue, task: Task, timeout: Duration) -> bool {
    let start = time::now();
    let mut is_begun = false;
    let mut reports = Vec::new();
    while time::now() - start < timeout {
        if !is_begun {
            match queue.begin_task(task) {
                Ok(()) => is_begun = true,
                Err(Refusal::Later) => {}
                Err(Refusal::Gone) => return false,
            }
        }
        queue.poll(&mut reports);
        for report in reports.drain(..) {
            if let Report::Task(succeeded) = report {
                return succeeded;
            }
        }
        time::sleep(NAP);
    }
    false
}

/// Makes the error for channels that did not take back their commands in time.
pub(crate) fn not_taken_back(name: &str, channels: usize, waited: Duration) -> Error {
    let context = format!(
        "{name} was reset, but {channels} of its channels did not return their commands within {} ms",
        waited.as_millis()
    );
    Error::new(ErrorKind::Busy, context)
        .hint("poll them on their own threads while another one resets the disk")
}
