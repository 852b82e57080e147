//! Allocates segments for the logs, from the store's space or from the log device.

use std::sync::atomic::Ordering;

use qpair_block::DeviceInfo;
use qpair_format::log::LogGeometry;
use qpair_format::{ErrorKind, Result};

use super::Shared;
use crate::log_device::LogDevice;
use crate::space::Purpose;

/// The number of segments for each log: one that is being filled, one that its header names, and
/// one that the next header will name. Once a checkpoint has passed, no log needs earlier segments.
const SEGMENTS_MIN: usize = 3;

impl Shared {
    /// Takes the segments that logs in the store's space always keep. With them each log can
    /// continue once a checkpoint has passed, however full the device is, and however its free
    /// pages lie. With `smaller`, segments may be smaller in this incarnation of the store than the
    /// options say if there is no room for larger ones.
    ///
    /// # Errors
    /// `NoSpace`; no segment is taken then.
    pub(crate) fn take_first_segments(&self, smaller: bool) -> Result<()> {
        if self.wal.device.is_some() || self.wal.segment_bytes.get().is_some() {
            return Ok(());
        }
        let LogGeometry { block_bytes, segment_bytes, .. } = self.wal.options.geometry;
        let least = (block_bytes * LogGeometry::SEGMENT_BLOCKS_MIN).max(self.page_size as u32);
        let mut bytes = segment_bytes;
        loop {
            let smallest = bytes / 2 < least;
            // A store that must not use smaller segments allocates these after a checkpoint, so it
            // leaves the checkpoint's room free.
            let all = smaller && smallest;
            match self.take_segments(SEGMENTS_MIN * self.worker_handles.len(), bytes.into(), all) {
                Err(error) if error.kind() == ErrorKind::NoSpace && smaller && !smallest => {
                    bytes /= 2;
                }
                Err(error) => return Err(error),
                Ok(segments) => {
                    self.wal.recycled_segments().extend(segments);
                    let _ = self.wal.segment_bytes.set(bytes);
                    return Ok(());
                }
            }
        }
    }

    /// Takes `count` segments of `bytes` bytes, or none. Unless `all` is set, the reserves for new
    /// pages, and room beside the logs, stay free.
    fn take_segments(&self, count: usize, bytes: u64, all: bool) -> Result<Vec<u64>> {
        let pages = bytes / self.page_size as u64;
        let purpose = if all { Purpose::FirstLog } else { Purpose::Log };
        let mut segments = Vec::with_capacity(count);
        for _ in 0..count {
            let taken = self.space.allocate_unlinked(pages, purpose);
            let outcome = taken.and_then(|first| {
                segments.push(self.offset_bytes(first));
                if all { Ok(()) } else { self.space.keep_beside_logs() }
            });
            if let Err(refused) = outcome {
                for offset_bytes in segments {
                    self.space.free_log(offset_bytes / self.page_size as u64, pages);
                }
                return Err(refused);
            }
        }
        Ok(segments)
    }

    /// Returns another segment for a log: one that a checkpoint made obsolete, or a new one.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn new_segment(&self) -> Result<u64> {
        if let Some(log_device) = &self.wal.device {
            return log_device.allocate();
        }
        if let Some(offset_bytes) = self.wal.recycled_segments().pop() {
            return Ok(offset_bytes);
        }
        let pages = u64::from(self.wal.geometry().segment_bytes) / self.page_size as u64;
        let first = self.space.allocate_unlinked(pages, Purpose::Log)?;
        Ok(self.offset_bytes(first))
    }

    /// Returns the end of the space that logs can lie in, as an address of the workers' channels.
    pub(crate) fn log_end_address(&self) -> u64 {
        self.wal.device.as_ref().map_or_else(|| self.device.size_bytes(), LogDevice::end_address)
    }

    /// Returns the size in bytes of the largest request for a log.
    pub(crate) fn log_transfer_bytes_max(&self) -> u32 {
        self.log_info().transfer_bytes_max
    }

    pub(crate) fn log_info(&self) -> &DeviceInfo {
        self.wal.device.as_ref().map_or(self.device.info(), |of| of.device.info())
    }

    /// Keeps obsolete segments for the logs to continue in. Those that are too many become free
    /// pages.
    pub(crate) fn recycle_segments(&self, segments: Vec<u64>) {
        if let Some(log_device) = &self.wal.device {
            return log_device.give(segments);
        }
        let segment_bytes = u64::from(self.wal.geometry().segment_bytes);
        let most = (self.wal.options.checkpoint_bytes / segment_bytes) as usize
            + 2 * self.worker_handles.len();
        let mut recycled = self.wal.recycled_segments();
        recycled.extend(segments);
        let page_size = self.page_size as u64;
        while recycled.len() > most
            && let Some(offset_bytes) = recycled.pop()
        {
            self.space.free_log(offset_bytes / page_size, segment_bytes / page_size);
        }
    }

    /// Frees the recycled segments, except for one for each log to continue in. Returns whether
    /// there were any.
    pub(crate) fn give_recycled_segments(&self) -> bool {
        self.give_recycled_segments_but(self.worker_handles.len())
    }

    /// Frees the recycled segments, except for `keep` of them. Returns whether there were any.
    pub(crate) fn give_recycled_segments_but(&self, keep: usize) -> bool {
        let mut recycled = self.wal.recycled_segments();
        if self.wal.device.is_some() || recycled.len() <= keep {
            return false;
        }
        let page_size = self.page_size as u64;
        let pages = u64::from(self.wal.geometry().segment_bytes) / page_size;
        for offset_bytes in recycled.drain(keep..) {
            self.space.free_log(offset_bytes / page_size, pages);
        }
        self.wal.recycled_given.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Gives back the pages of earlier incarnations' logs, now that a durable checkpoint needs none
    /// of them.
    pub(crate) fn give_back_old_logs(&self) {
        if let Some(runs) = self.wal.old_logs.take_obsolete() {
            runs.into_iter().for_each(|(first, pages)| self.space.free(first, pages));
            self.wal.device.iter().for_each(LogDevice::release_claims);
        }
    }
}
