//! A snapshot's bytes for openraft: read from the store, and written to it, chunk by chunk.

use crate::chunks::{CHUNK_BYTES, Held};
use crate::group::{Group, run_on_thread};
use qpair::{Error, ErrorKind, Result};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

/// The bytes of a snapshot in the store, for the network between members: reads and writes hold one
/// part of 1 MiB in memory. The bytes stay as they are until the last handle is dropped, also when
/// a newer snapshot has become the current one.
pub struct StoredSnapshot {
    held: Held,
    len: u64,
    position: u64,
    received: bool,
    chunk: Option<Chunk>,
    /// The chunk that is being read from the store or written to it.
    transfer: Option<Transfer>,
}

type Transfer = Pin<Box<dyn Future<Output = Result<Chunk>> + Send>>;

struct Chunk {
    part: u64,
    bytes: Vec<u8>,
    changed: bool,
}

impl Group {
    /// Begins to receive a snapshot that another member sends: its bytes are written to the
    /// returned handle from the first on, which openraft then gets to install. For the network code
    /// on openraft 0.10; 0.9 calls it.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn receive_snapshot(&self) -> Result<StoredSnapshot> {
        let group = self.clone();
        // What earlier attempts have left is removed first.
        run_on_thread("raft-snapshot", move || group.sweep()).await?;
        Ok(StoredSnapshot { received: true, ..StoredSnapshot::new(self.hold_new(), 0) })
    }
}

impl StoredSnapshot {
    pub(crate) fn new(held: Held, len: u64) -> Self {
        Self { held, len, position: 0, received: false, chunk: None, transfer: None }
    }

    /// Returns the number of bytes.
    pub fn stored_len(&self) -> u64 {
        self.len
    }

    /// Stores what was written; returns the chunks, of which the store has all.
    pub(crate) async fn into_held(mut self) -> Result<Held> {
        let stored = poll_fn(|context| self.poll_store(context)).await;
        stored.map(|()| self.held)
    }

    fn load(&self, part: u64) -> Transfer {
        let (table, key) = (self.held.group.snapshots().clone(), self.held.chunk_key(part));
        Box::pin(async move {
            let bytes = table.get_async(&key).await?.ok_or_else(|| {
                Error::with_hint(
                    ErrorKind::Corrupt,
                    format!("part {part} of a snapshot is missing"),
                    "let the leader send the snapshot again",
                )
            })?;
            Ok(Chunk { part, bytes, changed: false })
        })
    }

    fn store(&self, mut chunk: Chunk) -> Transfer {
        let (table, key) = (self.held.group.snapshots().clone(), self.held.chunk_key(chunk.part));
        Box::pin(async move {
            table.put_async(&key, &chunk.bytes).await?;
            chunk.changed = false;
            Ok(chunk)
        })
    }

    fn poll_transfer(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(transfer) = &mut self.transfer {
            let outcome = ready!(transfer.as_mut().poll(context));
            self.transfer = None;
            self.chunk = Some(outcome?);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_store(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            ready!(self.poll_transfer(context))?;
            match self.chunk.take_if(|chunk| chunk.changed) {
                Some(chunk) => self.transfer = Some(self.store(chunk)),
                None => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Brings the chunk at the position into memory; the one before it is stored.
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Result<&mut Chunk>> {
        let part = self.position / CHUNK_BYTES as u64;
        loop {
            ready!(self.poll_transfer(context))?;
            match &self.chunk {
                Some(chunk) if chunk.part == part => break,
                Some(chunk) if chunk.changed => ready!(self.poll_store(context))?,
                _ if part * CHUNK_BYTES as u64 >= self.len => {
                    let mut bytes = self.chunk.take().map_or_else(Vec::new, |chunk| chunk.bytes);
                    bytes.clear();
                    self.chunk = Some(Chunk { part, bytes, changed: false });
                }
                _ => self.transfer = Some(self.load(part)),
            }
        }
        let none = || Error::new(ErrorKind::Corrupt, "a part of a snapshot is missing");
        Poll::Ready(self.chunk.as_mut().ok_or_else(none))
    }
}

impl AsyncRead for StoredSnapshot {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.position >= self.len {
            return Poll::Ready(Ok(()));
        }
        let at = (self.position % CHUNK_BYTES as u64) as usize;
        let chunk = ready!(self.poll_chunk(context)).map_err(io::Error::other)?;
        let rest = chunk.bytes.get(at..).unwrap_or_default();
        let len = rest.len().min(out.remaining());
        out.put_slice(&rest[..len]);
        self.position += len as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for StoredSnapshot {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.received {
            let why = "the snapshot is complete; Group::receive_snapshot makes one to write to";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::PermissionDenied, why)));
        }
        if self.position > self.len {
            let why = format!(
                "the snapshot has {} bytes, and cannot be written at {}: send all parts in order",
                self.len, self.position
            );
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let at = (self.position % CHUNK_BYTES as u64) as usize;
        let chunk = ready!(self.poll_chunk(context)).map_err(io::Error::other)?;
        let bytes = &bytes[..bytes.len().min(CHUNK_BYTES - at)];
        // A part that is sent again is written over.
        let over = bytes.len().min(chunk.bytes.len() - at);
        chunk.bytes[at..at + over].copy_from_slice(&bytes[..over]);
        chunk.bytes.extend_from_slice(&bytes[over..]);
        chunk.changed = true;
        self.position += bytes.len() as u64;
        self.len = self.len.max(self.position);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_store(context).map_err(io::Error::other)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

impl AsyncSeek for StoredSnapshot {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(by) => self.len.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = position.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "the position is before the first byte")
        })?;
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.position))
    }
}

impl fmt::Debug for StoredSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredSnapshot")
            .field("group", &self.held.group.name())
            .field("number", &self.held.number)
            .field("len", &self.len)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
