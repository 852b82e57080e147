//! Reads and writes of runs' pages. These bypass the pool's replacement: free frames are the memory
//! for the transfers.

use std::collections::VecDeque;
use std::sync::Arc;

use qpair_format::page::field;
use qpair_format::{Error, ErrorKind, Result};

use super::run::SortedRun;
use crate::shared::Shared;
use crate::task::{Transfer, give_scratch, latch_free, scratch_frame, scratch_frame_now};

/// The number of pages in flight at once.
const WINDOW: usize = 16;

/// Transfers of pages under way, in the order in which they began.
#[derive(Default)]
pub(super) struct Transfers {
    under_way: VecDeque<Transfer>,
}

impl Transfers {
    /// Returns a frame for the next transfer, and waits if no transfer is under way. Returns `None`
    /// if no further frame is free now: the oldest transfer must be ended first.
    async fn frame(&self) -> Result<Option<qpair_memory::FrameIndex>> {
        match self.under_way.len() {
            0 => scratch_frame().await.map(Some),
            WINDOW.. => Ok(None),
            _ => Ok(scratch_frame_now()),
        }
    }

    pub(super) fn are_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Writes a page.
    pub(super) async fn write(&mut self, shared: &Shared, page_id: u64, page: &[u8]) -> Result<()> {
        let frame = loop {
            match self.frame().await? {
                Some(frame) => break frame,
                None => self.end_write(shared).await?,
            }
        };
        let mut latched = latch_free(shared, frame);
        shared.pool.frames.set_page_id(frame, page_id);
        let mut bytes = latched.bytes_mut();
        bytes.copy_from(0, page);
        bytes.store_u64(field::PAGE_ID, page_id);
        self.under_way.push_back(Transfer::submit(shared.pool.write_back(latched, 0)));
        Ok(())
    }

    async fn end_write(&mut self, shared: &Shared) -> Result<()> {
        let Some(transfer) = self.under_way.pop_front() else { return Ok(()) };
        let completion = transfer.done().await?;
        if let Some(buffer) = completion.buffer {
            give_scratch(shared.pool.end_write(buffer));
        }
        completion.result.map_err(|error| Error::io(error, "writing older values"))
    }

    /// Waits for all writes; returns the first error.
    pub(super) async fn end_writes(&mut self, shared: &Shared) -> Result<()> {
        let mut outcome = Ok(());
        while !self.under_way.is_empty() {
            outcome = outcome.and(self.end_write(shared).await);
        }
        outcome
    }

    async fn end_read(&mut self, shared: &Shared) -> Result<Vec<u8>> {
        let missing = || Error::new(ErrorKind::Io, "a read came back without its memory");
        let completion = self.under_way.pop_front().ok_or_else(missing)?.done().await?;
        let page = shared.pool.frames.end_read(completion.buffer.ok_or_else(missing)?);
        let (frame, bytes) = (page.index(), page.as_slice().to_vec());
        shared.pool.end_read(page);
        give_scratch(frame);
        completion.result.map_err(|error| Error::io(error, "reading older values"))?;
        Ok(bytes)
    }
}

/// Reads these pages of runs, in their order.
pub(super) async fn read(
    shared: &Shared,
    wanted: &[(&Arc<SortedRun>, usize)],
) -> Result<Vec<Vec<u8>>> {
    let mut pages = Vec::with_capacity(wanted.len());
    let mut transfers = Transfers::default();
    let mut outcome = Ok(());
    for (run, index) in wanted {
        let frame = loop {
            match transfers.frame().await {
                Ok(Some(frame)) => break Ok(frame),
                Ok(None) => match transfers.end_read(shared).await {
                    Ok(page) => pages.push(page),
                    Err(error) => break Err(error),
                },
                Err(error) => break Err(error),
            }
        };
        match frame {
            Ok(frame) => {
                transfers.under_way.push_back(Transfer::read(shared, frame, run.page_id(*index)))
            }
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    // All transfers must end, whatever the outcome of the others.
    while !transfers.under_way.is_empty() {
        match transfers.end_read(shared).await {
            Ok(page) => pages.push(page),
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    outcome.map(|()| pages)
}
