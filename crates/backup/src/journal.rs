//! The journal: numbered entries. An entry is written only if its number is free.
//!
//! - What the journal says counts. A part belongs to the backup once an entry has added it.
//! - The entry that begins an epoch takes the number after the last one. A writer of an earlier
//!   epoch meets it with its next entry, and ends.
//! - A manifest is the state after an entry, so that a reader need not read all entries. It follows
//!   from the entries before it, whoever writes it.

use std::sync::Arc;

use qpair_engine::{Error, ErrorKind, Result};

use crate::canary::Canary;
use crate::manifest::{Entry, Manifest, Part, VERSION};
use crate::objects::{Counted, Objects};

const ENTRIES: &str = "journal/";
const MANIFESTS: &str = "manifest/";
pub(crate) const PARTS: &str = "parts/";

/// The beginning of an entry.
const MAGIC: &[u8; 4] = b"qpbk";
/// Bytes before an entry's JSON: magic, length of the JSON u32, checksum of what follows u64.
const HEAD_BYTES: usize = 16;
/// The least number of entries between two manifests.
const MANIFEST_EVERY: u64 = 64;
/// The number of parts in a manifest for each entry between two manifests: a manifest costs a
/// reader bytes, and entries cost it requests.
const PARTS_PER_ENTRY: u64 = 16;
/// How often an epoch is begun anew because another writer was faster, before that is an error.
const OPENINGS_MAX: u32 = 8;
/// How often a state that cannot be read is read again.
const READS_MAX: u32 = 2;
/// How often a request of a reading is made, if it fails.
const REQUESTS_MAX: u32 = 4;

pub(crate) fn entry_name(number: u64) -> String {
    format!("{ENTRIES}{number:016x}")
}

fn manifest_name(number: u64) -> String {
    format!("{MANIFESTS}{number:016x}")
}

fn number_of(name: &str, prefix: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix(prefix)?, 16).ok()
}

pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

fn damaged(name: &str, why: impl std::fmt::Display) -> Error {
    Error::with_hint(
        ErrorKind::Corrupt,
        format!("object {name} of the backup is damaged: {why}"),
        "take the object from a copy of the place, or back the store up to another place",
    )
}

/// Encodes an entry, with the pieces that lie in it at its end.
fn encode(entry: &Entry, payload: &[u8]) -> Result<Vec<u8>> {
    let json = json(entry)?;
    let mut bytes = [&json, payload].concat();
    let sum = checksum(&bytes);
    let head = [&MAGIC[..], &(json.len() as u32).to_le_bytes(), &sum.to_le_bytes()].concat();
    bytes.splice(0..0, head);
    Ok(bytes)
}

fn json(of: &impl serde::Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(of).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("the backup's state cannot be written: {error}"))
    })
}

fn decode(name: &str, bytes: &[u8]) -> Result<Entry> {
    let short = || damaged(name, "it is too short");
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(short)?;
    let word = |at: usize| head[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
    let sum = u64::from(word(12)) << 32 | u64::from(word(8));
    if head[..4] != *MAGIC || checksum(rest) != sum {
        return Err(damaged(name, "its checksum is wrong"));
    }
    let json = rest.get(..word(4) as usize).ok_or_else(short)?;
    serde_json::from_slice(json).map_err(|error| damaged(name, error))
}

/// Reads the state of a backup; that of a place without one has the number 0. Returns also the
/// number of the last manifest, before which entries are not needed.
pub(crate) fn read(objects: &dyn Objects) -> Result<(Manifest, u64)> {
    let mut read = read_once(objects);
    for _ in 0..READS_MAX {
        match &read {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => {}
            _ => break,
        }
        // A writer may have written a manifest meanwhile, and removed entries before it.
        read = read_once(objects);
    }
    read
}

/// Reads the state of a backup as [`read`] does.
///
/// # Errors
/// `NotFound` if there is no backup.
pub(crate) fn read_existing(objects: &dyn Objects) -> Result<(Manifest, u64)> {
    let (manifest, manifest_at) = read(objects)?;
    match manifest.number {
        0 => Err(Error::with_hint(
            ErrorKind::NotFound,
            format!("{} has no backup", objects.place()),
            "name the place that was given to qpair backup --to",
        )),
        _ => Ok((manifest, manifest_at)),
    }
}

/// Repeats a request that reads: a state has many, and would seldom be read whole where some fail.
fn again<T>(request: impl Fn() -> Result<T>) -> Result<T> {
    let mut outcome = request();
    for _ in 1..REQUESTS_MAX {
        match &outcome {
            Err(error) if error.kind() == ErrorKind::Io => outcome = request(),
            _ => break,
        }
    }
    outcome
}

fn read_once(objects: &dyn Objects) -> Result<(Manifest, u64)> {
    let manifests = again(|| objects.list(MANIFESTS, ""))?;
    let mut manifest = Manifest::default();
    if let Some(last) = manifests.last() {
        let bytes = again(|| objects.get(&last.name))?.ok_or_else(|| missing(&last.name))?;
        manifest = serde_json::from_slice(&bytes).map_err(|error| damaged(&last.name, error))?;
        Manifest::check_version(manifest.version)?;
    }
    let manifest_at = manifest.number;
    for object in again(|| objects.list(ENTRIES, &entry_name(manifest.number)))? {
        // A name that is not a number belongs to someone else.
        let Some(number) = number_of(&object.name, ENTRIES) else { continue };
        let bytes = again(|| objects.get(&object.name))?.ok_or_else(|| missing(&object.name))?;
        let entry = decode(&object.name, &bytes)?;
        if entry.number != number {
            return Err(damaged(&object.name, "it has another number than its name"));
        }
        manifest.apply(&entry)?;
    }
    Ok((manifest, manifest_at))
}

pub(crate) fn missing(name: &str) -> Error {
    Error::with_hint(
        ErrorKind::NotFound,
        format!("object {name} of the backup is not there"),
        "run the command again: a running backup removes objects that it no longer needs",
    )
}

/// An entry that is being written.
struct Pending {
    entry: Entry,
    bytes: Vec<u8>,
}

/// The journal of a writer.
pub(crate) struct Journal {
    pub(crate) objects: Arc<Counted>,
    pub(crate) manifest: Manifest,
    pending: Option<Pending>,
    /// The number of the entry after which the last manifest was written.
    manifest_at: u64,
    pub(crate) canary: Option<Canary>,
}

impl Journal {
    /// Begins an epoch.
    ///
    /// # Errors
    /// `Exists` if the backup is of another store; `Busy` if other writers are always faster.
    pub(crate) fn open(
        objects: Arc<Counted>,
        store: &str,
        page_size: u64,
        time_ms: u64,
    ) -> Result<Self> {
        let writer = fastrand::u64(..);
        for _ in 0..OPENINGS_MAX {
            let (manifest, manifest_at) = read(&*objects)?;
            if manifest.number > 0 && manifest.store != store {
                return Err(Error::with_hint(
                    ErrorKind::Exists,
                    format!(
                        "{} has a backup of another store, {}",
                        objects.place(),
                        manifest.store
                    ),
                    "name an empty folder or another prefix",
                ));
            }
            let entry = Entry {
                version: VERSION,
                number: manifest.number + 1,
                epoch: manifest.epoch + 1,
                writer,
                time_ms,
                opens: Some((store.to_owned(), page_size)),
                add: Vec::new(),
                remove: Vec::new(),
            };
            let bytes = encode(&entry, &[])?;
            let pending = Some(Pending { entry, bytes });
            let objects = objects.clone();
            let mut journal = Self { objects, manifest, pending, manifest_at, canary: None };
            match journal.flush() {
                Err(error) if error.kind() == ErrorKind::Busy => {}
                flushed => return flushed.map(|()| journal),
            }
        }
        Err(fenced(&*objects))
    }

    /// Sets the next entry. Those of its pieces that have no object lie in `payload`, one after the
    /// other.
    pub(crate) fn stage(
        &mut self,
        mut add: Vec<Part>,
        remove: Vec<u64>,
        payload: &[u8],
        time_ms: u64,
    ) -> Result<()> {
        let number = self.manifest.number + 1;
        let name = entry_name(number);
        let inline = |piece: &&mut crate::manifest::Piece| piece.object.is_empty();
        for piece in add.iter_mut().flat_map(|part| &mut part.pieces).filter(inline) {
            piece.object.clone_from(&name);
        }
        let entry = Entry {
            version: VERSION,
            number,
            epoch: self.manifest.epoch,
            writer: self.manifest.writer,
            time_ms,
            opens: None,
            add,
            remove,
        };
        let bytes = encode(&entry, payload)?;
        self.pending = Some(Pending { entry, bytes });
        Ok(())
    }

    /// Writes the entry that was set, if it is not written yet.
    ///
    /// # Errors
    /// `Busy` if another writer has begun an epoch: this one has ended. After `Io` the entry may be
    /// written or not, and the call may be repeated.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let Some(pending) = &self.pending else { return Ok(()) };
        let name = entry_name(pending.entry.number);
        let written = match self.canary {
            Some(Canary::PutUnconditionally) => {
                self.objects.put(&name, &pending.bytes).map(|()| true)
            }
            Some(Canary::FailedIsWritten) => {
                self.objects.put_if_absent(&name, &pending.bytes).or(Ok(true))
            }
            _ => self.objects.put_if_absent(&name, &pending.bytes),
        };
        if !written? {
            match self.objects.get(&name)? {
                // An earlier attempt has written it, although it failed.
                Some(bytes) if bytes == pending.bytes => {}
                Some(_) => return Err(fenced(&*self.objects)),
                None => {
                    let what = format!("writing {name}: another request for it is under way");
                    return Err(Error::new(ErrorKind::Io, what));
                }
            }
        }
        let entry = pending.entry.clone();
        self.pending = None;
        self.manifest.apply(&entry)
    }

    /// Writes the manifest if many entries were written since the last one.
    pub(crate) fn write_manifest(&mut self) -> Result<()> {
        let manifest = &self.manifest;
        let every = MANIFEST_EVERY.max(manifest.parts.len() as u64 / PARTS_PER_ENTRY);
        if manifest.number < self.manifest_at + every {
            return Ok(());
        }
        self.objects.put(&manifest_name(manifest.number), &json(manifest)?)?;
        self.manifest_at = manifest.number;
        Ok(())
    }

    /// Removes objects that nothing refers to: entries before the last manifest, manifests but the
    /// last two, and parts with numbers below `unfinished`, except those of later epochs.
    pub(crate) fn sweep(&self, unfinished: u64) -> Result<u64> {
        let mut removed = 0;
        for object in garbage(&*self.objects, &self.manifest, self.manifest_at, unfinished)? {
            self.objects.delete(&object)?;
            removed += 1;
        }
        self.objects.remove_unfinished()?;
        Ok(removed)
    }
}

/// Returns the objects that nothing refers to.
pub(crate) fn garbage(
    objects: &dyn Objects,
    manifest: &Manifest,
    manifest_at: u64,
    unfinished: u64,
) -> Result<Vec<String>> {
    let used = manifest.objects();
    let mut found = Vec::new();
    for object in objects.list(ENTRIES, "")? {
        let Some(number) = number_of(&object.name, ENTRIES) else { continue };
        if number <= manifest_at && !manifest.openings.contains(&number) {
            found.push(object.name);
        }
    }
    let manifests = objects.list(MANIFESTS, "")?;
    let old = manifests.len().saturating_sub(2);
    found.extend(manifests.into_iter().take(old).map(|object| object.name));
    for object in objects.list(PARTS, "")? {
        let is_old = part_of(&object.name)
            .is_some_and(|(epoch, id)| epoch <= manifest.epoch && id < unfinished);
        if is_old {
            found.push(object.name);
        }
    }
    found.retain(|name| !used.contains(name.as_str()));
    Ok(found)
}

/// Returns the name of a piece's object.
pub(crate) fn piece_name(epoch: u64, part: u64, piece: usize) -> String {
    format!("{PARTS}{epoch:016x}-{part:016x}-{piece:08x}")
}

/// Returns the epoch and the part of a piece's object.
fn part_of(name: &str) -> Option<(u64, u64)> {
    let mut words = name.strip_prefix(PARTS)?.split('-');
    let mut word = || u64::from_str_radix(words.next()?, 16).ok();
    Some((word()?, word()?))
}

fn fenced(objects: &dyn Objects) -> Error {
    Error::with_hint(
        ErrorKind::Busy,
        format!("another process has taken over the backup at {}", objects.place()),
        "one process backs a store up to a place; the older one has ended",
    )
}
