//! A hostile virtio device: whatever its registers, its used rings, its responses, its events and
//! the data of its disks say, the driver and the layers above neither crash nor hang, and every
//! buffer comes back.

#![no_main]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libfuzzer_sys::fuzz_target;
use qpair_block::Result;
use qpair_memory::DmaMemory;
use qpair_pci::{InProcess, PciDevice, PciWrapper, Stepped};
use qpair_scsi::host::Host;
use qpair_scsi::{ScsiOptions, scan};
use qpair_softdev::hba::DiskOptions;
use qpair_softdev::{SoftVirtioScsi, SoftVirtioScsiOptions};
use qpair_virtio::ring::Layout;
use qpair_virtio_scsi::{VirtioScsi, VirtioScsiOptions};

mod disk;
mod input;

use disk::work;
use input::Input;

/// Entries of the queues.
const ENTRIES: u16 = 16;

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
}

/// A sound device, and what is laid over what it says.
struct Device {
    sound: Arc<SoftVirtioScsi>,
    state: Mutex<State>,
}

impl Device {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Writes into memory that is open: mostly what was used of a ring, which most of such memory
    /// begins with.
    fn scribble(&mut self) {
        let used_at = Layout::new(ENTRIES).expect("a power of two").used_at();
        for _ in 0..self.input.byte() % 4 {
            let which = usize::from(self.input.byte()) % self.memory.len().max(1);
            let Some((_, memory)) = self.memory.get(which).cloned() else { return };
            let bytes = memory.bytes();
            let entry = used_at + 4 + 8 * usize::from(self.input.byte() % ENTRIES as u8);
            match self.input.byte() % 8 {
                0 => bytes.store_u16(used_at + 2, self.input.half()),
                1 => {
                    let index = bytes.load_u16(used_at + 2);
                    let more = u16::from(self.input.byte() % 4);
                    bytes.store_u16(used_at + 2, index.wrapping_add(more));
                }
                2 => bytes.store_u32(entry, self.input.word() as u32),
                3 => bytes.store_u32(entry, u32::from(self.input.byte() % 48)),
                4 => bytes.store_u32(entry + 4, self.input.word() as u32),
                _ => {
                    let at = usize::from(self.input.half()) % bytes.len();
                    bytes.copy_from(at, &[self.input.byte()]);
                }
            }
        }
    }
}

impl PciWrapper for Device {
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
        if stepped.progress && state.input.byte() & 1 == 1 {
            state.scribble();
        }
        stepped
    }
}

fn device(data: &[u8]) -> Device {
    let mut input = Input::new(data);
    let choice = input.byte();
    let mut after_reads = 0;
    let lies = (0..choice % 4)
        .map(|_| {
            after_reads += 1 + u32::from(input.byte());
            Lie { after_reads, changed: input.word() as u32 }
        })
        .collect();
    let disk = DiskOptions { size_bytes: 256 << 10, ..DiskOptions::default() };
    let options = SoftVirtioScsiOptions {
        disks: vec![disk; 2],
        queues: 2,
        queue_entries: ENTRIES,
        has_indirect: choice & 0x80 == 0,
        volatile_write_cache: choice & 0x40 == 0,
        serial: "f".to_owned(),
    };
    let sound = SoftVirtioScsi::new(options).expect("a device");
    Device { sound, state: Mutex::new(State { input, lies, reads: 0, memory: Vec::new() }) }
}

fuzz_target!(|data: &[u8]| {
    let function = Arc::new(InProcess::new("hostile", Arc::new(device(data))));
    let options =
        VirtioScsiOptions { queues: 2, reset_timeout_ms: 5, scan_timeout_ms: 20, watch_ms: 1 };
    let Ok(driver) = VirtioScsi::open(function, options) else { return };
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
