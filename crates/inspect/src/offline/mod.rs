//! A store that is inspected on its members without being opened: its superblocks, its newest
//! checkpoint, its trees, its logs.
//!
//! Invariant: nothing is written. One good superblock slot is enough, and a store with one member
//! needs none. Everything else may be damaged, and each damage is reported.

mod leaves;
mod logs;
mod pages;
mod without_superblock;

use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_engine::StoreOptions;
use qpair_format::image::{Image, ImageBytes, Record};
use qpair_format::superblock::Superblock;
use qpair_format::{Error, ErrorKind, Result};

pub(crate) use leaves::{Entry, Hole, Part, entries, walk_leaves};
pub(crate) use logs::read_logs;
pub(crate) use pages::PageReader;
use qpair_format::image::RECORD_PAGES;
pub(crate) use without_superblock::Look;

pub(crate) struct Offline {
    pub(crate) superblock: Superblock,
    pub(crate) reader: PageReader,
    /// Remarks on damaged superblocks and checkpoint records.
    pub(crate) remarks: Vec<String>,
    /// The newest checkpoint whose record and image can be read.
    pub(crate) checkpoint: Option<(Record, Image)>,
    /// The reason why the log cannot be read, if its log device is missing.
    pub(crate) log_fault: Option<Error>,
}

impl Offline {
    /// Opens the store on these members for inspection. `options` say where its log is, and with
    /// which key it is encrypted. The members must be in the order in which the store was created.
    /// If no superblock is left, `look` says whether the only member is searched for pages in full,
    /// or only at its beginning.
    ///
    /// # Errors
    /// `Corrupt` or `NotAStore` if neither a superblock nor, in its place, a page can be read;
    /// `Member` if the members do not belong to one store, in order; `Version`; `Interrupted`.
    pub(crate) fn open(
        members: &[Arc<dyn BlockDevice>],
        options: &StoreOptions,
        look: Look<'_>,
    ) -> Result<Self> {
        let mut remarks = Vec::new();
        let superblock = match read_superblocks(members, &mut remarks) {
            Ok(superblock) => superblock,
            // The key of an encrypted store is in its superblocks.
            Err(error) if error.kind() == ErrorKind::Version || options.encryption.is_some() => {
                return Err(error);
            }
            Err(error) => {
                let superblock =
                    without_superblock::superblock_by_pages(members, look)?.ok_or(error)?;
                remarks.push(format!(
                    "it is read from its pages of {} bytes alone",
                    superblock.page_size
                ));
                superblock
            }
        };
        let key = options.encryption.as_ref();
        let unlocked = qpair_members::unlock(members.to_vec(), &superblock, key)?;
        let device = qpair_members::join(&unlocked, superblock.stripe_unit_bytes)?;
        let name = &members[0].info().name;
        let (log, mut log_fault) = match options.log_place.look(name, &superblock) {
            Ok(log) => (log, None),
            Err(error) => (None, Some(error)),
        };
        let log_device = log
            .as_ref()
            .map(|log| qpair_members::unlock_log(log.device.clone(), &superblock, key))
            .transpose()?;
        let mut reader = PageReader::new(device, log_device, superblock.page_size as usize)?
            .with_page_bytes(superblock.page_bytes());
        let checkpoint = read_checkpoint(&mut reader, &superblock, &mut remarks)?;
        if let Some((record, image)) = &checkpoint
            && let Some(log) = &log
            && !record.closed
        {
            log_fault = log.fits(name, &superblock, &image.logs).err();
        }
        Ok(Self { superblock, reader, remarks, checkpoint, log_fault })
    }
}

fn read_superblocks(
    members: &[Arc<dyn BlockDevice>],
    remarks: &mut Vec<String>,
) -> Result<Superblock> {
    let (mut newest, mut first_error): (Option<Superblock>, Option<Error>) = (None, None);
    for (index, member) in members.iter().enumerate() {
        let superblock = match qpair_members::read(member.as_ref()) {
            Ok(superblock) => superblock,
            Err(error) if error.kind() == ErrorKind::Version => return Err(error),
            Err(error) => {
                remarks.push(error.context().to_owned());
                first_error.get_or_insert(error);
                continue;
            }
        };
        let name = &member.info().name;
        let stranger = newest.as_ref().is_some_and(|other| other.store_id != superblock.store_id);
        if superblock.member_index as usize != index
            || superblock.member_count as usize != members.len()
            || stranger
        {
            return Err(Error::with_hint(
                ErrorKind::Member,
                format!(
                    "{name} is member {} of {} of {} store",
                    superblock.member_index,
                    superblock.member_count,
                    if stranger { "another" } else { "its" }
                ),
                "give all members of one store, in the order in which it was made",
            ));
        }
        if newest.as_ref().is_none_or(|other| other.generation < superblock.generation) {
            newest = Some(superblock);
        }
    }
    newest.ok_or_else(|| {
        first_error.unwrap_or_else(|| Error::new(ErrorKind::Invalid, "a store has members"))
    })
}

fn read_checkpoint(
    reader: &mut PageReader,
    superblock: &Superblock,
    remarks: &mut Vec<String>,
) -> Result<Option<(Record, Image)>> {
    let mut records: Vec<Record> = Vec::new();
    for page_id in 0..RECORD_PAGES {
        let record = reader.read_page(page_id)?.and_then(|page| {
            Record::decode(&page)
                .filter(|record| record.store_id == superblock.store_id)
                .ok_or_else(|| format!("page {page_id} is not a checkpoint record of this store"))
        });
        match record {
            Ok(record) => records.push(record),
            Err(what) => remarks.push(format!("a checkpoint record is damaged: {what}")),
        }
    }
    records.sort_by_key(|record| std::cmp::Reverse(record.sequence));
    records.dedup();
    for record in records {
        match read_image(reader, &record)? {
            Ok(image) => return Ok(Some((record, image))),
            Err(error) => remarks.push(error.context().to_owned()),
        }
    }
    Ok(None)
}

fn read_image(reader: &mut PageReader, record: &Record) -> Result<Result<Image>> {
    let mut bytes = match ImageBytes::new(record, reader.page_bytes(), reader.capacity()) {
        Ok(bytes) => bytes,
        Err(error) => return Ok(Err(error)),
    };
    for page_id in bytes.pages() {
        let taken = match reader.read_page(page_id)? {
            Ok(page) => bytes.take(page_id, &page),
            Err(what) => {
                let what = format!("the checkpoint image is damaged: {what}");
                Err(Error::new(ErrorKind::Corrupt, what))
            }
        };
        if let Err(error) = taken {
            return Ok(Err(error));
        }
    }
    Ok(bytes.finish().and_then(|bytes| Image::decode(&bytes)))
}
