//! Reads pages on the caller's thread, without pool and workers, for tools that inspect a store
//! that is not open.
//!
//! Invariant: nothing is written, and every page is checked by its own checksum and id before any
//! caller sees it.

use std::sync::Arc;

use qpair_block::{
    Arena, BlockDevice, Buffer, ChannelOptions, Completion, IoChannel, PAIR_SECOND_BYTES, Request,
    open_pair,
};
use qpair_format::page::damage;
use qpair_format::place::page_of;
use qpair_format::{Error, ErrorKind, Result};

use qpair_members::{is_on_log_device, open_channel, transfer_arena, wait};

/// Opens a channel for transfers from this memory, to a store's pages and to its log device.
fn open_channels(
    device: &dyn BlockDevice,
    log_device: Option<&Arc<dyn BlockDevice>>,
    arena: &Arc<Arena>,
) -> Result<Box<dyn IoChannel>> {
    let Some(log_device) = log_device else { return open_channel(device, arena) };
    let depth = arena.block_count();
    let options = ChannelOptions { depth, arenas: vec![arena.clone()], wake: None };
    open_pair((device, &options), (log_device.as_ref(), &options)).map_err(|error| {
        let names = format!("{} and {}", device.info().name, log_device.info().name);
        Error::block(error, format!("opening channels to {names}"))
    })
}

pub(crate) struct PageReader {
    device: Arc<dyn BlockDevice>,
    /// The log device, if the store has one and it is present.
    log_device: Option<Arc<dyn BlockDevice>>,
    arena: Arc<Arena>,
    channel: Box<dyn IoChannel>,
    page_size: usize,
    /// The number of bytes of a page that hold content.
    page_bytes: usize,
}

impl PageReader {
    /// Creates a reader for the device behind a store's superblocks, and for its log device.
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
        page_size: usize,
    ) -> Result<Self> {
        let devices: Vec<&dyn BlockDevice> =
            std::iter::once(&device).chain(&log_device).map(AsRef::as_ref).collect();
        let arena = transfer_arena(&devices)?;
        let channel = open_channels(device.as_ref(), log_device.as_ref(), &arena)?;
        if arena.block_size() < page_size {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} cannot transfer pages of {page_size} bytes", device.info().name),
            ));
        }
        Ok(Self { device, log_device, arena, channel, page_size, page_bytes: page_size })
    }

    /// Sets the number of bytes of a page that hold content.
    pub(crate) fn with_page_bytes(self, page_bytes: usize) -> Self {
        Self { page_bytes, ..self }
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    pub(crate) fn page_size(&self) -> usize {
        self.page_size
    }

    /// Returns the number of pages that the device has room for.
    pub(crate) fn capacity(&self) -> u64 {
        self.device.size_bytes() / self.page_size as u64
    }

    /// Whether the range lies inside the store's devices. If such a range still cannot be read, it
    /// is damaged.
    pub(crate) fn is_within(&self, offset_bytes: u64, len: usize) -> bool {
        let end = offset_bytes.checked_add(len as u64);
        end.is_some_and(|end| end <= self.end_of(offset_bytes))
    }

    fn end_of(&self, address_bytes: u64) -> u64 {
        match (is_on_log_device(address_bytes), &self.log_device) {
            (true, Some(log_device)) => PAIR_SECOND_BYTES + log_device.size_bytes(),
            _ => self.device.size_bytes(),
        }
    }

    /// Returns the maximum number of bytes that are read at once.
    pub(crate) fn transfer_bytes(&self) -> usize {
        self.arena.block_size()
    }

    /// Reads ranges of bytes. `each` receives them as they arrive, with their index; a range that
    /// cannot be read is `None`.
    pub(crate) fn read_ranges(
        &mut self,
        ranges: &[(u64, usize)],
        mut each: impl FnMut(usize, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let (mut next, mut done, mut outcome) = (0, 0, Ok(()));
        let mut completions = Vec::new();
        while done < ranges.len() {
            while next < ranges.len() {
                let (offset_bytes, len) = ranges[next];
                let Some(buffer) = self.arena.lease() else { break };
                let request = Request::read(offset_bytes, len as u32, buffer, next as u64);
                if !self.is_within(offset_bytes, len)
                    || len > self.arena.block_size()
                    || self.channel.submit(request).is_err()
                {
                    done += 1;
                    outcome = outcome.and_then(|()| each(next, None));
                }
                next += 1;
            }
            if self.channel.in_flight() > 0 {
                wait(self.channel.as_mut(), &mut completions);
            }
            for Completion { tag, buffer, result, .. } in completions.drain(..) {
                done += 1;
                let bytes = buffer.as_ref().map(Buffer::as_slice).filter(|_| result.is_ok());
                let len = ranges[tag as usize].1;
                // Wait for all transfers before returning an error.
                outcome = outcome.and_then(|()| each(tag as usize, bytes.map(|b| &b[..len])));
            }
        }
        outcome
    }

    /// Reads the pages in these places. Returns each page, or its damage, in the same order.
    pub(crate) fn read_pages(&mut self, places: &[u64]) -> Result<Vec<Result<Vec<u8>, String>>> {
        let (page_size, page_bytes) = (self.page_size, self.page_bytes);
        let pages: Vec<u64> = places.iter().map(|place| page_of(*place)).collect();
        let ranges: Vec<_> =
            pages.iter().map(|page_id| (page_id * page_size as u64, page_size)).collect();
        let mut found: Vec<Result<Vec<u8>, String>> =
            pages.iter().map(|page_id| Err(format!("page {page_id} cannot be read"))).collect();
        self.read_ranges(&ranges, |index, bytes| {
            let page_id = pages[index];
            if let Some(bytes) = bytes.map(|bytes| &bytes[..page_bytes]) {
                found[index] = match damage(bytes, places[index]) {
                    Some(damage) => Err(format!("page {page_id} {damage}")),
                    None => Ok(bytes.to_vec()),
                };
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Reads one page. Returns the page, or its damage.
    pub(crate) fn read_page(&mut self, place: u64) -> Result<Result<Vec<u8>, String>> {
        let mut found = self.read_pages(&[place])?;
        Ok(found.pop().unwrap_or_else(|| Err(format!("page {} was not read", page_of(place)))))
    }
}
