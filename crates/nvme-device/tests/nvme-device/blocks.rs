//! A minimal backend with blocks in memory, which are read, written and flushed at once.

use std::sync::{Arc, Mutex};

use qpair_nvme_device::{
    Backend, ControllerOptions, Direction, Doorbells, Io, Names, NamespaceInfo, NvmeController,
    Stop, Ticket,
};
use qpair_nvme_wire::command::io;
use qpair_nvme_wire::{Command, Status};

use crate::host;

pub(crate) type Device = NvmeController<Blocks>;
pub(crate) type Host = host::Host<Device>;

#[derive(Debug)]
pub(crate) struct Blocks(Vec<(NamespaceInfo, Mutex<Vec<u8>>)>);

impl Backend for Blocks {
    type Queue = ();

    const COMPARES: bool = true;

    fn namespaces(&self) -> Vec<NamespaceInfo> {
        self.0.iter().map(|(info, _)| *info).collect()
    }

    fn take(&self, commands: &[Command], io: &mut Io<'_, ()>) -> Result<(), Stop> {
        for command in commands {
            let done = self.execute(command, io);
            io.end(command.cid(), done.err().unwrap_or(Status::SUCCESS))?;
        }
        Ok(())
    }

    fn flush(&self, _ticket: Ticket) -> Option<Status> {
        Some(Status::SUCCESS)
    }
}

impl Blocks {
    fn execute(&self, command: &Command, io: &mut Io<'_, ()>) -> Result<(), Status> {
        let found = self.0.iter().find(|(info, _)| info.nsid == command.nsid());
        let (info, bytes) = found.ok_or(Status::INVALID_NAMESPACE)?;
        let direction = match command.opcode() {
            io::READ => Direction::ToDriver,
            io::WRITE => Direction::FromDriver,
            io::FLUSH => return Ok(()),
            _ => return Err(Status::INVALID_OPCODE),
        };
        let (at, len) = info.range(command.first_block(), command.blocks())?;
        io.transfer(command, len, direction)?;
        let bytes = &mut bytes.lock().unwrap()[at as usize..][..len as usize];
        match direction {
            Direction::ToDriver => io.state.memory.span().copy_from(bytes),
            Direction::FromDriver => io.state.memory.span().copy_to(bytes),
        }
        Ok(())
    }
}

pub(crate) fn options() -> ControllerOptions {
    ControllerOptions {
        queues_max: 32,
        queue_entries_max: 1024,
        mdts: 5,
        doorbells: Doorbells::Mapped,
        volatile_write_cache: false,
        serial: "SERIAL".into(),
        model: "a model".into(),
        subsystem: "nqn.2026-11.invalid.example:x".into(),
        controller_id: 0,
        namespaces_max: 1,
        is_shared: false,
    }
}

/// Creates a controller with namespaces of these sizes and logical blocks, in bytes.
pub(crate) fn device(mut options: ControllerOptions, sizes: &[(u64, u32)]) -> Arc<Device> {
    options.namespaces_max = sizes.len() as u32;
    let namespace = |(nsid, (size_bytes, block)): (u32, &(u64, u32))| {
        let info = NamespaceInfo {
            nsid,
            blocks: size_bytes / u64::from(*block),
            logical_block_bytes: *block,
            read_only: false,
            deallocates: true,
            names: Names { eui64: [nsid as u8; 8], nguid: [nsid as u8; 16], uuid: [0; 16] },
        };
        (info, Mutex::new(vec![0; *size_bytes as usize]))
    };
    let blocks = Blocks((1..).zip(sizes).map(namespace).collect());
    Arc::new(NvmeController::new(options, blocks).unwrap())
}

/// Returns the driver of a controller with one namespace of 1 MiB.
pub(crate) fn small(options: ControllerOptions) -> Host {
    Host::of(device(options, &[(1 << 20, 512)]))
}
