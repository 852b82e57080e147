//! Reading the pages of a check, beside the pool.

use std::collections::VecDeque;
use std::sync::Arc;

use qpair_format::place::page_of;
use qpair_format::{Error, ErrorKind, Result};

use super::{Content, Finding, Job, examine};
use crate::shared::Shared;
use crate::task::{Transfer, give_scratch, scratch_frame, scratch_frame_now};

/// The number of reads that a task has in flight.
const WINDOW: usize = 32;

/// Reads pages, bypassing the pool, and checks each; returns the findings in order.
pub(super) async fn read_all(shared: Arc<Shared>, jobs: Vec<Job>) -> Result<Vec<Finding>> {
    let mut findings = Vec::with_capacity(jobs.len());
    let mut reading: VecDeque<(Job, Transfer)> = VecDeque::with_capacity(WINDOW);
    let mut jobs = jobs.into_iter().peekable();
    loop {
        while jobs.peek().is_some() && reading.len() < WINDOW {
            // With transfers under way, the task takes only frames that are free now.
            let frame = match reading.is_empty() {
                true => Some(scratch_frame().await?),
                false => scratch_frame_now(),
            };
            let Some(frame) = frame else { break };
            let Some(job) = jobs.next() else { break };
            let transfer = Transfer::read(&shared, frame, job.place);
            reading.push_back((job, transfer));
        }
        let Some((job, transfer)) = reading.pop_front() else { return Ok(findings) };
        let completion = transfer.done().await?;
        let Some(buffer) = completion.buffer else {
            return Err(Error::new(ErrorKind::Io, "a read came back without its memory"));
        };
        let page = shared.pool.frames.end_read(buffer);
        findings.push(match completion.result {
            Ok(()) => examine(&job, &page),
            Err(error) => Finding {
                table: job.table,
                page_id: page_of(job.place),
                faults: vec![Error::io(error, "cannot be read").to_string()],
                content: Content::Damaged,
            },
        });
        let frame = page.index();
        shared.pool.end_read(page);
        give_scratch(frame);
    }
}
