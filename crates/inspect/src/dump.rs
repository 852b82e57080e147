//! Dumps the write-ahead log of a store for people, without recovering the store.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_engine::StoreOptions;
use qpair_format::large::Descriptor;
use qpair_format::log::{EndReason, LogEnd, Operation, describe_operation};
use qpair_format::{Error, ErrorKind, Remedy, Result};

use crate::offline::{Offline, Part, entries, read_logs, walk_leaves};
use qpair_format::catalog::decode;

/// A commit in a store's log.
///
/// ```
/// # use std::sync::Arc;
/// # use qpair_block::{BlockDevice, RamDevice};
/// # let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(RamDevice::new(Default::default())?)];
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let store = qpair_engine::Store::open(members.clone(), &options)?;
/// # store.table("t")?.put(b"k", b"v")?;
/// # store.close()?;
/// let dump = qpair_inspect::dump_log(&members, &Default::default(), &mut |entry| {
///     println!("commit {} of {} operations", entry.timestamp, entry.operations.len());
///     std::ops::ControlFlow::Continue(())
/// })?;
/// # let _ = dump;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogEntry<'a> {
    /// The commit timestamp: its position in the order of all commits.
    pub timestamp: u64,
    /// The number of the log that has the commit. Each worker has one log in each incarnation of
    /// the store.
    pub log: u16,
    /// The incarnation of the store that wrote the commit. The log of an incarnation that ended in
    /// a crash may still be there in the next one.
    pub incarnation: u64,
    /// The position of the commit's record in the log's byte stream.
    pub lsn: u64,
    /// The size of the commit's record in bytes.
    pub bytes: usize,
    /// The changes of the commit, in order.
    pub operations: Vec<LogOperation<'a>>,
}

/// A change of a commit.
///
/// ```
/// # use std::sync::Arc;
/// # use qpair_block::{BlockDevice, RamDevice};
/// # let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(RamDevice::new(Default::default())?)];
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let store = qpair_engine::Store::open(members.clone(), &options)?;
/// # store.table("t")?.put(b"k", b"v")?;
/// # store.close()?;
/// let dump = qpair_inspect::dump_log(&members, &Default::default(), &mut |entry| {
///     for operation in &entry.operations {
///         println!("{} {}", operation.verb, operation.text);
///     }
///     std::ops::ControlFlow::Continue(())
/// })?;
/// # let _ = dump;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogOperation<'a> {
    /// `put`, `delete`, `create`, `drop` or `rename`.
    pub verb: &'static str,
    /// The number of the table's tree.
    pub tree: u32,
    /// The name of the table, if it is known. For a rename, the old name.
    pub table: Option<String>,
    /// The key that was put or deleted.
    pub key: Option<&'a [u8]>,
    /// The value that was put, unless it is a large one.
    pub value: Option<&'a [u8]>,
    /// The length in bytes of the large value that was put, and the first of its pages, or of the
    /// pages of its list.
    pub large: Option<(u32, u64)>,
    /// The new name of a renamed table.
    pub to: Option<&'a str>,
    /// The whole change in words.
    pub text: String,
}

/// The end of one of the logs.
///
/// ```
/// # use std::sync::Arc;
/// # use qpair_block::{BlockDevice, RamDevice};
/// # let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(RamDevice::new(Default::default())?)];
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let store = qpair_engine::Store::open(members.clone(), &options)?;
/// # store.table("t")?.put(b"k", b"v")?;
/// # store.close()?;
/// let dump = qpair_inspect::dump_log(&members, &Default::default(), &mut |entry| {
///     std::ops::ControlFlow::Continue(())
/// })?;
/// for end in dump.ends {
///     println!("log {} ends at {}: {}", end.log, end.lsn, end.reason);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogFileEnd {
    /// The number of the log.
    pub log: u16,
    /// The incarnation of the store that wrote the log.
    pub incarnation: u64,
    /// The position in the log's byte stream at which the last good record ends.
    pub lsn: u64,
    /// The timestamp of the last commit in the log; `None` if the log has no commit after the
    /// checkpoint.
    pub timestamp: Option<u64>,
    /// The reason why the log ends there.
    pub reason: String,
    /// The position up to which the log was durable once, if that is beyond `lsn`. The log is
    /// damaged between the two.
    pub lost_to_lsn: Option<u64>,
}

/// The content of a store's log.
///
/// ```
/// # use std::sync::Arc;
/// # use qpair_block::{BlockDevice, RamDevice};
/// # let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(RamDevice::new(Default::default())?)];
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let store = qpair_engine::Store::open(members.clone(), &options)?;
/// # store.table("t")?.put(b"k", b"v")?;
/// # store.close()?;
/// let dump = qpair_inspect::dump_log(&members, &Default::default(), &mut |entry| {
///     println!("commit {}", entry.timestamp);
///     std::ops::ControlFlow::Continue(())
/// })?;
/// // A store that was closed has nothing in its log.
/// assert!(dump.closed && dump.commits == 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogDump {
    /// Whether the store was closed, so that there is no log.
    pub closed: bool,
    /// All commits up to this timestamp are in the checkpoint, and not in the log any more.
    pub checkpoint_timestamp: u64,
    /// The names of tables at the checkpoint, by the numbers of their trees.
    pub tables: BTreeMap<u32, String>,
    /// The number of commits that recovery would apply. The following fields are only known if all
    /// logs were read.
    pub commits: u64,
    /// The number of unacknowledged commits behind a gap.
    pub dropped: u64,
    /// The ends of the logs.
    pub ends: Vec<LogFileEnd>,
    /// The timestamp up to which commits were durable once, according to the logs.
    pub durable_timestamp: u64,
    /// Whether data that was once durable is missing.
    pub damaged: bool,
    /// Whether a log ends where the device could not be read. There may be more commits after that
    /// point.
    pub unreadable: bool,
    /// Remarks on damage outside the log.
    pub remarks: Vec<String>,
}

/// Reads the logs of the store on these members, which no process may have open, from the newest
/// checkpoint on. The store's superblocks say where the logs are; if they are on a log device,
/// `options` must name that device. `each` receives the commits in their order, and may stop the
/// dump. Nothing is written, and nothing recovered.
///
/// # Errors
/// `Corrupt` if superblocks or the checkpoint cannot be read; `Member`, also if the log device is
/// missing; the errors of the devices.
pub fn dump_log(
    members: &[Arc<dyn BlockDevice>],
    options: &StoreOptions,
    each: &mut dyn FnMut(&LogEntry<'_>) -> ControlFlow<()>,
) -> Result<LogDump> {
    let Offline { mut reader, remarks, checkpoint, log_fault, .. } =
        Offline::open(members, options, None)?;
    let Some((record, image)) = checkpoint else {
        return Err(Error::with_remedy(
            ErrorKind::Corrupt,
            format!(
                "no checkpoint can be read, so the start of the log is unknown: {}",
                remarks.join("; ")
            ),
            "salvage what can be read by a repair",
            Remedy::Repair,
        ));
    };
    let mut dump = LogDump {
        closed: record.closed,
        checkpoint_timestamp: record.timestamp,
        remarks,
        ..LogDump::default()
    };
    if dump.closed {
        return Ok(dump);
    }
    if let Some(fault) = log_fault {
        return Err(fault);
    }
    let mut names = BTreeMap::new();
    walk_leaves(&mut reader, 0, image.roots.get(&0).copied(), &mut |_, part| {
        match part {
            Part::Leaf(leaf) => names.extend(entries(leaf).filter_map(|entry| {
                Some((decode(&entry.value).ok()?, String::from_utf8_lossy(&entry.key).into_owned()))
            })),
            Part::Hole(hole) => {
                dump.remarks.push(format!("names of tables are missing: {}", hole.why));
            }
        }
        Ok(())
    })?;
    dump.tables = names.clone();
    let merged = read_logs(&mut reader, &record, &image.logs, |_, at, end_lsn, record| {
        let operations = record.operations().map(|op| operation(op, &mut names)).collect();
        let bytes = record.bytes();
        let lsn = end_lsn.saturating_sub(bytes as u64);
        let (log, incarnation) = (at.log, at.incarnation);
        Ok(each(&LogEntry {
            timestamp: record.timestamp,
            log,
            incarnation,
            lsn,
            bytes,
            operations,
        }))
    })?;
    if let Some(merged) = merged {
        dump.commits = merged.end.taken;
        dump.dropped = merged.end.dropped;
        dump.durable_timestamp = merged.end.durable_timestamp;
        dump.damaged = merged.end.is_damaged();
        dump.unreadable = merged.unreadable;
        dump.ends = merged.ends.iter().map(file_end).collect();
    }
    Ok(dump)
}

fn operation<'a>(operation: Operation<'a>, names: &mut BTreeMap<u32, String>) -> LogOperation<'a> {
    let mut found = LogOperation {
        verb: "put",
        tree: 0,
        table: None,
        key: None,
        value: None,
        large: None,
        to: None,
        text: String::new(),
    };
    match operation {
        Operation::Put { tree, key, value } => {
            (found.tree, found.key, found.value) = (tree, Some(key), Some(value));
        }
        Operation::PutLarge { tree, key, descriptor } => {
            (found.tree, found.key) = (tree, Some(key));
            found.large = Some((
                descriptor[16..20].try_into().map_or(0, u32::from_le_bytes),
                Descriptor::first_page(&descriptor).unwrap_or_default(),
            ));
        }
        Operation::Delete { tree, key } => {
            (found.verb, found.tree, found.key) = ("delete", tree, Some(key));
        }
        Operation::CreateTable { tree, name } => {
            (found.verb, found.tree) = ("create", tree);
            names.insert(tree, name.to_owned());
        }
        Operation::DropTable { tree } => (found.verb, found.tree) = ("drop", tree),
        Operation::RenameTable { tree, .. } => (found.verb, found.tree) = ("rename", tree),
    }
    const { assert!(Descriptor::BYTES == 24, "its length is read above") };
    found.table = names.get(&found.tree).cloned();
    found.text = describe_operation(&operation, found.table.as_deref());
    if let Operation::RenameTable { tree, name } = operation {
        // Later operations are on a table of this name.
        names.insert(tree, name.to_owned());
        found.to = Some(name);
    }
    found
}

fn file_end(end: &LogEnd) -> LogFileEnd {
    let reason = match end.reason {
        EndReason::Nothing => "nothing follows".to_owned(),
        EndReason::Torn => "the next write is incomplete".to_owned(),
        EndReason::Short => "the device ends there, or cannot be read".to_owned(),
        EndReason::Damaged(what) => format!("what follows cannot be decoded: {what}"),
    };
    LogFileEnd {
        log: end.position.log,
        incarnation: end.position.incarnation,
        lsn: end.lsn,
        timestamp: (end.timestamp > 0).then_some(end.timestamp),
        reason,
        lost_to_lsn: end.lost_to_lsn,
    }
}
