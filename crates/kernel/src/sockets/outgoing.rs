//! Bytes on their way to a socket.

use std::collections::VecDeque;
use std::io::IoSlice;

use qpair_block::Buffer;

/// The most pieces of one system call.
const PIECES_MAX: usize = 128;

/// A header, and the data after it.
#[derive(Debug)]
struct Entry {
    head_bytes: usize,
    data: Option<(Buffer, u32)>,
}

impl Entry {
    fn len(&self) -> usize {
        self.head_bytes + self.data.as_ref().map_or(0, |(_, len)| *len as usize)
    }
}

/// Headers and blocks of data for a socket, in their order.
#[derive(Debug, Default)]
pub struct Outgoing {
    entries: VecDeque<Entry>,
    /// The headers of all entries, one after the other.
    heads: VecDeque<u8>,
    /// The bytes of the first entry that are sent.
    sent: usize,
    /// The bytes of all entries, without those that are sent.
    bytes: usize,
}

impl Outgoing {
    /// Whether all is sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of bytes that are not sent.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of all headers, the first of which may be sent.
    #[must_use]
    pub fn heads_bytes(&self) -> usize {
        self.heads.len()
    }

    /// Whether there are blocks of data.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.entries.iter().any(|entry| entry.data.is_some())
    }

    /// Appends a header, and the first bytes of a block as its data.
    pub fn push(&mut self, head: &[u8], data: Option<(Buffer, u32)>) {
        let entry = Entry { head_bytes: head.len(), data };
        self.bytes += entry.len();
        self.heads.extend(head);
        self.entries.push_back(entry);
    }

    /// Appends the entries of another queue, of which nothing was sent.
    pub fn append(&mut self, other: &mut Self) {
        self.entries.append(&mut other.entries);
        self.heads.append(&mut other.heads);
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Returns the bytes to send, as many as one system call takes.
    pub fn pieces(&mut self) -> Vec<IoSlice<'_>> {
        let heads = self.heads.make_contiguous();
        let mut pieces = Vec::with_capacity(PIECES_MAX.min(2 * self.entries.len()));
        let (mut at, mut skip) = (0, self.sent);
        for entry in &self.entries {
            if pieces.len() + 2 > PIECES_MAX {
                break;
            }
            let head = &heads[at..at + entry.head_bytes];
            at += entry.head_bytes;
            let data =
                entry.data.as_ref().and_then(|(block, len)| block.as_slice().get(..*len as usize));
            for bytes in [head, data.unwrap_or_default()] {
                let rest = &bytes[skip.min(bytes.len())..];
                skip -= skip.min(bytes.len());
                if !rest.is_empty() {
                    pieces.push(IoSlice::new(rest));
                }
            }
        }
        pieces
    }

    /// Removes the first bytes, which are sent. Blocks that are sent as a whole become free.
    pub fn advance(&mut self, sent: usize) {
        self.bytes -= sent;
        self.sent += sent;
        while let Some(entry) = self.entries.front()
            && self.sent >= entry.len()
        {
            self.sent -= entry.len();
            self.heads.drain(..entry.head_bytes);
            self.entries.pop_front();
        }
    }
}
