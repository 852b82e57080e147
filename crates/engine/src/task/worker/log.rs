//! A worker's log: the records that commits append, and the one write at a time that makes them
//! durable.
//!
//! While a write is in flight, the next commits gather; when it has ended, all of them go with the
//! next write. Commits are thus grouped by the speed of the device, and by nothing else.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::Instant;

use qpair_block::{Arena, Completion, DeviceInfo, Request};
use qpair_format::log::{LogIdentity, LogPosition, LogWriter, PlannedWrite, RecordBuilder};
use qpair_format::{Error, ErrorKind, Result};

use super::{Tag, Worker, tag};
use crate::canary::Canary;
use crate::log::OpenTimestamps;
use crate::shared::Shared;
use crate::sync::{Ticket, Waiters};

/// The maximum size of one write of the log in bytes.
const WRITE_BYTES: usize = 256 << 10;
/// The number of writes for which there is memory.
const WRITES: u32 = 2;
/// The maximum number of bytes of a log that may wait to be written when a commit begins.
const PENDING_BYTES_MAX: usize = 16 * WRITE_BYTES;

/// Creates the memory of a worker's log, to be registered with its channel.
pub(crate) fn log_arena(device: &DeviceInfo, block_bytes: u32) -> Result<Arc<Arena>> {
    let most = (device.transfer_bytes_max as usize).min(WRITE_BYTES).max(2 * block_bytes as usize);
    let bytes = 1 << most.ilog2();
    Arena::new(bytes, WRITES, device.arena_options()).map_err(|error| {
        Error::new(ErrorKind::NoMemory, format!("mapping memory for the log: {error}"))
    })
}

#[derive(Default)]
pub(super) struct WorkerLog {
    writer: RefCell<Option<LogWriter>>,
    /// The timestamps that are not durable.
    open: RefCell<OpenTimestamps>,
    /// The write in flight, and the time at which it began.
    under_way: Cell<Option<(PlannedWrite, Instant)>>,
    /// The tasks that wait for a timestamp to be durable.
    waiters: Waiters,
    /// The tasks that wait until less of the log waits to be written.
    written: Waiters,
    /// The size in bytes of the commit that has room in the log and was not appended yet.
    expected_bytes: Cell<usize>,
    /// The position at which this log begins for the checkpoint under way.
    begin: Cell<Option<LogPosition>>,
}

impl Worker {
    /// Begins the log of this worker, if it has none. Nothing is written yet.
    pub(crate) fn begin_log(&self, incarnation: u64) -> Result<()> {
        if self.log.writer.borrow().is_some() {
            return Ok(());
        }
        let shared = &self.shared;
        let identity = LogIdentity::new(shared.lifecycle.store_id, incarnation, self.number as u16);
        let current = shared.new_segment()?;
        let next = shared.new_segment().inspect_err(|_| shared.recycle_segments(vec![current]))?;
        let writer = LogWriter::new(identity, shared.wal.geometry(), current, next)?;
        *self.log.writer.borrow_mut() = Some(writer.flushed(shared.wal.options.flushed));
        Ok(())
    }

    /// Appends a commit. `timestamp` takes the commit's timestamp, after which the commit can no
    /// longer fail.
    ///
    /// # Errors
    /// `NoSpace`, or the error of `timestamp`: nothing is appended then, and no timestamp is taken.
    pub(crate) fn append_commit(
        &self,
        bytes_max: usize,
        timestamp: impl FnOnce() -> Result<u64>,
        encode: impl FnOnce(&mut RecordBuilder<'_>),
    ) -> Result<u64> {
        match self.expect_commit(bytes_max) {
            // Room was made before the timestamp was taken, and is still there. There is only less
            // of it than desired.
            Err(error)
                if error.kind() == ErrorKind::NoSpace
                    && self.log.expected_bytes.get() >= bytes_max => {}
            outcome => outcome?,
        }
        let mut writer = self.log.writer.borrow_mut();
        let Some(writer) = writer.as_mut() else { return timestamp() };
        let timestamp = timestamp().inspect_err(|_| self.expect_no_commit())?;
        let before = writer.end_lsn();
        let end = writer.append(timestamp, encode).inspect_err(|error| {
            // The timestamp is taken and its commit will never end, so no task may wait for it.
            self.shared.fail(error.clone());
            self.shared.oracle.fail(error.clone());
        })?;
        self.set_expected(0);
        self.log.open.borrow_mut().append(timestamp);
        self.publish_open();
        self.note_appended(writer, end - before);
        Ok(timestamp)
    }

    /// Appends a part of a commit that is [expected](Self::expect_commit) and has its timestamp;
    /// the last part is appended by [`append_commit`](Self::append_commit).
    ///
    /// # Errors
    /// The part cannot be encoded: the store is read-only then.
    pub(crate) fn append_part(
        &self,
        timestamp: u64,
        encode: impl FnOnce(&mut RecordBuilder<'_>),
    ) -> Result<()> {
        {
            let mut writer = self.log.writer.borrow_mut();
            let Some(writer) = writer.as_mut() else { return Ok(()) };
            let before = writer.end_lsn();
            let end = writer.append_part(timestamp, encode)?;
            self.note_appended(writer, end - before);
        }
        self.pump_log();
        Ok(())
    }

    /// Counts a record that was appended, and gives it to the feed.
    fn note_appended(&self, writer: &LogWriter, appended: u64) {
        if self.shared.wal.feed.is_on() {
            self.shared.wal.feed.add(self.number, writer.tail(appended));
        }
        self.shared.wal.bytes_total.fetch_add(appended, Ordering::Relaxed);
        self.count_log(appended);
    }

    /// Waits until little of this worker's log waits to be written, or the store has failed.
    pub(crate) async fn let_parts_pass(shared: &Shared) {
        let is_over = || {
            let pending = super::current(|worker| worker.pending_bytes());
            pending.unwrap_or(0) <= PENDING_BYTES_MAX || shared.lifecycle.failure().is_some()
        };
        while !is_over() {
            let written = super::current(|worker| worker.log.written.clone());
            let Some(written) = written else { return };
            written.woken(is_over).await;
        }
    }

    /// Adds `bytes` to the length of the logs.
    fn count_log(&self, bytes: u64) {
        let total = self.shared.wal.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if total >= self.shared.wal.options.checkpoint_bytes {
            self.begin_checkpoint();
        }
    }

    /// Waits, before a commit begins, until little of this worker's log waits to be written, and
    /// until the logs are short enough.
    ///
    /// # Errors
    /// `ReadOnly` with the cause, if the log cannot be written.
    pub(crate) async fn let_log_pass(shared: &Shared) -> Result<()> {
        while let Some(timestamp) = super::current(|worker| worker.pending_from()).flatten() {
            Self::wait_durable(timestamp).await?;
        }
        let refused = shared.checkpointing.epochs.refused.load(Ordering::Relaxed);
        let is_blocked = || {
            shared.wal.are_logs_long()
                // A checkpoint that found no space makes no room. The commit then gets the error
                // itself, if it needs room.
                && shared.checkpointing.epochs.refused.load(Ordering::Relaxed) == refused
                && shared.lifecycle.failure().is_none()
                && !shared.oracle.is_closed()
                && !shared.space.is_urgent()
        };
        let mut ticket = Ticket::default();
        poll_fn(|context| {
            if !is_blocked() {
                return Poll::Ready(());
            }
            shared.wal.room.wait(&mut ticket, 0, context.waker());
            // If a checkpoint is under way, its end wakes this task, which begins the next one.
            super::current(|worker| worker.begin_checkpoint());
            if is_blocked() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        Ok(())
    }

    /// Returns the number of bytes of the log that wait to be written.
    fn pending_bytes(&self) -> usize {
        self.log.writer.borrow().as_ref().map_or(0, LogWriter::pending_bytes)
    }

    /// Returns the oldest commit that is not durable, if too much of the log waits to be written.
    fn pending_from(&self) -> Option<u64> {
        (self.pending_bytes() > PENDING_BYTES_MAX).then(|| self.log.open.borrow().first()).flatten()
    }

    /// Notes that the expected commit does not come.
    pub(crate) fn expect_no_commit(&self) {
        self.set_expected(0);
        self.log.open.borrow_mut().expect_none();
        self.publish_open();
    }

    /// Makes room in the log for a commit that is about to take its timestamp.
    ///
    /// # Errors
    /// `NoSpace`; `TooLarge` if the log device can never have room for it.
    pub(crate) fn expect_commit(&self, bytes_max: usize) -> Result<()> {
        self.make_log_room(bytes_max)?;
        if self.log.writer.borrow().is_none() {
            return Ok(());
        }
        self.set_expected(bytes_max);
        self.log.open.borrow_mut().expect(self.shared.next_timestamp());
        self.publish_open();
        Ok(())
    }

    /// Sets the size in bytes of the commit that has room and no record yet; 0 if there is none.
    fn set_expected(&self, bytes: usize) {
        let before = self.log.expected_bytes.replace(bytes);
        match (before, bytes) {
            (0, 1..) => self.shared.wal.expected.begin(),
            (1.., 0) => self.shared.wal.expected.end(),
            _ => {}
        }
    }

    /// Takes segments until a commit of this size fits: all that it needs, or none.
    ///
    /// # Errors
    /// `NoSpace`; `TooLarge` if the log device can never have room for it.
    pub(crate) fn make_log_room(&self, bytes_max: usize) -> Result<()> {
        let mut writer = self.log.writer.borrow_mut();
        let Some(writer) = writer.as_mut() else { return Ok(()) };
        if !writer.needs_segment() && writer.room_bytes() >= bytes_max {
            return Ok(());
        }
        let Some(log_device) = &self.shared.wal.device else {
            while writer.needs_segment() || writer.room_bytes() < bytes_max {
                match self.shared.new_segment() {
                    Ok(segment) => writer.give_segment(segment),
                    Err(error) => {
                        // Other workers may need the segments that are too few for this commit.
                        let surplus = writer.take_surplus(self.log.expected_bytes.get());
                        self.shared.recycle_segments(surplus);
                        return Err(error);
                    }
                }
            }
            return Ok(());
        };
        log_device.check_record(bytes_max as u64, false)?;
        // Two commits that each hold half of the segments they need would wait for each other.
        let _taking = log_device.begin_taking();
        while writer.needs_segment() || writer.room_bytes() < bytes_max {
            match log_device.allocate() {
                Ok(segment) => writer.give_segment(segment),
                Err(error) => {
                    log_device.give(writer.take_surplus(self.log.expected_bytes.get()));
                    log_device.note_full();
                    log_device.check_record(bytes_max as u64, true)?;
                    return Err(error);
                }
            }
        }
        // Only if a checkpoint can free something: otherwise each further attempt would begin
        // another one.
        if log_device.wants_checkpoint() && self.shared.wal.bytes.load(Ordering::Relaxed) > 0 {
            self.begin_checkpoint();
        }
        Ok(())
    }

    /// Starts a checkpoint as a task of this worker, unless one is under way.
    pub(crate) fn begin_checkpoint(&self) {
        // During recovery, the trees are between two commits, and only the log has the rest.
        if self.shared.space.is_urgent() {
            return;
        }
        if self.shared.checkpointing.wanted.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = self.shared.clone();
        let checkpoint = self.options.upkeep.checkpoint();
        self.spawn_own(async move {
            checkpoint.await;
            shared.checkpointing.wanted.store(false, Ordering::Release);
            shared.wal.room.wake_all();
        });
    }

    /// Writes the appended records, unless a write is in flight.
    pub(crate) fn pump_log(&self) {
        if self.log.under_way.get().is_some() {
            return;
        }
        let mut writer = self.log.writer.borrow_mut();
        let Some(writer) = writer.as_mut() else { return };
        if writer.pending_bytes() == 0 || self.shared.lifecycle.failure().is_some() {
            return;
        }
        let Some(mut buffer) = self.log_arena.lease() else { return };
        // The order matters: a commit that begins and ends between the two reads is not durable,
        // and must not be reported as durable.
        let last = self.shared.last_timestamp();
        writer.note_all_durable(last.min(self.shared.wal.durable.horizon()));
        let pending_bytes = writer.pending_bytes();
        let mut planned = writer.next_write(&mut buffer);
        if planned.is_none() {
            match self.shared.new_segment() {
                Ok(segment) => {
                    writer.give_segment(segment);
                    planned = writer.next_write(&mut buffer);
                }
                Err(error) => self.shared.fail(error),
            }
        }
        let Some(planned) = planned else { return };
        // Bytes of the log beside the records, which are counted already: headers, and the rest of
        // the last block.
        let record_bytes = pending_bytes - writer.pending_bytes();
        self.count_log(u64::from(planned.len_bytes) - record_bytes as u64);
        let mut request =
            Request::write(planned.offset_bytes, planned.len_bytes, buffer, tag(Tag::Log, 0));
        request.force_unit_access = self.shared.wal.options.flushed
            && !self.shared.planted.is(Canary::AcknowledgeBeforeFlush);
        self.log.under_way.set(Some((planned, Instant::now())));
        self.shared.wal.writes.fetch_add(1, Ordering::Relaxed);
        self.submit(request);
        self.channel.borrow_mut().kick();
        self.staged.set(0);
    }

    pub(super) fn log_written(&self, completion: Completion) {
        let Some((planned, since)) = self.log.under_way.take() else { return };
        self.shared.counters.of(self.number).count_log_write(since.elapsed());
        self.log.written.wake_all();
        if let Err(error) = completion.result {
            // The error is final: the content of the device is unknown now, and a retry would not
            // reveal it.
            let name = &self.shared.log_info().name;
            self.shared.fail(Error::io(error, format!("writing the log to {name}")));
            return;
        }
        if let Some(writer) = self.log.writer.borrow_mut().as_mut() {
            writer.complete(&planned);
            self.log.open.borrow_mut().note_durable(writer.durable_timestamp());
        }
        drop(completion);
        self.publish_open();
        for log in self.shared.wal.durable.satisfied(self.number) {
            self.shared.worker_handles[log].wake_up();
        }
        self.wake_durable();
        self.pump_log();
    }

    pub(super) fn log_is_under_way(&self) -> bool {
        self.log.under_way.get().is_some()
    }

    fn publish_open(&self) {
        let open = self.log.open.borrow().first();
        self.shared.wal.durable.set_open(self.number, open);
    }

    /// Waits until a commit, and all before it, survive power loss.
    ///
    /// # Errors
    /// `ReadOnly` with the cause, if the log cannot be written.
    pub(crate) async fn wait_durable(timestamp: u64) -> Result<()> {
        let mut ticket = Ticket::default();
        poll_fn(|context| {
            let waker = context.waker();
            super::current(|worker| worker.poll_durable(timestamp, &mut ticket, waker))
                .unwrap_or_else(|| {
                    Poll::Ready(Err(Error::new(
                        ErrorKind::Invalid,
                        "the call was not made on a worker",
                    )))
                })
        })
        .await
    }

    fn poll_durable(&self, timestamp: u64, ticket: &mut Ticket, waker: &Waker) -> Poll<Result<()>> {
        let shared = &self.shared;
        if shared.wal.durable.has(timestamp) {
            return Poll::Ready(Ok(()));
        }
        if shared.lifecycle.failure().is_some() {
            return Poll::Ready(shared.lifecycle.check_writable());
        }
        self.log.waiters.wait(ticket, timestamp, waker);
        self.publish_awaited();
        // The commit may have become durable on another worker before this log's entry was
        // published.
        if shared.wal.durable.horizon() >= timestamp {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }

    fn publish_awaited(&self) {
        self.shared.wal.durable.set_awaited(self.number, self.log.waiters.first());
    }

    /// Wakes the tasks whose commits are durable now.
    pub(super) fn wake_durable(&self) {
        let Some(first) = self.log.waiters.first() else { return };
        let horizon = match self.shared.lifecycle.failure() {
            None => self.shared.wal.durable.horizon(),
            Some(_) => u64::MAX,
        };
        if first <= horizon {
            self.log.waiters.wake_up_to(horizon);
            self.publish_awaited();
        }
    }

    /// Returns the position at which a reader of this log must begin to see everything that is
    /// appended from now on, encoded; `None` without a log.
    pub(crate) fn mark_log(&self) -> Option<Vec<u8>> {
        let writer = self.log.writer.borrow();
        let writer = writer.as_ref()?;
        // Records that are in no chunk yet come after the mark, so only the next checkpoint frees
        // their space.
        self.shared.wal.bytes.fetch_add(writer.pending_bytes() as u64, Ordering::Relaxed);
        let position = writer.position();
        self.log.begin.set(Some(position));
        Some(position.encode())
    }

    /// Ends the log and gives all of its segments back, unless a part of it still has to be
    /// written. A durable checkpoint must say that there is no log behind it, and no transaction
    /// may commit any more.
    pub(crate) fn end_log(&self) {
        if self.log.under_way.get().is_some() {
            return;
        }
        let ended = self.log.writer.borrow_mut().take_if(|writer| writer.pending_bytes() == 0);
        if let Some(writer) = ended {
            self.shared.recycle_segments(writer.segments().collect());
        }
    }

    /// Gives back the segments before the mark. The checkpoint that made the mark must be durable.
    pub(crate) fn truncate_log(&self) {
        let Some(position) = self.log.begin.take() else { return };
        if let Some(writer) = self.log.writer.borrow_mut().as_mut() {
            let mut obsolete = writer.discard_before(&position);
            // Other workers may need the segments that a large commit took and did not use.
            obsolete.extend(writer.take_surplus(self.log.expected_bytes.get()));
            self.shared.recycle_segments(obsolete);
        }
    }
}

impl Shared {
    /// Waits, on a worker, until data that was found at this timestamp may be given to a program.
    ///
    /// # Errors
    /// `ReadOnly` if the log could not be written, so that the data will never be durable.
    pub(crate) async fn wait_to_give(&self, waits: bool, timestamp: u64) -> Result<()> {
        if self.wal.may_give(waits, timestamp) {
            return Ok(());
        }
        Worker::wait_durable(timestamp).await.map_err(|error| match self.lifecycle.failure() {
            _ if self.lifecycle.panicked().is_some() => error,
            Some(failure) => Error::with_hint(
                ErrorKind::ReadOnly,
                format!("the data read includes changes up to commit {timestamp}, which may be lost: {failure}"),
                "repair the device and open the store again to see what is durable; read_non_durable, or a transaction with Durability::Async, reads it now",
            ),
            None => error,
        })
    }
}
