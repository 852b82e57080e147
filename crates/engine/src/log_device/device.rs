//! The log device of an open store: its segments, handed out to the logs and given back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use qpair_block::{BlockDevice, PAIR_SECOND_BYTES};
use qpair_format::log::{LogGeometry, Segments};
use qpair_format::superblock::SUPERBLOCK_BYTES;
use qpair_format::{Error, ErrorKind, Result};
use qpair_members::LogSuperblock;
use qpair_members::other_moment;
use qpair_members::{Attached, SEGMENTS_PER_WORKER, make_room};
use qpair_memory::locks::Mutex;

/// A file on the log device grows to this many times the distance of checkpoints, if it can.
const CHECKPOINTS_MAX: u64 = 4;
const GROWTH_SEGMENTS_MIN: u64 = 8;

#[derive(Debug)]
pub(crate) struct LogDevice {
    pub(crate) device: Arc<dyn BlockDevice>,
    /// The superblock as it was when the store was opened.
    superblock: LogSuperblock,
    geometry: LogGeometry,
    /// The end of the part of the device that is used, in bytes.
    end_bytes_max: u64,
    workers: u64,
    segments: Mutex<Segments>,
    /// Held by a task that takes as many segments as a commit needs.
    taking: Mutex<()>,
    /// Whether a commit found too few free segments, and no segment was given back since.
    is_full: AtomicBool,
    /// Whether the device failed to grow when it was last asked to.
    is_stuck: AtomicBool,
}

impl LogDevice {
    /// Takes an attached device into use, with room for the logs of all workers.
    ///
    /// # Errors
    /// `NoSpace` if the device is too small.
    pub(crate) fn new(
        attached: Attached,
        geometry: LogGeometry,
        workers: u64,
        checkpoint_bytes: u64,
    ) -> Result<Self> {
        let Attached { device, superblock } = attached;
        let segment_bytes = geometry.segment_bytes.into();
        make_room(device.as_ref(), segment_bytes, workers)?;
        let size_bytes = device.size_bytes();
        let wanted_bytes =
            SUPERBLOCK_BYTES.saturating_add(checkpoint_bytes.saturating_mul(CHECKPOINTS_MAX));
        Ok(Self {
            end_bytes_max: match device.info().growable {
                true => size_bytes.max(wanted_bytes),
                false => size_bytes,
            },
            segments: Mutex::new(Segments::new(SUPERBLOCK_BYTES, segment_bytes)),
            device,
            superblock,
            taking: Mutex::default(),
            is_full: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            geometry,
            workers,
        })
    }

    /// Returns the end of the device's used part, as an address of the workers' channels.
    pub(crate) fn end_address(&self) -> u64 {
        PAIR_SECOND_BYTES + self.device.size_bytes()
    }

    /// Locks the taking of segments: no other worker takes segments for a commit while the caller
    /// holds the guard.
    pub(crate) fn begin_taking(&self) -> MutexGuard<'_, ()> {
        self.taking.lock()
    }

    pub(crate) fn note_full(&self) {
        self.is_full.store(true, Ordering::Release);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Allocates a segment and returns its address.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn allocate(&self) -> Result<u64> {
        let mut segments = self.segments.lock();
        let free = segments.first_free();
        let end_bytes = segments.end_bytes(free);
        if end_bytes > self.device.size_bytes() {
            self.grow(end_bytes)?;
        }
        segments.take(free);
        Ok(PAIR_SECOND_BYTES + free)
    }

    fn grow(&self, end_bytes: u64) -> Result<()> {
        let name = &self.device.info().name;
        let hint = "try again once other commits are done, commit in smaller parts, or give the store a larger log device";
        if end_bytes > self.end_bytes_max {
            return Err(Error::with_hint(
                ErrorKind::NoSpace,
                format!(
                    "the log device {name} is full: its {} bytes are in use",
                    self.end_bytes_max
                ),
                hint,
            ));
        }
        let size_bytes = self.device.size_bytes();
        let segment_bytes = u64::from(self.geometry.segment_bytes);
        let step = (size_bytes / 4).max(GROWTH_SEGMENTS_MIN * segment_bytes);
        let wanted = end_bytes.max(size_bytes + step).min(self.end_bytes_max);
        let grown = self.device.grow(wanted).or_else(|_| self.device.grow(end_bytes));
        self.is_stuck.store(grown.is_err(), Ordering::Release);
        grown.map_err(|error| {
            Error::with_hint(
                ErrorKind::NoSpace,
                format!("the log device {name} cannot grow to {end_bytes} bytes: {error}"),
                hint,
            )
        })
    }

    /// Returns the end of the usable part of the device in bytes, as far as it is known.
    fn limit_bytes(&self) -> u64 {
        match self.is_stuck.load(Ordering::Acquire) {
            true => self.device.size_bytes(),
            false => self.end_bytes_max,
        }
    }

    pub(crate) fn give(&self, addresses: Vec<u64>) {
        if addresses.is_empty() {
            return;
        }
        let mut segments = self.segments.lock();
        self.is_full.store(false, Ordering::Release);
        addresses.into_iter().for_each(|address| segments.give(address - PAIR_SECOND_BYTES));
    }

    /// Protects `len_bytes` bytes from an address on, which a recovery reads, until
    /// [`LogDevice::release_claims`].
    pub(crate) fn claim(&self, address: u64, len_bytes: u64) {
        let start = address.saturating_sub(PAIR_SECOND_BYTES);
        self.segments.lock().claim(start..start.saturating_add(len_bytes));
    }

    pub(crate) fn release_claims(&self) {
        let mut segments = self.segments.lock();
        self.is_full.store(false, Ordering::Release);
        segments.release_claims();
    }

    /// Whether more than half of the segments are in use, so that a checkpoint should free some.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let segments = self.segments.lock();
        segments.used() * 2 > segments.count(self.limit_bytes())
    }

    /// Refuses a commit whose record can never have room: it is larger than one log can get while
    /// all others have what they need. Until growing has failed once (`is_tried`), a file counts
    /// with the size to which it may grow.
    ///
    /// # Errors
    /// `TooLarge`.
    pub(crate) fn check_record(&self, bytes: u64, is_tried: bool) -> Result<()> {
        let end_bytes = if is_tried { self.limit_bytes() } else { self.end_bytes_max };
        let segments = self.segments.lock().count(end_bytes);
        let others = (self.workers - 1) * (SEGMENTS_PER_WORKER - 1);
        // The current segment may be full, and the one after it is only named.
        let most = segments.saturating_sub(others + 2) * self.geometry.room_bytes();
        if bytes <= most {
            return Ok(());
        }
        Err(Error::with_hint(
            ErrorKind::TooLarge,
            format!(
                "a commit of up to {bytes} bytes does not fit the log device {}, which takes {most} bytes at once",
                self.device.info().name
            ),
            "commit in smaller parts, or give the store a larger log device",
        ))
    }

    /// Returns the number of bytes that the logs use on the device, and the number that they may
    /// use.
    pub(crate) fn space(&self) -> (u64, u64) {
        let (segments, limit_bytes) = (self.segments.lock(), self.limit_bytes());
        let segment_bytes = u64::from(self.geometry.segment_bytes);
        (segments.used() * segment_bytes, segments.count(limit_bytes) * segment_bytes)
    }

    /// Checks that the logs can be on this device: it must have been attached when their
    /// incarnations began.
    pub(crate) fn fits(&self, store_name: &str, logs: &[Vec<u8>]) -> Result<()> {
        match self.superblock.is_as_new_as(logs) {
            true => Ok(()),
            false => Err(other_moment(store_name, &self.device.info().name)),
        }
    }

    /// Records on the device, durably, that an incarnation of the store begins to write there.
    /// `unfinished` is set while the store is still being created.
    pub(crate) fn mark(&self, generation: u64, unfinished: bool) -> Result<()> {
        let superblock = LogSuperblock { generation, unfinished, ..self.superblock };
        match self.superblock.unfinished {
            // Write the superblock to the other slot, too.
            true => superblock.write_new(self.device.as_ref()),
            false => superblock.write(self.device.as_ref()),
        }
    }
}
