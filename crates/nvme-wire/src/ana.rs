//! Asymmetric namespace access (Base §8.1): the states of the ways to a namespace.

use qpair_wire::le::{u16_at, u32_at, u64_at};

/// The number of the log page.
pub const ANA_LOG: u8 = 0x0C;
/// The optional event that states have changed.
pub const ANA_CHANGED: u32 = 1 << 11;
/// Bit of Get Log Page, dword 10: the groups without their namespaces (RGO).
pub const GROUPS_ONLY: u32 = 1 << 8;

/// The state of a group of namespaces at a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnaState {
    #[default]
    Optimized,
    /// Usable, and slower than others.
    NonOptimized,
    /// Not usable now.
    Inaccessible,
    /// Not usable for ever.
    PersistentLoss,
    /// Not usable until the state has changed.
    Change,
}

impl AnaState {
    pub const ALL: [Self; 5] = [
        Self::Optimized,
        Self::NonOptimized,
        Self::Inaccessible,
        Self::PersistentLoss,
        Self::Change,
    ];

    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Optimized => 1,
            Self::NonOptimized => 2,
            Self::Inaccessible => 3,
            Self::PersistentLoss => 4,
            Self::Change => 15,
        }
    }
}

/// The log page of a controller with one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnaLog {
    /// The number of changes so far.
    pub changes: u64,
    pub group: u32,
    pub state: AnaState,
    /// The namespaces of the group, in ascending order.
    pub namespaces: Vec<u32>,
}

impl AnaLog {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut log = vec![0; 48];
        log[..8].copy_from_slice(&self.changes.to_le_bytes());
        log[8..10].copy_from_slice(&1u16.to_le_bytes());
        log[16..20].copy_from_slice(&self.group.to_le_bytes());
        log[20..24].copy_from_slice(&(self.namespaces.len() as u32).to_le_bytes());
        log[24..32].copy_from_slice(&self.changes.to_le_bytes());
        log[32] = self.state.number();
        for nsid in &self.namespaces {
            log.extend(nsid.to_le_bytes());
        }
        log
    }

    /// Returns the first group of a log; `None` if the log has no groups.
    #[must_use]
    pub fn decode(log: &[u8]) -> Option<Self> {
        let number = qpair_wire::u8_at(log, 32);
        let state = AnaState::ALL.into_iter().find(|state| state.number() == number)?;
        if u16_at(log, 8) == 0 {
            return None;
        }
        let list = log.get(48..).unwrap_or_default().chunks_exact(4);
        let count = u32_at(log, 20) as usize;
        let namespaces = list.take(count).map(|nsid| u32_at(nsid, 0)).collect();
        Some(Self { changes: u64_at(log, 0), group: u32_at(log, 16), state, namespaces })
    }
}

/// The fields of Identify Controller with which it reports states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnaIdentity {
    /// The longest time in [`AnaState::Change`] (ANATT), seconds.
    pub transition_s: u8,
    /// The highest number of a group, and the number of groups.
    pub groups: u32,
    /// The most namespaces (MNAN).
    pub namespaces_max: u32,
}

impl AnaIdentity {
    /// Writes the fields into Identify data.
    pub fn put(&self, data: &mut [u8]) {
        const REPORTS: u8 = 1 << 3;
        /// All states; a namespace stays in its group.
        const ABILITIES: u8 = 0x1F | 1 << 6;
        let (multi_path, events) = (qpair_wire::u8_at(data, 76), u32_at(data, 92));
        qpair_wire::put(data, 76, &[multi_path | REPORTS]);
        qpair_wire::put(data, 92, &(events | ANA_CHANGED).to_le_bytes());
        qpair_wire::put(data, 342, &[self.transition_s, ABILITIES]);
        qpair_wire::put(data, 344, &self.groups.to_le_bytes());
        qpair_wire::put(data, 348, &self.groups.to_le_bytes());
        qpair_wire::put(data, 540, &self.namespaces_max.to_le_bytes());
    }

    /// Writes the group of a namespace into its Identify data.
    pub fn put_group(data: &mut [u8], group: u32) {
        qpair_wire::put(data, 92, &group.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_read_as_written() {
        for state in AnaState::ALL {
            let log = AnaLog { changes: 7, group: 1, state, namespaces: vec![1, 5] };
            assert_eq!(log.encode().len(), 56);
            assert_eq!(AnaLog::decode(&log.encode()), Some(log));
        }
        assert_eq!(AnaLog::decode(&[0; 48]), None);
        assert_eq!(AnaLog::decode(&[]), None);
    }

    #[test]
    fn identify_data_keeps_its_other_fields() {
        let mut data = [0; 4096];
        (data[76], data[93]) = (2, 1);
        AnaIdentity { transition_s: 10, groups: 1, namespaces_max: 32 }.put(&mut data);
        assert_eq!((data[76], u32_at(&data, 92)), (0b1010, 1 << 8 | 1 << 11));
        assert_eq!((data[342], data[343], u32_at(&data, 540)), (10, 0x5F, 32));
    }
}
