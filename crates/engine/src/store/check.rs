//! The check of a store: every page of every tree, as it is on the device.
//!
//! - The walk bypasses the pool and reads on all workers, several batches of pages at a time. The
//!   calling thread only hands out batches and collects the findings.
//! - A page is claimed before it is read, so each page is read once, and a cycle ends at the second
//!   claim.
//! - Memory is bounded: a bit for each page; the inner pages on the path down, one for each level
//!   and a few more that are read ahead; the large values of the leaves just read, of which one
//!   that is compressed has its bytes; and a limited list of faults.

mod compressed;
mod expiry;
mod groups;
mod read;
mod second_copies;
mod walk;

use qpair_format::catalog::decode;
use qpair_format::codec::Codec;
use qpair_format::large::{Descriptor, part_len};
use qpair_format::page::{
    Expected, HEADER_BYTES, Node, PageKind, VALUE_LEN_MAX, damage, field, slots_offset,
    whole_key_len_max,
};
use qpair_format::place::page_of;
use qpair_format::{Error, ErrorKind, Result};
use qpair_memory::ExclusiveFrame;

use super::{Store, StoreInner};
use crate::task::refuse_on_worker;

/// The result of a check.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device.clone()], &options)?;
/// # store.table("t")?.put(b"k", b"v")?;
/// # store.close()?;
/// # let store = qpair_engine::Store::open(vec![device], &Default::default())?;
/// // Of a store that was not changed since it was opened.
/// let report = store.check(&|_, _| ())?;
/// assert!(report.is_sound(), "{:?}", report.faults);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The number of pages read.
    pub pages_checked: u64,
    /// The trees: the catalog first, then the tables in the order of their names.
    pub tables: Vec<TableCheck>,
    /// The faults, each with its page, the page's place and the damage. After a thousand faults,
    /// the last entry counts the others.
    pub faults: Vec<String>,
    /// Damage without loss: superblocks and checkpoint records that cannot be read while their
    /// second copies can. The next changes of the store write them again. In a store that was not
    /// closed, a crash may have left a partly written one.
    pub harmless: Vec<String>,
    /// The number of pages that are neither free nor part of anything, in a store without faults.
    /// Their space is lost, but no data.
    pub leaked_pages: u64,
    /// The number of pages that are not free and were not reached, in a store with faults: the
    /// pages that led to them may be damaged.
    pub unreached_pages: u64,
    /// The number of free pages.
    pub free_pages: u64,
}

impl CheckReport {
    /// Whether the check found no faults. Leaked pages, and damage without loss, do not count as
    /// faults.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }
}

/// The result of a check for one tree. Pages that could not be read are not counted.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device.clone()], &options)?;
/// # store.table("t")?.put(b"k", b"v")?;
/// # store.close()?;
/// # let store = qpair_engine::Store::open(vec![device], &Default::default())?;
/// for of in store.check(&|_, _| ())?.tables {
///     println!("{}: {} records in {} leaves", of.name, of.records, of.leaf_pages);
/// }
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableCheck {
    /// The table's name. The catalog is named `(catalog)`, and a table that is being dropped
    /// `(being dropped)`. A table whose name is lost has its tree's number here.
    pub name: String,
    /// The number of records.
    pub records: u64,
    /// The number of leaf pages, which have the records.
    pub leaf_pages: u64,
    /// The number of inner pages, above the leaves.
    pub inner_pages: u64,
    /// The number of pages of large values.
    pub overflow_pages: u64,
    /// The number of levels, leaves included.
    pub height: u32,
    /// The bytes in use in all these pages: keys, values, and the data structures to find them.
    pub used_bytes: u64,
}

impl Store {
    /// Reads every page in use and checks it: checksum, place, order, the bounds that its parent
    /// gives, large values, and that nothing is used twice. Compressed values are decompressed, in
    /// builds that can. Damage is listed in the report, and the
    /// walk continues elsewhere. `progress` receives the number of pages done and of pages to do.
    ///
    /// The store must not have been changed since it was opened. If it was opened for reading, it
    /// can be checked even with a damaged catalog or checkpoint. After a crash, open it with
    /// [`StoreOptions::at_checkpoint`](crate::StoreOptions) to check its last checkpoint, without
    /// the commits after it.
    ///
    /// # Errors
    /// `Invalid` if the store was changed since it was opened, or is changed during the check, or
    /// on a worker; `Closed`, `NoMemory`.
    pub fn check(&self, progress: &dyn Fn(u64, u64)) -> Result<CheckReport> {
        refuse_on_worker()?;
        self.inner.refuse_changed()?;
        let walked = walk::Walk::new(&self.inner).run(progress);
        let report = walked.and_then(|mut report| {
            if report.faults.is_empty() {
                report.faults = expiry::faults(self)?;
                groups::check(self, &mut report)?;
            }
            Ok(report)
        });
        // Pages of a later checkpoint may look damaged.
        if let Some(witness) = &self.inner.shared.witness {
            witness.check(&mut None)?;
        }
        self.inner.refuse_changed()?;
        report
    }
}

impl StoreInner {
    fn refuse_changed(&self) -> Result<()> {
        if self.shared.lifecycle.has_ended() {
            return Err(Error::closed());
        }
        if self.shared.lifecycle.is_marked_open() {
            return Err(Error::with_hint(
                ErrorKind::Invalid,
                "the store was changed since it was opened and cannot be checked",
                "close it and open it again",
            ));
        }
        Ok(())
    }
}

struct Job {
    /// Index into the report's tables.
    table: usize,
    place: u64,
    role: Role,
}

enum Role {
    Node(Expected),
    /// A page of a large value.
    Part {
        descriptor: Descriptor,
        part: u32,
        codec: Codec,
    },
    /// A page of the list of a large value's runs.
    List(Descriptor),
}

struct Finding {
    table: usize,
    page_id: u64,
    faults: Vec<String>,
    /// The contents of the page, unless they cannot be trusted.
    content: Content,
}

enum Content {
    Damaged,
    Leaf {
        records: u64,
        used_bytes: u64,
        values: Vec<Descriptor>,
        tables: Vec<TableRoot>,
        /// Whether there are groups of records with long keys.
        groups: bool,
    },
    Inner {
        used_bytes: u64,
        image: Vec<u64>,
    },
    Part {
        used_bytes: u64,
        /// The bytes of a compressed value.
        compressed: Option<compressed::Part>,
    },
    /// A page of a list of runs; `page` is `None` if the page is damaged.
    List {
        descriptor: Descriptor,
        page: Option<Vec<u8>>,
    },
}

struct TableRoot {
    name: String,
    tree_id: u32,
}

fn examine(job: &Job, page: &ExclusiveFrame<'_>) -> Finding {
    let mut faults = Vec::new();
    let content = match damage(page.as_slice(), job.place) {
        Some(damage) => {
            faults.push(damage);
            match job.role {
                Role::List(descriptor) => Content::List { descriptor, page: None },
                _ => Content::Damaged,
            }
        }
        None => match &job.role {
            Role::Node(place) => examine_node(place, Node::new(page.bytes()), &mut faults),
            Role::Part { descriptor, part, codec } => {
                let of = (*descriptor, *part, *codec);
                examine_part(of, page, &mut faults).unwrap_or(Content::Damaged)
            }
            Role::List(descriptor) => {
                let page = Some(page.as_slice().to_vec());
                Content::List { descriptor: *descriptor, page }
            }
        },
    };
    Finding { table: job.table, page_id: page_of(job.place), faults, content }
}

fn examine_node(place: &Expected, node: Node<'_>, faults: &mut Vec<String>) -> Content {
    if node.tree_id() != place.tree_id {
        faults.push(format!("belongs to tree {}, not to tree {}", node.tree_id(), place.tree_id));
        return Content::Damaged;
    }
    if let Some(level) = place.level
        && level != node.level()
    {
        faults.push(format!("is at level {} where level {level} belongs", node.level()));
        return Content::Damaged;
    }
    if let Some(fault) = node.fault() {
        faults.push(format!("has {fault}"));
        return Content::Damaged;
    }
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    node.lower_fence(&mut lower);
    node.upper_fence(&mut upper);
    if lower != place.lower || node.has_upper_fence().then_some(&upper) != place.upper.as_ref() {
        faults.push("has other bounds than its parent gives it".to_owned());
    }
    let entries: usize = (0..node.count()).map(|position| node.entry_bytes_at(position)).sum();
    let accounted =
        slots_offset(node.is_leaf()) + entries + lower.len() + upper.len() + node.free_bytes();
    if accounted != node.bytes.len() {
        faults.push(format!("accounts for {accounted} of its {} bytes", node.bytes.len()));
    }
    let used_bytes = (slots_offset(node.is_leaf()) + node.used_bytes()) as u64;
    if !node.is_leaf() {
        let image = (0..node.bytes.len() / 8).map(|i| node.bytes.load_u64(i * 8)).collect();
        return Content::Inner { used_bytes, image };
    }
    let (mut values, mut tables, mut groups) = (Vec::new(), Vec::new(), false);
    let codec = Codec::of_tree(place.tree_id);
    let mut value = Vec::new();
    for position in 0..node.count() {
        let place_of_value = node.value(position);
        let key_len = node.prefix_len() + node.suffix_len(position);
        groups |= key_len > whole_key_len_max(node.bytes.len());
        value.clear();
        if place_of_value.overflow {
            node.bytes.append_to(place_of_value.offset, place_of_value.len, &mut value);
            match Descriptor::decode(&value, node.bytes.len()) {
                Ok(found) if found.len as usize <= VALUE_LEN_MAX => values.push(found),
                _ => faults.push(format!("record {position} refers to no large value")),
            }
        } else if place.tree_id == 0 {
            node.bytes.append_to(place_of_value.offset, place_of_value.len, &mut value);
            let mut key = Vec::new();
            node.key(position, &mut key);
            match decode(&value) {
                Ok(tree_id) => {
                    let name = String::from_utf8_lossy(&key).into_owned();
                    tables.push(TableRoot { name, tree_id });
                }
                Err(_) => faults.push(format!("record {position} refers to no table")),
            }
        } else if !codec.is_plain() {
            node.bytes.append_to(place_of_value.offset, place_of_value.len, &mut value);
            if let Some(fault) = codec.fault(&mut value) {
                faults.push(format!("has a fault in record {position}: {fault}"));
            }
        }
    }
    Content::Leaf { records: node.count() as u64, used_bytes, values, tables, groups }
}

fn examine_part(
    (descriptor, part, codec): (Descriptor, u32, Codec),
    page: &ExclusiveFrame<'_>,
    faults: &mut Vec<String>,
) -> Option<Content> {
    let bytes = page.bytes();
    let expected = part_len(descriptor, part, bytes.len());
    let (kind, timestamp) = (bytes.load_u8(field::KIND), bytes.load_u64(field::TIMESTAMP));
    let (found, len) = (bytes.load_u32(field::PART), bytes.load_u32(field::PART_BYTES) as usize);
    let fault = if kind != PageKind::Overflow as u8 {
        format!("is of kind {kind} where a large value has a page")
    } else if timestamp != descriptor.timestamp {
        "is a page of another large value".to_owned()
    } else if found != part || len != expected {
        format!("is part {found} with {len} bytes, not part {part} with {expected} bytes")
    } else {
        let compressed = (!codec.is_plain()).then(|| {
            let content = page.as_slice()[HEADER_BYTES..HEADER_BYTES + expected].to_vec();
            compressed::Part { descriptor, part, codec, content }
        });
        let used_bytes = (HEADER_BYTES + expected) as u64;
        return Some(Content::Part { used_bytes, compressed });
    };
    faults.push(fault);
    None
}
