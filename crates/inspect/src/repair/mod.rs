//! Repair: saves the readable part of a damaged store into a new one, and reports the rest.
//!
//! Invariant: the damaged store is only read. The result is the state of the newest checkpoint,
//! with the commits of the log after it up to the first gap. Where a tree's own leaves cannot be
//! read or reached, leaves found elsewhere on the members stand in for them: first those that the
//! checkpoint has in use, then older copies, which the report names.

mod candidates;
mod expiry;
mod groups;
mod large;
mod replay;
mod report;
mod save;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_format::image::{Image, Record};
use qpair_format::page::whole_key_len_max;
use qpair_format::{Error, ErrorKind, Result};

use crate::dump::{LogEntry, dump_log};
use crate::offline::{Entry, Hole, Offline, PageReader, Part, walk_leaves};
use candidates::{Candidates, scan};
use expiry::Expiry;
use qpair_engine::{Store, StoreOptions};
use qpair_format::catalog::decode;
use qpair_format::expiry::INDEX_TABLE;
use qpair_members::LogPlace;
pub use report::{KeyRange, RepairReport, RepairStep, RepairedLog, RepairedTable};
use save::{Gaps, each_entry, save_table};

/// The maximum number of faults that the report lists one by one.
const FAULTS_MAX: usize = 100;

/// Receives the progress of a repair: the step, the amount done, and the total or 0 if that is
/// unknown. May stop the repair.
type Progress<'a> = dyn Fn(RepairStep, u64, u64) -> ControlFlow<()> + 'a;

/// Checks whether the store on these members is damaged. If so, saves the readable part into the
/// new store that `make_target` creates for the given page size, and closes the new store.
/// `options` say how much memory to use, and where the log is. If the log is on a device that is
/// not given, the state of the last checkpoint is saved.
///
/// Memory is needed for each leaf of the key ranges that cannot be reached from a tree's root.
///
/// # Errors
/// `Corrupt` or `NotAStore` if neither a superblock can be read nor, for a store with one member, a
/// page in its place; `Member`; `Interrupted` if `progress` stopped the repair; the errors of the
/// devices and of `make_target`. After an error the content of the target must not be used.
pub fn repair(
    members: &[Arc<dyn BlockDevice>],
    options: &StoreOptions,
    make_target: &mut dyn FnMut(usize) -> Result<Store>,
    progress: &Progress<'_>,
) -> Result<RepairReport> {
    let (faults, harmless) = examine(members, options, progress)?;
    if faults.is_empty() {
        return Ok(RepairReport { healthy: true, harmless, ..RepairReport::default() });
    }
    let search = |done, all| progress(RepairStep::Search, done, all);
    let mut offline = Offline::open(members, options, Some(&search))?;
    let mut remarks = faults;
    remarks.append(&mut offline.remarks);
    let target = make_target(offline.superblock.page_size as usize)?;
    let whole_len_max = whole_key_len_max(offline.reader.page_bytes());
    if offline.superblock.long_keys && whole_len_max != target.whole_key_len_max() {
        return Err(Error::with_hint(
            ErrorKind::Unsupported,
            "the store may have keys that are too long for its pages, and the new store's pages have room for others",
            "encrypt the new store if the damaged one is encrypted, and only then; copy it afterwards",
        ));
    }
    let mut salvage = Salvage {
        target: target.clone(),
        progress,
        checkpoint: offline.checkpoint.take(),
        offline,
        candidates: Candidates::default(),
        expiry: Expiry::default(),
        report: RepairReport { remarks, ..RepairReport::default() },
    };
    if let Err(error) = salvage.run() {
        // A close must not mark the new store as complete, because it has only a part of the
        // records.
        target.fail(error.clone());
        return Err(error);
    }
    let report = salvage.report;
    target.close()?;
    Ok(report)
}

/// Returns two lists: the faults of a store, which is empty if the store is healthy or only needs
/// recovery; and the damage that loses no data.
fn examine(
    members: &[Arc<dyn BlockDevice>],
    options: &StoreOptions,
    progress: &Progress<'_>,
) -> Result<(Vec<String>, Vec<String>)> {
    let looking = StoreOptions {
        read_only: true,
        at_checkpoint: true,
        format: false,
        // The pages are checked without the log.
        log_place: LogPlace::Unsaid,
        ..options.clone()
    };
    let store = match Store::open(members.to_vec(), &looking) {
        Ok(store) => store,
        Err(error) => match error.kind() {
            ErrorKind::Corrupt | ErrorKind::NotAStore | ErrorKind::Unclean | ErrorKind::Io => {
                return Ok((vec![error.context().to_owned()], Vec::new()));
            }
            _ => return Err(error),
        },
    };
    let report = store.check(&|done, all| {
        let _ = progress(RepairStep::Check, done, all);
    })?;
    store.close()?;
    let mut faults = report.faults;
    if faults.is_empty() {
        faults = examine_log(members, options)?;
    }
    if faults.len() > FAULTS_MAX {
        let more = faults.split_off(FAULTS_MAX).len();
        faults.push(format!("and {more} more"));
    }
    Ok((faults, report.harmless))
}

/// Returns the faults of the log of a store that is not open, and of the large values that its
/// commits put. These are the parts after the newest checkpoint, which [`Store::check`] of a store
/// opened at its checkpoint does not reach. The list is empty if the log can be recovered, or there
/// is none.
///
/// # Errors
/// As [`dump_log`], except that a log that is missing or cannot be read is a fault and not an
/// error.
pub fn examine_log(
    members: &[Arc<dyn BlockDevice>],
    options: &StoreOptions,
) -> Result<Vec<String>> {
    let mut has_large = false;
    let look = &mut |entry: &LogEntry<'_>| {
        has_large |= entry.operations.iter().any(|operation| operation.large.is_some());
        ControlFlow::Continue(())
    };
    let fault = match dump_log(members, options, look) {
        Ok(log) if log.damaged => {
            "the log is damaged: commits that were durable are missing".to_owned()
        }
        Ok(log) if log.unreadable => {
            "the end of the log cannot be read: commits that were durable may be missing".to_owned()
        }
        Ok(_) if has_large => return large::unreadable(members, options),
        Ok(_) => return Ok(Vec::new()),
        // The log device was not given, is of another moment, or cannot be read.
        Err(error) if matches!(error.kind(), ErrorKind::Member | ErrorKind::Io) => {
            missing_log(&error)
        }
        Err(error) if error.kind() == ErrorKind::Corrupt => error.context().to_owned(),
        Err(error) => return Err(error),
    };
    Ok(vec![fault])
}

/// Returns the remark for a store whose log device is missing.
fn missing_log(error: &Error) -> String {
    format!(
        "the log is missing, and so are the commits since the last checkpoint: {}",
        error.context()
    )
}

struct Salvage<'a> {
    offline: Offline,
    checkpoint: Option<(Record, Image)>,
    candidates: Candidates,
    expiry: Expiry,
    target: Store,
    report: RepairReport,
    progress: &'a Progress<'a>,
}

impl Salvage<'_> {
    fn run(&mut self) -> Result<()> {
        if self.checkpoint.is_none() {
            self.report.remarks.push(
                "no checkpoint can be read: of each key the newest page with it is taken; commits that were only in the log \
                 are lost, and tables that were dropped may be back"
                    .to_owned(),
            );
            self.report.names_uncertain = true;
            self.scan(None)?;
        }
        let (mut names, whole) = self.read_catalog()?;
        self.read_expiry(&mut names)?;
        let trees = self.trees(names, whole);
        self.find_stand_ins(trees.iter().map(|(tree, _)| *tree))?;
        let mut saved = BTreeMap::new();
        for (tree, name) in trees {
            let root = self.root(tree);
            let outcome = save_table(self, tree, root, &name)?;
            saved.insert(tree, self.report.tables.len());
            self.report.tables.push(outcome);
        }
        if let Some((record, image)) = self.checkpoint.clone()
            && !record.closed
        {
            match self.offline.log_fault.take() {
                None => replay::replay(self, &record, &image.logs, saved)?,
                Some(fault) => self.note_missing_log(&fault, record.timestamp),
            }
        }
        if self.offline.superblock.long_keys {
            let whole_len_max = whole_key_len_max(self.offline.reader.page_bytes());
            for saved in &mut self.report.tables {
                groups::tell_records(&self.target, saved, whole_len_max)?;
            }
        }
        self.expiry.raise(&self.target)
    }

    /// Reads the index of expiry times, and takes its name out of the names of tables.
    fn read_expiry(&mut self, names: &mut BTreeMap<u32, String>) -> Result<()> {
        let index = names.iter().find(|(_, name)| *name == INDEX_TABLE).map(|(tree, _)| *tree);
        let Some(index) = index else { return Ok(()) };
        self.expiry.index = Some(index);
        names.remove(&index);
        self.find_stand_ins(std::iter::once(index))?;
        let (root, mut gaps) = (self.root(index), Gaps::default());
        let (reader, candidates, expiry) =
            (&mut self.offline.reader, &self.candidates, &mut self.expiry);
        let take = &mut |_: &mut PageReader, Entry { key, value, .. }| {
            expiry.note(&key, &value);
            Ok(())
        };
        each_entry(reader, candidates, index, root, &mut gaps, take)?;
        for range in gaps.lost.iter().chain(&gaps.stale) {
            let what = format!("times to live of tables may be missing: {}", range.why);
            self.report.remarks.push(what);
        }
        Ok(())
    }

    fn note_missing_log(&mut self, fault: &Error, last_timestamp: u64) {
        let what = missing_log(fault);
        if !self.report.remarks.contains(&what) {
            self.report.remarks.push(what);
        }
        let log = RepairedLog { last_timestamp, damaged: true, ..RepairedLog::default() };
        self.report.log = Some(log);
    }

    fn root(&self, tree: u32) -> Option<u64> {
        self.checkpoint.as_ref().and_then(|(_, image)| image.roots.get(&tree).copied())
    }

    /// Reads the names of tables by tree. The `bool` says whether the names are complete.
    fn read_catalog(&mut self) -> Result<(BTreeMap<u32, String>, bool)> {
        self.find_stand_ins(std::iter::once(0))?;
        let mut names = BTreeMap::new();
        let (root, mut gaps) = (self.root(0), Gaps::default());
        let (reader, candidates) = (&mut self.offline.reader, &self.candidates);
        each_entry(reader, candidates, 0, root, &mut gaps, &mut |_, Entry { key, value, .. }| {
            if let Ok(tree) = decode(&value) {
                names.insert(tree, String::from_utf8_lossy(&key).into_owned());
            }
            Ok(())
        })?;
        let whole = gaps.is_empty() && self.checkpoint.is_some();
        for range in gaps.lost.iter().chain(&gaps.stale) {
            let what = format!("names of tables may be missing or out of date: {}", range.why);
            self.report.remarks.push(what);
            self.report.names_uncertain = true;
        }
        Ok((names, whole))
    }

    /// Returns the trees to save, with the names of their tables. `whole` says that the names are
    /// complete: a tree without a name is then being dropped.
    fn trees(&self, names: BTreeMap<u32, String>, whole: bool) -> Vec<(u32, String)> {
        let taken: BTreeSet<String> = names.values().cloned().collect();
        let mut trees = names;
        if !whole {
            let known = self.checkpoint.iter().flat_map(|(_, image)| image.roots.keys().copied());
            for tree in known.chain(self.candidates.trees()) {
                if tree != 0 && self.expiry.index != Some(tree) && !trees.contains_key(&tree) {
                    let mut name = format!("table-{tree}");
                    while taken.contains(&name) {
                        name.push('-');
                    }
                    trees.insert(tree, name);
                }
            }
        }
        trees.into_iter().collect()
    }

    /// Examines all pages for leaves that can stand in for unreachable parts of these trees.
    fn find_stand_ins(&mut self, trees: impl Iterator<Item = u32>) -> Result<()> {
        if self.checkpoint.is_none() {
            // All leaves are known already.
            return Ok(());
        }
        let mut wanted: BTreeMap<u32, Vec<Hole>> = BTreeMap::new();
        for tree in trees {
            let root = self.root(tree);
            let mut holes = Vec::new();
            walk_leaves(&mut self.offline.reader, tree, root, &mut |_, part| {
                if let Part::Hole(hole) = part {
                    holes.push(hole);
                }
                Ok(())
            })?;
            if !holes.is_empty() {
                wanted.insert(tree, holes);
            }
        }
        if wanted.is_empty() { Ok(()) } else { self.scan(Some(&wanted)) }
    }

    fn scan(&mut self, wanted: Option<&BTreeMap<u32, Vec<Hole>>>) -> Result<()> {
        let progress = self.progress;
        // The checkpoint's spare run for the next description has old content: leaves of any age,
        // even of an incarnation that was given up. And the page found at the place of a hole is
        // not the page that belongs there.
        let found_wrong: BTreeSet<u64> = wanted
            .iter()
            .flat_map(|of| of.values().flatten())
            .filter_map(|hole| hole.page_id)
            .collect();
        let used = |page_id: u64| {
            self.checkpoint.as_ref().is_none_or(|(record, image)| {
                let is_in = |(first, pages): (u64, u64)| page_id.wrapping_sub(first) < pages;
                image.pages.get(page_id)
                    && !record.runs().any(is_in)
                    && !found_wrong.contains(&page_id)
            })
        };
        let found = scan(&mut self.offline.reader, wanted, &used, &|done, all| {
            progress(RepairStep::Scan, done, all)
        })?;
        self.candidates.add(found);
        Ok(())
    }
}

fn interrupted() -> Error {
    Error::new(ErrorKind::Interrupted, "the repair was interrupted")
}
