//! Payloads about memory.

use qpair_socket::{Fields, Writer};

/// The maximum number of regions in one table: as many as a message can have descriptors.
pub const REGIONS_MAX: usize = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRegion {
    /// The first address for the guest.
    pub guest: u64,
    pub len_bytes: u64,
    /// The first address in the front end's process.
    pub user: u64,
    /// The offset of the first byte in the file that comes with the message.
    pub file_offset_bytes: u64,
}

impl MemoryRegion {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            guest: fields.u64()?,
            len_bytes: fields.u64()?,
            user: fields.u64()?,
            file_offset_bytes: fields.u64()?,
        })
    }

    fn write(self, writer: Writer) -> Writer {
        writer.u64(self.guest).u64(self.len_bytes).u64(self.user).u64(self.file_offset_bytes)
    }

    /// Decodes the table of a SET_MEM_TABLE; `None` if the payload is not one.
    #[must_use]
    pub fn parse_table(payload: &[u8]) -> Option<Vec<Self>> {
        let mut fields = Fields::of(payload);
        let (count, _padding) = (fields.u32()? as usize, fields.u32()?);
        if count > REGIONS_MAX {
            return None;
        }
        // Some peers send room for regions that they do not have.
        (0..count).map(|_| Self::read(&mut fields)).collect()
    }

    /// Encodes the payload of a SET_MEM_TABLE.
    #[must_use]
    pub fn table(regions: &[Self]) -> Vec<u8> {
        let writer = Writer::default().u32(regions.len() as u32).u32(0);
        regions.iter().fold(writer, |writer, region| region.write(writer)).done()
    }
}

/// The payload of ADD_MEM_REG and REM_MEM_REG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionMessage(pub MemoryRegion);

impl RegionMessage {
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(payload);
        fields.u64()?;
        MemoryRegion::read(&mut fields).map(Self)
    }

    #[must_use]
    pub fn payload(self) -> Vec<u8> {
        self.0.write(Writer::default().u64(0)).done()
    }
}

/// The place and the size of the in-flight tracking area in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InflightDescription {
    pub len_bytes: u64,
    /// The offset of the first byte in the file.
    pub file_offset_bytes: u64,
    /// The number of queues that have a part.
    pub queues: u16,
    pub queue_size: u16,
}

impl InflightDescription {
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(payload);
        Some(Self {
            len_bytes: fields.u64()?,
            file_offset_bytes: fields.u64()?,
            queues: fields.u16()?,
            queue_size: fields.u16()?,
        })
    }

    /// Encodes the payload, with the padding of the C structure.
    #[must_use]
    pub fn payload(self) -> Vec<u8> {
        let Self { len_bytes, file_offset_bytes, queues, queue_size } = self;
        let writer = Writer::default().u64(len_bytes).u64(file_offset_bytes);
        writer.u16(queues).u16(queue_size).u32(0).done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_come_back() {
        let region = MemoryRegion { guest: 1, len_bytes: 2, user: 3, file_offset_bytes: 4 };
        let table = MemoryRegion::table(&[region, MemoryRegion::default()]);
        assert_eq!(table.len(), 8 + 2 * 32);
        assert_eq!(MemoryRegion::parse_table(&table).unwrap(), [region, MemoryRegion::default()]);
        assert_eq!(MemoryRegion::parse_table(&table[..71]), None);
        assert_eq!(MemoryRegion::parse_table(&[9, 0, 0, 0, 0, 0, 0, 0]), None);
        let message = RegionMessage(region).payload();
        assert_eq!(RegionMessage::parse(&message), Some(RegionMessage(region)));
        let inflight = InflightDescription {
            len_bytes: 1 << 40,
            file_offset_bytes: 2,
            queues: 3,
            queue_size: 4,
        };
        assert_eq!(inflight.payload().len(), 24);
        assert_eq!(InflightDescription::parse(&inflight.payload()), Some(inflight));
    }
}
