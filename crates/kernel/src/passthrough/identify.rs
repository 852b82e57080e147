//! The fields of a drive's Identify data structures that matter here.
//!
//! Clause numbers are of the NVM Express Base Specification 2.0 and the NVM Command Set
//! Specification 1.0.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use qpair_nvme_wire::command::{admin, cns};
use qpair_nvme_wire::{IDENTIFY_BYTES, IdentifyController, IdentifyNamespace};

/// The unit of MDTS in bytes. The exact unit is the controller's smallest page (CAP.MPSMIN), which
/// is only in its registers: 4 KiB or more.
const MDTS_UNIT_BYTES: u64 = 4096;
/// An MDTS that exceeds any transfer: larger values are not a limit.
const MDTS_SHIFT_MAX: u32 = 31;

/// `struct nvme_passthru_cmd`, linux/nvme_ioctl.h.
#[repr(C)]
#[derive(Default)]
struct AdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<AdminCommand>() == 72);

/// `_IO('N', 0x40)` and `_IOWR('N', 0x41, struct nvme_passthru_cmd)`, linux/nvme_ioctl.h.
const NVME_IOCTL_ID: libc::Ioctl = (0x4E << 8 | 0x40) as libc::Ioctl;
const NVME_IOCTL_ADMIN_CMD: libc::Ioctl =
    (3 << 30 | (size_of::<AdminCommand>() as u64) << 16 | 0x4E << 8 | 0x41) as libc::Ioctl;

/// The Identify data of a controller (Base §5.17.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Controller {
    pub(super) serial: String,
    pub(super) model: String,
    pub(super) firmware: String,
    /// The maximum number of bytes that one command may move; `None`: no limit (MDTS).
    pub(super) transfer_bytes_max: Option<u64>,
    /// Whether the controller supports Dataset Management. The next field says the same about Write
    /// Zeroes (ONCS).
    pub(super) has_dataset_management: bool,
    pub(super) has_write_zeroes: bool,
    /// Whether completed writes may stay in memory that loses them with power (VWC).
    pub(super) volatile_write_cache: bool,
    /// The number of blocks that are written atomically across a power failure, minus one (AWUPF).
    atomic_power_fail: u16,
}

/// The Identify data of a namespace (NVM §4.1.5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamespaceData {
    /// The number of logical blocks (NSZE).
    pub(super) blocks: u64,
    /// log2 of the bytes of a logical block, in the current format (LBADS).
    pub(super) block_shift: u32,
    /// The bytes of metadata with each block (MS).
    pub(super) metadata_bytes: u32,
    identify: IdentifyNamespace,
}

impl Controller {
    fn parse(data: &[u8; IDENTIFY_BYTES]) -> Self {
        let identify = IdentifyController::parse(data);
        let IdentifyController { mdts, nvm_commands: commands, .. } = identify;
        Self {
            serial: text(&data[4..24]),
            model: text(&data[24..64]),
            firmware: text(&data[64..72]),
            transfer_bytes_max: (mdts != 0)
                .then(|| MDTS_UNIT_BYTES << u32::from(mdts).min(MDTS_SHIFT_MAX)),
            has_dataset_management: commands & 1 << 2 != 0,
            has_write_zeroes: commands & 1 << 3 != 0,
            volatile_write_cache: identify.volatile_write_cache & 1 != 0,
            atomic_power_fail: identify.atomic_write_power_fail,
        }
    }
}

impl NamespaceData {
    fn parse(data: &[u8; IDENTIFY_BYTES]) -> Self {
        let identify = IdentifyNamespace::parse(data);
        // Valid whether or not the number of formats includes the current one.
        let at = 128 + 4 * usize::from(identify.format);
        Self {
            blocks: identify.size_blocks,
            block_shift: u32::from(data[at + 2]),
            metadata_bytes: u16::from_le_bytes([data[at], data[at + 1]]).into(),
            identify,
        }
    }
}

/// Returns the size of writes that are never torn by a power loss if they begin at a multiple of
/// it: at least one block (NVM §2.1.4).
pub(super) fn atomic_bytes(controller: &Controller, namespace: &NamespaceData) -> u64 {
    u64::from(namespace.identify.atomic_blocks(controller.atomic_power_fail))
        << namespace.block_shift
}

pub(super) fn namespace_id(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: the call takes no argument and accesses no memory; the descriptor is borrowed for the
    // call.
    let id = unsafe { libc::ioctl(fd.as_raw_fd(), NVME_IOCTL_ID) };
    match u32::try_from(id) {
        Ok(0) => Err(io::Error::from_raw_os_error(libc::ENOTTY)),
        Ok(id) => Ok(id),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

pub(super) fn controller(fd: BorrowedFd<'_>) -> io::Result<Controller> {
    identify(fd, 0, cns::CONTROLLER).map(|data| Controller::parse(&data))
}

pub(super) fn namespace(fd: BorrowedFd<'_>, nsid: u32) -> io::Result<NamespaceData> {
    identify(fd, nsid, cns::NAMESPACE).map(|data| NamespaceData::parse(&data))
}

fn identify(fd: BorrowedFd<'_>, nsid: u32, cns: u8) -> io::Result<Box<[u8; IDENTIFY_BYTES]>> {
    let mut data = Box::new([0; IDENTIFY_BYTES]);
    let mut command = AdminCommand {
        opcode: admin::IDENTIFY,
        nsid,
        addr: data.as_mut_ptr() as u64,
        data_len: IDENTIFY_BYTES as u32,
        cdw10: cns.into(),
        ..AdminCommand::default()
    };
    // SAFETY: the command has the kernel's layout. The command, and the data that it names with its
    // length, outlive the call.
    let status = unsafe { libc::ioctl(fd.as_raw_fd(), NVME_IOCTL_ADMIN_CMD, &raw mut command) };
    match status {
        0 => Ok(data),
        ..0 => Err(io::Error::last_os_error()),
        status => Err(io::Error::other(format!("the drive refuses Identify: status {status:#x}"))),
    }
}

/// Decodes text as drives store it: ASCII, padded with blanks.
fn text(bytes: &[u8]) -> String {
    let plain = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { ' ' };
    bytes.iter().map(plain).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_controller() {
        let mut data = [0; IDENTIFY_BYTES];
        data[4..24].copy_from_slice(b"S5GXNX0T            ");
        data[24..64].copy_from_slice(b"Some Drive 990                          ");
        data[64..72].copy_from_slice(b"1B2Q\0\0\0\0");
        data[77] = 5;
        data[520] = 1 << 2;
        data[525] = 1;
        data[528] = 7;
        let controller = Controller::parse(&data);
        assert_eq!(
            controller,
            Controller {
                serial: "S5GXNX0T".into(),
                model: "Some Drive 990".into(),
                firmware: "1B2Q".into(),
                transfer_bytes_max: Some(128 << 10),
                has_dataset_management: true,
                has_write_zeroes: false,
                volatile_write_cache: true,
                atomic_power_fail: 7,
            }
        );
        data[77] = 0;
        assert_eq!(Controller::parse(&data).transfer_bytes_max, None);
        // No real drive reports this; if one does, nothing may overflow.
        data[77] = 255;
        assert!(Controller::parse(&data).transfer_bytes_max > Some(1 << 40));
    }

    #[test]
    fn reads_a_namespace_in_its_format() {
        let mut data = [0; IDENTIFY_BYTES];
        data[..8].copy_from_slice(&0x1_0000_0001u64.to_le_bytes());
        data[26] = 0b0010_0001;
        data[128 + 2] = 9;
        // The current format is number 17.
        data[128 + 4 * 17] = 8;
        data[128 + 4 * 17 + 2] = 12;
        let namespace = NamespaceData::parse(&data);
        assert_eq!((namespace.blocks, namespace.block_shift), (0x1_0000_0001, 12));
        assert_eq!(namespace.metadata_bytes, 8);
        assert_eq!(namespace.identify.atomic_blocks(7), 8, "as the controller says");
    }

    #[test]
    fn what_power_loss_leaves_whole() {
        let mut controller = [0; IDENTIFY_BYTES];
        let mut namespace = [0; IDENTIFY_BYTES];
        namespace[128 + 2] = 9;
        let bytes = |controller: &_, namespace: &_| {
            atomic_bytes(&Controller::parse(controller), &NamespaceData::parse(namespace))
        };
        assert_eq!(bytes(&controller, &namespace), 512);
        controller[528] = 11; // 12 blocks, of which 8 can be relied on at multiples of 8
        assert_eq!(bytes(&controller, &namespace), 4096);
        namespace[36] = 31; // not valid without the feature bit
        assert_eq!(bytes(&controller, &namespace), 4096);
        namespace[24] = 1 << 1;
        assert_eq!(bytes(&controller, &namespace), 16384);
        namespace[44] = 7; // a boundary every 8 blocks
        assert_eq!(bytes(&controller, &namespace), 4096);
        namespace[42] = 3; // which are not at multiples of 8
        assert_eq!(bytes(&controller, &namespace), 512);
    }
}
