//! Tests a hardware PCI function directly: registers, memory, interrupts, reset, and that the IOMMU
//! stops a stray address.
//!
//! The function must be an NVMe controller that is bound to vfio-pci and not in use, because the
//! program resets it.
//!
//! ```text
//! function 0000:3b:00.0
//! ```

#![allow(clippy::print_stdout, reason = "a program that reports")]
#![allow(clippy::print_stderr, reason = "a program that reports")]

use std::error::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use qpair_block::ErrorKind;
use qpair_memory::{Arena, ArenaOptions, Buffer, Mapping};
use qpair_nvme_wire::command::{cns, io};
use qpair_nvme_wire::registers as reg;
use qpair_nvme_wire::{
    Command, Completion, IDENTIFY_BYTES, IdentifyController, PAGE_BYTES, Status,
};
use qpair_pci::{PciFunction, vfio};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

type Anything<T> = Result<T, Box<dyn Error>>;

const ENTRIES: u16 = 16;
const TIMEOUT: Duration = Duration::from_secs(20);
/// An address at which no memory is open.
const STRAY_IOVA: u64 = 0x50_0000_0000;

fn main() -> ExitCode {
    let addresses: Vec<String> = std::env::args().skip(1).collect();
    let [address] = addresses.as_slice() else {
        eprintln!("usage: function ADDRESS");
        return ExitCode::from(2);
    };
    match try_all(address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("function: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check(holds: bool, what: &str) -> Anything<()> {
    if !holds {
        return Err(format!("not so: {what}").into());
    }
    println!("{what}");
    Ok(())
}

fn refused<T>(outcome: qpair_block::Result<T>, kind: ErrorKind, what: &str) -> Anything<()> {
    match outcome {
        Err(error) if error.kind() == kind => {
            println!("{what}: {error}");
            Ok(())
        }
        Err(error) => Err(format!("{what}: {error}").into()),
        Ok(_) => Err(format!("not so: {what}").into()),
    }
}

fn try_all(address: &str) -> Anything<()> {
    let function = vfio::open(address)?;
    println!(
        "{}: {}, {} bytes of registers, {} interrupts",
        function.name(),
        function.transport(),
        function.bar_bytes(0),
        function.irq_count()
    );
    refused(vfio::open(address), ErrorKind::Busy, "it is open once")?;
    registers(&*function)?;
    memory(&*function)?;
    let mut controller = Controller::new(function.clone())?;
    controller.enable()?;
    let (status, first) = controller.identify()?;
    println!("identify: {status:?}, {}", first.model);
    check(status.is_success() && !first.model.is_empty(), "memory is reached")?;
    stray(&mut controller)?;
    function.reset()?;
    let enabled = controller.registers.bytes().load_u32(reg::CC as usize) & reg::CC_ENABLE;
    check(enabled == 0, "reset disables it")?;
    controller.enable()?;
    let (status, second) = controller.identify()?;
    check(status.is_success() && second == first, "it works after a reset, and is the same")?;
    interrupts(&*function)?;
    drop(controller);
    drop(function);
    let function = vfio::open(address)?;
    check(function.bar_bytes(0) > 0, "it can be opened again")
}

fn registers(function: &dyn PciFunction) -> Anything<()> {
    let mut capabilities = [0; 8];
    function.read_bar(0, reg::CAP, &mut capabilities)?;
    let capabilities = u64::from_le_bytes(capabilities);
    println!("capabilities {capabilities:#018x}");
    let mapping = map(function)?;
    check(mapping.bytes().load_u64(0) == capabilities, "mapped registers are the registers")?;
    let whole = function.map_bar(0, 0, function.bar_bytes(0) as usize)?;
    println!("all of BAR 0 can be mapped: {}", whole.is_some());
    let outside = function.read_bar(0, function.bar_bytes(0), &mut [0; 4]);
    refused(outside, ErrorKind::Invalid, "there is nothing behind the registers")?;
    let mut class = [0; 4];
    function.read_config(8, &mut class)?;
    check(class[1..] == [2, 8, 1], "the configuration space says NVMe")
}

fn map(function: &dyn PciFunction) -> Anything<Arc<Mapping>> {
    Ok(function.map_bar(0, 0, 2 * PAGE_BYTES)?.ok_or("registers and doorbells cannot be mapped")?)
}

fn memory(function: &dyn PciFunction) -> Anything<()> {
    let arena = Arena::new(PAGE_BYTES, 1, ArenaOptions::ordinary_pages())?;
    let first = function.map_dma(&arena)?;
    refused(function.map_dma(&arena), ErrorKind::Exists, "memory is opened once")?;
    function.unmap_dma(&arena)?;
    refused(function.unmap_dma(&arena), ErrorKind::NotFound, "and closed once")?;
    check(function.map_dma(&arena)? == first, "its address is used again")?;
    function.unmap_dma(&arena)?;
    let many: Vec<_> = (0..64)
        .map(|_| Arena::new(PAGE_BYTES, 1, ArenaOptions::ordinary_pages()))
        .collect::<Result<_, _>>()?;
    many.iter().try_for_each(|arena| function.map_dma(arena).map(drop))?;
    many.iter().try_for_each(|arena| function.unmap_dma(arena))?;
    println!("64 arenas opened and closed");
    Ok(())
}

/// Tests addresses that were never opened, and one that was closed.
///
/// A drive may or may not report that it could not access the memory (QEMU's does not, for single
/// pages). The test is that no data was moved. The kernel's log has the faults.
fn stray(controller: &mut Controller) -> Anything<()> {
    let arena = Arena::new(PAGE_BYTES, 1, ArenaOptions::ordinary_pages())?;
    let mut buffer = arena.lease().ok_or("no block")?;
    let iova = controller.function.map_dma(&arena)?;
    check(controller.transfer(io::WRITE, iova)?.is_success(), "zeroes are written")?;
    buffer.copy_from(0, &[0xA5; PAGE_BYTES]);
    controller.function.unmap_dma(&arena)?;
    for (iova, what) in [(STRAY_IOVA, "was never opened"), (iova, "was closed")] {
        for opcode in [io::WRITE, io::READ] {
            let status = controller.transfer(opcode, iova)?;
            println!("opcode {opcode} with address {iova:#x}, which {what}: {status:?}");
        }
    }
    check(buffer.as_slice() == [0xA5; PAGE_BYTES], "memory that was closed is as it was")?;
    let data_iova = controller.data_iova;
    check(controller.transfer(io::READ, data_iova)?.is_success(), "a block is read")?;
    let block = &controller.data.as_slice()[..512];
    check(!block.contains(&0xA5), "the drive has nothing of it")
}

fn interrupts(function: &dyn PciFunction) -> Anything<()> {
    let event = eventfd(0, EventfdFlags::CLOEXEC)?;
    let last = function.irq_count() - 1;
    function.set_irq(last, Some(event.as_fd()))?;
    function.set_irq(last, None)?;
    let outside = function.set_irq(last + 1, Some(event.as_fd()));
    refused(outside, ErrorKind::Invalid, "all vectors can be set, and no others")
}

struct Controller {
    function: Arc<dyn PciFunction>,
    registers: Arc<Mapping>,
    admin: Pair,
    io: Pair,
    data: Buffer,
    data_iova: u64,
}

struct Pair {
    number: u16,
    submissions: Buffer,
    completions: Buffer,
    iovas: [u64; 2],
    event: OwnedFd,
    at: u16,
    phase: bool,
}

impl Controller {
    fn new(function: Arc<dyn PciFunction>) -> Anything<Self> {
        let arena = Arena::new(PAGE_BYTES, 5, ArenaOptions::ordinary_pages())?;
        let iova = function.map_dma(&arena)?;
        let lease = || {
            let buffer = arena.lease().ok_or("no block")?;
            let iova = iova + u64::from(buffer.block().0) * PAGE_BYTES as u64;
            Ok::<_, &str>((buffer, iova))
        };
        let pair = |number: u16| {
            let ((submissions, first), (completions, second)) = (lease()?, lease()?);
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            function.set_irq(number.into(), Some(event.as_fd()))?;
            let iovas = [first, second];
            Anything::Ok(Pair {
                number,
                submissions,
                completions,
                iovas,
                event,
                at: 0,
                phase: true,
            })
        };
        let (admin, io) = (pair(0)?, pair(1)?);
        let (data, data_iova) = lease()?;
        let registers = map(&*function)?;
        Ok(Self { function, registers, admin, io, data, data_iova })
    }

    fn enable(&mut self) -> Anything<()> {
        self.admin.restart();
        self.io.restart();
        let registers = self.registers.bytes();
        registers.store_u32(reg::CC as usize, 0);
        self.until_ready(false)?;
        let size = u32::from(ENTRIES - 1);
        registers.store_u32(reg::AQA as usize, size | size << 16);
        registers.store_u64(reg::ASQ as usize, self.admin.iovas[0]);
        registers.store_u64(reg::ACQ as usize, self.admin.iovas[1]);
        registers.store_u32(reg::CC as usize, reg::CC_RUN);
        self.until_ready(true)?;
        let [submissions, completions] = self.io.iovas;
        let create_cq = Command::create_cq(1, ENTRIES.into(), completions, Some(1));
        let create_sq = Command::create_sq(1, ENTRIES.into(), submissions);
        for command in [create_cq, create_sq] {
            let status = self.admin.execute(&self.registers, command)?.status;
            check(status.is_success(), "a queue is made")?;
        }
        Ok(())
    }

    fn until_ready(&self, ready: bool) -> Anything<()> {
        let start = Instant::now();
        while (self.registers.bytes().load_u32(reg::CSTS as usize) & reg::CSTS_READY != 0) != ready
        {
            if start.elapsed() > TIMEOUT {
                return Err(format!("{:?} becomes neither ready nor unready", self.function).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn identify(&mut self) -> Anything<(Status, IdentifyController)> {
        self.data.shared().zero(0, PAGE_BYTES);
        let command = Command::identify(cns::CONTROLLER, 0, self.data_iova);
        let completion = self.admin.execute(&self.registers, command)?;
        let mut data = [0; IDENTIFY_BYTES];
        self.data.shared().copy_to(0, &mut data);
        Ok((completion.status, IdentifyController::parse(&data)))
    }

    /// Reads or writes block 0 of namespace 1, with the data at an address.
    fn transfer(&mut self, opcode: u8, iova: u64) -> Anything<Status> {
        let mut command = Command::blocks_of(opcode, 1, 0, 1);
        command.set_prps(iova, 0);
        Ok(self.io.execute(&self.registers, command)?.status)
    }
}

impl Pair {
    fn restart(&mut self) {
        self.completions.shared().zero(0, PAGE_BYTES);
        (self.at, self.phase) = (0, true);
    }

    fn execute(&mut self, registers: &Mapping, mut command: Command) -> Anything<Completion> {
        command.set_cid(self.at);
        let entry = usize::from(self.at) * 64;
        self.submissions.shared().copy_from(entry, &command.encode());
        let next = (self.at + 1) % ENTRIES;
        let doorbell = |is_completion| reg::doorbell(self.number, is_completion, 4) as usize;
        // The entry is written before the doorbell. Pairs with the device's read of the entry after
        // the doorbell.
        fence(Ordering::Release);
        registers.bytes().store_u32(doorbell(false), next.into());
        let completion = wait(&self.event, &mut self.completions, self.at, self.phase)?;
        registers.bytes().store_u32(doorbell(true), next.into());
        self.at = next;
        self.phase ^= next == 0;
        Ok(completion)
    }
}

fn wait(event: &OwnedFd, completions: &mut Buffer, at: u16, phase: bool) -> Anything<Completion> {
    let (at, start) = (usize::from(at) * 16, Instant::now());
    loop {
        let mut fds = [PollFd::new(event, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }))?;
        let came = rustix::io::read(event, &mut [0; 8]).is_ok();
        let entry = completions.shared();
        let last = entry.load_u32(at + Completion::LAST_DWORD);
        if Completion::phase_of(last) == phase {
            return match came {
                true => {
                    Ok(Completion::from_dwords(entry.load_u32(at), entry.load_u32(at + 8), last))
                }
                false => Err("a completion came without an interrupt".into()),
            };
        }
        if start.elapsed() > TIMEOUT {
            return Err("no completion came".into());
        }
    }
}
