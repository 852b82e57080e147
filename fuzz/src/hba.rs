//! A hostile card: whatever its registers, its facts, its replies, its events and the data of its
//! disks say, the driver and the layers above neither crash nor hang, and every buffer comes back.

#![no_main]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libfuzzer_sys::fuzz_target;
use qpair_block::Result;
use qpair_memory::DmaMemory;
use qpair_mpi_wire::descriptor::{DESCRIPTOR_BYTES, ReplyDescriptor, UNUSED};
use qpair_mpi_wire::event::Event;
use qpair_mpi_wire::init::Init;
use qpair_mpi_wire::registers::{DOORBELL, DOORBELL_HANDSHAKE, REPLY_POST_HOST_INDEX};
use qpair_mpi_wire::{function, message};
use qpair_mpt3sas::{HbaOptions, Mpt3sas};
use qpair_pci::{InProcess, PciDevice, PciWrapper, Stepped};
use qpair_scsi::host::Host;
use qpair_scsi::{ScsiOptions, scan};
use qpair_softdev::{SoftHba, SoftHbaOptions};

mod disk;
mod input;

use disk::work;
use input::Input;

/// Queues of the card.
const QUEUES: usize = 4;
/// Replies that a step changes, at most.
const REPLIES_MAX: usize = 8;

/// A register reads as something else, once.
struct Lie {
    after_reads: u32,
    changed: u32,
}

struct State {
    input: Input,
    lies: Vec<Lie>,
    reads: u32,
    memory: Vec<(u64, DmaMemory)>,
    /// Words of a request by handshake, and how many there will be.
    request: (Vec<u8>, usize),
    init: Option<Init>,
    /// The entry of each queue that the driver reads next.
    next: [u32; QUEUES],
}

/// A sound card, and what is laid over what it says.
struct Card {
    sound: Arc<SoftHba>,
    state: Mutex<State>,
}

impl State {
    fn find(&self, iova: u64) -> Option<(DmaMemory, usize)> {
        let (start, memory) = self.memory.iter().find(|(start, memory)| {
            iova.checked_sub(*start).is_some_and(|at| at < memory.bytes().len() as u64)
        })?;
        Some((memory.clone(), (iova - start) as usize))
    }

    /// A word of the doorbell: the initialisation says where queues are.
    fn rung(&mut self, value: u32) {
        let (words, dwords) = &mut self.request;
        if *dwords == 0 {
            if value >> 24 == DOORBELL_HANDSHAKE {
                words.clear();
                *dwords = (value >> 16 & 0xFF) as usize;
            }
            return;
        }
        words.extend(value.to_le_bytes());
        if words.len() == *dwords * 4 {
            if message::function_of(words) == function::IOC_INIT {
                self.init = Some(Init::decode(words));
                self.next = [0; QUEUES];
            }
            *dwords = 0;
        }
    }

    /// Changes what a step has written.
    fn change(&mut self, queue: usize) -> Option<()> {
        let init = self.init?;
        let entries = u32::from(init.reply_queue_entries);
        let (replies, base) = self.find(init.reply_queues)?;
        let mut index = *self.next.get(queue)?;
        for _ in 0..REPLIES_MAX {
            let at = base + (queue * entries as usize + index as usize) * DESCRIPTOR_BYTES;
            if at + DESCRIPTOR_BYTES > replies.bytes().len() || index >= entries {
                return None;
            }
            let word = replies.bytes().load_u64(at);
            let change = self.input.byte();
            if word == UNUSED {
                // Something is said that was never asked for.
                if change & 0xF0 == 0xF0 {
                    replies.bytes().store_u64(at, self.unsolicited(&init));
                }
                break;
            }
            if change & 1 != 0
                && let Some(ReplyDescriptor::Address(_, low)) = ReplyDescriptor::decode(word)
            {
                self.scribble(u64::from(init.reply_high) << 32 | u64::from(low), 128);
            }
            match change & 0x0E {
                2 => replies.bytes().store_u64(at, word ^ self.input.word()),
                4 => replies.bytes().store_u64(at, UNUSED),
                6 => replies.bytes().store_u64(at, word ^ u64::from(self.input.byte()) << 16),
                8 => replies.bytes().store_u64(at, word ^ u64::from(self.input.byte()) << 32),
                _ => {}
            }
            index = if index + 1 == entries { 0 } else { index + 1 };
        }
        Some(())
    }

    /// A descriptor of the input's; mostly of an event, whose data is the input's.
    fn unsolicited(&mut self, init: &Init) -> u64 {
        let choice = self.input.byte();
        if choice & 3 == 0 {
            return self.input.word();
        }
        let event = Event {
            kind: if choice & 4 == 0 { 0x1C } else { self.input.byte().into() },
            needs_ack: choice & 8 != 0,
            context: 7,
        };
        let body: [u8; 32] = std::array::from_fn(|_| self.input.byte());
        let high = u64::from(init.reply_high) << 32;
        // The queue of free frames names one.
        let low = self
            .find(init.reply_free)
            .map_or(0, |(memory, at)| memory.bytes().load_u32(at + 4 * usize::from(choice >> 4)));
        if let Some((memory, at)) = self.find(high | u64::from(low)) {
            let bytes = event.encode(&body);
            if at + bytes.len() <= memory.bytes().len() {
                memory.bytes().copy_from(at, &bytes);
            }
        }
        ReplyDescriptor::address(0, 0, low)
    }

    fn scribble(&mut self, iova: u64, len: u8) {
        let Some((memory, start)) = self.find(iova) else { return };
        for _ in 0..self.input.byte() % 8 {
            let at = start + usize::from(self.input.byte() % len);
            let byte = self.input.byte();
            if at < memory.bytes().len() {
                memory.bytes().copy_from(at, &[byte]);
            }
        }
    }
}

impl Card {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PciWrapper for Card {
    fn wrapped(&self) -> &impl PciDevice {
        &*self.sound
    }

    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> bool {
        let done = self.wrapped().read_bar(bar, offset, into);
        let mut state = self.state();
        state.reads += 1;
        let reads = state.reads;
        if let Some(lie) = state.lies.iter().find(|lie| lie.after_reads == reads) {
            let changed = lie.changed.to_le_bytes();
            into.iter_mut().zip(changed).for_each(|(byte, change)| *byte ^= change);
        }
        done
    }

    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> bool {
        if let Ok(word) = bytes.try_into() {
            let value = u32::from_le_bytes(word);
            let mut state = self.state();
            match offset {
                DOORBELL => state.rung(value),
                REPLY_POST_HOST_INDEX => {
                    if let Some(next) = state.next.get_mut((value >> 24) as usize) {
                        *next = value & 0xFF_FFFF;
                    }
                }
                _ => {}
            }
        }
        self.wrapped().write_bar(bar, offset, bytes)
    }

    fn map_dma(&self, iova: u64, memory: DmaMemory) -> Result<()> {
        self.state().memory.push((iova, memory.clone()));
        self.wrapped().map_dma(iova, memory)
    }

    fn unmap_dma(&self, iova: u64, len: u64) -> Result<()> {
        self.state().memory.retain(|(start, _)| *start != iova);
        self.wrapped().unmap_dma(iova, len)
    }

    fn unmap_all(&self) {
        self.state().memory.clear();
        self.wrapped().unmap_all();
    }

    fn step(&self, queue: u16) -> Stepped {
        let stepped = self.wrapped().step(queue);
        let mut state = self.state();
        // Data of disks, sense data and pages of the configuration: memory that is open, after it
        // was written.
        if stepped.progress && state.input.byte() & 3 == 3 {
            let memories = state.memory.len().max(1);
            let which = usize::from(state.input.byte()) % memories;
            let page = u64::from(state.input.byte() % 4) * 2048;
            if let Some(iova) = state.memory.get(which).map(|(start, _)| *start) {
                state.scribble(iova + page, 255);
            }
        }
        let _ = state.change(queue.into());
        stepped
    }
}

fn card(data: &[u8]) -> Card {
    let mut input = Input::new(data);
    let choice = input.byte();
    let mut after_reads = 0;
    let lies = (0..choice % 4)
        .map(|_| {
            after_reads += 1 + u32::from(input.byte());
            Lie { after_reads, changed: input.word() as u32 }
        })
        .collect();
    let text = match choice >> 7 {
        0 => "size=256KiB,queues=4,credit=128,disks=2,serial=f",
        _ => "size=256KiB,queues=4,credit=128,block=4096,cache=on,serial=f",
    };
    let sound = SoftHba::new(SoftHbaOptions::parse(text).expect("options")).expect("a card");
    let state = State {
        input,
        lies,
        reads: 0,
        memory: Vec::new(),
        request: (Vec::new(), 0),
        init: None,
        next: [0; QUEUES],
    };
    Card { sound, state: Mutex::new(state) }
}

fuzz_target!(|data: &[u8]| {
    let function = Arc::new(InProcess::new("hostile", Arc::new(card(data))));
    let options = HbaOptions {
        reset_settle_ms: 0,
        reset_timeout_ms: 5,
        message_timeout_ms: 5,
        watch_ms: 1,
        ..HbaOptions::default()
    };
    let Ok(driver) = Mpt3sas::open(function, options) else { return };
    let host: Arc<dyn Host> = driver;
    let options = ScsiOptions {
        timeout_ms: 10,
        task_timeout_ms: 2,
        retries_max: 1,
        ..ScsiOptions::default()
    };
    if let Ok(found) = scan(&host, options, |target, lun| format!("{target}.{lun}")) {
        for disk in found.into_iter().take(2).filter_map(|found| found.disk.ok()) {
            work(&disk);
        }
    }
    let _ = host.changes();
    let _ = host.reset();
    let _ = host.scan();
});
