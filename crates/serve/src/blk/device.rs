//! A disk of a guest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use qpair_block::Result;
use qpair_virtio::blk::{Config, SECTOR_SHIFT, feature};

use super::queue::BlkVerbs;
use crate::device::Device;
use crate::disk::Disk;
use crate::queue::{GuestRing, Served};
use crate::unit::Unit;

/// The maximum number of data segments of a request, as told to the guest. Some front ends have
/// rings of 128 entries, and a request needs two more.
const SEG_MAX: u32 = 126;
/// The maximum number of bytes of a discard or write-zeroes.
const DISCARD_BYTES_MAX: u32 = 1 << 31;
/// The features of all disks.
const READS: u64 =
    feature::SEG_MAX | feature::BLK_SIZE | feature::FLUSH | feature::TOPOLOGY | feature::MQ;

/// A disk that is given to guests.
#[derive(Debug)]
pub(crate) struct Blk {
    pub(crate) disk: Arc<Disk>,
    pub(crate) read_only: bool,
    queues: u16,
    /// Whether writes may be answered before they are durable: the guest has set the cache to write
    /// back, or did not negotiate the cache mode.
    write_back: Arc<AtomicBool>,
    /// The size in bytes that was reported to the front end.
    size_bytes: AtomicU64,
}

impl Blk {
    pub(crate) fn new(disk: &Arc<Disk>, queues: u16, read_only: bool) -> Self {
        Self {
            disk: disk.clone(),
            read_only: read_only || disk.device.info().read_only,
            queues,
            write_back: Arc::new(AtomicBool::new(true)),
            size_bytes: AtomicU64::new(disk.device.size_bytes()),
        }
    }
}

impl Device for Blk {
    fn queues(&self) -> u16 {
        self.queues
    }

    fn features(&self) -> u64 {
        if self.read_only {
            return READS | feature::READ_ONLY;
        }
        let info = self.disk.device.info();
        let discard = if info.discards { feature::DISCARD } else { 0 };
        let zeroes = if info.writes_zeroes { feature::WRITE_ZEROES } else { 0 };
        READS | feature::CONFIG_WCE | discard | zeroes
    }

    fn settle(&self, features: u64) {
        if features & feature::CONFIG_WCE == 0 {
            self.write_back.store(features & feature::FLUSH != 0, Ordering::Release);
        }
    }

    fn config(&self) -> Vec<u8> {
        let device = &self.disk.device;
        let block_bytes = device.info().logical_block_bytes;
        let config = Config {
            sectors: device.size_bytes() >> SECTOR_SHIFT,
            seg_max: SEG_MAX,
            block_bytes,
            write_back: self.write_back.load(Ordering::Acquire),
            queues: self.queues,
            discard_sectors_max: DISCARD_BYTES_MAX >> SECTOR_SHIFT,
            discard_alignment: block_bytes >> SECTOR_SHIFT,
            zeroes_sectors_max: DISCARD_BYTES_MAX >> SECTOR_SHIFT,
        };
        config.encode().to_vec()
    }

    fn set_config(&self, offset: u32, bytes: &[u8]) -> bool {
        let (Config::WRITE_BACK_AT, [write_back @ (0 | 1)]) = (offset, bytes) else { return false };
        self.write_back.store(*write_back == 1, Ordering::Release);
        true
    }

    fn reset(&self) {
        self.write_back.store(true, Ordering::Release);
    }

    fn open(self: Arc<Self>, _number: u16, ring: GuestRing) -> Result<Box<dyn Unit>> {
        let verbs = BlkVerbs::open(&ring, &self.disk, &self.write_back, self.read_only)?;
        Ok(Box::new(Served::start(ring, verbs)))
    }

    fn look_after(&self) -> bool {
        let size_bytes = self.disk.device.size_bytes();
        self.size_bytes.swap(size_bytes, Ordering::Relaxed) != size_bytes
    }
}
