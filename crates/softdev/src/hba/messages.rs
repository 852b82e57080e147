//! Messages other than SCSI commands: by handshake through the doorbell, and by posted requests.

use std::sync::atomic::Ordering;

use qpair_mpi_wire::config::{ConfigRequest, action};
use qpair_mpi_wire::descriptor::{DESCRIPTOR_BYTES, RequestDescriptor};
use qpair_mpi_wire::event::decode_masks;
use qpair_mpi_wire::init::{
    CAPABILITY_ATOMIC_REQUEST, CAPABILITY_EVENT_REPLAY, CAPABILITY_MSI_X_INDEX, CAPABILITY_RDPQ,
    FLAG_RDPQ, Facts, Init, PROTOCOL_INITIATOR, RDPQ_ENTRY_BYTES, VERSION, VERSION_26, port_facts,
};
use qpair_mpi_wire::message::{self, DEFAULT_REPLY_BYTES, decode_control};
use qpair_mpi_wire::slot::{self, WriteSlot};
use qpair_mpi_wire::{function, ioc_status};

use super::control::Control;
use super::device::SoftHba;
use super::lane::{FAULT_QUEUE, FRAME_BYTES, Lane, REPLY_BYTES};
use qpair_pci::model::{DmaTable, LastHit};

/// The maximum number of entries of a reply queue.
const REPLY_QUEUE_ENTRIES_MAX: u16 = 16384;
/// The maximum number of segments of a list, and of elements of a segment.
pub(crate) const CHAIN_DEPTH_MAX: u8 = 128;
pub(crate) const CHAIN_ELEMENTS: u16 = 8;
/// The maximum number of high-priority requests in flight.
pub(crate) const HIGH_PRIORITY_CREDIT: u16 = 8;

impl SoftHba {
    fn facts(&self, who: u8) -> Facts {
        let options = self.options();
        let many = if options.queues > 1 { CAPABILITY_MSI_X_INDEX } else { 0 };
        let (version, later) = match options.is_later {
            true => (VERSION_26, CAPABILITY_RDPQ | CAPABILITY_ATOMIC_REQUEST),
            false => (VERSION, 0),
        };
        Facts {
            version,
            chain_depth_max: CHAIN_DEPTH_MAX,
            who,
            ports: 1,
            vectors: options.queues,
            credit: options.credit,
            product: 0x2221,
            capabilities: CAPABILITY_EVENT_REPLAY | many | later,
            firmware: 0x1000_0000,
            frame_bytes: FRAME_BYTES as u32,
            chain_elements: CHAIN_ELEMENTS,
            protocols: PROTOCOL_INITIATOR,
            high_priority_credit: HIGH_PRIORITY_CREDIT,
            reply_queue_entries_max: REPLY_QUEUE_ENTRIES_MAX,
            reply_bytes: REPLY_BYTES as u32,
            handle_max: self.handle_max(),
            handle_min: self.topology.phys + 1,
        }
    }

    /// Handles a request that came by handshake, and returns the reply.
    pub(crate) fn handshaken(&self, request: &[u8], control: &mut Control) -> Vec<u8> {
        match message::function_of(request) {
            function::IOC_FACTS => self.facts(control.who()).encode(request),
            function::PORT_FACTS => port_facts(request, self.options().credit),
            function::IOC_INIT => {
                let status = match control.is_ready() {
                    true => self.begin(&Init::decode(request)),
                    false => Err(ioc_status::INVALID_STATE),
                };
                if status.is_ok() {
                    control.set_operational();
                }
                let status = status.err().unwrap_or(ioc_status::SUCCESS);
                message::reply(request, DEFAULT_REPLY_BYTES, status)
            }
            _ => message::reply(request, DEFAULT_REPLY_BYTES, ioc_status::INVALID_FUNCTION),
        }
    }

    /// Handles the IOC initialisation, in which a driver gives the addresses of its queues.
    fn begin(&self, init: &Init) -> Result<(), u16> {
        self.check_init(init);
        let entries = init.reply_queue_entries;
        let is_sound = init.frame_bytes as usize >= FRAME_BYTES
            && (init.flags & FLAG_RDPQ == 0 || self.options().is_later)
            && (16..=REPLY_QUEUE_ENTRIES_MAX).contains(&entries)
            && entries.is_multiple_of(16)
            && init.reply_free_entries >= 16
            && init.vectors <= self.options().queues;
        if !is_sound {
            return Err(ioc_status::INVALID_FIELD);
        }
        self.set_reply_free(init).ok_or(ioc_status::INVALID_FIELD)?;
        let queues = init.vectors.max(1);
        let table = self.table();
        for queue in 0..queues {
            let Some(slot) = self.slot(queue.into()) else { continue };
            let own = Self::reply_queue(init, &table, queue);
            let begun = own.is_some_and(|at| {
                let init = Init { reply_queues: at, ..*init };
                slot.lock().begin(init, &table)
            });
            if !begun {
                drop(table);
                self.forget_driver();
                return Err(ioc_status::INVALID_FIELD);
            }
        }
        Ok(())
    }

    /// Returns the address of a reply queue. The queues are contiguous, or a list names the address
    /// of each.
    fn reply_queue(init: &Init, table: &DmaTable, queue: u8) -> Option<u64> {
        if init.flags & FLAG_RDPQ == 0 {
            let len = u64::from(init.reply_queue_entries) * DESCRIPTOR_BYTES as u64;
            return init.reply_queues.checked_add(u64::from(queue) * len);
        }
        let at = init.reply_queues.checked_add(u64::from(queue) * RDPQ_ENTRY_BYTES as u64)?;
        let found = table.find(at, RDPQ_ENTRY_BYTES as u32, &mut LastHit::default())?;
        let (bytes, offset) = table.bytes(found)?;
        let mut entry = [0; 8];
        bytes.copy_to(offset, &mut entry);
        Some(u64::from_le_bytes(entry))
    }

    pub(crate) fn run_message(&self, lane: &mut Lane, queue: u8, request: RequestDescriptor) {
        let smid = request.smid;
        match lane.frame(smid) {
            Some(frame) => {
                self.note_frame(lane, request, &frame);
                self.run_frame(lane, queue, smid, &frame);
            }
            None => self.stop(FAULT_QUEUE),
        }
    }

    pub(crate) fn run_frame(&self, lane: &mut Lane, queue: u8, smid: u16, frame: &[u8]) {
        let default = |status| message::reply(frame, DEFAULT_REPLY_BYTES, status);
        let reply = match message::function_of(frame) {
            function::CONFIG => self.configure(lane, frame),
            function::PORT_ENABLE => {
                self.tell_all();
                if queue == 0 {
                    // The events of the discovery come before the answer.
                    while let Some(event) = self.events.next() {
                        lane.answer(0, Some(event));
                    }
                } else {
                    self.call_attention(0);
                }
                default(ioc_status::SUCCESS)
            }
            function::EVENT_NOTIFICATION => {
                self.events.set_masks(decode_masks(frame));
                default(ioc_status::SUCCESS)
            }
            function::EVENT_ACK => default(ioc_status::SUCCESS),
            function::SAS_IO_UNIT_CONTROL => match decode_control(frame).0 {
                message::OPERATION_REMOVE_DEVICE => default(ioc_status::SUCCESS),
                _ => default(ioc_status::INVALID_FIELD),
            },
            function::SCSI_ENCLOSURE_PROCESSOR => self.write_slot(frame),
            _ => default(ioc_status::INVALID_FUNCTION),
        };
        lane.answer(smid, Some(reply));
    }

    /// Sets the locate lamp of a slot. The other bits of the slot status have no effect here.
    fn write_slot(&self, frame: &[u8]) -> Vec<u8> {
        let status = match WriteSlot::decode(frame) {
            None => ioc_status::INVALID_FIELD,
            Some(WriteSlot { handle, status }) => match self.phy_of(handle) {
                None => ioc_status::SCSI_INVALID_DEVHANDLE,
                Some((_, phy)) => {
                    phy.is_located.store(status & slot::status::IDENTIFY != 0, Ordering::Relaxed);
                    ioc_status::SUCCESS
                }
            },
        };
        WriteSlot::reply(frame, status)
    }

    fn configure(&self, lane: &mut Lane, frame: &[u8]) -> Vec<u8> {
        let asked = ConfigRequest::decode(frame);
        let page = match self.page(&asked) {
            Ok(page) => page,
            Err(status) => return asked.reply(frame, asked.dwords, asked.version, status),
        };
        let (len, at) = asked.data;
        let (dwords, version) = ((page.len() / 4) as u16, page[0]);
        let bytes = &page[..page.len().min(len as usize)];
        if asked.action != action::HEADER && !bytes.is_empty() && !lane.copy_out(at, bytes) {
            return asked.reply(frame, dwords, version, ioc_status::INVALID_SGL);
        }
        asked.reply(frame, dwords, version, ioc_status::SUCCESS)
    }
}
