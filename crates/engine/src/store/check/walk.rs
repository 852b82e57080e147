//! The walk of a check: which page to read next, and the findings so far.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use qpair_format::Result;
use qpair_format::codec::Codec;
use qpair_format::expiry::INDEX_TABLE;
use qpair_format::large::{Descriptor, Extents, ListReader};
use qpair_format::page::{Expected, Node, child_of};
use qpair_format::place::page_of;
use qpair_format::superblock::SUPERBLOCK_BYTES;

use super::super::StoreInner;
use super::compressed::Assembly;
use super::read::read_all;
use super::{CheckReport, Content, Finding, Job, Role, TableCheck, TableRoot};
use crate::pool::Root;
use crate::task::{JoinHandle, spawn_to};
use qpair_format::image::RECORD_PAGES;

/// The number of pages that a task reads.
const BATCH: usize = 64;
/// The number of tasks under way for each worker.
const BATCHES_PER_WORKER: usize = 2;
/// The number of inner pages that are read ahead in one batch: each stays in memory until all its
/// children were handed out.
const INNER_AHEAD: usize = 8;
/// The name of the index of expiry times in the report.
const INDEX_NAME: &str = "(expiry times)";
/// The number of faults that are listed one by one.
const FAULTS_MAX: usize = 1000;

/// An inner page whose children are being handed out.
struct Open {
    table: usize,
    page_id: u64,
    image: Vec<u64>,
    next: usize,
}

/// A large value whose pages are being handed out.
struct Value {
    table: usize,
    descriptor: Descriptor,
    /// The runs of pages that are still to be read.
    runs: VecDeque<Range<u64>>,
    next: u32,
}

pub(super) struct Walk<'a> {
    pub(super) inner: &'a StoreInner,
    pub(super) report: CheckReport,
    /// The ids of the trees in the report's tables.
    tree_ids: Vec<u32>,
    faults: u64,
    /// The index of the first table that is being dropped, as are all after it, if the catalog is
    /// sound.
    first_dropped: Option<usize>,
    catalog_is_damaged: bool,
    /// The number of pages that the members have room for.
    pages: u64,
    stripe_unit_bytes: u64,
    /// A bit for each page, set once something claims the page.
    claimed: Vec<u64>,
    claimed_pages: u64,
    roots: VecDeque<Job>,
    values: VecDeque<Value>,
    assembly: Assembly,
    /// Partly read lists of large values' runs.
    lists: BTreeMap<(u64, u64), ListReader>,
    open: Vec<Open>,
    running: VecDeque<JoinHandle<Result<Vec<Finding>>>>,
    next_worker: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(inner: &'a StoreInner) -> Self {
        let pages = inner.shared.space.capacity();
        let stripe_unit_bytes = inner.incarnation.superblock.lock().stripe_unit_bytes;
        Self {
            inner,
            report: CheckReport::default(),
            tree_ids: Vec::new(),
            faults: 0,
            first_dropped: None,
            catalog_is_damaged: false,
            pages,
            stripe_unit_bytes,
            claimed: vec![0; pages.div_ceil(64) as usize],
            claimed_pages: 0,
            roots: VecDeque::new(),
            values: VecDeque::new(),
            assembly: Assembly::default(),
            lists: BTreeMap::new(),
            open: Vec::new(),
            running: VecDeque::new(),
            next_worker: 0,
        }
    }

    pub(super) fn run(mut self, progress: &dyn Fn(u64, u64)) -> Result<CheckReport> {
        let inner = self.inner;
        let workers = inner.shared.worker_handles.len();
        let used = inner.shared.space.counts().0;
        self.report.free_pages = self.pages.saturating_sub(used);
        if let Some(error) = inner.image_fault.get() {
            self.fault(error.context().to_owned());
        }
        self.check_second_copies()?;
        self.claim_own();
        let total = used.saturating_sub(self.claimed_pages);
        if let Some(root) = self.root_of(0) {
            self.add_tree("(catalog)".to_owned(), 0, root, "the checkpoint");
        }
        progress(0, total);
        loop {
            while self.running.len() < BATCHES_PER_WORKER * workers {
                let jobs = self.next_jobs();
                if jobs.is_empty() {
                    break;
                }
                let shared = inner.shared.clone();
                self.next_worker = (self.next_worker + 1) % workers;
                let task =
                    spawn_to(&inner.shared, self.next_worker, move || read_all(shared, jobs));
                self.running.push_back(task);
            }
            let Some(task) = self.running.pop_front() else {
                if self.add_nameless() {
                    continue;
                }
                break;
            };
            for finding in task.join()?? {
                self.take(finding);
            }
            progress(self.report.pages_checked.min(total), total);
        }
        self.finish();
        progress(total, total);
        Ok(self.report)
    }

    /// Claims the pages that belong to no tree: the checkpoint records and the image's description.
    fn claim_own(&mut self) {
        let record = self.inner.shared.checkpointing.record();
        let own = record.runs().flat_map(|(first, pages)| first..first + pages);
        for page_id in (0..RECORD_PAGES).chain(own) {
            if let Err(what) = self.claim(page_id) {
                self.fault(format!("the checkpoint refers to {what}"));
            }
        }
    }

    /// Adds the trees that the checkpoint lists and no record of the catalog names; returns whether
    /// there are any. Called after all other trees were walked. These trees are being dropped,
    /// unless the catalog is damaged and the lost record named them.
    fn add_nameless(&mut self) -> bool {
        let known = &self.tree_ids;
        let roots = self.inner.shared.forest.roots();
        let nameless: Vec<u32> = roots.keys().filter(|id| !known.contains(id)).copied().collect();
        drop(roots);
        let before = self.roots.len();
        if !self.catalog_is_damaged {
            self.first_dropped.get_or_insert(self.report.tables.len());
        }
        for tree_id in nameless {
            let name = match self.catalog_is_damaged {
                false => "(being dropped)".to_owned(),
                true => format!("(tree {tree_id}, without a name)"),
            };
            if let Some(root) = self.root_of(tree_id) {
                self.add_tree(name, tree_id, root, "the checkpoint");
            }
        }
        self.roots.len() > before
    }

    /// Returns the place of a tree's root in the checkpoint. The store was not changed since it was
    /// opened.
    fn root_of(&mut self, tree_id: u32) -> Option<u64> {
        match self.inner.shared.forest.roots().get(&tree_id) {
            Some(Root::Open(frame)) => Some(self.inner.shared.pool.frames.page_id(*frame)),
            Some(Root::Closed(place)) => Some(*place),
            None => None,
        }
    }

    fn fault(&mut self, fault: String) {
        self.faults += 1;
        if self.report.faults.len() < FAULTS_MAX {
            self.report.faults.push(fault);
        }
    }

    /// Adds a fault of a page, with the page's table and place.
    fn page_fault(&mut self, table: usize, page_id: u64, what: &str) {
        let place = self.place_of(page_id);
        let name = &self.report.tables[table].name;
        self.catalog_is_damaged |= self.tree_ids.get(table) == Some(&0);
        self.fault(format!("table {name}: page {page_id}, {place}, {what}"));
    }

    /// Describes where a page is: its offset in the store's pages, and in which member.
    pub(super) fn place_of(&self, page_id: u64) -> String {
        let inner = self.inner;
        let offset = inner.shared.offset_bytes(page_id);
        let unit = self.stripe_unit_bytes;
        let (index, within) = (offset / unit, offset % unit);
        let count = inner.incarnation.members.len() as u64;
        let member = &inner.incarnation.members[(index % count) as usize].info().name;
        let at = SUPERBLOCK_BYTES + index / count * unit + within;
        format!("at byte {offset} of the store's pages (byte {at} of {member})")
    }

    /// Notes that a page is part of something; returns a description of the fault if it cannot be.
    fn claim(&mut self, page_id: u64) -> Result<(), String> {
        if page_id >= self.pages {
            return Err(format!("page {page_id}, which is past the store's {} pages", self.pages));
        }
        let (word, bit) = ((page_id / 64) as usize, 1 << (page_id % 64));
        if self.claimed[word] & bit != 0 {
            return Err(format!("page {page_id}, which is used elsewhere too"));
        }
        self.claimed[word] |= bit;
        self.claimed_pages += 1;
        Ok(())
    }

    fn add_tree(&mut self, name: String, tree_id: u32, root: u64, referrer: &str) {
        if self.tree_ids.contains(&tree_id) {
            self.fault(format!("table {name} has the id of another, {tree_id}"));
            return;
        }
        let table = self.report.tables.len();
        self.report.tables.push(TableCheck { name, ..TableCheck::default() });
        self.tree_ids.push(tree_id);
        match self.claim(page_of(root)) {
            Ok(()) => {
                let bounds = Expected { tree_id, level: None, lower: Vec::new(), upper: None };
                self.roots.push_back(Job { table, place: root, role: Role::Node(bounds) });
            }
            Err(what) => {
                let name = &self.report.tables[table].name;
                self.fault(format!("table {name}: {referrer} refers to {what}"));
            }
        }
    }

    /// Returns the next pages to read; empty if there are none for now.
    fn next_jobs(&mut self) -> Vec<Job> {
        let mut jobs = Vec::with_capacity(BATCH);
        let mut inner_pages = 0;
        while jobs.len() < BATCH {
            if let Some(job) = self.next_part() {
                jobs.push(job);
            } else if let Some(job) = self.roots.pop_front() {
                jobs.push(job);
            } else if let Some(open) = self.open.last() {
                let node = Node::new(open.image.as_slice().into());
                if open.next > node.count() {
                    self.open.pop();
                    continue;
                }
                if node.level() > 1 {
                    if inner_pages == INNER_AHEAD {
                        break;
                    }
                    inner_pages += 1;
                }
                jobs.extend(self.next_child());
            } else {
                break;
            }
        }
        jobs
    }

    /// Returns the next page of the large values that were found. The page was claimed together
    /// with its value.
    fn next_part(&mut self) -> Option<Job> {
        let value = self.values.front_mut()?;
        let (descriptor, part, table) = (value.descriptor, value.next, value.table);
        let run = value.runs.front_mut()?;
        let page_id = run.start;
        (run.start, value.next) = (page_id + 1, part + 1);
        if run.is_empty() {
            value.runs.pop_front();
        }
        if value.runs.is_empty() {
            self.values.pop_front();
        }
        let codec = Codec::of_tree(self.tree_ids[table]);
        Some(Job { table, place: page_id, role: Role::Part { descriptor, part, codec } })
    }

    /// Returns the next child of the inner page that was opened last, if it can be read.
    fn next_child(&mut self) -> Option<Job> {
        let open = self.open.last_mut()?;
        let (table, parent, position) = (open.table, open.page_id, open.next);
        open.next += 1;
        let node = Node::new(open.image.as_slice().into());
        let child = child_of(self.tree_ids[table], node, position).and_then(|(place, bounds)| {
            self.claim(page_of(place))
                .map(|()| Job { table, place, role: Role::Node(bounds) })
                .map_err(|what| format!("refers with child {position} to {what}"))
        });
        child.map_err(|what| self.page_fault(table, parent, &what)).ok()
    }

    fn take(&mut self, finding: Finding) {
        let Finding { table, page_id, mut faults, content } = finding;
        self.report.pages_checked += 1;
        if matches!(content, Content::List { .. }) && self.is_dropped(table) {
            // The page may belong to another value by now, as may the pages of the value itself.
            faults.clear();
        }
        for fault in faults {
            self.page_fault(table, page_id, &fault);
        }
        let entry = &mut self.report.tables[table];
        match content {
            Content::Damaged => {}
            Content::List { descriptor, page } => {
                entry.overflow_pages += 1;
                self.take_list(table, page_id, descriptor, page);
            }
            Content::Part { used_bytes, compressed } => {
                entry.overflow_pages += 1;
                entry.used_bytes += used_bytes;
                if let Some(fault) = compressed.and_then(|part| self.assembly.take(part)) {
                    self.page_fault(table, page_id, &format!("ends a large value: {fault}"));
                }
            }
            Content::Inner { used_bytes, image } => {
                entry.inner_pages += 1;
                entry.used_bytes += used_bytes;
                let level = Node::new(image.as_slice().into()).level();
                entry.height = entry.height.max(u32::from(level) + 1);
                self.open.push(Open { table, page_id, image, next: 0 });
                self.open.sort_by_key(|open| std::cmp::Reverse(open.level()));
            }
            Content::Leaf { records, used_bytes, values, tables, groups } => {
                entry.leaf_pages += 1;
                entry.records += records;
                entry.used_bytes += used_bytes;
                entry.height = entry.height.max(1);
                if groups && !self.inner.incarnation.superblock.lock().long_keys {
                    let what = "has a group of long keys, which the superblocks deny";
                    self.page_fault(table, page_id, what);
                }
                for descriptor in values {
                    self.add_value(table, page_id, descriptor);
                }
                for TableRoot { name, tree_id } in tables {
                    let name = if name == INDEX_TABLE { INDEX_NAME.to_owned() } else { name };
                    match self.root_of(tree_id) {
                        Some(root) => self.add_tree(name, tree_id, root, "the checkpoint"),
                        None => {
                            self.fault(format!("table {name}: the checkpoint knows no root of it"))
                        }
                    }
                }
            }
        }
    }

    fn add_value(&mut self, table: usize, leaf: u64, descriptor: Descriptor) {
        match descriptor.run() {
            Some(run) => self.add_parts(table, leaf, descriptor, &Extents::Run(run)),
            None => {
                self.lists.insert(descriptor.key(), ListReader::new(descriptor, self.pages));
                self.read_list(table, leaf, descriptor);
            }
        }
    }

    /// Queues the read of the next page of a list of runs; `referrer` is the page that refers to
    /// it.
    fn read_list(&mut self, table: usize, referrer: u64, descriptor: Descriptor) {
        let next = self.lists.get(&descriptor.key()).and_then(ListReader::next);
        // In a table that is being dropped, the page may have been freed before a crash. It is
        // claimed only once it is known to be the list.
        let claim = |page_id| match self.is_dropped(table) {
            true => Ok(page_id),
            false => self.claim(page_id).map(|()| page_id),
        };
        match next.ok_or_else(|| "a page that is past the end".to_owned()).and_then(claim) {
            Ok(place) => self.roots.push_back(Job { table, place, role: Role::List(descriptor) }),
            Err(what) => {
                let what = format!("refers for the list of a large value's runs to {what}");
                self.page_fault(table, referrer, &what);
            }
        }
    }

    fn take_list(
        &mut self,
        table: usize,
        page_id: u64,
        descriptor: Descriptor,
        page: Option<Vec<u8>>,
    ) {
        let (Some(mut list), Some(page)) = (self.lists.remove(&descriptor.key()), page) else {
            return;
        };
        let is_it = list.take(&page);
        if is_it && list.next().is_some() {
            self.lists.insert(descriptor.key(), list);
            return self.read_list(table, page_id, descriptor);
        }
        match list.finish().filter(|_| is_it) {
            Some(extents) => {
                if self.is_dropped(table) {
                    let claims = extents.lists().iter().map(|list| self.claim(*list));
                    if let Err(what) = claims.collect::<Result<(), _>>() {
                        let what = format!("is the list of a large value, and {what}");
                        return self.page_fault(table, page_id, &what);
                    }
                }
                self.add_parts(table, page_id, descriptor, &extents);
            }
            None if self.is_dropped(table) => {}
            None => {
                let what = "is not the list of the runs of the large value that refers to it";
                self.page_fault(table, page_id, what);
            }
        }
    }

    fn is_dropped(&self, table: usize) -> bool {
        self.first_dropped.is_some_and(|first| table >= first)
    }

    /// Queues the reads of the pages of a value; `referrer` is the page that refers to them.
    fn add_parts(
        &mut self,
        table: usize,
        referrer: u64,
        descriptor: Descriptor,
        extents: &Extents,
    ) {
        for page_id in extents.pages() {
            if let Err(what) = self.claim(page_id) {
                self.page_fault(table, referrer, &format!("refers for a large value to {what}"));
                return;
            }
        }
        if self.is_dropped(table) {
            // The pages may have been freed before a crash, and belong to another value by now:
            // recovery handles this when it resumes the drop.
            self.report.tables[table].overflow_pages += u64::from(descriptor.pages);
            return;
        }
        let runs = extents.value().iter().cloned().collect();
        self.values.push_back(Value { table, descriptor, runs, next: 0 });
    }

    /// Counts free and lost pages, once all reachable pages were read.
    fn finish(&mut self) {
        let mut linked = self.inner.shared.space.linked();
        let record = self.inner.shared.checkpointing.record();
        record.runs().for_each(|(first, pages)| linked.change(first, pages, true));
        let mut unknown = 0;
        let mut doubles = Vec::new();
        for index in 0..self.claimed.len() {
            let (claimed, used) = (self.claimed[index], linked.word(index));
            unknown += u64::from((used & !claimed).count_ones());
            let both = claimed & !used;
            if both != 0 && doubles.len() < FAULTS_MAX {
                let first = index as u64 * 64 + u64::from(both.trailing_zeros());
                doubles.push(format!(
                    "page {first}, and {} more near it, are in use, and free by the checkpoint",
                    both.count_ones() - 1
                ));
            }
        }
        if self.inner.image_fault.get().is_none() {
            doubles.into_iter().for_each(|double| self.fault(double));
        }
        if self.faults == 0 {
            self.report.leaked_pages = unknown;
        } else {
            self.report.unreached_pages = unknown;
        }
        // Leaves of the catalog may have been read in any order; the catalog itself stays first.
        self.report.tables[1.min(self.tree_ids.len())..].sort_by(|a, b| a.name.cmp(&b.name));
        if self.faults > FAULTS_MAX as u64 {
            let more = self.faults - FAULTS_MAX as u64;
            self.report.faults.push(format!("and {more} more"));
        }
    }
}

impl Open {
    fn level(&self) -> u8 {
        Node::new(self.image.as_slice().into()).level()
    }
}
