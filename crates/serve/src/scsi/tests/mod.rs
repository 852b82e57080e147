//! The queues of a SCSI host, with a handwritten driver.

mod commands;
mod gate;
mod host;
mod rings;
mod targets;
mod tasks;
mod units;

use std::sync::Arc;

use qpair_block::{
    BlockDevice, DeviceInfo, FaultDevice, FaultOptions, IoError, Mapping, RamDevice, RamOptions,
};
use qpair_scsi_wire::capacity::Capacity;
use qpair_scsi_wire::command::{Range, opcode};
use qpair_scsi_wire::inquiry::Inquiry;
use qpair_scsi_wire::luns::{self, Lun};
use qpair_scsi_wire::mode;
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_scsi_wire::vpd::{self, BlockLimits, Provisioning};
use qpair_scsi_wire::{Command as Scsi, Width, unmap};
use qpair_virtio::ring::{NEXT, WRITE};
use qpair_virtio::scsi::{
    CDB_BYTES, Command, Event, KIND_QUERY_EVENTS, RESPONSE_BYTES, Task, address, event, response,
    task,
};

use gate::Gate;
use host::*;

use crate::device::Device;
use crate::disk::Disk;
use crate::queue::rig::{MEMORY_BYTES, Narrow, SIZE, ram};
use crate::queue::{Inflight, RingOptions, inflight_bytes};
use crate::unit::Unit;
