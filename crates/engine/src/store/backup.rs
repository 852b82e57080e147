//! Backup: a copy of a store as of one commit, made while the store is written to.
//!
//! - The copy is of a checkpoint's image. Its pages keep their contents until the copy is done
//!   ([`Space::hold`]): commits use other pages meanwhile.
//! - The caller's thread copies, over channels of its own. Failures of the target do not affect the
//!   store.
//! - The target's superblocks are zeroes from before the first page is written until the last page
//!   is durable. So an incomplete copy is not a store.
//! - The target's contents are kept until the target is known to be large enough.
//!
//! [`Space::hold`]: crate::space::Space::hold

mod copy;
mod tally;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair_block::BlockDevice;
use qpair_format::bitmap::Bitmap;
use qpair_format::image::{Image, Record, image_bytes_per_page};
use qpair_format::page::{HEADER_BYTES, PageKind, checksum, field};
use qpair_format::{Error, ErrorKind, Remedy, Result};

use super::{Store, StoreInner, StoreOptions, open};
use crate::canary::Canary;
use crate::checkpoint::{checkpoint, read_image};
use crate::shared::Shared;
use crate::task::{refuse_on_worker, stepped};
use copy::{PageWriter, copy_pages};
use qpair_format::image::RECORD_PAGES;

/// The result of [`Store::backup`].
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// use std::ops::ControlFlow;
///
/// table.put(b"k", b"v")?;
/// let target = std::sync::Arc::new(qpair_block::RamDevice::new(Default::default())?);
/// let report = store.backup(vec![target], None, &|_, _| ControlFlow::Continue(()))?;
/// println!("all up to commit {}, {} pages", report.timestamp, report.pages);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// The timestamp of the newest commit in the backup, which has all commits up to it and none
    /// above.
    pub timestamp: u64,
    /// The number of pages copied.
    pub pages: u64,
    /// The size of a page, in bytes.
    pub page_size: usize,
    /// The backup's own store id, as hexadecimal digits.
    pub id: String,
}

/// A checkpoint's image whose pages the store must not reuse.
struct Held {
    shared: Arc<Shared>,
    hold: u64,
    pages: Bitmap,
    record: Record,
    image: Image,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.space.release(self.hold);
    }
}

impl Store {
    /// Copies the store to other members, as a store of its own, while this one is read and
    /// written. The copy is of one moment between commits: it has all transactions that were
    /// committed before this call, and others in full or not at all. The number of members, and the
    /// stripe unit (by default the same), may differ from this store's. The present contents of the
    /// members are lost.
    ///
    /// `progress` receives the number of pages done and of all pages, and may break the backup off.
    /// Every page is checked as it is copied. Space that commits free meanwhile is reused only once
    /// the backup has ended.
    ///
    /// # Errors
    /// `Interrupted` if `progress` broke it off; `Corrupt` if a page of the store is damaged;
    /// `NoSpace` if the target is too small; `Invalid` on a worker, or if the target cannot hold
    /// pages of this size; errors of the devices. After `NoSpace` and `Invalid` the target's
    /// contents are unchanged; after other errors the target has no store. This store is not
    /// affected.
    #[doc(hidden)]
    pub fn backup(
        &self,
        members: Vec<Arc<dyn BlockDevice>>,
        stripe_unit_bytes: Option<u64>,
        progress: &dyn Fn(u64, u64) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        refuse_on_worker()?;
        if members.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a backup needs at least one member"));
        }
        let inner = &self.inner;
        let (page_size, page_bytes) = (inner.shared.page_size, inner.shared.page_bytes);
        let (own_unit, created_s) = {
            let superblock = inner.incarnation.superblock.lock();
            (superblock.stripe_unit_bytes, superblock.created_s)
        };
        let unit = stripe_unit_bytes.unwrap_or(own_unit);
        check_target(&members, page_size, unit)?;
        let held = inner.hold_image()?;
        open::make_room_for_superblocks(&members, unit)?;
        let given = members.clone();
        let key_slot = inner.encryption.as_ref().map(|key| key.new_slot()).transpose()?;
        let members = match (&inner.encryption, &key_slot) {
            (Some(key), Some(slot)) => {
                key.unlock(slot, page_size as u32, (0..).zip(members).collect())?
            }
            _ => members,
        };
        let target = qpair_members::join(&members, unit)?;
        let size_bytes = held.pages.end() * page_size as u64;
        if target.size_bytes() < size_bytes {
            target
                .grow(size_bytes)
                .map_err(|error| Error::block(error, "reserving space for the backup"))?;
        }
        // From here on the target has no valid contents.
        qpair_members::erase(&members)?;
        let mut pages = held.pages.clone();
        pages.change(0, RECORD_PAGES, false);
        held.record.runs().for_each(|(first, count)| pages.change(first, count, false));
        let roots = held.image.roots.values().copied();
        let copied = copy_pages(
            (&inner.shared.device, &target),
            (page_size, page_bytes),
            &pages,
            roots,
            progress,
        );
        // Pages of a later checkpoint may look damaged.
        if let Some(witness) = &inner.shared.witness {
            witness.check(&mut None)?;
        }
        let suspects = copied?;
        let mut superblock = open::new_superblock(members.len(), page_size, unit, created_s);
        superblock.extents = inner.shared.large.lists.may_be();
        {
            let own = inner.incarnation.superblock.lock();
            (superblock.compressed, superblock.expiring) = (own.compressed, own.expiring);
            superblock.long_keys = own.long_keys;
        }
        superblock.key_slot = key_slot;
        seal(&target, (page_size, page_bytes), &held, superblock.store_id)?;
        open::write_new_superblocks(&members, &superblock)?;
        if let Some(suspect) = suspects.first() {
            // A damaged page that no tree refers to, and that was never written, does no harm.
            let checked = check_copy(inner, given, page_size);
            if !matches!(checked, Ok(None)) {
                qpair_members::erase(&members)?;
                let fault = checked?.unwrap_or_default();
                return Err(Error::with_remedy(
                    ErrorKind::Corrupt,
                    format!("the store is damaged: {suspect}; the copy has this fault: {fault}"),
                    "a check lists the damage, a repair salvages what can be read",
                    Remedy::Check,
                ));
            }
        }
        // The copy is complete, even if the file is longer than necessary.
        let _ = target.shrink(size_bytes);
        Ok(BackupReport {
            timestamp: held.record.timestamp,
            pages: pages.count(),
            page_size,
            id: superblock.store_id.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }
}

impl StoreInner {
    /// Makes a checkpoint, unless nothing was changed since the last one, and holds its image.
    fn hold_image(&self) -> Result<Held> {
        if self.shared.lifecycle.is_closing() {
            return Err(Error::closed());
        }
        let (shared, changed) = (self.shared.clone(), self.shared.lifecycle.is_marked_open());
        self.block_on(move || async move {
            if changed && !shared.planted.is(Canary::BackupWithoutCheckpoint) {
                let before = shared.checkpointing.epochs.completed.load(Ordering::Relaxed);
                checkpoint(&shared, false).await?;
                if shared.checkpointing.epochs.completed.load(Ordering::Relaxed) == before {
                    // The store is being closed, and the present image lacks some commits.
                    return Err(Error::closed());
                }
            }
            // Holding this lock keeps other checkpoints from coming between the image and its
            // record.
            let _alone = shared.checkpointing.alone.enter().await;
            let (hold, pages) = shared.space.hold();
            let record = shared.checkpointing.record();
            let mut held =
                Held { shared: shared.clone(), hold, pages, record, image: Image::default() };
            held.image = match shared.witness.as_ref().and_then(|witness| witness.image()) {
                Some(image) => image.clone(),
                None => Image::decode(&read_image(&shared, &record).await?)?,
            };
            Ok(held)
        })
    }
}

/// Checks that the members can hold pages of this size.
fn check_target(
    members: &[Arc<dyn BlockDevice>],
    page_size: usize,
    stripe_unit_bytes: u64,
) -> Result<()> {
    let unit_fits = stripe_unit_bytes > 0 && stripe_unit_bytes.is_multiple_of(page_size as u64);
    if !unit_fits {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "a stripe unit has {stripe_unit_bytes} bytes; it must be a multiple of the page size, {page_size} bytes"
            ),
        ));
    }
    for member in members {
        let info = member.info();
        if page_size < info.logical_block_bytes as usize
            || page_size > info.transfer_bytes_max as usize
        {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "pages of {page_size} bytes do not fit {}, whose blocks have {} bytes",
                    info.name, info.logical_block_bytes
                ),
            ));
        }
    }
    Ok(())
}

/// Writes the parts that make the pages a closed store: the image's description, without logs, and
/// the checkpoint records that lead to it.
fn seal(
    target: &Arc<dyn BlockDevice>,
    (page_size, page_bytes): (usize, usize),
    held: &Held,
    store_id: [u8; 16],
) -> Result<()> {
    let mut writer = PageWriter::new(target, page_size)?;
    let image = Image { logs: Vec::new(), ..held.image.clone() }.encode();
    let first = held.record.image_page;
    for (page_id, part) in (first..).zip(image.chunks(image_bytes_per_page(page_bytes))) {
        writer.write(page_id, &page(page_bytes, page_id, PageKind::CheckpointImage, part))?;
    }
    // The description must be durable before the record that leads to it.
    writer.flush()?;
    let record = Record {
        store_id,
        image_bytes: image.len() as u64,
        image_checksum: crc_fast::crc32_iscsi(&image),
        closed: true,
        generation: 0,
        ..held.record
    };
    let content = record.encode();
    for page_id in 0..RECORD_PAGES {
        writer.write(page_id, &page(page_bytes, page_id, PageKind::CheckpointRecord, &content))?;
    }
    writer.flush()
}

/// Builds a page that is not part of a tree.
fn page(page_bytes: usize, page_id: u64, kind: PageKind, content: &[u8]) -> Vec<u8> {
    let mut page = vec![0; page_bytes];
    page[field::KIND] = kind as u8;
    page[field::PAGE_ID..field::PAGE_ID + 8].copy_from_slice(&page_id.to_le_bytes());
    page[HEADER_BYTES..HEADER_BYTES + content.len()].copy_from_slice(content);
    let sum = checksum(&page);
    page[field::CHECKSUM..field::CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
    page
}

/// Returns the first fault of the copy.
fn check_copy(
    inner: &StoreInner,
    members: Vec<Arc<dyn BlockDevice>>,
    page_size: usize,
) -> Result<Option<String>> {
    let options = StoreOptions {
        read_only: true,
        workers: 1,
        memory_bytes: 1024 * page_size as u64,
        runtime: stepped::like(&inner.shared),
        encryption: inner.encryption.clone(),
        ..StoreOptions::default()
    };
    let copy = Store::open(members, &options)?;
    let report = copy.check(&|_, _| ())?;
    copy.close()?;
    Ok(report.faults.into_iter().next())
}
