//! A soft HBA under a driver that is wrong: registers, handshakes, frames, lists and the memory
//! behind them are what the input says.
//!
//! The controller must not panic or hang, must not write to memory that is open for reading only,
//! and must forget memory that is closed. That it touches nothing else is checked by the sanitizer.

#![no_main]

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use qpair_mpi_wire::config::{ConfigRequest, PageId, page_type};
use qpair_mpi_wire::descriptor::{RequestDescriptor, request};
use qpair_mpi_wire::init::{Init, VERSION, facts_request};
use qpair_mpi_wire::registers::{
    DIAGNOSTIC_RESET, DOORBELL, DOORBELL_HANDSHAKE, DOORBELL_MESSAGE_UNIT_RESET, HOST_DIAGNOSTIC,
    HOST_INTERRUPT_STATUS, KEYS, REPLY_FREE_HOST_INDEX, REPLY_POST_HOST_INDEX,
    REQUEST_DESCRIPTOR_POST_LOW, WRITE_SEQUENCE,
};
use qpair_mpi_wire::scsi_io::ScsiIo;
use qpair_mpi_wire::sgl::{CHAIN, ELEMENT_BYTES, END_OF_LIST, Element};
use qpair_mpi_wire::task::Task;
use qpair_mpi_wire::{event, function, message, scsi_io};
use qpair_pci::PciDevice;
use qpair_scsi_wire::Cdb;
use qpair_softdev::hba::{Fault, Rule};
use qpair_softdev::{SoftHba, SoftHbaOptions};

mod driver_memory;
mod input;

use driver_memory::{DriverMemory, IOVA, MEMORY_BYTES};
use input::Input;

const FRAME_BYTES: usize = 128;
/// Where things are in the memory: frames, reply queues, reply frames, the queue of free ones,
/// sense, data.
const REPLY_QUEUES: u64 = IOVA + 0x4000;
const REPLY_FRAMES: u64 = IOVA + 0x6000;
const REPLY_FREE: u64 = IOVA + 0x8000;
const SENSE: u64 = IOVA + 0x9000;
const QUEUE_ENTRIES: u16 = 64;
const FREE_ENTRIES: u16 = 32;
/// Phys: handles of disks begin after them.
const PHYS: u16 = 8;

impl Input {
    /// A handle: mostly that of a disk that is or was there.
    fn handle(&mut self) -> u16 {
        match self.byte() {
            0xFF => self.half(),
            small => u16::from(small) % (4 * PHYS),
        }
    }

    fn element(&mut self) -> Element {
        let choice = self.byte();
        let len = match choice % 4 {
            0 => 512,
            1 => 4096,
            2 => u32::from(self.byte()) * 16,
            _ => self.word() as u32,
        };
        let flags = match choice >> 2 & 7 {
            0..4 => END_OF_LIST,
            4 => 0,
            5 => CHAIN,
            _ => self.byte(),
        };
        Element { address: self.address(512), len, next_chain: self.byte(), flags }
    }
}

struct Driver {
    device: Arc<SoftHba>,
    memory: DriverMemory,
}

impl Driver {
    fn write(&self, offset: u64, value: u32) {
        self.device.write_bar(0, offset, &value.to_le_bytes());
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        if at + bytes.len() <= MEMORY_BYTES {
            self.memory.bytes.bytes().copy_from(at, bytes);
        }
    }

    fn read(&self, offset: u64) -> u32 {
        let mut word = [0; 4];
        self.device.read_bar(0, offset, &mut word);
        u32::from_le_bytes(word)
    }

    /// A request through the doorbell, and its reply.
    fn handshake(&self, request: &[u8]) {
        self.write(HOST_INTERRUPT_STATUS, 0);
        self.write(DOORBELL, DOORBELL_HANDSHAKE << 24 | (request.len() as u32 / 4) << 16);
        self.write(HOST_INTERRUPT_STATUS, 0);
        for dword in request.as_chunks::<4>().0 {
            self.write(DOORBELL, u32::from_le_bytes(*dword));
        }
        for _ in 0..64 {
            if self.read(HOST_INTERRUPT_STATUS) == 0 {
                break;
            }
            self.read(DOORBELL);
            self.write(HOST_INTERRUPT_STATUS, 0);
        }
    }

    /// As a driver that is right begins; `wrong` of it is otherwise.
    fn begin(&self, input: &mut Input, wrong: bool) {
        self.write(DOORBELL, DOORBELL_MESSAGE_UNIT_RESET << 24);
        self.handshake(&facts_request());
        let init = Init {
            version: VERSION,
            who: 4,
            flags: 0,
            vectors: 2,
            frame_bytes: FRAME_BYTES as u32,
            reply_queue_entries: QUEUE_ENTRIES,
            reply_free_entries: FREE_ENTRIES,
            sense_high: 0,
            reply_high: 0,
            frames: IOVA,
            reply_queues: REPLY_QUEUES,
            reply_free: REPLY_FREE,
            time_ms: 0,
        };
        let mut bytes = init.encode();
        if wrong {
            for _ in 0..1 + input.byte() % 4 {
                let at = usize::from(input.byte()) % bytes.len();
                bytes[at] = input.byte();
            }
        }
        for frame in 0..u32::from(FREE_ENTRIES) {
            let low = REPLY_FRAMES as u32 + frame * 128;
            self.put((REPLY_FREE - IOVA) as usize + frame as usize * 4, &low.to_le_bytes());
        }
        self.handshake(&bytes);
        self.write(REPLY_FREE_HOST_INDEX, u32::from(FREE_ENTRIES) - 1);
        self.write(REPLY_POST_HOST_INDEX, 0);
        self.write(REPLY_POST_HOST_INDEX, 1 << 24);
    }

    fn post(&self, kind: u8, queue: u8, smid: u16, handle: u16) {
        let word = RequestDescriptor { kind, queue, smid, handle }.encode();
        self.device.write_bar(0, REQUEST_DESCRIPTOR_POST_LOW, &word.to_le_bytes());
    }

    fn frame(&self, smid: u16, bytes: &[u8]) {
        let at = usize::from(smid) * FRAME_BYTES;
        self.put(at, &[0; FRAME_BYTES]);
        self.put(at, bytes);
    }

    /// A SCSI command with any descriptor block and list.
    fn scsi_io(&self, input: &mut Input) {
        let smid = u16::from(input.byte() % 64);
        let short = match input.byte() % 4 {
            0 => *Cdb::transfer(false, u64::from(input.byte()), 1, false).padded(),
            1 => {
                let (block, blocks) = (input.half().into(), input.byte().into());
                *Cdb::transfer(true, block, blocks, true).padded()
            }
            _ => input.bytes(),
        };
        let mut cdb = [0; 32];
        cdb[..16].copy_from_slice(&short);
        let choice = input.byte();
        let handle = input.handle();
        let io = ScsiIo {
            handle,
            sense_low: if choice & 1 == 0 { SENSE as u32 } else { input.address(512) as u32 },
            sense_bytes: if choice & 2 == 0 { 96 } else { input.byte() },
            sgl_offset: if choice & 4 == 0 { (scsi_io::SGL_AT / 4) as u8 } else { input.byte() },
            data_bytes: match choice >> 3 & 3 {
                0 => 512,
                1 => u32::from(input.half()),
                2 => 0,
                _ => input.word() as u32,
            },
            io_flags: if choice & 0x20 == 0 { 16 } else { input.half() },
            lun: if choice & 0x40 == 0 { [0; 8] } else { input.bytes() },
            control: u32::from(input.byte() % 4) << 24,
            cdb,
            ..ScsiIo::decode(&[])
        };
        self.frame(smid, &io.encode());
        let list = usize::from(smid) * FRAME_BYTES + scsi_io::SGL_AT;
        for number in 0..2 {
            self.put(list + number * ELEMENT_BYTES, &input.element().encode());
        }
        self.post(request::SCSI_IO, input.byte() % 3, smid, handle);
    }

    fn message(&self, input: &mut Input) {
        let smid = u16::from(input.byte() % 64);
        let mut kind = request::DEFAULT;
        match input.byte() % 8 {
            0 => self.frame(smid, &event::notification([0; 4])),
            1 => self.frame(smid, &message::request::<12>(function::PORT_ENABLE)),
            2 | 3 => {
                let page = PageId {
                    kind: page_type::EXTENDED,
                    extended: 0x10 + input.byte() % 6,
                    number: input.byte() % 3,
                };
                let request = ConfigRequest {
                    action: input.byte() % 8,
                    page,
                    dwords: input.byte().into(),
                    version: 0,
                    address: u32::from(input.byte() >> 4) << 28 | u32::from(input.handle()),
                    data: (u32::from(input.half()), input.address(512)),
                };
                self.frame(smid, &request.encode());
            }
            4 | 5 => {
                let task = Task {
                    handle: input.handle(),
                    kind: input.byte() % 9,
                    smid: u16::from(input.byte() % 64),
                    ..Task::default()
                };
                self.frame(smid, &task.encode());
                kind = request::HIGH_PRIORITY;
            }
            6 => self.frame(smid, &message::remove_device(input.handle())),
            _ => {
                self.frame(smid, &input.bytes::<64>());
                kind = input.byte();
            }
        }
        self.post(kind, input.byte() % 4, smid, 0);
    }

    fn diagnostic(&self) {
        self.write(WRITE_SEQUENCE, 0);
        KEYS.iter().for_each(|key| self.write(WRITE_SEQUENCE, *key));
        self.write(HOST_DIAGNOSTIC, DIAGNOSTIC_RESET);
        self.write(WRITE_SEQUENCE, 0);
    }

    fn faults(&self, input: &mut Input) {
        let fault = match input.byte() % 9 {
            0 => Fault::LoseCommand,
            1 => Fault::LoseReply,
            2 => Fault::Late(Duration::ZERO),
            3 => Fault::DoubleReply,
            4 => Fault::WrongId,
            5 => Fault::Status(input.byte()),
            6 => Fault::IocStatus(input.half()),
            7 => Fault::IocFault(input.half()),
            _ => Fault::Pull,
        };
        let (first, count) = (u64::from(input.byte() % 8), u64::from(input.byte() % 8));
        self.device.set_faults(vec![Rule { first, count, fault }]);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let text = match input.byte() % 3 {
        0 => "size=256KiB,queues=2,credit=64,serial=f,strict=on",
        1 => "size=256KiB,queues=3,credit=64,disks=3,block=4096,cache=on,serial=f",
        _ => "size=1MiB,medium=null,queues=2,credit=64,disks=2,serial=f",
    };
    let options = SoftHbaOptions::parse(text).expect("options");
    let device = SoftHba::new(options).expect("a controller");
    let mut driver = Driver { device: device.clone(), memory: DriverMemory::new(&*device) };
    let wrong = input.byte() % 4 == 0;
    driver.begin(&mut input, wrong);
    for _ in 0..256 {
        if input.is_over() {
            break;
        }
        match input.byte() % 16 {
            0..4 => driver.scsi_io(&mut input),
            4 | 5 => driver.message(&mut input),
            6 => {
                let index = u32::from(input.byte() % 3) << 24 | u32::from(input.byte());
                driver.write(REPLY_POST_HOST_INDEX, index);
            }
            7 => driver.write(REPLY_FREE_HOST_INDEX, input.byte().into()),
            8 => drop(device.step(u16::from(input.byte() % 4))),
            9 => drop(device.step_all()),
            10 => {
                let (at, value) = (input.half() as usize % (MEMORY_BYTES - 8), input.address(512));
                driver.put(at & !7, &value.to_le_bytes());
            }
            11 => {
                let (bar, at, wide) = (input.byte() % 7, input.word(), input.byte() % 2 != 0);
                let mut bytes = [0; 8];
                let len = if wide { 8 } else { 4 };
                let at = if input.byte() % 4 == 0 { at } else { at % 0x400 / 4 * 4 };
                device.read_bar(bar, at, &mut bytes[..len]);
                device.write_bar(bar, at, &input.bytes::<8>()[..len]);
            }
            12 => match input.byte() % 8 {
                0 => {
                    device.pull(input.byte().into());
                }
                1 => {
                    device.plug(input.byte().into());
                }
                2 => device.power_cut(input.word()),
                3 => device.reset(),
                4 => driver.diagnostic(),
                5 => device.ignore_tasks(input.byte() % 2 != 0),
                6 => driver.faults(&mut input),
                _ => driver.begin(&mut input, true),
            },
            13 => driver.handshake(&input.bytes::<72>()[..usize::from(data.len() as u8) % 72]),
            14 => {
                let at = input.word() as u32 % 4200;
                let mut bytes = [0; 6];
                device.read_config(at, &mut bytes);
                device.write_config(at, &input.bytes::<3>());
            }
            _ => {
                if input.byte() % 2 == 0 {
                    driver.memory.close(&*device);
                } else {
                    driver.memory.open(&*device);
                }
            }
        }
    }
    device.step_all();
    driver.memory.end(&*device);
});
