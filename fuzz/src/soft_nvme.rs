//! A soft NVMe controller under a driver that is wrong: registers, doorbells, commands, lists and the memory behind them are what the
//! input says.
//!
//! The controller must not panic or hang, must not write to memory that is open for reading only, and must forget memory that is closed.
//! That it touches nothing else is checked by the sanitizer.

#![no_main]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use qpair_memory::{DmaMemory, Mapping};
use qpair_nvme_wire::Command;
use qpair_nvme_wire::registers::{ACQ, AQA, ASQ, CC, CC_RUN, doorbell};
use qpair_pci::PciDevice;
use qpair_softdev::{SoftNvme, SoftNvmeOptions};

const IOVA: u64 = 0x10_0000;
const MEMORY_BYTES: usize = 64 << 10;
const READ_ONLY: u64 = 0x20_0000;

/// Takes numbers off the input; zeroes at its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let now = self.0.len().min(N);
        bytes[..now].copy_from_slice(&self.0[..now]);
        self.0 = &self.0[now..];
        bytes
    }

    fn byte(&mut self) -> u8 {
        self.bytes::<1>()[0]
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    /// An address: mostly one that means something.
    fn address(&mut self) -> u64 {
        let (kind, low) = (self.byte(), u64::from(u16::from_le_bytes(self.bytes())));
        match kind % 8 {
            0..4 => IOVA + low % MEMORY_BYTES as u64 / 4096 * 4096,
            4 => IOVA + low,
            5 => READ_ONLY + low % 8192,
            6 => IOVA + MEMORY_BYTES as u64 - 1 - low % 64,
            _ => self.word(),
        }
    }
}

struct Driver {
    device: Arc<SoftNvme>,
    memory: Arc<Mapping>,
    read_only: Arc<Mapping>,
    is_open: bool,
}

impl Driver {
    fn open(&mut self) {
        let memory = DmaMemory::of_mapping(self.memory.clone());
        self.is_open |= self.device.map_dma(IOVA, memory).is_ok();
    }

    fn write32(&self, offset: u64, value: u32) {
        self.device.write_bar(0, offset, &value.to_le_bytes());
    }

    /// Admin queues of 16 entries in the first two pages.
    fn enable(&self) {
        self.write32(CC, 0);
        self.write32(AQA, 15 | 15 << 16);
        self.device.write_bar(0, ASQ, &IOVA.to_le_bytes());
        self.device.write_bar(0, ACQ, &(IOVA + 4096).to_le_bytes());
        self.write32(CC, CC_RUN);
    }

    fn put(&self, at: usize, command: &Command) {
        for (number, word) in command.words().into_iter().enumerate() {
            self.memory.bytes().store_u64(at + 8 * number, word);
        }
    }

    /// A command in any slot of the first pages, where queues are.
    fn command(&self, input: &mut Input<'_>) {
        let slot = usize::from(input.byte()) * 64;
        let mut command = Command::default();
        for pair in command.0.chunks_exact_mut(2) {
            // Small numbers mean something in most fields.
            let word = match input.byte() {
                0xFF => input.word(),
                small => u64::from(small % 16) | u64::from(input.byte() % 4) << 32,
            };
            (pair[0], pair[1]) = (word as u32, (word >> 32) as u32);
        }
        command.set_prps(input.address(), input.address());
        self.put(slot, &command);
    }

    /// An I/O queue pair, as a driver that is right makes it.
    fn queue(&self, input: &mut Input<'_>) {
        let number = u16::from(input.byte() % 3);
        let entries = u32::from(input.byte() % 64) + 1;
        let at = IOVA + 4096 * u64::from(2 + input.byte() % 12);
        self.put(0, &Command::create_cq(number, entries, at, Some(number)));
        self.put(64, &Command::create_sq(number, entries, at + 4096));
        self.write32(doorbell(0, false, 4), 0);
        self.enable();
        self.write32(doorbell(0, false, 4), 2);
        self.device.step(0);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    static FILES: OnceLock<(Arc<Mapping>, Arc<Mapping>, OwnedFd)> = OnceLock::new();
    let (memory, _, file) = FILES.get_or_init(|| {
        let memory = Mapping::new_file(MEMORY_BYTES).expect("memory").0;
        let (read_only, file) = Mapping::new_file(8192).expect("memory");
        (memory, read_only, file)
    });
    memory.bytes().zero(0, MEMORY_BYTES);
    let read_only = Mapping::of_file(file.as_fd(), 0, 8192, false).expect("memory");
    let text = match input.byte() % 4 {
        0 => "size=256KiB,queues=2,entries=64",
        1 => "size=256KiB+128KiB,block=512+4096,queues=2,cache=on,mdts=3",
        2 => "size=256KiB,queues=2,timeout_rate=0.1,drop_rate=0.1,corrupt_rate=0.2,fatal_after=50",
        _ => "size=1MiB,medium=null,queues=2,mdts=10,power_cut_after=40",
    };
    let options = SoftNvmeOptions::parse(text).expect("options");
    let device = SoftNvme::new(options).expect("a controller");
    let mut driver =
        Driver { device: device.clone(), memory: memory.clone(), read_only, is_open: false };
    let read_only = DmaMemory::of_mapping(driver.read_only.clone());
    device.map_dma(READ_ONLY, read_only).expect("nothing is open");
    driver.open();
    driver.enable();
    for _ in 0..256 {
        if input.0.is_empty() {
            break;
        }
        match input.byte() % 16 {
            0..4 => driver.command(&mut input),
            4..6 => {
                let (queue, is_completion) = (u16::from(input.byte() % 4), input.byte() % 2 != 0);
                driver.write32(doorbell(queue, is_completion, 4), u32::from(input.byte()));
            }
            6 => driver.write32(u64::from(input.byte()) * 4, input.word() as u32),
            7 => drop(device.step(u16::from(input.byte() % 4))),
            8 | 9 => drop(device.step_all()),
            10 => {
                let at = input.address().wrapping_sub(IOVA) as usize;
                memory.bytes().store_u64(at & !7, input.address());
            }
            11 => driver.queue(&mut input),
            12 => match input.byte() % 8 {
                0 => device.remove(),
                1 => device.insert(),
                2 => device.power_cut(input.word()),
                3 => device.reset(),
                _ => driver.enable(),
            },
            13 => {
                let (bar, at, wide) = (input.byte() % 7, input.word(), input.byte() % 2 != 0);
                let mut bytes = [0; 8];
                let len = if wide { 8 } else { 4 };
                let at = if input.byte() % 4 == 0 { at } else { at % 0x5000 / 4 * 4 };
                device.read_bar(bar, at, &mut bytes[..len]);
                device.write_bar(bar, at, &bytes[..len]);
            }
            14 => {
                let at = input.word() as u32 % 4200;
                let mut bytes = [0; 6];
                device.read_config(at, &mut bytes);
                device.write_config(at, &input.bytes::<3>());
            }
            _ => {
                if input.byte() % 2 == 0 {
                    let closed = device.unmap_dma(IOVA, MEMORY_BYTES as u64).is_ok();
                    assert_eq!(closed, driver.is_open);
                    driver.is_open = false;
                } else {
                    driver.open();
                }
            }
        }
    }
    device.step_all();
    for at in (0..8192).step_by(8) {
        assert_eq!(driver.read_only.bytes().load_u64(at), 0, "written, though only to be read");
    }
    device.unmap_all();
    assert_eq!(Arc::strong_count(&driver.read_only), 1, "closed, and not forgotten");
});
