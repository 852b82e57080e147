//! A soft NVMe controller under a driver that is wrong: registers, doorbells, commands, lists and
//! the memory behind them are what the input says.
//!
//! The controller must not panic or hang, must not write to memory that is open for reading only,
//! and must forget memory that is closed. That it touches nothing else is checked by the sanitizer.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use qpair_nvme_wire::Command;
use qpair_nvme_wire::registers::{ACQ, AQA, ASQ, CC, CC_RUN, doorbell};
use qpair_pci::PciDevice;
use qpair_softdev::{SoftNvme, SoftNvmeOptions};

mod driver_memory;
mod input;

use driver_memory::{DriverMemory, IOVA};
use input::Input;

struct Driver {
    device: Arc<SoftNvme>,
    memory: DriverMemory,
}

impl Driver {
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
            self.memory.bytes.bytes().store_u64(at + 8 * number, word);
        }
    }

    /// A command in any slot of the first pages, where queues are.
    fn command(&self, input: &mut Input) {
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
        command.set_prps(input.address(4096), input.address(4096));
        self.put(slot, &command);
    }

    /// An I/O queue pair, as a driver that is right makes it.
    fn queue(&self, input: &mut Input) {
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
    let mut input = Input::new(data);
    let text = match input.byte() % 4 {
        0 => "size=256KiB,queues=2,entries=64",
        1 => "size=256KiB+128KiB,block=512+4096,queues=2,cache=on,mdts=3",
        2 => "size=256KiB,queues=2,timeout_rate=0.1,drop_rate=0.1,corrupt_rate=0.2,fatal_after=50",
        _ => "size=1MiB,medium=null,queues=2,mdts=10,power_cut_after=40",
    };
    let options = SoftNvmeOptions::parse(text).expect("options");
    let device = SoftNvme::new(options).expect("a controller");
    let mut driver = Driver { device: device.clone(), memory: DriverMemory::new(&*device) };
    driver.enable();
    for _ in 0..256 {
        if input.is_over() {
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
                let at = input.address(4096).wrapping_sub(IOVA) as usize;
                driver.memory.bytes.bytes().store_u64(at & !7, input.address(4096));
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
