//! Namespaces of the soft controller pass the conformance suite of block devices.

use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_conformance::{Options, Report, run};
use qpair_nvme::{Controller, ControllerOptions, WaitMode};
use qpair_pci::InProcess;
use qpair_softdev::{Doorbells, NamespaceOptions, SoftNvme, SoftNvmeOptions};

fn soft(block: u32, cache: bool) -> SoftNvmeOptions {
    let namespace = NamespaceOptions {
        size_bytes: 8 << 20,
        logical_block_bytes: block,
        ..NamespaceOptions::default()
    };
    SoftNvmeOptions {
        namespaces: vec![namespace],
        volatile_write_cache: cache,
        ..SoftNvmeOptions::default()
    }
}

fn open(soft: &SoftNvmeOptions, options: &ControllerOptions) -> Arc<dyn BlockDevice> {
    let function = InProcess::new("softnvme", SoftNvme::new(soft.clone()).unwrap());
    let controller = Controller::open(Arc::new(function), options.clone()).unwrap();
    Arc::new(controller.open_default_namespace(None).unwrap())
}

fn pass(soft: &SoftNvmeOptions, options: &ControllerOptions) {
    let report = run(|| open(soft, options), Options::default());
    println!("{report}");
    report.assert_passed();
    assert_eq!(skipped(&report), ["grow", "read_only_refuses_writes", "reset"], "{report}");
}

fn skipped(report: &Report) -> Vec<&str> {
    report.skipped().map(|(name, _)| name).collect()
}

fn waiting(wait: WaitMode) -> ControllerOptions {
    ControllerOptions { wait, ..ControllerOptions::default() }
}

#[test]
fn polled() {
    for block in [512, 4096] {
        pass(&soft(block, false), &waiting(WaitMode::Poll));
    }
}

/// The suite has no buffers that hold two blocks of this size.
#[test]
fn the_largest_blocks() {
    let report = run(|| open(&soft(65536, true), &waiting(WaitMode::Poll)), Options::default());
    println!("{report}");
    report.assert_passed();
    assert!(report.passed().any(|name| name == "read_back_random"));
}

#[test]
fn with_a_volatile_write_cache() {
    pass(&soft(512, true), &waiting(WaitMode::Poll));
}

#[test]
fn asleep() {
    for block in [512, 4096] {
        pass(&soft(block, true), &waiting(WaitMode::Sleep));
    }
}

#[test]
fn doorbells_that_trap() {
    let soft = SoftNvmeOptions { doorbells: Doorbells::Trapped, ..soft(4096, false) };
    pass(&soft, &waiting(WaitMode::Poll));
}

/// Most requests of a busy queue write no doorbell register: the controller finds their doorbells
/// in the driver's memory.
#[test]
fn doorbells_in_memory() {
    for queue_entries_max in [18, 1024] {
        let soft = SoftNvmeOptions {
            doorbells: Doorbells::Shadow,
            queue_entries_max,
            ..soft(4096, false)
        };
        let device = open(&soft, &waiting(WaitMode::Poll));
        assert!(device.info().mode.contains("shadow doorbells"), "{}", device.info().mode);
        for wait in [WaitMode::Poll, WaitMode::Sleep] {
            pass(&soft, &waiting(wait));
        }
    }
}

/// Commands of at most 8 KiB and queues of three entries: nearly every request takes several
/// commands, with few spare slots.
#[test]
fn small_commands_and_queues() {
    let soft = SoftNvmeOptions { mdts: 1, queue_entries_max: 18, ..soft(512, false) };
    pass(&soft, &waiting(WaitMode::Poll));
}
