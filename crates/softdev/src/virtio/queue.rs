//! A queue, and the commands that it passes from its rings to a unit.

use qpair_scsi_unit::virtio::Ended;
use qpair_scsi_wire::luns::Lun;
use qpair_virtio::ring::{Area, Areas, Broken, DeviceRing, Layout, Segment, walk};
use qpair_virtio::scsi::{COMMAND_BYTES, Command, RESPONSE_BYTES, place_of, response};

use super::device::SoftVirtioScsi;
use super::faults::VirtioFault;
use super::registers::QueueRegisters;
use crate::hba::sgl::Walk;
use crate::medium::Scratch;
use crate::scsi::Data;
use qpair_pci::model::{DmaSpan, DmaTable, Extent, LastHit, SharedTable};

/// The maximum data length of a command, in bytes.
const DATA_BYTES_MAX: usize = 16 << 20;
/// A response code without a meaning.
const NOTHING: u8 = 0xFF;

/// The rings of a queue that the driver has set up.
#[derive(Debug)]
pub(super) struct Rings {
    ring: DeviceRing,
    pub(super) layout: Layout,
    /// The places of the descriptor table, the available ring and the used ring.
    places: [Extent; 3],
    has_indirect: bool,
}

/// The memory of a request: the parts that the device reads, and the parts that it writes.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) read: Vec<Extent>,
    pub(super) written: Vec<Extent>,
}

/// A command that ends only when a task terminates it.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) head: u16,
    pub(super) command: Command,
    pub(super) response: Vec<Extent>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) table: SharedTable,
    pub(super) rings: Option<Rings>,
    pub(super) parked: Vec<Parked>,
    scratch: Scratch,
    segments: Vec<Segment>,
    /// The error that fault injection adds to the index of the used ring.
    ahead: u16,
}

impl Queue {
    /// Finds the rings of a queue that is in use. Returns false if their memory is not open to the
    /// device.
    pub(super) fn begin(&mut self, registers: &QueueRegisters, has_indirect: bool) -> bool {
        let Some(layout) = Layout::new(registers.size) else { return false };
        let lens = [layout.descriptors_bytes(), layout.available_bytes(), layout.used_bytes()];
        let mut places = [None; 3];
        for ((place, at), (len, unit)) in
            places.iter_mut().zip(registers.addresses).zip(lens.into_iter().zip([16, 2, 4]))
        {
            // The length does not include the words of the event index, which is not in use.
            let len = if unit == 16 { len } else { len - 2 };
            let found = self.table.find(at, len as u32, &mut LastHit::default());
            *place = found.filter(|_| at.is_multiple_of(unit));
        }
        let [Some(descriptors), Some(available), Some(used)] = places else { return false };
        if !self.table.is_writable(used) {
            return false;
        }
        let places = [descriptors, available, used];
        self.rings = Some(Rings { ring: DeviceRing::new(layout), layout, places, has_indirect });
        true
    }

    pub(super) fn forget(&mut self) {
        self.rings = None;
        self.parked.clear();
        self.ahead = 0;
    }

    /// Adopts a new table of the driver's memory. Rings that are not in the table any more are
    /// lost.
    pub(super) fn set_table(&mut self, table: &SharedTable, registers: &QueueRegisters) {
        self.table = table.clone();
        if let Some(rings) = self.rings.take()
            && self.begin(registers, rings.has_indirect)
            && let Some(found) = &mut self.rings
        {
            found.ring = rings.ring;
        }
    }

    fn areas(table: &DmaTable, places: [Extent; 3]) -> Option<Areas<'_>> {
        let area = |place| table.bytes(place).map(|(bytes, at)| Area::new(bytes, at));
        let [descriptors, available, used] = places.map(area);
        Some(Areas { descriptors: descriptors?, available: available?, used: used? })
    }

    /// Takes the next request, and finds the memory that it names.
    pub(super) fn take(&mut self) -> Result<Option<(u16, Memory)>, Broken> {
        let Some(rings) = &mut self.rings else { return Ok(None) };
        let table: &DmaTable = &self.table;
        let areas = Self::areas(table, rings.places).ok_or(Broken)?;
        let Some(head) = rings.ring.take(areas)? else { return Ok(None) };
        let has_indirect = rings.has_indirect;
        let read = |address, into: &mut [u8]| {
            let found = has_indirect
                .then(|| table.find(address, into.len() as u32, &mut LastHit::default()))
                .flatten();
            let Some((bytes, at)) = found.and_then(|found| table.bytes(found)) else {
                return false;
            };
            bytes.copy_to(at, into);
            true
        };
        self.segments.clear();
        walk(rings.layout, areas.descriptors, head, read, &mut self.segments)?;
        let (mut memory, mut last) = (Memory::default(), LastHit::default());
        for Segment { address, len, is_written } in self.segments.drain(..) {
            let extents = if is_written { &mut memory.written } else { &mut memory.read };
            let mut walk = Walk { table, last: &mut last, extents, is_written };
            walk.push(address, len).map_err(|_| Broken)?;
        }
        Ok(Some((head, memory)))
    }

    /// Puts a request into the used ring.
    pub(super) fn give(&mut self, head: u32, len: u32) {
        let Some(rings) = &mut self.rings else { return };
        if let Some(areas) = Self::areas(&self.table, rings.places) {
            rings.ring.give(areas, head as u16, len);
            if head > u32::from(u16::MAX) {
                // The id is one that the ring, as the driver made it, cannot have.
                let index = areas.used.bytes.load_u16(areas.used.at + 2);
                let entry = usize::from(index & (rings.layout.size() - 1));
                areas.used.bytes.store_u32(areas.used.at + 4 + 8 * entry, head);
            }
            // The device sends no interrupts.
            let _ = rings.ring.publish(areas);
            if self.ahead > 0 {
                let at = areas.used.at + 2;
                let index = areas.used.bytes.load_u16(at).wrapping_add(self.ahead);
                areas.used.bytes.store_u16_release(at, index);
            }
        }
    }

    /// Adds `ahead` to the index of the used ring until the device is reset.
    fn lie_about_index(&mut self, ahead: u16) {
        self.ahead = ahead;
    }

    /// Copies out the response to a request, as far as there is room. Returns the number of bytes
    /// copied.
    pub(super) fn write(&self, extents: &[Extent], bytes: &[u8]) -> u32 {
        let span = DmaSpan::new(&self.table, extents);
        span.copy_from(bytes);
        span.len_bytes().min(bytes.len()) as u32
    }

    /// Copies the first bytes of a request. Returns false if the request has fewer.
    pub(super) fn read(&self, extents: &[Extent], into: &mut [u8]) -> bool {
        let mut first = extents.to_vec();
        DmaTable::truncate(&mut first, into.len());
        let span = DmaSpan::new(&self.table, &first);
        let is_whole = span.len_bytes() == into.len();
        if is_whole {
            span.copy_to(into);
        }
        is_whole
    }

    pub(super) fn end_parked(&mut self, at: usize, response: u8) {
        let Parked { head, response: place, .. } = self.parked.swap_remove(at);
        let len = self.write(&place, &Ended::fail(response).encode(0));
        self.give(head.into(), len);
    }
}

/// The entry of a completed request in the used ring.
struct Said {
    head: u32,
    len: u32,
    is_twice: bool,
}

impl SoftVirtioScsi {
    pub(super) fn run_command(&self, queue: &mut Queue, head: u16, mut memory: Memory) {
        let mut header = [0; COMMAND_BYTES];
        let is_whole = queue.read(&memory.read, &mut header);
        let data_in = DmaTable::split_off(&mut memory.written, RESPONSE_BYTES);
        let data_out = DmaTable::split_off(&mut memory.read, COMMAND_BYTES);
        let response_place = memory.written;
        let command = Command::decode(&header);
        let fault = match qpair_scsi_wire::Command::decode(&command.cdb[..16]) {
            Ok(scsi) if crate::hba::is_of_blocks(&scsi) => self.faults().next(),
            _ => None,
        };
        let mut said = Said { head: head.into(), len: 0, is_twice: false };
        let len_of = |extents: &[Extent]| extents.iter().map(|it| it.len_bytes()).sum::<usize>();
        let data_bytes = len_of(&data_out) + len_of(&data_in);
        let mut ended = match fault {
            Some(VirtioFault::LoseCommand) => {
                queue.parked.push(Parked { head, command, response: response_place });
                return;
            }
            Some(VirtioFault::NeedsReset) => return self.break_down(),
            Some(VirtioFault::Response(response)) => Ended::fail(response),
            Some(VirtioFault::Status(status)) => Ended { status, ..Ended::good(0) },
            Some(VirtioFault::Check(sense)) => Ended::check(sense),
            Some(VirtioFault::Pull) => {
                if let Some((target, _)) = place_of(command.address) {
                    self.pull(target);
                }
                Ended::fail(response::BAD_TARGET)
            }
            _ if !is_whole || data_bytes > DATA_BYTES_MAX => Ended::fail(response::FAILURE),
            _ => self.execute(queue, &command, data_out, data_in),
        };
        match fault {
            Some(VirtioFault::NoResponse) => ended.response = NOTHING,
            Some(VirtioFault::Id(id)) => said.head = id,
            Some(VirtioFault::Twice) => said.is_twice = true,
            Some(VirtioFault::Index(ahead)) => queue.lie_about_index(ahead),
            _ => {}
        }
        said.len = queue.write(&response_place, &ended.encode(data_bytes as u32));
        if let Some(VirtioFault::Len(len)) = fault {
            said.len = len;
        }
        queue.give(said.head, said.len);
        if said.is_twice {
            queue.give(said.head, said.len);
        }
    }

    fn execute(
        &self,
        queue: &mut Queue,
        command: &Command,
        data_out: Vec<Extent>,
        data_in: Vec<Extent>,
    ) -> Ended {
        let place = place_of(command.address);
        let disk = place.and_then(|(target, unit)| Some((self.disk(target)?, Lun::of(unit)?)));
        let Some((disk, lun)) = disk else { return Ended::fail(response::BAD_TARGET) };
        let is_out = !data_out.is_empty();
        let is_both = is_out && !data_in.is_empty();
        let mut extents = if is_out { data_out } else { data_in };
        if is_both {
            return Ended::fail(response::FAILURE);
        }
        let data = Data {
            table: &queue.table,
            extents: &mut extents,
            is_out,
            scratch: &mut queue.scratch,
        };
        let done = disk.execute(lun, &command.cdb[..16], data);
        match done.sense {
            _ if done.is_overrun => Ended::fail(response::OVERRUN),
            Some(sense) => Ended::check(sense),
            None => Ended { status: done.status, ..Ended::good(done.moved as u32) },
        }
    }
}
