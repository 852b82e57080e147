//! The exports of a server: disks by name.

use std::sync::Arc;

use qpair_nbd::server::{Export, Exports, Limits};
use qpair_nbd::wire::export_flag as flag;
use qpair_nbd::wire::handshake::BlockSizes;
use qpair_nbd::wire::{Extent, PAYLOAD_BYTES_MAX};

use crate::disk::Disk;
use crate::stream::LARGE_BYTES;

/// A disk that a server exports under its name.
#[derive(Clone, Debug)]
pub struct NbdExport {
    /// The disk.
    pub disk: Arc<Disk>,
    /// Whether clients cannot write.
    pub read_only: bool,
}

impl NbdExport {
    fn is_read_only(&self) -> bool {
        self.read_only || self.disk.device.info().read_only
    }

    /// Returns the limits of requests now: a disk may have grown since its clients came.
    pub(crate) fn limits(&self, has_status: bool) -> Limits {
        let info = self.disk.device.info();
        Limits {
            size_bytes: self.disk.device.size_bytes(),
            block_bytes: info.logical_block_bytes,
            read_only: self.is_read_only(),
            trims: info.discards,
            has_status,
            chunk_bytes_max: LARGE_BYTES,
        }
    }

    /// Returns at most `most` extents of a range of whole blocks, each of whole blocks.
    pub(crate) fn extents(&self, offset: u64, len: u64, most: usize) -> Vec<Extent> {
        let (device, block) =
            (&self.disk.device, u64::from(self.disk.device.info().logical_block_bytes));
        let (mut at, end) = (offset, offset + len);
        let mut extents: Vec<Extent> = Vec::new();
        while at < end {
            let found = device.extent(at, end - at);
            // A block that is not a hole as a whole is data.
            let is_hole = found.is_hole && found.len_bytes >= block;
            let len = match is_hole {
                true => found.len_bytes / block * block,
                false => found.len_bytes.max(1).next_multiple_of(block),
            };
            let (len, state) =
                (len.min(end - at), if is_hole { Extent::HOLE | Extent::ZERO } else { 0 });
            let count = extents.len();
            match extents.last_mut() {
                Some(last) if last.state == state => last.len += len,
                _ if count == most => break,
                _ => extents.push(Extent { len, state }),
            }
            at += len;
        }
        extents
    }

    fn described(&self) -> Export {
        let info = self.disk.device.info();
        let mut flags = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::CAN_MULTI_CONN;
        if self.is_read_only() {
            flags |= flag::READ_ONLY;
        } else {
            flags |= flag::SEND_WRITE_ZEROES;
            flags |= if info.discards { flag::SEND_TRIM } else { 0 };
        }
        let min = info.logical_block_bytes;
        let blocks =
            BlockSizes { min, preferred: min.max(4096), max: PAYLOAD_BYTES_MAX / min * min };
        let description = format!("{} by {}", info.name, info.interface);
        Export { size_bytes: self.disk.device.size_bytes(), flags, blocks, description }
    }
}

/// The exports of a server. The first is the default export, which clients name by "".
#[derive(Debug)]
pub(crate) struct ExportList(pub(crate) Vec<NbdExport>);

impl Exports for ExportList {
    fn names(&self) -> Vec<String> {
        self.0.iter().map(|export| export.disk.name.clone()).collect()
    }

    fn find(&self, name: &str) -> Option<(usize, Export)> {
        let is_it = |export: &NbdExport| export.disk.name == name;
        let at = if name.is_empty() { 0 } else { self.0.iter().position(is_it)? };
        Some((at, self.0.get(at)?.described()))
    }
}
