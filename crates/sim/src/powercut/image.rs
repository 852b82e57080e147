//! The content of a device, in chunks that copies share until one of them is changed.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use qpair_block::{BlockDevice, RamDevice, RamOptions, SerialChannel};

use super::record::Shape;

const CHUNK_BYTES: usize = 64 << 10;

/// The content of a device. Missing chunks are zeroes.
#[derive(Clone)]
pub(super) struct Image {
    pub(super) shape: Shape,
    chunks: BTreeMap<u64, Arc<[u8; CHUNK_BYTES]>>,
}

impl Image {
    pub(super) fn blank(shape: Shape) -> Self {
        Self { shape, chunks: BTreeMap::new() }
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        let (mut at, mut left) = (at, bytes);
        while !left.is_empty() {
            let within = (at % CHUNK_BYTES as u64) as usize;
            let (now, later) = left.split_at(left.len().min(CHUNK_BYTES - within));
            let chunk = self.chunks.entry(at / CHUNK_BYTES as u64);
            let chunk = Arc::make_mut(chunk.or_insert_with(|| Arc::new([0; CHUNK_BYTES])));
            chunk[within..within + now.len()].copy_from_slice(now);
            (at, left) = (at + now.len() as u64, later);
        }
    }

    #[cfg(test)]
    pub(super) fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let byte = |at: u64| {
            let chunk = self.chunks.get(&(at / CHUNK_BYTES as u64));
            chunk.map_or(0, |chunk| chunk[(at % CHUNK_BYTES as u64) as usize])
        };
        (at..at + len as u64).map(byte).collect()
    }

    pub(super) fn zero(&mut self, at: u64, len: u64) {
        let block = u64::from(self.shape.block_bytes);
        let zeroes = vec![0; block as usize];
        for at in (at..at + len).step_by(block as usize) {
            self.write(at, &zeroes);
        }
    }

    pub(super) fn device(&self) -> Result<Arc<dyn BlockDevice>, String> {
        let said = |error: qpair_block::Error| format!("making a device of an image: {error}");
        let device = RamDevice::new(RamOptions {
            size_bytes: self.shape.size_bytes,
            logical_block_bytes: self.shape.block_bytes,
            growable: false,
            read_only: false,
        })
        .map_err(said)?;
        let mut channel = SerialChannel::open(&device).map_err(said)?;
        for (at, bytes) in self.whole_chunks() {
            channel.write(at, bytes).map_err(said)?;
        }
        drop(channel);
        Ok(Arc::new(device))
    }

    /// Writes the image to a sparse file of the device's size.
    pub(super) fn save(&self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        file.set_len(self.shape.size_bytes)?;
        for (at, bytes) in self.whole_chunks() {
            file.write_all_at(bytes, at)?;
        }
        Ok(file)
    }

    /// Returns the chunks with their positions. The last chunk ends at the end of the device.
    fn whole_chunks(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.chunks.iter().filter_map(|(number, chunk)| {
            let at = number * CHUNK_BYTES as u64;
            let left = usize::try_from(self.shape.size_bytes.checked_sub(at)?).ok()?;
            Some((at, &chunk[..left.min(CHUNK_BYTES)]))
        })
    }
}
