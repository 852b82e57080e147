//! Hostile hosts of an NVMe/TCP target in the open.

use fastrand::Rng;
use qpair_nvme_tcp::HostPort;
use qpair_nvme_tcp::wire::{DataPdu, Digests, InitReq, Pdu, R2t, put};
use qpair_nvme_wire::command::{admin as opcode, io};
use qpair_nvme_wire::fabrics::{ANY_CONTROLLER, Connect, FABRICS, Sgl, sgl};
use qpair_nvme_wire::{Command, NSID_ALL};

use crate::raw_host::{ATTACKED, Kept, Names, QUIET, RawHost, admin, bytes, moved, queue};

/// The kinds of attacks in the open, beside crowds.
pub(super) const KINDS: usize = 14;
/// The kinds that occupy the blocks for data, which the target keeps.
pub(super) const OCCUPYING: std::ops::Range<usize> = 7..10;

/// Runs one attack in the open.
pub(super) fn attack(address: &HostPort, kind: usize, random: &mut Rng) -> Kept {
    match kind {
        0 => noise(address, random),
        1 => half_pdu(address, random),
        2 => lying_lengths(address, random),
        3 => wrong_digests(address, random),
        4 => wild_admin(address, random),
        5 => wild_io(address, random),
        6 => outside_r2t(address, random),
        7 => half_writes(address, random),
        8 => reads_nothing(address, random),
        9 => too_many_commands(address, random),
        10 => leaves_at_once(address, random),
        11 => bytes_one_by_one(address, random),
        12 => falls_silent(address, random),
        _ => takes_over(address, random),
    }
}

fn names(random: &mut Rng) -> Names {
    // Some attackers have the same identifier, so that they replace one another.
    let host_id = match random.u8(0..4) {
        0 => [9; 16],
        _ => random.u128(..).to_be_bytes(),
    };
    Names { subsystem: ATTACKED.to_owned(), host_id }
}

fn digests(random: &mut Rng) -> Digests {
    Digests::of(random.u8(0..4))
}

pub(super) fn init(random: &mut Rng) -> Vec<u8> {
    let mut output = Vec::new();
    put::init_req(&mut output, &InitReq { digests: digests(random), ..InitReq::default() });
    output
}

/// An admin queue and an I/O queue of a new controller.
fn both(address: &HostPort, random: &mut Rng) -> Result<Option<(RawHost, RawHost)>, String> {
    let (digests, names) = (digests(random), names(random));
    let Some((admin, controller)) = admin(address, digests, &names, 0)? else { return Ok(None) };
    Ok(queue(address, digests, &names, (controller, 1))?.map(|queue| (admin, queue)))
}

fn noise(address: &HostPort, random: &mut Rng) -> Kept {
    let mut host = RawHost::open(address)?;
    if random.bool() {
        let hello = init(random);
        host.send(&hello);
    }
    host.send(&bytes(random, 5000));
    Ok(Vec::new())
}

fn half_pdu(address: &HostPort, random: &mut Rng) -> Kept {
    let mut host = RawHost::open(address)?;
    let mut output = init(random);
    let connect = Connect { queue: 0, last_entry: 31, ..Connect::default() };
    put::command(&mut output, Digests::default(), &connect.command(), 1024);
    output.extend(names(random).data(ANY_CONTROLLER).encode());
    output.truncate(random.usize(1..output.len()));
    host.send(&output);
    Ok(vec![host])
}

/// Sends headers whose lengths and offsets are not those of the PDU.
fn lying_lengths(address: &HostPort, random: &mut Rng) -> Kept {
    let (admin, mut host) = match random.bool() {
        true => (None, RawHost::open(address)?),
        false => match both(address, random)? {
            Some((admin, queue)) => (Some(admin), queue),
            None => return Ok(Vec::new()),
        },
    };
    let mut output = if random.bool() { init(random) } else { Vec::new() };
    let start = output.len();
    let command = moved(Command::blocks_of(io::WRITE, 1, 0, 8), 4096);
    match random.u8(0..3) {
        0 => put::command(&mut output, host.digests, &command, 4096),
        1 => put::h2c_data(&mut output, host.digests, &DataPdu { len: 64, ..DataPdu::default() }),
        _ => output.extend(init(random)),
    }
    let value = [0, 1, 24, 72, 128, 255, random.u8(..)][random.usize(0..7)];
    match random.u8(0..4) {
        0 => output[start + random.usize(0..4)] = value,
        _ => {
            let len = [0, 7, 24, 153, 1 << 20, u32::MAX, random.u32(..)][random.usize(0..7)];
            output[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
        }
    }
    output.extend(bytes(random, 20_000));
    host.send(&output);
    Ok(admin.into_iter().chain([host]).collect())
}

fn wrong_digests(address: &HostPort, random: &mut Rng) -> Kept {
    let names = names(random);
    let both = Digests { header: true, data: true };
    let Some((admin, controller)) = admin(address, both, &names, 0)? else {
        return Ok(Vec::new());
    };
    let Some(mut host) = queue(address, both, &names, (controller, 1))? else {
        return Ok(Vec::new());
    };
    let mut command = Command::blocks_of(io::WRITE, 1, 0, 8);
    command.set_sgl(Sgl { address: 0, len_bytes: 4096, kind: sgl::IN_CAPSULE });
    let mut output = Vec::new();
    put::command(&mut output, both, &command, 4096);
    host.put_data(&mut output, &[3; 4096]);
    let is_of_header = random.bool();
    let at = if is_of_header { random.usize(8..76) } else { random.usize(80..output.len()) };
    output[at] ^= 1 << random.u8(0..8);
    host.send(&output);
    let is_right = match host.next() {
        Some(Pdu::Response(it, _)) => !is_of_header && !it.status.is_success(),
        Some(Pdu::Term(_)) | None => true,
        Some(_) => false,
    };
    if !is_right {
        return Err("the target took a command with a wrong digest".to_owned());
    }
    Ok(vec![admin, host])
}

fn wild_command(random: &mut Rng, opcodes: &[u8]) -> (Command, Vec<u8>) {
    let mut command = Command::default();
    command.0.fill_with(|| if random.bool() { random.u32(0..8) } else { random.u32(..) });
    let opcode = [opcodes[random.usize(0..opcodes.len())], random.u8(..)][random.usize(0..2)];
    command.0[0] = u32::from(opcode) | random.u32(..) << 16;
    command.0[1] = [0, 1, 2, NSID_ALL, random.u32(..)][random.usize(0..5)];
    let len_bytes = [0, 16, 512, 4096, 8192, 1 << 18, random.u32(..)][random.usize(0..7)];
    let kinds = [sgl::TRANSPORT, sgl::IN_CAPSULE, random.u8(..)];
    let kind = kinds[random.usize(0..3)];
    command.set_sgl(Sgl { address: if random.u8(..) < 16 { 1 } else { 0 }, len_bytes, kind });
    let has_data = kind == sgl::IN_CAPSULE && len_bytes <= 16 << 10 || random.u8(..) < 8;
    let data = if has_data { vec![5; len_bytes.min(16 << 10) as usize] } else { Vec::new() };
    (command, data)
}

fn wild_admin(address: &HostPort, random: &mut Rng) -> Kept {
    let (digests, names) = (digests(random), names(random));
    let Some((mut host, _)) = admin(address, digests, &names, 0)? else { return Ok(Vec::new()) };
    const OPCODES: [u8; 9] = [
        FABRICS,
        FABRICS,
        opcode::IDENTIFY,
        opcode::GET_LOG_PAGE,
        opcode::SET_FEATURES,
        opcode::GET_FEATURES,
        opcode::ASYNC_EVENT_REQUEST,
        opcode::ABORT,
        0x18,
    ];
    for _ in 0..random.usize(1..300) {
        let (mut command, mut data) = wild_command(random, &OPCODES);
        if random.u8(..) < 200 {
            data.truncate(8192);
        }
        if command.opcode() == opcode::GET_LOG_PAGE {
            command.0[10] = [2, 4, 5, 0xC, 0x70, random.u32(..)][random.usize(0..6)];
            command.0[10] |= random.u32(0..2048) << 16;
        }
        if host.command(&command, &data).is_none() {
            break;
        }
        if random.bool() && host.next().is_none() {
            break;
        }
    }
    Ok(vec![host])
}

fn wild_io(address: &HostPort, random: &mut Rng) -> Kept {
    let Some((admin, mut host)) = both(address, random)? else { return Ok(Vec::new()) };
    const OPCODES: [u8; 7] = [
        io::FLUSH,
        io::READ,
        io::WRITE,
        io::WRITE_ZEROES,
        io::DATASET_MANAGEMENT,
        io::COMPARE,
        FABRICS,
    ];
    for _ in 0..random.usize(1..120) {
        let (mut command, data) = wild_command(random, &OPCODES);
        if random.bool() {
            command.0[10] = random.u32(0..1 << 12);
            command.0[11] = 0;
            command.0[12] = (command.0[8] / 512).saturating_sub(1) & 0xFFFF;
        }
        if host.command(&command, &data).is_none() || random.bool() && host.next().is_none() {
            break;
        }
    }
    Ok(vec![admin, host])
}

/// Asks to write by R2T, and returns the target's request for data.
fn granted(host: &mut RawHost, cid: u16, len: u32) -> Option<R2t> {
    let mut command = moved(Command::blocks_of(io::WRITE, 1, 0, len / 512), len);
    command.set_cid(cid);
    host.command(&command, &[])?;
    match host.next()? {
        Pdu::R2t(r2t) => Some(r2t),
        _ => None,
    }
}

/// Sends data that R2T has not asked for.
fn outside_r2t(address: &HostPort, random: &mut Rng) -> Kept {
    let Some((admin, mut host)) = both(address, random)? else { return Ok(Vec::new()) };
    let len = 64 << 10;
    let Some(R2t { cid, tag, .. }) = granted(&mut host, 7, len) else { return Ok(Vec::new()) };
    let right = DataPdu { cid, tag, offset: 0, len: 4096, is_last: false, is_success: false };
    let wrong = match random.u8(0..8) {
        0 => {
            DataPdu { tag: [0, 1, u16::MAX][random.usize(0..3)].max(tag.wrapping_add(1)), ..right }
        }
        1 => DataPdu { cid: cid ^ 1, ..right },
        2 => DataPdu { offset: 4096, ..right },
        3 => DataPdu { offset: u32::MAX - 4095, ..right },
        4 => DataPdu { len: len + 512, ..right },
        5 => DataPdu { offset: len, ..right },
        6 => DataPdu { cid: random.u16(..) | 8, tag: random.u16(..) | 8, ..right },
        _ => DataPdu { offset: u32::MAX, len: 1, ..right },
    };
    let mut output = Vec::new();
    put::h2c_data(&mut output, host.digests, &wrong);
    host.put_data(&mut output, &vec![6; wrong.len as usize]);
    host.send(&output);
    loop {
        match host.next() {
            Some(Pdu::Term(_)) | None => return Ok(vec![admin]),
            Some(Pdu::Response(it, _)) if it.status.is_success() => {
                return Err(format!("the target took data outside an R2T: {wrong:?}"));
            }
            Some(_) => {}
        }
    }
}

/// Begins writes, and sends a part of their data.
fn half_writes(address: &HostPort, random: &mut Rng) -> Kept {
    let Some((admin, mut host)) = both(address, random)? else { return Ok(Vec::new()) };
    let len = [4096, 64 << 10, 256 << 10][random.usize(0..3)];
    for number in 0..random.u16(1..100) {
        let Some(R2t { cid, tag, .. }) = granted(&mut host, number, len) else { break };
        if random.bool() {
            let half = DataPdu { cid, tag, len: 512, ..DataPdu::default() };
            let mut output = Vec::new();
            put::h2c_data(&mut output, host.digests, &half);
            host.put_data(&mut output, &[8; 512]);
            if random.u8(..) < 30 {
                output.truncate(random.usize(1..output.len()));
            }
            host.send(&output);
        }
    }
    Ok(vec![admin, host])
}

fn reads_nothing(address: &HostPort, random: &mut Rng) -> Kept {
    let Some((admin, mut host)) = both(address, random)? else { return Ok(Vec::new()) };
    let blocks = [8, 128, 512][random.usize(0..3)];
    for cid in 0..127 {
        let mut command = moved(Command::blocks_of(io::READ, 1, 0, blocks), blocks * 512);
        command.set_cid(cid);
        if host.command(&command, &[]).is_none() {
            break;
        }
    }
    Ok(vec![admin, host])
}

/// Sends more commands than a queue has entries, as fast as possible.
fn too_many_commands(address: &HostPort, random: &mut Rng) -> Kept {
    let Some((mut admin, mut host)) = both(address, random)? else { return Ok(Vec::new()) };
    let mut output = Vec::new();
    for cid in 0..1000 {
        let mut command = moved(Command::blocks_of(io::WRITE, 1, 0, 512), 256 << 10);
        command.set_cid(cid);
        put::command(&mut output, host.digests, &command, 0);
    }
    host.send(&output);
    // Requests for events are never answered, and Identify has long answers that nobody reads.
    output.clear();
    for _ in 0..3000 {
        let command = match random.bool() {
            true => moved(Command::new(opcode::ASYNC_EVENT_REQUEST, 0), 0),
            false => moved(Command::identify(1, 0, 0), 4096),
        };
        put::command(&mut output, admin.digests, &command, 0);
    }
    admin.send(&output);
    Ok(vec![admin, host])
}

fn leaves_at_once(address: &HostPort, random: &mut Rng) -> Kept {
    let Some((admin, mut host)) = both(address, random)? else { return Ok(Vec::new()) };
    for cid in 0..random.u16(1..100) {
        let kind = if random.bool() { io::READ } else { io::WRITE };
        let mut command = moved(Command::blocks_of(kind, 1, 0, 128), 64 << 10);
        command.set_cid(cid);
        host.command(&command, &[]);
    }
    // The queue outlives its controller for a moment, or the controller its queue.
    if random.bool() {
        drop(admin);
        return Ok(vec![host]);
    }
    drop(host);
    Ok(vec![admin])
}

fn bytes_one_by_one(address: &HostPort, random: &mut Rng) -> Kept {
    let mut host = RawHost::open(address)?;
    let mut output = init(random);
    let connect = Connect { queue: 0, last_entry: 31, ..Connect::default() };
    put::command(&mut output, Digests::default(), &connect.command(), 1024);
    for byte in output {
        if host.send(&[byte]).is_none() {
            break;
        }
        std::thread::yield_now();
    }
    Ok(vec![host])
}

/// Says nothing for longer than the keep alive time-out.
fn falls_silent(address: &HostPort, random: &mut Rng) -> Kept {
    let (digests, names) = (digests(random), names(random));
    let Some((admin, controller)) = admin(address, digests, &names, 20)? else {
        return Ok(Vec::new());
    };
    let Some(mut host) = queue(address, digests, &names, (controller, 1))? else {
        return Ok(vec![admin]);
    };
    let _ = granted(&mut host, 1, 64 << 10);
    Ok(vec![admin, host])
}

/// Tries to take the queues of controllers that belong to another host.
fn takes_over(address: &HostPort, random: &mut Rng) -> Kept {
    let names = Names { subsystem: QUIET.to_owned(), ..names(random) };
    for _ in 0..8 {
        let (controller, number) = (random.u16(0..600), random.u16(1..3));
        if queue(address, digests(random), &names, (controller, number))?.is_some() {
            return Err("a hostile host took a queue of another host's controller".to_owned());
        }
    }
    Ok(Vec::new())
}
