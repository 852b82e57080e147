//! Strict mode: checks a driver's behaviour against the rules of the interface, and counts and
//! records violations. A real card does not report them, and may react differently each time.
//!
//! docs/design/mpt3sas.md has the rules. The controller behaves the same with and without strict
//! mode.

use qpair_memory::locks::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use qpair_mpi_wire::descriptor::{RequestDescriptor, request};
use qpair_mpi_wire::init::Init;
use qpair_mpi_wire::registers::WHO_HOST_DRIVER;
use qpair_mpi_wire::scsi_io::{CONTROL_READ, CONTROL_WRITE, SGL_AT, ScsiIo};
use qpair_mpi_wire::sgl::{CHAIN, ELEMENT_BYTES, END_OF_LIST, Element};
use qpair_mpi_wire::{function, message};
use qpair_scsi_wire::command::cdb_bytes;

use super::device::SoftHba;
use super::lane::{FRAME_BYTES, Lane, Slot};
use super::messages::{CHAIN_DEPTH_MAX, CHAIN_ELEMENTS, HIGH_PRIORITY_CREDIT};
use super::transcript::Transcript;
use qpair_pci::model::LastHit;

/// The maximum number of violations that are described. All violations are counted.
const TOLD_MAX: usize = 100;
/// The alignment of frames, reply queues and the queue of free reply frames. `BUFFER_ALIGNMENT` is
/// the alignment of each reply frame and sense buffer.
const QUEUE_ALIGNMENT: u64 = 16;
const BUFFER_ALIGNMENT: u32 = 4;

/// The maximum size of a segment of a list, in bytes.
const CHAIN_BYTES_MAX: u32 = CHAIN_ELEMENTS as u32 * ELEMENT_BYTES as u32;

/// The handle of a request that was posted without one.
pub(crate) const NO_HANDLE: u16 = u16::MAX;

/// The states of a SMID.
const FREE: u8 = 0;
const IN_USE: u8 = 1;
const URGENT: u8 = 2;

/// The violations of the specification that drivers committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    /// The number of violations.
    pub count: u64,
    /// Descriptions of the first hundred violations.
    pub told: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Strict {
    count: AtomicU64,
    told: Mutex<Vec<String>>,
    /// The state of each SMID; empty if strict mode is off.
    smids: Box<[AtomicU8]>,
    urgent: AtomicU32,
    /// Whether the driver has given reply frames since its initialisation.
    pub(crate) has_free_replies: AtomicBool,
}

impl Strict {
    pub(crate) fn new(is_on: bool) -> Self {
        let smids = if is_on { usize::from(u16::MAX) + 1 } else { 0 };
        Self { smids: (0..smids).map(|_| AtomicU8::new(FREE)).collect(), ..Self::default() }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.smids.is_empty()
    }

    #[cold]
    pub(crate) fn broken(&self, what: fmt::Arguments<'_>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut told = self.told.lock();
        if told.len() < TOLD_MAX {
            told.push(what.to_string());
        }
    }

    #[inline]
    pub(crate) fn check(&self, is_kept: bool, what: fmt::Arguments<'_>) {
        if !is_kept && self.is_on() {
            self.broken(what);
        }
    }

    /// Notes that the driver is about to see the answer to `smid`.
    #[inline]
    pub(crate) fn answered(&self, smid: u16) {
        if let Some(state) = self.smids.get(usize::from(smid))
            && state.swap(FREE, Ordering::AcqRel) == URGENT
        {
            self.urgent.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Notes that no request is in flight.
    pub(crate) fn forget(&self) {
        self.smids.iter().for_each(|state| state.store(FREE, Ordering::Relaxed));
        self.urgent.store(0, Ordering::Relaxed);
        self.has_free_replies.store(false, Ordering::Relaxed);
    }
}

impl SoftHba {
    /// Returns the violations by drivers since the controller was created. There are none unless
    /// the controller is strict.
    pub fn violations(&self) -> Violations {
        let strict = &self.strict;
        let told = strict.told.lock().clone();
        Violations { count: strict.count.load(Ordering::Relaxed), told }
    }

    /// Checks a posted request descriptor.
    #[cold]
    pub(crate) fn check_post(&self, word: u64) {
        let strict = &self.strict;
        let RequestDescriptor { kind, queue, smid, .. } = RequestDescriptor::decode(word);
        let is_used = self.slot(queue.into()).is_some_and(|slot| slot.lock().setup.is_some());
        strict.check(is_used, format_args!("post: reply queue {queue} is not in use"));
        strict.check(
            strict.has_free_replies.load(Ordering::Relaxed),
            format_args!("post: SMID {smid}, before the free reply frames were told"),
        );
        let smid_max = u32::from(self.options().credit) + u32::from(HIGH_PRIORITY_CREDIT);
        let is_smid = (1..=smid_max).contains(&smid.into());
        strict.check(is_smid, format_args!("post: SMID {smid} is not one of 1 to {smid_max}"));
        let is_urgent = kind == request::HIGH_PRIORITY;
        let state = if is_urgent { URGENT } else { IN_USE };
        if let Some(smid_state) = strict.smids.get(usize::from(smid)) {
            let before = smid_state.swap(state, Ordering::AcqRel);
            strict.check(before == FREE, format_args!("post: SMID {smid} is under way already"));
        }
        if is_urgent {
            let urgent = strict.urgent.fetch_add(1, Ordering::Relaxed) + 1;
            let is_covered = urgent <= HIGH_PRIORITY_CREDIT.into();
            strict.check(is_covered, format_args!("post: {urgent} requests of high priority"));
        }
    }

    /// Records a frame that is about to be run in the transcript, and checks it in strict mode.
    #[inline]
    pub(crate) fn note_frame(
        &self,
        lane: &Lane,
        posted: RequestDescriptor,
        frame: &[u8; FRAME_BYTES],
    ) {
        if self.transcript.is_on() {
            let (smid, hex) = (posted.smid, Transcript::hex(frame));
            let at = lane
                .setup
                .map_or(0, |setup| setup.frames + u64::from(smid) * u64::from(setup.frame_bytes));
            self.transcript.write(format_args!("frame {smid:x} {at:x} {hex}"));
        }
        if self.strict.is_on() {
            self.check_frame(lane, posted, frame);
        }
    }

    /// Checks a frame against the descriptor with which it was posted.
    #[cold]
    fn check_frame(&self, lane: &Lane, posted: RequestDescriptor, frame: &[u8; FRAME_BYTES]) {
        let strict = &self.strict;
        let (kind, smid) = (posted.kind, posted.smid);
        let of = message::function_of(frame);
        let is_kind = match kind {
            request::SCSI_IO | request::FAST_PATH => of == function::SCSI_IO,
            request::HIGH_PRIORITY => of == function::SCSI_TASK_MGMT,
            request::DEFAULT => !matches!(of, function::SCSI_IO | function::SCSI_TASK_MGMT),
            _ => false,
        };
        strict.check(
            is_kind,
            format_args!("SMID {smid}: function {of:#04x} by a descriptor of kind {kind:#04x}"),
        );
        if of == function::SCSI_IO {
            self.check_scsi_io(lane, posted, frame);
        }
    }

    fn check_scsi_io(&self, lane: &Lane, posted: RequestDescriptor, frame: &[u8; FRAME_BYTES]) {
        let strict = &self.strict;
        let smid = posted.smid;
        let io = ScsiIo::decode(frame);
        strict.check(
            io.handle == posted.handle || posted.handle == NO_HANDLE,
            format_args!("SMID {smid}: handle {:#x}, posted for {:#x}", io.handle, posted.handle),
        );
        let cdb = io.io_flags & 0x1FF;
        let wanted = cdb_bytes(io.cdb[0]).map_or(cdb, u16::from);
        strict.check(
            (6..=32).contains(&cdb) && cdb == wanted,
            format_args!("SMID {smid}: a CDB of {cdb} bytes, operation {:#04x}", io.cdb[0]),
        );
        let direction = io.control & (CONTROL_READ | CONTROL_WRITE);
        strict.check(
            direction != CONTROL_READ | CONTROL_WRITE && (direction == 0) == (io.data_bytes == 0),
            format_args!(
                "SMID {smid}: {} bytes of data, control {:#010x}",
                io.data_bytes, io.control
            ),
        );
        let sense =
            lane.setup.map(|setup| u64::from(setup.sense_high) << 32 | u64::from(io.sense_low));
        let is_open = sense.is_some_and(|at| lane.table.covers(at, io.sense_bytes.into(), true));
        strict.check(
            is_open && io.sense_low.is_multiple_of(BUFFER_ALIGNMENT) && io.sense_bytes > 0,
            format_args!("SMID {smid}: sense of {} bytes at {:#x}", io.sense_bytes, io.sense_low),
        );
        strict.check(
            usize::from(io.sgl_offset) * 4 == SGL_AT,
            format_args!("SMID {smid}: the list begins at dword {}", io.sgl_offset),
        );
        self.check_list(lane, smid, &io, frame);
    }

    /// Checks the elements in the frame. The list ends in the frame with the length of the
    /// command's data, or leads to the chain that the frame names.
    fn check_list(&self, lane: &Lane, smid: u16, io: &ScsiIo, frame: &[u8; FRAME_BYTES]) {
        let mut sum = 0u64;
        for at in (SGL_AT..FRAME_BYTES).step_by(ELEMENT_BYTES) {
            let element = Element::decode(&frame[at..]);
            if element.flags & CHAIN != 0 {
                let named = usize::from(io.chain_offset) * ELEMENT_BYTES;
                self.strict.check(
                    named == at,
                    format_args!("SMID {smid}: a chain at byte {at}, and the frame says {named}"),
                );
                return self.check_chain(lane, smid, element, io.data_bytes, sum);
            }
            sum += u64::from(element.len);
            if element.flags & END_OF_LIST != 0 {
                return self.strict.check(
                    sum == u64::from(io.data_bytes),
                    format_args!("SMID {smid}: a list of {sum} bytes for {}", io.data_bytes),
                );
            }
        }
        self.strict.broken(format_args!("SMID {smid}: a list without an end"));
    }

    /// Checks the segments that `chain` leads to, after `sum` bytes in the frame. Their number and
    /// length are within the limits of the IOC facts, each next segment is where the element before
    /// says, and the list ends.
    fn check_chain(&self, lane: &Lane, smid: u16, mut chain: Element, len: u32, mut sum: u64) {
        let strict = &self.strict;
        for _ in 0..CHAIN_DEPTH_MAX {
            let Element { address, len: bytes, next_chain, .. } = chain;
            let found = lane.table.find(address, bytes, &mut LastHit::default());
            let memory = found.and_then(|found| lane.table.bytes(found));
            let (Some((memory, offset)), 1..=CHAIN_BYTES_MAX, true) =
                (memory, bytes, bytes.is_multiple_of(16) && address.is_multiple_of(16))
            else {
                return strict.broken(format_args!(
                    "SMID {smid}: a segment of {bytes} bytes at {address:#x}"
                ));
            };
            let mut segment = vec![0; bytes as usize];
            memory.copy_to(offset, &mut segment);
            let elements = segment.as_chunks::<ELEMENT_BYTES>().0;
            let last = elements.len() - 1;
            for (at, element) in elements.iter().map(|bytes| Element::decode(bytes)).enumerate() {
                let named = usize::from(next_chain);
                let is_chain = element.flags & CHAIN != 0;
                if is_chain != (named > 0 && named == at) || (is_chain && at != last) {
                    return strict.broken(format_args!(
                        "SMID {smid}: element {at} of a segment of {bytes} bytes, and the next chain is to be {named}"
                    ));
                }
                if is_chain {
                    chain = element;
                    break;
                }
                sum += u64::from(element.len);
                if element.flags & END_OF_LIST != 0 {
                    return strict.check(
                        sum == u64::from(len) && at == last,
                        format_args!("SMID {smid}: a list of {sum} bytes for {len}"),
                    );
                }
                if at == last {
                    return strict.broken(format_args!("SMID {smid}: a segment without an end"));
                }
            }
        }
        strict.broken(format_args!("SMID {smid}: more than {CHAIN_DEPTH_MAX} segments"));
    }

    /// Checks the IOC initialisation request.
    pub(crate) fn check_init(&self, init: &Init) {
        let strict = &self.strict;
        for (what, at) in [
            ("frames", init.frames),
            ("reply queues", init.reply_queues),
            ("the queue of free reply frames", init.reply_free),
        ] {
            let is_aligned = at.is_multiple_of(QUEUE_ALIGNMENT);
            strict.check(is_aligned, format_args!("initialisation: {what} at {at:#x}"));
        }
        let (who, frame_bytes) = (init.who, init.frame_bytes);
        strict.check(who == WHO_HOST_DRIVER, format_args!("initialisation: by {who}"));
        strict.check(
            frame_bytes as usize == FRAME_BYTES,
            format_args!("initialisation: frames of {frame_bytes} bytes"),
        );
    }

    /// Checks the index up to which the driver says that it has taken replies.
    #[cold]
    pub(crate) fn check_reply_index(&self, queue: u8, index: u32, slot: Option<&Slot>) {
        let strict = &self.strict;
        let Some((entries, written)) = slot.and_then(|slot| slot.lock().written()) else {
            return strict.broken(format_args!("reply queue {queue} is told of, and not in use"));
        };
        let before = slot.map_or(0, |slot| slot.host_index.load(Ordering::Acquire));
        let since = |to: u32| (to + entries - before % entries) % entries;
        strict.check(
            index < entries && since(index) <= since(written),
            format_args!(
                "reply queue {queue}: taken from {before} to {index}, written to {written}"
            ),
        );
    }

    /// Checks the address of a reply frame that the driver gave.
    #[inline]
    pub(crate) fn check_reply_frame(&self, low: u32) {
        let is_aligned = low.is_multiple_of(BUFFER_ALIGNMENT);
        self.strict.check(is_aligned, format_args!("a reply frame at {low:#x}"));
    }
}

#[cfg(test)]
mod tests {
    use qpair_mpi_wire::registers::{
        DOORBELL, HOST_DIAGNOSTIC, REPLY_POST_HOST_INDEX, REQUEST_DESCRIPTOR_POST_LOW,
    };
    use qpair_pci::PciDevice;

    use super::*;
    use crate::SoftHbaOptions;

    fn told_of(strict: bool, write: impl Fn(&SoftHba)) -> Vec<String> {
        let text = "size=1MiB,queues=2,credit=64";
        let options = SoftHbaOptions { strict, ..SoftHbaOptions::parse(text).unwrap() };
        let card = SoftHba::new(options).unwrap();
        write(&card);
        let violations = card.violations();
        assert_eq!(violations.count, violations.told.len() as u64);
        violations.told
    }

    /// Each rule about registers and descriptors reports a violation when it is broken.
    #[test]
    fn a_driver_that_is_wrong_is_told_of() {
        let register = |offset: u64, value: u32| {
            move |card: &SoftHba| {
                card.write_bar(0, offset, &value.to_le_bytes());
            }
        };
        for (offset, value, said) in [
            (HOST_DIAGNOSTIC, 4, "without the keys"),
            (DOORBELL, 0x55 << 24, "function 0x55"),
            (DOORBELL, 0x42 << 24, "0 words"),
            (REPLY_POST_HOST_INDEX, 1 << 24, "not in use"),
        ] {
            let told = told_of(true, register(offset, value));
            assert!(told.len() == 1 && told[0].contains(said), "{told:?}, not {said}");
            assert!(told_of(false, register(offset, value)).is_empty());
        }
        let post = |smid: u16| {
            move |card: &SoftHba| {
                let word = RequestDescriptor { smid, ..RequestDescriptor::default() }.encode();
                card.write_bar(0, REQUEST_DESCRIPTOR_POST_LOW, &word.to_le_bytes());
                card.write_bar(0, REQUEST_DESCRIPTOR_POST_LOW, &word.to_le_bytes());
            }
        };
        let told = told_of(true, post(7)).join("; ");
        assert!(told.contains("SMID 7 is under way") && told.contains("not in use"), "{told}");
        assert!(told_of(true, post(0)).join("; ").contains("SMID 0 is not one of 1 to 72"));
    }

    /// Reports a list that does not fit its command, a sense buffer at an unmapped address, and a
    /// handle that differs from the posted one.
    #[test]
    fn a_frame_that_is_wrong_is_told_of() {
        let io = ScsiIo {
            handle: 9,
            data_bytes: 512,
            io_flags: 10,
            control: CONTROL_READ,
            sgl_offset: (SGL_AT / 4) as u8,
            ..ScsiIo::decode(&[])
        };
        let told = told_of(true, |card| {
            let mut frame = [0; FRAME_BYTES];
            frame[..SGL_AT].copy_from_slice(&io.encode());
            let element = Element { len: 256, flags: END_OF_LIST, ..Element::default() };
            frame[SGL_AT..SGL_AT + ELEMENT_BYTES].copy_from_slice(&element.encode());
            let posted = RequestDescriptor { smid: 3, handle: 10, ..RequestDescriptor::default() };
            card.check_frame(&Lane::default(), posted, &frame);
        });
        let told = told.join("; ");
        for said in ["handle 0x9, posted for 0xa", "a CDB of 10", "sense of 0", "256 bytes for 512"]
        {
            assert!(told.contains(said), "{told}, not {said}");
        }
        // One chain leads to unmapped memory, and the frame does not name the other one.
        let told = told_of(true, |card| {
            let mut frame = [0; FRAME_BYTES];
            frame[..SGL_AT].copy_from_slice(&ScsiIo { chain_offset: 7, ..io }.encode());
            let chain = Element { address: 64, len: 32, flags: CHAIN, ..Element::default() };
            frame[SGL_AT..SGL_AT + ELEMENT_BYTES].copy_from_slice(&chain.encode());
            let posted = RequestDescriptor { smid: 3, handle: 9, ..RequestDescriptor::default() };
            card.check_frame(&Lane::default(), posted, &frame);
        });
        let told = told.join("; ");
        for said in ["a chain at byte 96, and the frame says 112", "a segment of 32 bytes at 0x40"]
        {
            assert!(told.contains(said), "{told}, not {said}");
        }
    }
}
