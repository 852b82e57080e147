//! A hostile drive: whatever its registers, its identify data and its completions say, the driver
//! neither crashes nor hangs, and every buffer comes back.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qpair_block::{Arena, ArenaOptions, ChannelOptions, Op, Request};
use qpair_nvme::{Controller, ControllerOptions, NvmeAddress};
use qpair_nvme_wire::registers::Capabilities;
use script::{Answer, Script, function, sound};

mod input;

use input::Input;

#[allow(dead_code, reason = "shared with the driver's tests, which use more of it")]
#[path = "../../crates/nvme/tests/nvme/script.rs"]
mod script;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(address) = NvmeAddress::parse(text)
    {
        let again = NvmeAddress::parse(&address.to_string()).expect("reads what it wrote");
        assert_eq!(again, address);
    }
    let mut input = Input::new(data);
    let choice = input.byte();
    let cap = if choice & 1 != 0 { input.word() } else { Capabilities::of(64, 500).0 };
    let bar_bytes = if choice & 2 != 0 { input.word() & 0xF_FFFF } else { 0x4000 };
    let csts = if choice & 4 != 0 { [input.byte().into(), input.byte().into()] } else { [0, 1] };
    let mut commands = 0u32;
    let script = Script::new(move |queue, command| {
        commands += 1;
        let mut answer = sound(queue, command);
        let change = input.byte();
        // Data of the input, laid over what a sound one would say.
        if change & 1 != 0 {
            answer.data.resize(4096, 0);
            for _ in 0..input.byte() % 32 {
                let at = usize::from(input.byte()) | usize::from(input.byte() & 0xF) << 8;
                answer.data[at] = input.byte();
            }
        }
        if change & 0xE == 2 {
            answer.status = input.word() as u16 & 0x7FFF;
        }
        if change & 0xE == 4 {
            answer.result = input.word() as u32;
        }
        if change & 0x70 == 0x10 {
            answer.cid = Some(input.byte().into());
        }
        // Each silence takes a time-out to find out.
        answer.is_silent |= change & 0xF0 == 0xF0 && commands < 64;
        Answer { ..answer }
    });
    let script = Script { cap, bar_bytes, csts, ..script };
    let options = ControllerOptions {
        timeout_ms: 10,
        ready_timeout_ms: Some(1),
        ..ControllerOptions::default()
    };
    let Ok(controller) = Controller::open(function(script), options) else { return };
    let ids: Vec<u32> = controller.namespaces().iter().map(|it| it.nsid).take(4).collect();
    for nsid in ids {
        let Ok(device) = controller.open_namespace(nsid) else { continue };
        let info = qpair_block::BlockDevice::info(&device);
        let block = info.logical_block_bytes;
        assert!(block.is_power_of_two() && (512..=65536).contains(&block));
        let depth = info.depth_max.min(4);
        let arena = Arena::new(128 << 10, 4, ArenaOptions::ordinary_pages()).expect("memory");
        let arenas = if choice & 8 != 0 { Vec::new() } else { vec![arena.clone()] };
        let options = ChannelOptions { depth, arenas, wake: None };
        let Ok(mut channel) = qpair_block::BlockDevice::open_channel(&device, &options) else {
            continue;
        };
        let mut completions = Vec::new();
        for tag in 0..8u64 {
            let request = match arena.lease() {
                Some(buffer) if tag % 2 == 0 => Request::read(0, 128 << 10, buffer, tag),
                Some(buffer) => Request::write(u64::from(block), block, buffer, tag),
                None => Request::write_zeroes(0, block, tag),
            };
            let _ = channel.submit(request);
            channel.poll(&mut completions);
            for completion in completions.drain(..) {
                let moves = matches!(completion.op, Op::Read | Op::Write);
                assert_eq!(completion.buffer.is_some(), moves);
            }
        }
        drop(channel);
        let free: Vec<_> = std::iter::from_fn(|| arena.lease()).collect();
        assert_eq!(free.len(), 4, "every buffer is back");
    }
});
