//! The bytes of MPI 2.5 and 2.6, the interface of SAS controllers of the SAS3 family: registers,
//! descriptors, messages, configuration pages. The driver and the soft HBA share these definitions;
//! their behaviour is their own.
//!
//! Sources: Linux's public headers `drivers/scsi/mpt3sas/mpi/mpi2.h`, `mpi2_ioc.h`, `mpi2_init.h`,
//! `mpi2_cnfg.h`, `mpi2_sas.h`, by whose names fields are found. All integers are little-endian.
//! Nothing here trusts a value: bytes outside a message read as zero.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

pub mod config;
pub mod descriptor;
pub mod event;
pub mod family;
pub mod init;
pub mod message;
pub mod registers;
pub mod scsi_io;
pub mod sgl;
pub mod slot;
pub mod task;

/// Functions: the kinds of messages.
pub mod function {
    pub const SCSI_IO: u8 = 0x00;
    pub const SCSI_TASK_MGMT: u8 = 0x01;
    pub const IOC_INIT: u8 = 0x02;
    pub const IOC_FACTS: u8 = 0x03;
    pub const CONFIG: u8 = 0x04;
    pub const PORT_FACTS: u8 = 0x05;
    pub const PORT_ENABLE: u8 = 0x06;
    pub const EVENT_NOTIFICATION: u8 = 0x07;
    pub const EVENT_ACK: u8 = 0x08;
    pub const FW_DOWNLOAD: u8 = 0x09;
    pub const FW_UPLOAD: u8 = 0x12;
    pub const SCSI_ENCLOSURE_PROCESSOR: u8 = 0x18;
    pub const SAS_IO_UNIT_CONTROL: u8 = 0x1B;
}

/// IOC status, without the bit that says that log information is there.
pub mod ioc_status {
    pub const SUCCESS: u16 = 0x0000;
    pub const INVALID_FUNCTION: u16 = 0x0001;
    pub const BUSY: u16 = 0x0002;
    pub const INVALID_SGL: u16 = 0x0003;
    pub const INTERNAL_ERROR: u16 = 0x0004;
    pub const INSUFFICIENT_RESOURCES: u16 = 0x0006;
    pub const INVALID_FIELD: u16 = 0x0007;
    pub const INVALID_STATE: u16 = 0x0008;
    pub const CONFIG_INVALID_ACTION: u16 = 0x0020;
    pub const CONFIG_INVALID_PAGE: u16 = 0x0022;
    pub const SCSI_RECOVERED_ERROR: u16 = 0x0040;
    pub const SCSI_INVALID_DEVHANDLE: u16 = 0x0042;
    pub const SCSI_DEVICE_NOT_THERE: u16 = 0x0043;
    pub const SCSI_DATA_OVERRUN: u16 = 0x0044;
    pub const SCSI_DATA_UNDERRUN: u16 = 0x0045;
    pub const SCSI_IO_DATA_ERROR: u16 = 0x0046;
    pub const SCSI_PROTOCOL_ERROR: u16 = 0x0047;
    pub const SCSI_TASK_TERMINATED: u16 = 0x0048;
    pub const SCSI_RESIDUAL_MISMATCH: u16 = 0x0049;
    pub const SCSI_TASK_MGMT_FAILED: u16 = 0x004A;
    pub const SCSI_IOC_TERMINATED: u16 = 0x004B;
    pub const SCSI_EXT_TERMINATED: u16 = 0x004C;
    /// The bits of the status itself.
    pub const MASK: u16 = 0x7FFF;
}
