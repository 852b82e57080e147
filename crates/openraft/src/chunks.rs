//! The bytes of snapshots in the store: chunks of 1 MiB, under the snapshot's number and their own.
//!
//! A snapshot's chunks stay while it is the current one or a [`Held`] refers to it. All others are
//! removed when a snapshot is built, received or installed, and when the group is opened.

use crate::codec::{decode, encode};
use crate::group::{Data, Group, data_name, key};
use qpair::{Error, ErrorKind, Result, Table, WriteBatch};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bytes of each chunk of a snapshot but the last.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// The snapshots and states that a group keeps beside the current ones.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Held while the current snapshot changes, and while chunks and tables are removed.
    switching: Mutex<()>,
    numbers: Mutex<Numbers>,
    /// States that were replaced, of which some may still be read.
    replaced: Mutex<Vec<Data>>,
}

#[derive(Debug, Default)]
struct Numbers {
    last: u64,
    /// The number of [`Held`] of a snapshot.
    held: BTreeMap<u64, usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a snapshot's chunks from being removed.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) group: Group,
    pub(crate) number: u64,
}

impl Held {
    fn new(group: &Group, number: u64) -> Self {
        *lock(&group.kept().numbers).held.entry(number).or_default() += 1;
        Self { group: group.clone(), number }
    }

    pub(crate) fn chunk_key(&self, part: u64) -> [u8; 16] {
        chunk_key(self.number, part)
    }

    /// The bytes of the stored chunks. Blocks.
    fn stored_len(&self) -> Result<u64> {
        let chunks = chunk_key(self.number, 0)..chunk_key(self.number + 1, 0);
        let last = self.group.snapshots().range(chunks)?.reverse().limit(1).next();
        let Some((key, chunk)) = last.transpose()? else { return Ok(0) };
        Ok(number_in(&key, 8)? * CHUNK_BYTES as u64 + chunk.len() as u64)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut numbers = lock(&self.group.kept().numbers);
        if let Some(held) = numbers.held.get_mut(&self.number) {
            *held -= 1;
            if *held == 0 {
                numbers.held.remove(&self.number);
            }
        }
    }
}

impl Group {
    /// Holds the number of a snapshot that has no chunks yet.
    pub(crate) fn hold_new(&self) -> Held {
        let number = {
            let mut numbers = lock(&self.kept().numbers);
            numbers.last += 1;
            numbers.last
        };
        Held::new(self, number)
    }

    /// The current snapshot's description, its chunks and their bytes. Blocks.
    pub(crate) fn hold_current<S: DeserializeOwned>(&self) -> Result<Option<(S, Held, u64)>> {
        let _switching = lock(&self.kept().switching);
        let current: Option<(u64, Vec<u8>)> = self.position(key::SNAPSHOT)?;
        let Some((number, meta)) = current else { return Ok(None) };
        let held = Held::new(self, number);
        let len = held.stored_len()?;
        Ok(Some((decode("the snapshot's position", &meta)?, held, len)))
    }

    /// Makes a snapshot the current one and with it what `batch` has, unless the state has another
    /// generation than `from`: then an installed snapshot is newer. Returns whether it was done.
    /// Blocks.
    pub(crate) fn make_current<S: Serialize>(
        &self,
        held: &Held,
        meta: &S,
        mut batch: WriteBatch,
        from: u64,
        state: Option<Data>,
    ) -> Result<bool> {
        let meta = encode("the snapshot's position", meta)?;
        let current = encode("the current snapshot", &(held.number, meta))?;
        batch.put(self.positions(), key::SNAPSHOT, &current);
        let _switching = lock(&self.kept().switching);
        if self.data().generation != from {
            return Ok(false);
        }
        self.store().write(&batch)?;
        if let Some(state) = state {
            let replaced = self.replace_data(state);
            lock(&self.kept().replaced).push(replaced);
        }
        Ok(true)
    }

    /// Removes the chunks of snapshots that are neither current nor held, and the tables of
    /// replaced states that nobody reads. Blocks.
    pub(crate) fn sweep(&self) -> Result<()> {
        let _switching = lock(&self.kept().switching);
        let current: Option<(u64, Vec<u8>)> = self.position(key::SNAPSHOT)?;
        let current = current.map(|(number, _)| number);
        let mut from = 0;
        loop {
            let next = self.snapshots().range(chunk_key(from, 0)..)?.limit(1).next();
            let Some((key, _)) = next.transpose()? else { break };
            let number = number_in(&key, 0)?;
            from = number + 1;
            let held = {
                let mut numbers = lock(&self.kept().numbers);
                numbers.last = numbers.last.max(number);
                numbers.held.contains_key(&number)
            };
            if !held && current != Some(number) {
                self.snapshots().delete_range(chunk_key(number, 0)..chunk_key(from, 0))?;
            }
        }
        let mut replaced = lock(&self.kept().replaced);
        let (read, unread): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *replaced).into_iter().partition(Data::is_read);
        *replaced = read;
        drop(replaced);
        for data in unread {
            let name = data_name(self.name(), data.generation);
            self.store().drop_table(&name).or_else(unless_missing)?;
        }
        Ok(())
    }
}

/// Writes the chunks of a new snapshot. Blocks.
pub(crate) struct ChunkWriter<'h> {
    held: &'h Held,
    chunk: Vec<u8>,
    part: u64,
}

impl<'h> ChunkWriter<'h> {
    pub(crate) fn new(held: &'h Held) -> Self {
        Self { held, chunk: Vec::with_capacity(CHUNK_BYTES), part: 0 }
    }

    fn store(&mut self) -> Result<()> {
        self.held.group.snapshots().put(&self.held.chunk_key(self.part), &self.chunk)?;
        self.chunk.clear();
        self.part += 1;
        Ok(())
    }

    /// Stores the last bytes; returns the number of all.
    pub(crate) fn finish(mut self) -> Result<u64> {
        let len = self.part * CHUNK_BYTES as u64 + self.chunk.len() as u64;
        if !self.chunk.is_empty() {
            self.store()?;
        }
        Ok(len)
    }
}

impl Write for ChunkWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(CHUNK_BYTES - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..len]);
        if self.chunk.len() == CHUNK_BYTES {
            self.store().map_err(io::Error::other)?;
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the chunks of a snapshot. Blocks.
pub(crate) struct ChunkReader<'h> {
    table: &'h Table,
    held: &'h Held,
    chunk: Vec<u8>,
    at: usize,
    part: u64,
}

impl<'h> ChunkReader<'h> {
    pub(crate) fn new(held: &'h Held) -> Self {
        Self { table: held.group.snapshots(), held, chunk: Vec::new(), at: 0, part: 0 }
    }
}

impl Read for ChunkReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at == self.chunk.len() {
            self.at = 0;
            self.chunk.clear();
            let key = self.held.chunk_key(self.part);
            if let Some(chunk) = self.table.get(&key).map_err(io::Error::other)? {
                self.chunk = chunk;
                self.part += 1;
            }
        }
        let len = out.len().min(self.chunk.len() - self.at);
        out[..len].copy_from_slice(&self.chunk[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

fn chunk_key(number: u64, part: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[8..].copy_from_slice(&part.to_be_bytes());
    key
}

fn number_in(key: &[u8], at: usize) -> Result<u64> {
    let bytes = key.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u64::from_be_bytes).ok_or_else(|| {
        let what = format!("a chunk's key has {} bytes; expected 16", key.len());
        Error::new(ErrorKind::Corrupt, what)
    })
}

pub(crate) fn unless_missing(error: Error) -> Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

impl Data {
    /// Whether a view or a reader has the table.
    fn is_read(&self) -> bool {
        Arc::strong_count(&self.in_use) > 1
    }
}
