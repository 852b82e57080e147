//! A part that is being made, piece by piece.
//!
//! A step that fails may be repeated: changes that were read are kept, and a piece has the same
//! name and bytes each time it is sent.

use std::collections::VecDeque;

use qpair_engine::{ChangeFeed, Error, ErrorKind, Result, Store};
use qpair_format::log::RecordBuilder;

use crate::change::{Change, Merge, Scan};
use crate::journal::{checksum, piece_name};
use crate::manifest::{Part, Piece};
use crate::objects::Objects;

pub(crate) enum Source {
    Changes(VecDeque<Change>),
    Merge(Merge),
    Scan(Scan),
}

/// Sizes of pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) piece_bytes: usize,
    /// The greatest part that lies in its journal entry instead of an object of its own.
    pub(crate) inline_bytes: usize,
}

pub(crate) struct Job {
    pub(crate) part: Part,
    source: Source,
    epoch: u64,
    /// Changes that are in no piece yet.
    gathered: Vec<Change>,
    gathered_bytes: usize,
    has_ended: bool,
    /// The piece that is being sent.
    piece: Option<Vec<u8>>,
    /// A part that lies in its journal entry.
    pub(crate) inline: Vec<u8>,
}

impl Job {
    pub(crate) fn new(part: Part, source: Source, epoch: u64) -> Self {
        Self {
            part,
            source,
            epoch,
            gathered: Vec::new(),
            gathered_bytes: 0,
            has_ended: false,
            piece: None,
            inline: Vec::new(),
        }
    }

    /// Makes and sends one piece; returns whether the part is complete.
    pub(crate) fn step(
        &mut self,
        objects: &dyn Objects,
        store: &Store,
        feed: &ChangeFeed,
        sizes: Sizes,
    ) -> Result<bool> {
        if self.piece.is_none() {
            while self.gathered_bytes < sizes.piece_bytes && !self.has_ended {
                let next = match &mut self.source {
                    Source::Changes(changes) => changes.pop_front(),
                    Source::Merge(merge) => merge.next(objects)?,
                    Source::Scan(scan) => scan.next(store, feed)?,
                };
                self.gathered_bytes += next.as_ref().map_or(0, |c| c.operation().encoded_bytes());
                self.has_ended = next.is_none();
                self.gathered.extend(next);
            }
            if self.gathered.is_empty() {
                return Ok(true);
            }
            self.piece = Some(self.encode()?);
        }
        let Some(bytes) = &self.piece else { return Ok(true) };
        let (len, sum) = (bytes.len() as u64, checksum(bytes));
        let is_inline =
            self.has_ended && self.part.pieces.is_empty() && bytes.len() <= sizes.inline_bytes;
        let mut object = String::new();
        if !is_inline {
            object = piece_name(self.epoch, self.part.id, self.part.pieces.len());
            objects.put(&object, bytes)?;
        }
        self.part.bytes += len;
        self.part.pieces.push(Piece { object, from_end: len, bytes: len, checksum: sum });
        let sent = self.piece.take().unwrap_or_default();
        if is_inline {
            self.inline = sent;
        }
        Ok(self.has_ended)
    }

    fn encode(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut builder = RecordBuilder::new(&mut bytes, self.part.to.max(1));
        self.gathered.iter().for_each(|change| builder.push(change.operation()));
        builder.finish().map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("a part of the backup cannot be made: {error}"))
        })?;
        self.part.changes += self.gathered.len() as u64;
        self.gathered.clear();
        self.gathered_bytes = 0;
        Ok(bytes)
    }
}
