//! Compressed large values: the pages of one are put together as they come, in their order, and
//! decompressed after the last.

use qpair_format::codec::Codec;
use qpair_format::large::Descriptor;

/// A sound page of a compressed value.
pub(super) struct Part {
    pub(super) descriptor: Descriptor,
    pub(super) part: u32,
    pub(super) codec: Codec,
    pub(super) content: Vec<u8>,
}

/// The value whose pages are coming: at most one, as the walk reads one value after the other.
#[derive(Default)]
pub(super) struct Assembly {
    stored: Vec<u8>,
    /// The value and the part that continues it. `None` once a part is missing, because its page is
    /// damaged: that is a fault of its own.
    next: Option<((u64, u64), u32)>,
}

impl Assembly {
    /// Takes a part. Returns the reason why the value cannot be decompressed, if this was the last
    /// part and all were sound.
    pub(super) fn take(&mut self, part: Part) -> Option<String> {
        let value = part.descriptor.key();
        if part.part == 0 {
            self.stored.clear();
            self.next = Some((value, 0));
        }
        if self.next != Some((value, part.part)) {
            self.next = None;
            return None;
        }
        self.stored.extend_from_slice(&part.content);
        self.next = Some((value, part.part + 1));
        if part.part + 1 < part.descriptor.pages {
            return None;
        }
        self.next = None;
        part.codec.fault(&mut self.stored)
    }
}
