//! Recovery: opening a store from its newest checkpoint and the logs after it.

mod ahead;
mod gather;
mod large;
mod next;
mod redo;
mod scan;
mod stages;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use qpair_format::image::{Image, Record};
use qpair_format::log::LogMerge;
use qpair_format::superblock::StoreState;
use qpair_format::{Error, ErrorKind, Result};

use super::roots::{make_tree, open_tree};
use super::{StoreInner, StoreOptions, Table};
use crate::canary::Canary;
use crate::checkpoint::{checkpoint, note_described, read_image, read_newest, write_record};
use crate::incarnation::Behind;
use crate::pool::Root;
use crate::readers::{RecordReader, Witness};
use crate::shared::{Recovered, Shared};
use crate::task::{current, oneshot, run};
use crate::tree::{Batch, Direction, Scan, Tree};
use gather::Kept;
use qpair_format::catalog::decode;
use qpair_members::Generations;
use qpair_members::any_on_log_device;
use redo::{Lanes, kept_bytes_max};
use scan::{Logs, Wish};
pub(super) use stages::Room;

impl StoreInner {
    /// Makes the first checkpoint of a new store, and marks the store complete unless
    /// `whole_when_closed` leaves that to the close.
    pub(super) fn begin_new(self: &Arc<Self>, whole_when_closed: bool) -> Result<()> {
        let catalog = self.make_tree(0)?;
        let _ = self.catalog.set(Ok(catalog));
        let shared = self.shared.clone();
        self.block_on(move || async move { checkpoint(&shared, true).await })?;
        if !whole_when_closed {
            self.incarnation.mark_clean()?;
        }
        self.shared.checkpointing.barrier.open();
        Ok(())
    }

    /// Loads the newest checkpoint, and recovers the commits after it.
    pub(super) fn take_up(
        self: &Arc<Self>,
        options: &StoreOptions,
        generations: &Generations,
        room: Room,
        more_memory_bytes: u64,
    ) -> Result<()> {
        let image = self.load_image(generations);
        let (mut roots, mut logs) = (BTreeMap::new(), Vec::new());
        match image {
            // The device itself may be read-only, too.
            Ok((record, _))
                if !record.closed
                    && self.shared.lifecycle.read_only
                    && !(options.at_checkpoint || options.beside_writer) =>
            {
                return Err(Error::with_hint(
                    ErrorKind::Unclean,
                    format!(
                        "{} was not closed: its log has commits that are not in its pages yet",
                        self.incarnation.members[0].info().name
                    ),
                    "open it once for writing, which recovers it",
                ));
            }
            Ok((record, image)) => {
                self.check_log_place(&image.logs)?;
                note_described(&self.shared, &record, &image);
                logs = image.logs;
                self.shared.space.load(image.pages);
                // The image's description must survive until the next checkpoint, but no tree
                // refers to it.
                for (first, pages) in record.runs() {
                    self.shared.space.unlink(first, pages);
                }
                *self.shared.forest.roots() =
                    image.roots.iter().map(|(tree, page)| (*tree, Root::Closed(*page))).collect();
                image.roots.keys().for_each(|id| self.shared.forest.skip_tree_id(*id));
                roots = image.roots;
                self.shared.checkpointing.replace_record(record);
            }
            // A damaged store can still be opened for reading, so that a check can run.
            Err(error)
                if self.shared.lifecycle.read_only
                    && error.kind() != ErrorKind::Member
                    && !options.beside_writer =>
            {
                let _ = self.image_fault.set(error);
            }
            Err(error) => return Err(error),
        }
        let record = self.shared.checkpointing.record();
        self.shared.oracle.start(record.timestamp);
        if !self.shared.lifecycle.read_only {
            self.shared.kept_images.begin(record.sequence);
        }
        let catalog = match self.image_fault.get() {
            Some(fault) => Err(fault.clone()),
            None => self.open_tree(0),
        };
        if (!self.shared.lifecycle.read_only || options.beside_writer)
            && let Err(error) = catalog
        {
            return Err(error);
        }
        let _ = self.catalog.set(catalog);
        if !self.shared.lifecycle.read_only {
            if self.is_marked_open_on_device() {
                // The record may be in a volatile cache only, if a flush failed before the crash.
                // Writes from here on may reuse pages that only the previous record needs.
                let shared = self.shared.clone();
                self.block_on(move || async move { write_record(&shared, &record).await })?;
            }
            if !record.closed {
                self.shared.space.set_urgent(true);
                let is_due = {
                    let behind = Behind { roots, logs };
                    self.recover(record, behind, options, room, more_memory_bytes)?
                };
                self.shared.space.set_urgent(false);
                if is_due {
                    // The store is usable during this checkpoint.
                    self.block_on(|| async {
                        current(|worker| worker.begin_checkpoint());
                        Ok(())
                    })?;
                }
            }
            self.reclaim_dropped()?;
        }
        self.take_up_expiry()
    }

    /// Whether the superblocks say that the store was not closed.
    fn is_marked_open_on_device(&self) -> bool {
        self.incarnation.superblock.lock().state == StoreState::Open
    }

    /// Returns an error if the logs' device is missing, or its contents are of another moment.
    fn check_log_place(&self, logs: &[Vec<u8>]) -> Result<()> {
        if self.shared.lifecycle.read_only {
            return Ok(());
        }
        let name = &self.incarnation.members[0].info().name;
        match &self.shared.wal.device {
            Some(log_device) => log_device.fits(name, logs),
            None if any_on_log_device(logs) => Err(unreadable(format!(
                "the log of {name} is on a log device that its superblock does not name"
            ))),
            None => Ok(()),
        }
    }

    /// Replays the logs after the checkpoint, and begins the next logs. Returns whether a
    /// checkpoint is due: until there is one, the old and the new logs are needed.
    fn recover(
        self: &Arc<Self>,
        record: Record,
        Behind { roots, logs }: Behind,
        options: &StoreOptions,
        room: Room,
        more_memory_bytes: u64,
    ) -> Result<bool> {
        let (inner, progress) = (self.clone(), options.progress.clone());
        self.block_on(move || async move {
            let shared = inner.shared.clone();
            shared.wal.old_logs.begin(logs.clone());
            let mut logs = Logs::new(&shared, &record, &logs)?;
            let mut kept = Kept::new(kept_bytes_max(&shared));
            let mut found = logs.analyse(&shared, &mut kept).await?;
            let (end, bytes) = (found.end, found.bytes);
            if end.is_damaged() {
                return Err(unreadable(format!(
                    "the log is damaged: commits from {} on were durable and cannot be read",
                    end.next_timestamp
                )));
            }
            let log_runs = found.claim(&shared)?;
            // Pages of values that these commits replace become free: from here on the commits must
            // not be lost.
            if !shared.planted.is(Canary::UnwrittenLogs) {
                logs.write_again(&shared, &found).await?;
            }
            progress.tell(0, bytes);
            let (large, rest) = (std::mem::take(&mut found.large), found.rest.take());
            let mut lanes = Lanes::start(&inner, large, room);
            let redone = redo(&shared, &mut logs, &mut lanes, kept, rest, |done| {
                progress.tell(done, bytes);
            })
            .await;
            lanes.finish().await?;
            redone?;
            progress.tell(bytes, bytes);
            if let Some(failure) = shared.lifecycle.failure() {
                return Err(failure.clone());
            }
            shared.oracle.start(end.next_timestamp - 1);
            let behind = Behind { roots, logs: shared.wal.old_logs.places() };
            shared.wal.old_logs.end(log_runs);
            let is_due = next::begin(&inner, behind, &logs, &found, room).await?;
            let (commits, dropped) = (end.taken, end.dropped);
            let _ = shared.lifecycle.recovered.set(Recovered {
                commits,
                dropped,
                bytes,
                more_memory_bytes,
            });
            Ok(is_due)
        })
    }

    /// Returns the tree with this id, for a change in the log; `None` if the table is gone.
    async fn tree_for_redo(&self, id: u32) -> Result<Option<Tree>> {
        let known = self.shared.forest.roots().get(&id).copied();
        match known {
            None => Ok(None),
            Some(Root::Open(root)) => Ok(Some(Tree::new(id, root))),
            Some(Root::Closed(_)) => open_tree(&self.shared, id).await.map(Some),
        }
    }

    async fn create_again(&self, id: u32, name: &str) -> Result<()> {
        self.shared.forest.skip_tree_id(id);
        if self.tree_for_redo(id).await?.is_none() {
            make_tree(&self.shared, id).await?;
        }
        self.put_name(name, Some(id), self.shared.last_timestamp()).await
    }

    async fn drop_again(&self, id: u32) -> Result<()> {
        match self.name_of(id).await? {
            Some(name) => self.put_name(&name, None, self.shared.last_timestamp()).await,
            None => Ok(()),
        }
    }

    async fn rename_again(&self, id: u32, name: &str) -> Result<()> {
        match self.name_of(id).await? {
            Some(old) if old != name => {
                let timestamp = self.shared.last_timestamp();
                self.put_name(name, Some(id), timestamp).await?;
                if self.shared.planted.is(Canary::RenameKeepsOldName) {
                    return Ok(());
                }
                self.put_name(&old, None, timestamp).await
            }
            // The table already has this name, or was dropped and has no name.
            _ => Ok(()),
        }
    }

    async fn name_of(&self, id: u32) -> Result<Option<String>> {
        let (mut from, to, mut batch) = (Bound::Unbounded, Bound::Unbounded, Batch::default());
        let catalog = self.catalog()?;
        loop {
            run(&self.shared, Scan::new(catalog, Direction::Forward, &from, &to, &mut batch))
                .await?;
            for index in 0..batch.len() {
                let (name, record, _) = batch.entry(index);
                if decode(record)? == id {
                    return Ok(Some(String::from_utf8_lossy(name).into_owned()));
                }
            }
            match batch.next.take() {
                Some(next) => from = next,
                None => return Ok(None),
            }
        }
    }

    /// Resumes the drops of tables that a crash or a close interrupted, from the first change on.
    fn reclaim_dropped(self: &Arc<Self>) -> Result<()> {
        let catalog = Table::new(self.clone(), self.catalog()?);
        let mut doomed: Vec<u32> =
            self.shared.forest.roots().keys().copied().filter(|id| *id != 0).collect();
        if doomed.is_empty() {
            return Ok(());
        }
        for entry in catalog.range(..)? {
            let id = decode(&entry?.1)?;
            doomed.retain(|other| *other != id);
        }
        for id in doomed {
            let tree = self.open_tree(id)?;
            let (changed, first_change) = oneshot();
            match self.shared.lifecycle.is_marked_open() {
                true => changed.fill(Ok(())),
                false => {
                    self.incarnation.first_change.lock().push(changed);
                }
            }
            self.reclaim(tree, Some(first_change));
        }
        Ok(())
    }

    fn load_image(&self, generations: &Generations) -> Result<(Record, Image)> {
        let Some(witness) = &self.shared.witness else {
            let shared = self.shared.clone();
            let newest = self.block_on(move || async move {
                Ok(read_newest(&shared, shared.lifecycle.store_id).await)
            })?;
            return self.load_described(newest, generations);
        };
        let mut records = None;
        for _ in 0..READER_TRIES {
            let newest = see_newest(witness, &mut records)?;
            let loaded = self.load_described(newest, generations);
            // Other pages are kept for a reader, but a later checkpoint has its description in the
            // same place.
            if witness.newest(&mut records)? == newest {
                return loaded.inspect(|(_, image)| witness.keep(image.clone()));
            }
        }
        Err(Error::reader_lost())
    }

    /// Loads the image that a record describes.
    fn load_described(
        &self,
        record: Option<Record>,
        generations: &Generations,
    ) -> Result<(Record, Image)> {
        let shared = self.shared.clone();
        let name = self.incarnation.members[0].info().name.clone();
        let no_record = format!("{name} has no checkpoint record that can be read");
        let record = record.ok_or_else(|| Error::damaged(no_record))?;
        generations.check(&record)?;
        let shortest = self.incarnation.members.iter().min_by_key(|member| member.size_bytes());
        let name = shortest.map_or(name, |member| member.info().name.clone());
        self.block_on(move || async move {
            let end = record.end();
            if end > shared.space.capacity() {
                return Err(cut_short(&name, end, &shared));
            }
            let image = Image::decode(&read_image(&shared, &record).await?)?;
            let end = image.pages.end();
            if end > shared.space.capacity() {
                return Err(cut_short(&name, end, &shared));
            }
            Ok((record, image))
        })
    }
}

/// The number of checkpoints that a reader may find replaced before it has read one's description.
const READER_TRIES: u32 = 100;

/// Chooses the newest checkpoint for a reader beside a writer, once its pages are known to stay.
fn see_newest(witness: &Witness, records: &mut Option<RecordReader>) -> Result<Option<Record>> {
    for _ in 0..READER_TRIES {
        let Some(newest) = witness.newest(records)? else { return Ok(None) };
        witness.see(newest);
        match witness.check(records) {
            // The next checkpoint came in between.
            Err(error) if error.kind() == ErrorKind::SnapshotLost => {}
            checked => return checked.map(|()| Some(newest)),
        }
    }
    Err(Error::reader_lost())
}

fn cut_short(name: &str, end: u64, shared: &Shared) -> Error {
    let room = shared.space.capacity();
    Error::damaged(format!(
        "{name} was cut short: the store has pages up to {end}, but its members have room for {room}"
    ))
}

/// Replays the steps that the first pass kept, and then the rest of the logs.
async fn redo(
    shared: &Shared,
    logs: &mut Logs,
    lanes: &mut Lanes,
    kept: Kept,
    rest: Option<LogMerge>,
    told: impl Fn(u64),
) -> Result<()> {
    let (steps, mut done) = kept.into_steps();
    for step in steps {
        lanes.take_kept(step).await?;
    }
    let Some(rest) = rest else { return Ok(()) };
    logs.read(shared, rest, async |record| {
        lanes.take(record).await?;
        done += record.bytes() as u64;
        told(done);
        Ok(Wish::GoOn)
    })
    .await
    .map(|_| ())
}

fn unreadable(what: String) -> Error {
    Error::damaged(what)
}
