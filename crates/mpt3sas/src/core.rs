//! The driver's own messages to a controller, and the controller's events. One lock guards them.
//!
//! Two frames belong to this module. The control plane uses the first to send a message and wait
//! for the answer. The second is for chores that events ask for, one after the other, without
//! waiting.

use std::collections::VecDeque;
use std::time::Duration;

use qpair_block::{Buffer, Error, ErrorKind, Result, time};
use qpair_memory::SharedBytes;
use qpair_mpi_wire::config::{
    ADDRESS_HANDLE, ADDRESS_NEXT_HANDLE, ConfigRequest, PCIE_DEVICE_0, PcieDevice, SAS_DEVICE_0,
    SasDevice, action, decode_header,
};
use qpair_mpi_wire::descriptor::{ReplyDescriptor, RequestDescriptor, request};
use qpair_mpi_wire::event::{self, Event, change, decode_topology};
use qpair_mpi_wire::init::VERSION_26;
use qpair_mpi_wire::message::{remove_device, request as new_request, status_of};
use qpair_mpi_wire::slot::{self, WriteSlot};
use qpair_mpi_wire::task::{self, Task};
use qpair_mpi_wire::{function, ioc_status};
use qpair_pci::QueueMemory;
use qpair_scsi::host::{Change, NO_LAMP};

use crate::coherent::lease;
use crate::host::Inner;
use crate::replies::{FRAME_BYTES_MAX, ReplyQueue};

/// The frames of the core; SMID 0 is not usable.
const CALL: u16 = 1;
const CHORE: u16 = 2;
/// The maximum number of bytes of a page; each of the frames has one.
const PAGE_BYTES: usize = 2048;
const DEVICES_MAX: usize = 4096;
/// The maximum number of waiting chores: a controller that reports more is scanned anew.
const CHORES_MAX: usize = 1024;
/// The number of turns without sleep while waiting for an answer.
const TURNS: u32 = 1000;
const NAP: Duration = Duration::from_micros(50);

/// A chore that an event requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chore {
    /// Request the page of a device that was added.
    Ask(u16),
    /// End the commands of a device that has gone.
    Reset(u16),
    /// Let the controller forget a device that has gone.
    Forget(u16),
    Acknowledge(Event),
}

pub(crate) struct Core {
    frames: Buffer,
    replies: ReplyQueue,
    data: QueueMemory,
    chores: VecDeque<Chore>,
    doing: Option<Chore>,
    /// The bytes of SAS device page 0 according to the controller; 0: not yet asked.
    device_page_bytes: u32,
}

impl Core {
    pub(crate) fn new(inner: &Inner) -> Result<Self> {
        let memory = &inner.memory;
        let (frames, replies) = (lease(&memory.frames)?, lease(&memory.replies)?);
        // An arena's first lease is its first block.
        if frames.block().0 != 0 || replies.block().0 != 0 {
            return Err(Error::new(ErrorKind::Busy, "the first frames of a controller are in use"));
        }
        Ok(Self {
            frames,
            replies: ReplyQueue::new(replies, memory.sizes.reply_entries),
            data: QueueMemory::new(&inner.maps, 2 * PAGE_BYTES)?,
            chores: VecDeque::new(),
            doing: None,
            device_page_bytes: 0,
        })
    }

    /// Drops everything in flight, for a controller that was reset.
    pub(crate) fn clear(&mut self) {
        self.replies.clear();
        self.chores.clear();
        self.doing = None;
    }

    fn data_iova(&self, smid: u16) -> u64 {
        self.data.iova() + u64::from(smid - CALL) * PAGE_BYTES as u64
    }

    fn post(&mut self, inner: &Inner, smid: u16, message: &[u8], kind: u8) -> Result<()> {
        let frame_bytes = inner.memory.sizes.frame_bytes as usize;
        let at = usize::from(smid) * frame_bytes;
        let frames: SharedBytes<'_> = self.frames.shared();
        frames.zero(at, frame_bytes);
        frames.copy_from(at, message);
        let descriptor = RequestDescriptor { kind, queue: 0, smid, handle: 0 };
        inner.registers.post(descriptor.encode())
    }

    /// Sends a message and waits for its reply.
    pub(crate) fn call(&mut self, inner: &Inner, message: &[u8], what: &str) -> Result<Vec<u8>> {
        self.post(inner, CALL, message, request::DEFAULT)?;
        let start = time::now();
        let timeout = inner.options.message_timeout();
        let mut turns = 0u32;
        loop {
            if let Some(reply) = self.take(inner) {
                return Ok(reply.to_vec());
            }
            turns += 1;
            if turns > TURNS {
                time::sleep(NAP);
            }
            if turns.is_multiple_of(64) {
                inner.check_state()?;
                if time::now() - start >= timeout {
                    let context = format!(
                        "{}: {what} got no answer in {} ms",
                        inner.name(),
                        timeout.as_millis()
                    );
                    return Err(Error::new(ErrorKind::Io, context));
                }
            }
        }
    }

    /// Takes the available replies. Returns the reply to the awaited message, if it is among them.
    fn take(&mut self, inner: &Inner) -> Option<[u8; FRAME_BYTES_MAX]> {
        if let Some(stepper) = &inner.stepper {
            stepper.step(0);
        }
        let life = inner.state.get().life();
        let mut reply = None;
        while let Some(found) = self.replies.take() {
            let ReplyDescriptor::Address(smid, low) = found else { continue };
            // A frame that is not one of the pool's has no meaning.
            let Some(frame) = inner.memory.pool().take(low, life, &inner.registers) else {
                continue;
            };
            match smid {
                0 => self.happened(inner, &frame),
                CALL => reply = Some(frame),
                CHORE => self.chore_done(inner, &frame),
                _ => {}
            }
        }
        // A caller that needs to know whether the controller is gone finds out from the next
        // register read.
        let _ = self.replies.release(&inner.registers);
        self.next_chore(inner);
        reply
    }

    /// Handles the controller's events. Never waits.
    pub(crate) fn look(&mut self, inner: &Inner) {
        let _ = self.take(inner);
    }

    fn happened(&mut self, inner: &Inner, frame: &[u8]) {
        let (event, data) = Event::decode(frame);
        if event.kind == event::kind::SAS_TOPOLOGY_CHANGE_LIST {
            for entry in decode_topology(data) {
                match entry.reason {
                    change::ADDED => self.chores.push_back(Chore::Ask(entry.handle)),
                    change::NOT_RESPONDING => {
                        if let Some(number) = inner.targets.lost(entry.handle) {
                            inner.changed(Change::Removed(number));
                        }
                        self.chores.push_back(Chore::Reset(entry.handle));
                        self.chores.push_back(Chore::Forget(entry.handle));
                    }
                    _ => {}
                }
            }
        }
        if event.needs_ack {
            self.chores.push_back(Chore::Acknowledge(event));
        }
        self.chores.truncate(CHORES_MAX);
    }

    fn next_chore(&mut self, inner: &Inner) {
        if self.doing.is_some() || self.device_page_bytes == 0 {
            return;
        }
        let Some(chore) = self.chores.pop_front() else { return };
        let is_task = matches!(chore, Chore::Reset(_));
        if is_task && !inner.take_task_credit() {
            self.chores.push_front(chore);
            return;
        }
        let posted = match chore {
            Chore::Ask(handle) => {
                let message = self.device_request(CHORE, ADDRESS_HANDLE | u32::from(handle));
                self.post(inner, CHORE, &message.encode(), request::DEFAULT)
            }
            Chore::Reset(handle) => {
                let task = Task { handle, kind: task::kind::TARGET_RESET, ..Task::default() };
                self.post(inner, CHORE, &task.encode(), request::HIGH_PRIORITY)
            }
            Chore::Forget(handle) => {
                self.post(inner, CHORE, &remove_device(handle), request::DEFAULT)
            }
            Chore::Acknowledge(event) => {
                self.post(inner, CHORE, &event::acknowledgement(&event), request::DEFAULT)
            }
        };
        // If posting failed, the controller is gone, and no caller asks for its devices.
        self.doing = posted.is_ok().then_some(chore);
    }

    fn chore_done(&mut self, inner: &Inner, reply: &[u8]) {
        let done = self.doing.take();
        if let Some(Chore::Reset(_)) = done {
            inner.give_task_credit();
        }
        if let Some(Chore::Ask(_)) = done
            && status_of(reply) == ioc_status::SUCCESS
        {
            let device = self.device(CHORE);
            if let Some(number) = inner.targets.found(&device) {
                inner.changed(Change::Added(number));
            }
        }
    }

    fn device_request(&self, smid: u16, address: u32) -> ConfigRequest {
        ConfigRequest {
            action: action::READ_CURRENT,
            page: SAS_DEVICE_0,
            dwords: (self.device_page_bytes / 4) as u16,
            version: 0,
            address,
            data: (self.device_page_bytes, self.data_iova(smid)),
        }
    }

    fn device(&mut self, smid: u16) -> SasDevice {
        let mut page = [0; PAGE_BYTES];
        let at = usize::from(smid - CALL) * PAGE_BYTES;
        let len = (self.device_page_bytes as usize).min(PAGE_BYTES);
        self.data.bytes().copy_to(at, &mut page[..len]);
        SasDevice::decode(&page[..len])
    }

    /// Enables events, and makes the controller discover its devices.
    pub(crate) fn discover(&mut self, inner: &Inner) -> Result<()> {
        let masks =
            event::masks_for(&[event::kind::SAS_TOPOLOGY_CHANGE_LIST, event::kind::SAS_DISCOVERY]);
        self.succeed(inner, &event::notification(masks), "asking for events")?;
        self.succeed(inner, &new_request::<12>(function::PORT_ENABLE), "enabling the port")?;
        let header = ConfigRequest { page: SAS_DEVICE_0, ..ConfigRequest::default() };
        let reply =
            self.succeed(inner, &header.encode(), "reading the head of SAS device pages")?;
        let (dwords, _) = decode_header(&reply);
        let bytes = usize::from(dwords) * 4;
        if !(0x24..=PAGE_BYTES).contains(&bytes) {
            let context = format!(
                "{} has SAS device pages of {bytes} bytes, which this driver cannot read",
                inner.name()
            );
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        self.device_page_bytes = bytes as u32;
        // The scan finds devices that were added meanwhile.
        self.chores.retain(|chore| matches!(chore, Chore::Acknowledge(_)));
        self.scan(inner)
    }

    fn succeed(&mut self, inner: &Inner, message: &[u8], what: &str) -> Result<Vec<u8>> {
        let reply = self.call(inner, message, what)?;
        match status_of(&reply) {
            ioc_status::SUCCESS => Ok(reply),
            status => {
                let context =
                    format!("{}: {what} failed with IOC status {status:#06x}", inner.name());
                Err(Error::new(ErrorKind::Io, context))
            }
        }
    }

    /// Turns the lamp at a target's slot on or off.
    pub(crate) fn locate(&mut self, inner: &Inner, target: u32, shines: bool) -> Result<()> {
        let name = inner.name();
        let handle =
            inner.targets.get(target).and_then(|target| target.handle()).ok_or_else(|| {
                Error::new(ErrorKind::NotFound, format!("{name}: there is no target {target} now"))
            })?;
        let lamp = if shines { slot::status::IDENTIFY } else { 0 };
        let message = WriteSlot { handle, status: slot::status::NO_ERROR | lamp };
        let reply = self.call(inner, &message.encode(), "switching the lamp of a slot")?;
        match status_of(&reply) {
            ioc_status::SUCCESS => Ok(()),
            status => {
                let context =
                    format!("{name} has no lamp for target {target} (IOC status {status:#06x})");
                Err(Error::new(ErrorKind::Unsupported, context).hint(NO_LAMP))
            }
        }
    }

    /// Scans the drives behind PCIe of a tri-mode controller.
    fn scan_pcie(&mut self, inner: &Inner) -> Result<()> {
        if inner.memory.sizes.version < VERSION_26 {
            return Ok(());
        }
        let mut handle = 0xFFFF;
        for _ in 0..DEVICES_MAX {
            let message = ConfigRequest {
                page: PCIE_DEVICE_0,
                ..self.device_request(CALL, ADDRESS_NEXT_HANDLE | u32::from(handle))
            };
            let reply = self.call(inner, &message.encode(), "scanning for PCIe drives")?;
            if status_of(&reply) != ioc_status::SUCCESS {
                break;
            }
            let mut page = [0; 0x38];
            self.data.bytes().copy_to(0, &mut page);
            let device = PcieDevice::decode(&page);
            if handle != 0xFFFF && device.handle <= handle {
                break;
            }
            handle = device.handle;
            if let Some(number) = inner.targets.found_pcie(device.name, handle) {
                inner.changed(Change::Added(number));
            }
        }
        Ok(())
    }

    pub(crate) fn scan(&mut self, inner: &Inner) -> Result<()> {
        let mut handle = 0xFFFF;
        self.scan_pcie(inner)?;
        for _ in 0..DEVICES_MAX {
            let message = self.device_request(CALL, ADDRESS_NEXT_HANDLE | u32::from(handle));
            let reply = self.call(inner, &message.encode(), "scanning for devices")?;
            if status_of(&reply) != ioc_status::SUCCESS {
                break;
            }
            let device = self.device(CALL);
            // A valid list of handles ascends.
            if handle != 0xFFFF && device.handle <= handle {
                break;
            }
            handle = device.handle;
            if let Some(number) = inner.targets.found(&device) {
                inner.changed(Change::Added(number));
            }
        }
        Ok(())
    }
}
