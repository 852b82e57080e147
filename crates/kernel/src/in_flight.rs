//! The requests that a channel has accepted and not yet returned.
//!
//! Invariants:
//! - A slot holds its request, and so its buffer, from [`InFlight::insert`] until
//!   [`InFlight::finish`] returns [`Step::Done`]. The kernel carries the slot's number.
//! - All memory is allocated when the channel is opened: at most `depth` requests are in slots or
//!   refused.

use std::sync::Arc;

use qpair_block::{Arena, Buffer, ChannelStatistics, Completion, IoError, Op, Piece, Request};

use crate::vectors::Lists;

/// The number of times that a request is sent again after EINTR or EAGAIN before that error becomes
/// its result.
const ATTEMPTS_MAX: u8 = 100;

pub(crate) struct Slot {
    request: Request,
    /// The bytes transferred so far: a short transfer is continued from here.
    moved_bytes: u32,
    /// The bytes of the last transfer sent: no more can have been moved, whatever the kernel
    /// reports.
    sent_bytes: u32,
    attempts: u8,
}

/// The rest of a request that still has to be done, in the kernel's terms.
#[derive(Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) op: Op,
    pub(crate) force_unit_access: bool,
    pub(crate) atomic: bool,
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u32,
    /// The address of the data; null if the operation has no data. Valid for `len_bytes` while the
    /// slot is occupied, if `pieces` is 0.
    pub(crate) address: *mut u8,
    /// If not 0, `address` points to this many `iovec`, which together hold `len_bytes`; if 0, it
    /// points to the bytes.
    pub(crate) pieces: u32,
    /// The number of the arena that contains the address; only meaningful with an address.
    pub(crate) arena_id: u32,
}

impl Transfer {
    #[inline]
    pub(crate) fn write_flags(&self) -> i32 {
        if self.op != Op::Write {
            return 0;
        }
        let durable = if self.force_unit_access { libc::RWF_DSYNC } else { 0 };
        durable | if self.atomic { libc::RWF_ATOMIC } else { 0 }
    }
}

impl Slot {
    pub(crate) fn new(request: Request) -> Self {
        Self { request, moved_bytes: 0, sent_bytes: 0, attempts: 0 }
    }

    pub(crate) fn complete(self, result: Result<(), IoError>) -> Completion {
        self.request.complete(result)
    }

    /// Returns the rest of the transfer. For a list of segments, this is as much as a vector in
    /// `lists` holds, or one segment if there are no vectors.
    #[inline]
    pub(crate) fn transfer(&mut self, lists: &mut Option<Lists>, index: u32) -> Transfer {
        let transfer = match lists {
            Some(lists) if self.has_list() => lists.transfer(index, self),
            _ => self.one_piece(),
        };
        self.sent_bytes = transfer.len_bytes;
        transfer
    }

    /// Returns the rest of the transfer; for a list of segments, the rest of the current segment.
    #[inline]
    pub(crate) fn one_piece(&self) -> Transfer {
        let request = &self.request;
        let mut len_bytes = request.len_bytes - self.moved_bytes;
        let (address, arena_id) = match &request.buffer {
            Some(buffer) if buffer.is_list() => {
                let piece = self.pieces().next();
                len_bytes = piece.map_or(0, |piece| piece.len_bytes as u32);
                (piece.map_or(std::ptr::null_mut(), |piece| piece.address), u32::MAX)
            }
            // `request::verify` has checked that `buffer_offset_bytes + len_bytes` is within the
            // buffer.
            Some(buffer) => (
                buffer
                    .as_ptr()
                    .wrapping_add((request.buffer_offset_bytes + self.moved_bytes) as usize),
                buffer.arena().id(),
            ),
            None => (std::ptr::null_mut(), u32::MAX),
        };
        Transfer {
            op: request.op,
            force_unit_access: request.force_unit_access,
            atomic: request.atomic,
            offset_bytes: request.offset_bytes + u64::from(self.moved_bytes),
            len_bytes,
            address,
            pieces: 0,
            arena_id,
        }
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> {
        let Request { len_bytes, buffer_offset_bytes, .. } = self.request;
        let at = (buffer_offset_bytes + self.moved_bytes) as usize;
        let rest = (len_bytes - self.moved_bytes) as usize;
        self.request.buffer.iter().flat_map(move |buffer| buffer.pieces(at, rest))
    }

    #[inline(always)]
    fn has_list(&self) -> bool {
        self.request.buffer.as_ref().is_some_and(Buffer::is_list)
    }

    /// Applies the kernel's result of the last attempt. Returns `None` if the rest must be sent, or
    /// sent again.
    #[inline]
    pub(crate) fn advance(&mut self, result: i64) -> Option<Result<(), IoError>> {
        if result < 0 {
            let errno = i32::try_from(-result).unwrap_or(libc::EIO);
            let again = matches!(errno, libc::EINTR | libc::EAGAIN);
            if again && self.attempts < ATTEMPTS_MAX {
                self.attempts += 1;
                return None;
            }
            // Nothing here cancels requests. io_uring reports ECANCELED if it could not start a
            // thread.
            let no_thread = errno == libc::ECANCELED;
            let error = if no_thread { IoError::NO_THREAD } else { IoError::from_errno(errno) };
            return Some(Err(error));
        }
        match self.request.op {
            Op::Flush | Op::Discard => return Some(Ok(())),
            // The kernel writes zeroes as a whole and returns 0; a drive may need several commands.
            Op::WriteZeroes if result == 0 => return Some(Ok(())),
            Op::Read | Op::Write | Op::WriteZeroes => {}
        }
        let rest = self.request.len_bytes - self.moved_bytes;
        let sent = self.sent_bytes;
        let moved = u32::try_from(result).map_or(sent, |moved| moved.min(sent));
        self.moved_bytes += moved;
        if moved == rest {
            Some(Ok(()))
        } else if moved == 0 || self.request.atomic {
            // The file ends before its recorded size because it was truncated, a write makes no
            // progress, or an atomic write was torn.
            Some(Err(IoError::IO))
        } else {
            None
        }
    }
}

pub(crate) enum Step {
    Done(Completion),
    Again(Transfer),
    /// The slot has no request.
    Stray,
}

/// The slab of requests in flight, with the refused requests whose completions wait to be returned.
pub(crate) struct InFlight {
    slots: Box<[Option<Slot>]>,
    free: Vec<u32>,
    refused: Vec<Completion>,
    depth: usize,
    /// Vectors for lists of segments, if the kernel accepts such vectors and a list may come.
    lists: Option<Lists>,
    pub(crate) statistics: ChannelStatistics,
}

impl InFlight {
    pub(crate) fn new(depth: u32) -> Self {
        Self {
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            refused: Vec::with_capacity(depth as usize),
            depth: depth as usize,
            lists: None,
            statistics: ChannelStatistics::default(),
        }
    }

    pub(crate) fn with_lists(self, arenas: &[Arc<Arena>]) -> Self {
        Self { lists: Lists::new(arenas, self.depth as u32), ..self }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.count() as usize >= self.depth
    }

    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.occupied() + self.refused.len() as u32
    }

    #[inline]
    pub(crate) fn occupied(&self) -> u32 {
        (self.depth - self.free.len()) as u32
    }

    /// Puts a request into a slot, or returns it if there is none. Check [`Self::is_full`] first.
    #[inline]
    pub(crate) fn insert(&mut self, request: Request) -> Result<(u32, Transfer), Request> {
        let Some(index) = self.free.pop() else { return Err(request) };
        let slot = self.slots[index as usize].insert(Slot::new(request));
        Ok((index, slot.transfer(&mut self.lists, index)))
    }

    /// Removes a request that the device has not seen from its slot.
    pub(crate) fn give_back(&mut self, index: u32) -> Option<Request> {
        let slot = self.slots.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(slot.request)
    }

    /// Keeps a request that the device will never see, to return it with `error`.
    pub(crate) fn refuse(&mut self, request: Request, error: IoError) {
        self.answer(request, Err(error));
    }

    pub(crate) fn answer(&mut self, request: Request, result: Result<(), IoError>) {
        self.statistics.count(request.op, request.len_bytes, result);
        self.keep(request.complete(result));
    }

    /// Keeps a completion for the next [`Self::take_refused`].
    pub(crate) fn keep(&mut self, completion: Completion) {
        self.refused.push(completion);
    }

    /// Takes the kernel's result (bytes moved, or a negative errno) for a slot.
    #[inline]
    pub(crate) fn finish(&mut self, index: u32, result: i64) -> Step {
        let Some(entry) = self.slots.get_mut(index as usize) else { return Step::Stray };
        let Some(slot) = entry else { return Step::Stray };
        let Some(result) = slot.advance(result) else {
            return Step::Again(slot.transfer(&mut self.lists, index));
        };
        let Some(slot) = entry.take() else { return Step::Stray };
        self.free.push(index);
        self.statistics.count(slot.request.op, slot.request.len_bytes, result);
        Step::Done(slot.complete(result))
    }

    #[inline]
    pub(crate) fn take_refused(&mut self, completions: &mut Vec<Completion>) {
        if !self.refused.is_empty() {
            completions.append(&mut self.refused);
        }
    }

    /// Leaks the requests in the slots instead of freeing them: the kernel may still write to their
    /// memory.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.slots));
        std::mem::forget(self.lists.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qpair_block::{Arena, ArenaOptions, ErrorKind};

    fn one_read() -> (InFlight, u32, Transfer) {
        let arena = Arena::new(4096, 1, ArenaOptions::ordinary_pages()).unwrap();
        let mut in_flight = InFlight::new(1);
        let (slot, whole) =
            in_flight.insert(Request::read(8192, 4096, arena.lease().unwrap(), 7)).unwrap();
        (in_flight, slot, whole)
    }

    #[test]
    fn continues_a_short_transfer() {
        let (mut in_flight, slot, whole) = one_read();
        let Step::Again(rest) = in_flight.finish(slot, 512) else { panic!("not continued") };
        assert_eq!((rest.offset_bytes, rest.len_bytes), (8192 + 512, 4096 - 512));
        assert_eq!(rest.address, whole.address.wrapping_add(512));
        let Step::Done(done) = in_flight.finish(slot, 4096 - 512) else { panic!("not done") };
        assert_eq!((done.tag, done.result), (7, Ok(())));
        assert_eq!(in_flight.statistics.read_bytes, 4096);
        assert!(matches!(in_flight.finish(slot, 0), Step::Stray));
        assert!(matches!(in_flight.finish(99, 0), Step::Stray));
    }

    #[test]
    fn atomic_writes_are_flagged_and_whole() {
        let arena = Arena::new(4096, 1, ArenaOptions::ordinary_pages()).unwrap();
        let flags = [(false, false, 0), (true, false, libc::RWF_DSYNC), (false, true, 0x40)];
        for (force_unit_access, atomic, flags) in flags {
            let write = Request::write(8192, 4096, arena.lease().unwrap(), 7);
            let mut in_flight = InFlight::new(1);
            let (slot, whole) =
                in_flight.insert(Request { force_unit_access, atomic, ..write }).unwrap();
            assert_eq!(whole.write_flags(), flags);
            assert_eq!(Transfer { op: Op::Read, ..whole }.write_flags(), 0);
            let step = in_flight.finish(slot, 2048);
            let is_torn = matches!(&step, Step::Done(done) if done.result == Err(IoError::IO));
            assert_eq!(is_torn, atomic);
            assert_eq!(matches!(step, Step::Again(_)), !atomic);
        }
    }

    /// A drive's command may report the maximum as moved.
    #[test]
    fn a_list_goes_segment_by_segment() {
        let (region, _) = qpair_block::Mapping::new_file(8192).unwrap();
        let arena = Arena::foreign(vec![region], 1, 2);
        let mut list = arena.lease().unwrap();
        let segment =
            |offset_bytes| qpair_block::Segment { region: 0, offset_bytes, len_bytes: 512 };
        list.fill([segment(4096), segment(0)]).unwrap();
        let mut in_flight = InFlight::new(1);
        let (slot, first) = in_flight.insert(Request::read(0, 1024, list, 7)).unwrap();
        let Step::Again(second) = in_flight.finish(slot, 1 << 20) else { panic!("not continued") };
        assert_eq!((first.len_bytes, second.offset_bytes, second.len_bytes), (512, 512, 512));
        assert_eq!(second.address.wrapping_add(4096), first.address);
        assert!(matches!(in_flight.finish(slot, 1 << 20), Step::Done(_)));
    }

    #[test]
    fn end_of_file_is_an_error() {
        let (mut in_flight, slot, _) = one_read();
        let Step::Done(done) = in_flight.finish(slot, 0) else { panic!("not done") };
        assert_eq!(done.result.unwrap_err().kind, ErrorKind::Io);
        assert!(done.buffer.is_some());
    }

    /// A regression: under a limit on threads, such a request on a file failed with "Operation
    /// canceled", which did not say what had happened.
    #[test]
    fn a_thread_that_the_kernel_did_not_start_is_a_limit() {
        let (mut in_flight, slot, _) = one_read();
        let canceled = -i64::from(libc::ECANCELED);
        let Step::Done(done) = in_flight.finish(slot, canceled) else { panic!("not done") };
        let error = done.result.unwrap_err();
        assert_eq!(error, IoError::NO_THREAD);
        assert!(error.way_out().is_some_and(|way_out| way_out.contains("ulimit -u")));
    }

    #[test]
    fn tries_again_but_not_for_ever() {
        let (mut in_flight, slot, _) = one_read();
        let mut attempts = 0;
        while let Step::Again(_) = in_flight.finish(slot, -i64::from(libc::EAGAIN)) {
            attempts += 1;
        }
        assert_eq!(attempts, u32::from(ATTEMPTS_MAX));
        assert_eq!((in_flight.count(), in_flight.statistics.errors), (0, 1));
    }
}
