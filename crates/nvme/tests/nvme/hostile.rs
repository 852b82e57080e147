//! Lying controllers: impossible values are refused with a reason, and merely odd ones are
//! accepted.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use qpair_block::{Arena, ArenaOptions, BlockDevice, ChannelOptions, ErrorKind, IoError, Request};
use qpair_nvme::{Controller, ControllerOptions};
use qpair_nvme_wire::command::{admin, cns};
use qpair_nvme_wire::registers::Capabilities;
use qpair_nvme_wire::{Command, IdentifyController, IdentifyNamespace, LbaFormat};

use qpair_pci::TimeoutPolicy;

use crate::script::{Answer, Script, function, sound, sound_namespace};

fn options() -> ControllerOptions {
    ControllerOptions { timeout_ms: 20, ready_timeout_ms: Some(20), ..Default::default() }
}

fn open(script: Script) -> qpair_block::Result<Arc<Controller>> {
    Controller::open(function(script), options())
}

fn sound_script() -> Script {
    Script::new(sound)
}

/// Opens a controller that is sound except for its namespace and its Identify data.
fn with(controller: IdentifyController, namespace: IdentifyNamespace) -> Arc<Controller> {
    let script = Script::new(move |queue, command| {
        let mut answer = sound(queue, command);
        match (command.opcode(), command.cdw(10) as u8) {
            (admin::IDENTIFY, cns::CONTROLLER) => answer.data = controller.encode().to_vec(),
            (admin::IDENTIFY, cns::NAMESPACE) => answer.data = namespace.encode().to_vec(),
            _ => {}
        }
        answer
    });
    open(script).unwrap()
}

fn with_namespace(namespace: IdentifyNamespace) -> Arc<Controller> {
    with(IdentifyController { mdts: 5, namespaces: 1, ..Default::default() }, namespace)
}

#[test]
fn a_sound_one_is_driven() {
    let device = open(sound_script()).unwrap().open_default_namespace(None).unwrap();
    assert_eq!((device.size_bytes(), device.info().logical_block_bytes), (4096 * 512, 512));
    assert!(device.info().mode.contains("trapped"), "{}", device.info().mode);
}

#[test]
fn functions_that_cannot_be_driven() {
    let cases: [(Script, ErrorKind, &str); 9] = [
        (
            Script { class: 0x02_00_00, ..sound_script() },
            ErrorKind::Invalid,
            "not an NVMe controller",
        ),
        (Script { bar_bytes: 0x1000, ..sound_script() }, ErrorKind::Unsupported, "too few"),
        (Script { bar_bytes: 0x100F, ..sound_script() }, ErrorKind::Unsupported, "too few"),
        (Script { cap: u64::MAX, ..sound_script() }, ErrorKind::Gone, "gone"),
        (Script { cap: 255, ..sound_script() }, ErrorKind::Unsupported, "command set"),
        (
            Script { cap: Capabilities::of(256, 500).0 | 1 << 48, ..sound_script() },
            ErrorKind::Unsupported,
            "8192 bytes",
        ),
        (Script { cap: 1 << 37, ..sound_script() }, ErrorKind::Unsupported, "one entry"),
        (Script { csts: [0, 0], ..sound_script() }, ErrorKind::Io, "ready"),
        (Script { csts: [0, 2], ..sound_script() }, ErrorKind::Io, "fatal"),
    ];
    for (script, kind, words) in cases {
        let error = open(script).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(
        open(Script { csts: [u32::MAX; 2], ..sound_script() }).unwrap_err().kind(),
        ErrorKind::Gone
    );
    // The controller does not stop when it should until its function is reset, and reports that the
    // reset works.
    open(Script { csts: [1, 1], ..sound_script() }).unwrap();
}

#[test]
fn namespaces_that_cannot_be_used() {
    let format = |metadata_bytes, data_shift| vec![LbaFormat { metadata_bytes, data_shift }];
    let sound = sound_namespace;
    let cases = [
        (IdentifyNamespace { formats: format(0, 0), ..sound() }, "2^0"),
        (IdentifyNamespace { formats: format(0, 8), ..sound() }, "2^8"),
        (IdentifyNamespace { formats: format(0, 17), ..sound() }, "2^17"),
        (IdentifyNamespace { formats: format(0, 255), ..sound() }, "2^255"),
        (IdentifyNamespace { formats: format(8, 9), ..sound() }, "8 bytes of metadata"),
        (IdentifyNamespace { protection: 1, ..sound() }, "protection of type 1"),
        (IdentifyNamespace { format: 5, ..sound() }, "names format 5"),
        (IdentifyNamespace { size_blocks: 0, ..sound() }, "no blocks"),
        (IdentifyNamespace { size_blocks: u64::MAX, ..sound() }, "more than can be addressed"),
    ];
    for (namespace, words) in cases {
        let controller = with_namespace(namespace);
        assert_eq!(controller.namespaces().len(), 1);
        let error = controller.open_default_namespace(None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.way_out().is_some());
    }
    let inactive = IdentifyNamespace { size_blocks: 0, capacity_blocks: 0, ..sound() };
    let error = with_namespace(inactive).open_default_namespace(Some(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn absurd_limits() {
    for mdts in [0, 20, 31, 255] {
        let identify = IdentifyController { mdts, namespaces: 1, ..Default::default() };
        assert_eq!(with(identify, sound_namespace()).info().command_bytes_max, 2 << 20);
    }
    // Blocks that do not fit one command.
    let formats = vec![LbaFormat { metadata_bytes: 0, data_shift: 16 }];
    let identify = IdentifyController { mdts: 1, namespaces: 1, ..Default::default() };
    let controller = with(identify, IdentifyNamespace { formats, ..sound_namespace() });
    assert!(controller.open_namespace(1).unwrap_err().to_string().contains("8192"));
}

#[test]
fn as_many_queues_as_it_grants() {
    let script = Script::new(|queue, command| {
        let answer = sound(queue, command);
        // Counts are 0-based: one submission queue, many completion queues.
        Answer { result: 0xFFFF_0000, ..answer }
    });
    let controller = open(script).unwrap();
    assert_eq!(controller.info().queues, 1);
    let device = controller.open_namespace(1).unwrap();
    let options = ChannelOptions { depth: 4, ..ChannelOptions::default() };
    let first = device.open_channel(&options).unwrap();
    let error = device.open_channel(&options).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Limit);
    assert!(error.to_string().contains("grants 1"), "{error}");
    drop(first);
    device.open_channel(&options).unwrap();
    // No more queues than have their doorbells in the BAR, including the admin queue.
    for (bar_bytes, queues) in [(0x1010, 1), (0x1017, 1), (0x1018, 2), (0x4000, 4)] {
        let controller = open(Script { bar_bytes, ..sound_script() }).unwrap();
        assert_eq!(controller.info().queues, queues);
    }
}

fn refusing(opcode: u8, cns: u8) -> Script {
    Script::new(move |queue, command: &Command| {
        let is_it = queue == 0
            && command.opcode() == opcode
            && (opcode != admin::IDENTIFY || command.cdw(10) as u8 == cns);
        match is_it {
            true => Answer { status: 0x4002, ..Answer::default() },
            false => sound(queue, command),
        }
    })
}

#[test]
fn commands_that_are_refused() {
    for script in [refusing(admin::SET_FEATURES, 0), refusing(admin::IDENTIFY, cns::CONTROLLER)] {
        assert_eq!(open(script).unwrap_err().kind(), ErrorKind::Io);
    }
    // A controller of version 1.0 has no list of namespaces.
    let old = open(refusing(admin::IDENTIFY, cns::ACTIVE_NAMESPACES)).unwrap();
    assert_eq!(old.namespaces().len(), 1);
    // A namespace without Identify data.
    let mute = open(refusing(admin::IDENTIFY, cns::NAMESPACE)).unwrap();
    assert!(mute.namespaces().is_empty());
    for opcode in [admin::CREATE_CQ, admin::CREATE_SQ] {
        let device = open(refusing(opcode, 0)).unwrap().open_namespace(1).unwrap();
        let error = device.open_channel(&ChannelOptions::default()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    }
    // A queue that cannot be deleted leads to a reset, and not to a hang.
    for opcode in [admin::DELETE_SQ, admin::DELETE_CQ] {
        let controller = open(refusing(opcode, 0)).unwrap();
        let device = controller.open_namespace(1).unwrap();
        drop(device.open_channel(&ChannelOptions::default()).unwrap());
        assert_eq!(controller.resets(), 1);
    }
}

#[test]
fn lists_of_namespaces_that_are_none() {
    for ids in [vec![3u32, 2, 1], vec![1, 1, 1], (1..=1024).collect(), vec![u32::MAX; 1024]] {
        let script = Script::new(move |queue, command| {
            let mut answer = sound(queue, command);
            if command.opcode() == admin::IDENTIFY
                && command.cdw(10) as u8 == cns::ACTIVE_NAMESPACES
            {
                // The same answer to every request.
                answer.data = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            }
            answer
        });
        let controller = open(script).unwrap();
        let found: Vec<u32> = controller.namespaces().iter().map(|it| it.nsid).collect();
        assert!(found.is_sorted_by(|a, b| a < b) && found.len() <= 1024, "{found:?}");
        if found.len() > 1 {
            let error = controller.open_default_namespace(None).unwrap_err();
            assert!(error.way_out().unwrap().contains("/ns1, /ns2"), "{error}");
        }
    }
}

#[test]
fn strange_completions() {
    let mut count = 0u16;
    let script = Script::new(move |queue, command| {
        let answer = sound(queue, command);
        count = count.wrapping_add(1);
        match (queue, count % 3) {
            (0, _) | (_, 0) => answer,
            (_, 1) => Answer { cid: Some(count.wrapping_mul(0x1357)), ..answer },
            _ => Answer { status: 0x7FFF, ..answer },
        }
    });
    let controller = open(script).unwrap();
    let device = controller.open_namespace(1).unwrap();
    let arena = Arena::new(4096, 8, ArenaOptions::ordinary_pages()).unwrap();
    let options = ChannelOptions { depth: 8, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&options).unwrap();
    let mut completions = Vec::new();
    for tag in 0..64u64 {
        if let Some(buffer) = arena.lease() {
            channel.submit(Request::read(tag * 4096, 4096, buffer, tag)).unwrap();
        }
        channel.poll(&mut completions);
        completions.clear();
    }
    drop(channel);
    assert_eq!(std::iter::from_fn(|| arena.lease()).collect::<Vec<_>>().len(), 8);
    drop(controller);
}

#[test]
fn a_controller_that_falls_silent() {
    let mut is_open = false;
    let script = Script::new(move |queue, command| {
        is_open |= queue > 0;
        match is_open {
            true => Answer { is_silent: true, ..Answer::default() },
            false => sound(queue, command),
        }
    });
    let controller = open(script).unwrap();
    let device = controller.open_namespace(1).unwrap();
    let arena = Arena::new(4096, 4, ArenaOptions::ordinary_pages()).unwrap();
    let options = ChannelOptions { depth: 4, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&options).unwrap();
    for tag in 0..4 {
        channel.submit(Request::read(0, 4096, arena.lease().unwrap(), tag)).unwrap();
    }
    let mut completions = Vec::new();
    while channel.in_flight() > 0 {
        channel.poll(&mut completions);
    }
    assert_eq!(completions.len(), 4);
    assert!(completions.iter().all(|it| it.result.is_err() && it.buffer.is_some()));
    // The controller never comes back: new requests also get that error.
    let buffer = completions.pop().unwrap().buffer.unwrap();
    channel.submit(Request::read(0, 4096, buffer, 10)).unwrap();
    completions.clear();
    while channel.in_flight() > 0 {
        channel.poll(&mut completions);
    }
    assert_eq!((completions[0].tag, completions[0].result), (10, Err(IoError::GONE)));
    assert!(completions[0].buffer.is_some());
}

#[test]
fn the_timeout_policy_ends_the_wait() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let timeout_policy = TimeoutPolicy::new({
        let asked = asked.clone();
        move |waiting| {
            asked.lock().unwrap().push(format!("{} {}", waiting.name, waiting.to));
            ControlFlow::Break(())
        }
    });
    // Without the timeout policy the test would take hours.
    let options = ControllerOptions {
        timeout_ms: ControllerOptions::TIMEOUT_MS_MAX,
        ready_timeout_ms: Some(10_000_000),
        timeout_policy,
        ..Default::default()
    };
    let silent = |opcode: u8| {
        Script::new(move |queue, command| {
            let is_silent = command.opcode() == opcode;
            Answer { is_silent, ..sound(queue, command) }
        })
    };
    for (script, says) in [
        (Script { csts: [0, 0], ..sound_script() }, "to become ready"),
        (silent(admin::IDENTIFY), "to answer"),
    ] {
        let error = Controller::open(function(script), options.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert!(asked.lock().unwrap().last().unwrap().ends_with(says));
    }
    // With commands under way.
    let script = Script::new(|queue, command| {
        let is_silent = queue > 0;
        Answer { is_silent, ..sound(queue, command) }
    });
    let device = Controller::open(function(script), options.clone());
    let device = device.unwrap().open_default_namespace(None).unwrap();
    let arena = Arena::new(4096, 1, ArenaOptions::ordinary_pages()).unwrap();
    let channel = ChannelOptions { depth: 1, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&channel).unwrap();
    channel.submit(Request::read(0, 4096, arena.lease().unwrap(), 1)).unwrap();
    channel.kick();
    let mut done = Vec::new();
    while done.is_empty() {
        channel.poll(&mut done);
    }
    assert_eq!(done[0].result, Err(IoError::GONE));
}
