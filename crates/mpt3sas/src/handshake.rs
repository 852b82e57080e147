//! The handshake through the doorbell, by which a controller without queues gets its first
//! messages.

use std::time::Duration;

use qpair_block::{Error, ErrorKind, Result, time};
use qpair_mpi_wire::ioc_status;
use qpair_mpi_wire::message::{function_of, status_of};
use qpair_mpi_wire::registers::{
    DOORBELL, DOORBELL_HANDSHAKE, DOORBELL_USED, HOST_INTERRUPT_STATUS, STATE_FAULT, STATE_MASK,
    STATUS_BUSY, STATUS_DOORBELL,
};

use crate::registers::Registers;

/// The number of looks at a register without a pause in between.
const LOOKS: u32 = 100;
const NAP: Duration = Duration::from_micros(100);

/// Waits until `is_so` holds for a register.
pub(crate) fn wait_for(
    registers: &Registers,
    offset: u64,
    what: &str,
    timeout: Duration,
    is_so: impl Fn(u32) -> bool,
) -> Result<u32> {
    let start = time::now();
    let mut looks = 0u32;
    loop {
        let value = registers.read(offset)?;
        if is_so(value) {
            return Ok(value);
        }
        let passed = time::now() - start;
        if passed >= timeout {
            let context = format!(
                "{what} took longer than {} ms (register {value:#010x})",
                timeout.as_millis()
            );
            return Err(Error::new(ErrorKind::Io, context));
        }
        looks += 1;
        if looks > LOOKS {
            time::sleep(NAP);
        }
    }
}

/// Sends a request of whole dwords, and returns the reply in the length that it states.
pub(crate) fn handshake(
    registers: &Registers,
    request: &[u8],
    timeout: Duration,
) -> Result<Vec<u8>> {
    let state = registers.read(DOORBELL)?;
    if state & DOORBELL_USED != 0 || state & STATE_MASK == STATE_FAULT {
        let context = format!("a controller in state {state:#010x} cannot take a handshake");
        return Err(Error::new(ErrorKind::Busy, context));
    }
    let dwords = request.len() / 4;
    registers.write(HOST_INTERRUPT_STATUS, 0)?;
    registers.write(DOORBELL, DOORBELL_HANDSHAKE << 24 | (dwords as u32) << 16)?;
    rung(registers, timeout)?;
    registers.write(HOST_INTERRUPT_STATUS, 0)?;
    taken(registers, timeout)?;
    for dword in request.as_chunks::<4>().0 {
        registers.write(DOORBELL, u32::from_le_bytes(*dword))?;
        taken(registers, timeout)?;
    }
    let mut reply = Vec::new();
    // The second half-word contains the length.
    let mut half_words = 2;
    while reply.len() < half_words * 2 {
        rung(registers, timeout)?;
        let data = registers.read(DOORBELL)? as u16;
        reply.extend(data.to_le_bytes());
        registers.write(HOST_INTERRUPT_STATUS, 0)?;
        if reply.len() == 4 {
            half_words = (usize::from(reply[2]) * 2).max(2);
        }
    }
    rung(registers, timeout)?;
    let is_free = |value: u32| value & DOORBELL_USED == 0;
    wait_for(registers, DOORBELL, "the end of a handshake", timeout, is_free)?;
    registers.write(HOST_INTERRUPT_STATUS, 0)?;
    if function_of(&reply) != function_of(request) {
        let context = format!(
            "the handshake asked for function {:#04x}, but {:#04x} answered",
            function_of(request),
            function_of(&reply)
        );
        return Err(Error::new(ErrorKind::Io, context));
    }
    let status = status_of(&reply);
    if status != ioc_status::SUCCESS {
        let context = format!(
            "the handshake of function {:#04x} failed with IOC status {status:#06x}",
            function_of(request)
        );
        return Err(Error::new(ErrorKind::Io, context));
    }
    Ok(reply)
}

fn rung(registers: &Registers, timeout: Duration) -> Result<()> {
    let is_so = |value: u32| value & STATUS_DOORBELL != 0;
    wait_for(registers, HOST_INTERRUPT_STATUS, "the controller's doorbell", timeout, is_so)?;
    Ok(())
}

fn taken(registers: &Registers, timeout: Duration) -> Result<()> {
    let is_so = |value: u32| value & STATUS_BUSY == 0;
    wait_for(registers, HOST_INTERRUPT_STATUS, "taking a dword", timeout, is_so)?;
    Ok(())
}
