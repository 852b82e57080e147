//! Finds stores among the files that jobs write to.

use qpair::inspect::holds_store;
use qpair_workload::Job;

use crate::failure::{Exit, Failure, Result};

/// Refuses to write over a closed store or its log, unless a job sets `force`. Open stores are
/// locked anyway.
pub(super) fn refuse(jobs: &[Job]) -> Result<()> {
    let writing = jobs.iter().filter(|job| job.writes() && !job.force);
    let targets = writing.flat_map(|job| job.targets.iter().map(move |target| (job, target)));
    for (job, target) in targets {
        for path in target.spec.paths() {
            // If the file cannot be read, the job opens it and reports the error.
            if holds_store(path).unwrap_or(false) {
                let what = format!(
                    "job {} writes to {}, which holds a qpair store",
                    job.name,
                    path.display()
                );
                return Err(Failure::new(Exit::Failed, what)
                    .hint("--force writes to it all the same, and destroys what it holds"));
            }
        }
    }
    Ok(())
}
