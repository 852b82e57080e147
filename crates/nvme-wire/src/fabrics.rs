//! NVMe over Fabrics: its commands, the data of Connect, and the discovery log (Base §6, §3.1.2).

use qpair_wire::le::{u16_at, u32_at, u64_at};
use qpair_wire::text;

use crate::Command;

/// The opcode of all Fabrics commands.
pub const FABRICS: u8 = 0x7F;
/// The opcode of Keep Alive (Base §5.18).
pub const KEEP_ALIVE: u8 = 0x18;
/// The name of the discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// The number of the discovery log page.
pub const DISCOVERY_LOG: u8 = 0x70;
/// The feature with the keep alive timer (Base §5.27.1.12).
pub const KEEP_ALIVE_TIMER: u8 = 0x0F;
/// The longest name of a host or subsystem, bytes.
pub const NQN_BYTES_MAX: usize = 223;
/// The controller number by which a host asks for any controller.
pub const ANY_CONTROLLER: u16 = 0xFFFF;
/// Flag of Connect: the host disables flow control of the submission queue.
pub const NO_FLOW_CONTROL: u8 = 1 << 2;
/// Flag of the answer to Connect: the host must authenticate (ATR).
pub const AUTHENTICATION_REQUIRED: u32 = 1 << 17;
/// The head of the submission queue in completions without flow control.
pub const NO_SQ_HEAD: u16 = 0xFFFF;

/// Types of Fabrics commands (FCTYPE).
pub mod fctype {
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    pub const DISCONNECT: u8 = 0x08;
}

/// Types of SGL descriptors, with their subtypes (Base §4.1.2).
pub mod sgl {
    /// Data in the capsule, at an offset.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Data that the transport moves.
    pub const TRANSPORT: u8 = 0x5A;
}

/// Flags of a command: its data pointer is an SGL (PSDT).
const WITH_SGL: u32 = 1 << 14;

/// A command's only SGL descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sgl {
    pub address: u64,
    pub len_bytes: u32,
    pub kind: u8,
}

impl Command {
    /// Returns the SGL descriptor in the place of the data pointer.
    #[inline]
    #[must_use]
    pub fn sgl(&self) -> Sgl {
        Sgl { address: self.prp1(), len_bytes: self.0[8], kind: (self.0[9] >> 24) as u8 }
    }

    /// Names the data by an SGL descriptor.
    #[inline]
    pub fn set_sgl(&mut self, sgl: Sgl) {
        self.0[0] |= WITH_SGL;
        self.set_prps(sgl.address, u64::from(sgl.len_bytes) | u64::from(sgl.kind) << 56);
    }

    /// Whether the command names its data by an SGL and is not half of a fused pair.
    #[inline]
    #[must_use]
    pub fn is_single_with_sgl(&self) -> bool {
        self.0[0] & 0xC300 == WITH_SGL
    }

    /// Returns the type of a Fabrics command.
    #[must_use]
    pub fn fctype(&self) -> u8 {
        self.0[1] as u8
    }

    #[must_use]
    pub fn fabrics(fctype: u8) -> Self {
        let mut command = Self::new(FABRICS, fctype.into());
        command.0[0] |= WITH_SGL;
        command
    }

    /// Makes an Authentication Send or Authentication Receive command. The command's data pointer
    /// names the data, which has `len_bytes`.
    #[must_use]
    pub fn authentication(fctype: u8, protocol: u32, len_bytes: u32) -> Self {
        let mut command = Self::fabrics(fctype);
        (command.0[10], command.0[11]) = (protocol, len_bytes);
        command
    }

    /// Whether the command is part of an authentication.
    #[must_use]
    pub fn is_authentication(&self) -> bool {
        self.opcode() == FABRICS
            && matches!(self.fctype(), fctype::AUTHENTICATION_SEND | fctype::AUTHENTICATION_RECEIVE)
    }

    /// Makes a Property Get command. Properties are registers, of 4 bytes or of 8.
    #[must_use]
    pub fn property_get(offset: u64, is_wide: bool) -> Self {
        let mut command = Self::fabrics(fctype::PROPERTY_GET);
        command.0[10] = is_wide.into();
        command.0[11] = offset as u32;
        command
    }

    /// Makes a Property Set command for a property of 4 bytes.
    #[must_use]
    pub fn property_set(offset: u64, value: u32) -> Self {
        let mut command = Self::fabrics(fctype::PROPERTY_SET);
        command.0[11] = offset as u32;
        command.0[12] = value;
        command
    }
}

/// The fields of a Connect command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connect {
    pub format: u16,
    pub queue: u16,
    /// The number of the queue's entries, minus one.
    pub last_entry: u16,
    pub flags: u8,
    /// The keep alive time-out in milliseconds; 0: none.
    pub keep_alive_ms: u32,
}

impl Connect {
    #[must_use]
    pub fn of(command: &Command) -> Self {
        Self {
            format: command.0[10] as u16,
            queue: (command.0[10] >> 16) as u16,
            last_entry: command.0[11] as u16,
            flags: (command.0[11] >> 16) as u8,
            keep_alive_ms: command.0[12],
        }
    }

    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::fabrics(fctype::CONNECT);
        command.0[10] = u32::from(self.format) | u32::from(self.queue) << 16;
        command.0[11] = u32::from(self.last_entry) | u32::from(self.flags) << 16;
        command.0[12] = self.keep_alive_ms;
        let len_bytes = ConnectData::BYTES as u32;
        command.set_sgl(Sgl { address: 0, len_bytes, kind: sgl::IN_CAPSULE });
        command
    }
}

/// The data of a Connect command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectData {
    pub host_id: [u8; 16],
    pub controller_id: u16,
    pub subsystem: String,
    pub host: String,
}

/// The place of a field that is wrong, for the answer to Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongField(pub u16);

impl ConnectData {
    pub const BYTES: usize = 1024;
    pub const CONTROLLER_AT: u16 = 16;
    pub const SUBSYSTEM_AT: u16 = 256;
    pub const HOST_AT: u16 = 512;

    /// # Errors
    /// The place of a name that is empty or too long.
    pub fn decode(data: &[u8]) -> Result<Self, WrongField> {
        let name = |at: u16| {
            let field = data.get(usize::from(at)..usize::from(at) + 256).unwrap_or_default();
            let len = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
            match std::str::from_utf8(&field[..len]) {
                Ok(name) if (1..=NQN_BYTES_MAX).contains(&len) => Ok(name.to_owned()),
                _ => Err(WrongField(at)),
            }
        };
        Ok(Self {
            host_id: qpair_wire::get(data, 0),
            controller_id: u16_at(data, Self::CONTROLLER_AT.into()),
            subsystem: name(Self::SUBSYSTEM_AT)?,
            host: name(Self::HOST_AT)?,
        })
    }

    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut data = [0; Self::BYTES];
        data[..16].copy_from_slice(&self.host_id);
        data[16..18].copy_from_slice(&self.controller_id.to_le_bytes());
        qpair_wire::put(&mut data, Self::SUBSYSTEM_AT.into(), self.subsystem.as_bytes());
        qpair_wire::put(&mut data, Self::HOST_AT.into(), self.host.as_bytes());
        data
    }
}

/// An entry of the discovery log, for the TCP transport.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryEntry {
    pub is_ipv6: bool,
    /// Whether the entry is the discovery subsystem itself.
    pub is_discovery: bool,
    /// Whether hosts must use TLS 1.3 there.
    pub requires_tls: bool,
    pub port_id: u16,
    pub address: String,
    /// The port, in decimal digits.
    pub service: String,
    pub subsystem: String,
}

impl DiscoveryEntry {
    pub const BYTES: usize = 1024;
    const TCP: u8 = 3;
    /// A secure channel is required, or not (TREQ); TLS 1.3 (SECTYPE of TCP).
    const SECURE: u8 = 1;
    const OPEN: u8 = 2;
    const TLS_1_3: u8 = 2;

    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut data = [0; Self::BYTES];
        data[0] = Self::TCP;
        data[1] = if self.is_ipv6 { 2 } else { 1 };
        data[2] = if self.is_discovery { 3 } else { 2 };
        // Flow control can be disabled.
        data[3] = 1 << 2 | if self.requires_tls { Self::SECURE } else { Self::OPEN };
        data[768] = if self.requires_tls { Self::TLS_1_3 } else { 0 };
        data[4..6].copy_from_slice(&self.port_id.to_le_bytes());
        data[6..8].copy_from_slice(&ANY_CONTROLLER.to_le_bytes());
        data[8..10].copy_from_slice(&32u16.to_le_bytes());
        qpair_wire::put_text(&mut data[32..64], &self.service);
        qpair_wire::put(&mut data, 256, self.subsystem.as_bytes());
        qpair_wire::put_text(&mut data[512..768], &self.address);
        data
    }

    #[must_use]
    pub fn decode(data: &[u8]) -> Self {
        let field = |from: usize, len: usize| text(data.get(from..from + len).unwrap_or_default());
        Self {
            is_ipv6: qpair_wire::u8_at(data, 1) == 2,
            is_discovery: qpair_wire::u8_at(data, 2) != 2,
            requires_tls: qpair_wire::u8_at(data, 3) & 3 == Self::SECURE,
            port_id: u16_at(data, 4),
            service: field(32, 32),
            subsystem: field(256, 256),
            address: field(512, 256),
        }
    }
}

/// Returns the discovery log: a header of 1024 bytes with the generation, and the entries.
#[must_use]
pub fn discovery_log(generation: u64, entries: &[DiscoveryEntry]) -> Vec<u8> {
    let mut log = vec![0; 1024];
    log[..8].copy_from_slice(&generation.to_le_bytes());
    log[8..16].copy_from_slice(&(entries.len() as u64).to_le_bytes());
    for entry in entries {
        log.extend(entry.encode());
    }
    log
}

/// The fields of Identify Controller that only controllers over fabrics have (Base §5.17.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricsIdentity {
    pub is_discovery: bool,
    /// The granularity of the keep alive timer, 100 ms.
    pub keep_alive_granularity: u16,
    /// The most commands of a queue (MAXCMD).
    pub commands_max: u16,
    /// The largest command capsule with its data (IOCCSZ), 16 bytes.
    pub capsule_units: u32,
}

impl FabricsIdentity {
    #[must_use]
    pub fn parse(data: &[u8]) -> Self {
        Self {
            is_discovery: qpair_wire::u8_at(data, 111) == 2,
            keep_alive_granularity: u16_at(data, 320),
            commands_max: u16_at(data, 514),
            capsule_units: u32_at(data, 1792),
        }
    }

    /// Writes the fields into Identify data.
    pub fn put(&self, data: &mut [u8]) {
        /// Data in the capsule at an offset, and the transport's SGL descriptor.
        const SGLS: u32 = 1 | 1 << 20 | 1 << 21;
        /// The optional event that the discovery log has changed.
        const DISCOVERY_CHANGED: u32 = 1 << 31;
        if self.is_discovery {
            qpair_wire::put(data, 92, &DISCOVERY_CHANGED.to_le_bytes());
        }
        qpair_wire::put(data, 96, &1u32.to_le_bytes());
        qpair_wire::put(data, 111, &[if self.is_discovery { 2 } else { 1 }]);
        qpair_wire::put(data, 320, &self.keep_alive_granularity.to_le_bytes());
        qpair_wire::put(data, 514, &self.commands_max.to_le_bytes());
        qpair_wire::put(data, 536, &SGLS.to_le_bytes());
        qpair_wire::put(data, 1792, &self.capsule_units.to_le_bytes());
        // Responses have 16 bytes; a command has one descriptor.
        qpair_wire::put(data, 1796, &1u32.to_le_bytes());
        qpair_wire::put(data, 1803, &[1]);
    }

    /// Returns the most bytes of data in the capsule of an I/O command.
    #[must_use]
    pub fn capsule_data_bytes(&self) -> u32 {
        self.capsule_units.saturating_mul(16).saturating_sub(64)
    }
}

/// Returns the generation and the number of entries of a discovery log.
#[must_use]
pub fn discovery_header(log: &[u8]) -> (u64, u64) {
    (u64_at(log, 0), u64_at(log, 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_reads_as_written() {
        let connect =
            Connect { queue: 3, last_entry: 127, flags: 4, keep_alive_ms: 5000, format: 0 };
        let command = connect.command();
        assert_eq!((command.opcode(), command.fctype()), (FABRICS, fctype::CONNECT));
        assert_eq!(Connect::of(&command), connect);
        assert_eq!(command.sgl(), Sgl { address: 0, len_bytes: 1024, kind: sgl::IN_CAPSULE });
        assert!(command.is_single_with_sgl());
        let data = ConnectData {
            host_id: [7; 16],
            controller_id: 9,
            subsystem: "nqn.2026-11.example:a".into(),
            host: "nqn.2026-11.example:host".into(),
        };
        assert_eq!(ConnectData::decode(&data.encode()), Ok(data.clone()));
        let unnamed = ConnectData { host: String::new(), ..data }.encode();
        assert_eq!(ConnectData::decode(&unnamed), Err(WrongField(512)));
        assert_eq!(ConnectData::decode(&[1; 1024]), Err(WrongField(256)));
        assert!(ConnectData::decode(&[1; 300]).is_err());
    }

    #[test]
    fn the_discovery_log_reads_as_written() {
        let entry = DiscoveryEntry {
            port_id: 1,
            address: "10.0.0.1".into(),
            service: "4420".into(),
            subsystem: "nqn.2026-11.example:a".into(),
            ..DiscoveryEntry::default()
        };
        let log = discovery_log(5, &[entry.clone(), entry.clone()]);
        assert_eq!((log.len(), discovery_header(&log)), (3072, (5, 2)));
        assert_eq!(DiscoveryEntry::decode(&log[2048..]), entry);
        assert_eq!((log[1024 + 3], log[1024 + 768]), (6, 0));
        let secure = DiscoveryEntry { requires_tls: true, ..entry };
        let encoded = secure.encode();
        assert_eq!((encoded[3], encoded[768]), (5, 2));
        assert_eq!(DiscoveryEntry::decode(&encoded), secure);
    }
}
