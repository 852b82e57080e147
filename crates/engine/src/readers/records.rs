//! Reads the checkpoint records on any thread, beside the workers' channels.

use std::sync::Arc;

use qpair_block::{Arena, BlockDevice, IoChannel, Request};
use qpair_format::image::{RECORD_PAGES, Record};
use qpair_format::page::damage;
use qpair_format::{Error, ErrorKind, Result};
use qpair_members::{open_channel, transfer_arena, wait};

pub(crate) struct RecordReader {
    channel: Box<dyn IoChannel>,
    arena: Arc<Arena>,
}

impl RecordReader {
    pub(crate) fn open(device: &dyn BlockDevice) -> Result<Self> {
        let arena = transfer_arena(&[device])?;
        Ok(Self { channel: open_channel(device, &arena)?, arena })
    }

    /// Returns the newest record of a store; `None` if neither place has one.
    ///
    /// # Errors
    /// The device's error, if it can read neither of the two places.
    pub(crate) fn newest(
        &mut self,
        store_id: [u8; 16],
        page_size: usize,
        page_bytes: usize,
    ) -> Result<Option<Record>> {
        let (mut newest, mut failure, mut read) = (None::<Record>, None, 0);
        for page_id in 0..RECORD_PAGES {
            match self.read(page_id, page_size) {
                Ok(page) => {
                    let page = &page[..page_bytes];
                    read += 1;
                    let record = damage(page, page_id).is_none().then(|| Record::decode(page));
                    let own = record.flatten().filter(|record| record.store_id == store_id);
                    newest = newest.into_iter().chain(own).max_by_key(|record| record.sequence);
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if read == 0 => Err(error),
            _ => Ok(newest),
        }
    }

    fn read(&mut self, page_id: u64, page_size: usize) -> Result<Vec<u8>> {
        let reading = |error| Error::io(error, format!("reading the checkpoint record {page_id}"));
        let busy =
            || Error::new(ErrorKind::NoMemory, "the memory for a checkpoint record is in use");
        let buffer = self.arena.lease().ok_or_else(busy)?;
        let request = Request::read(page_id * page_size as u64, page_size as u32, buffer, page_id);
        self.channel.submit(request).map_err(|_| busy())?;
        let mut completions = Vec::new();
        while completions.is_empty() {
            wait(self.channel.as_mut(), &mut completions);
        }
        let completion = completions.pop().ok_or_else(busy)?;
        completion.result.map_err(reading)?;
        let buffer = completion.buffer.ok_or_else(busy)?;
        Ok(buffer.as_slice()[..page_size].to_vec())
    }
}
