//! The bitmaps behind the allocator, and the counts of their bits. A thread that has access to them
//! holds the allocator's lock.

use super::Bitmap;
use qpair_format::bitmap::PART_WORDS;

/// The number of words of the bitmaps in which the shortest row is looked for: 16,384 pages.
const SHORT_ROW_WORDS: usize = 256;

/// The pages in use, their owners, and their number.
#[derive(Debug, Default)]
pub(super) struct Inner {
    /// Pages in use now that are part of a checkpoint that begins now.
    pub(super) linked: Bitmap,
    /// Pages in use now that are part of no checkpoint: the trees do not refer to them yet, or no
    /// longer, or they are log.
    pub(super) unlinked: Bitmap,
    /// The pages of the last durable checkpoint.
    pub(super) durable: Bitmap,
    /// The pages of the checkpoint under way.
    pub(super) image: Option<Bitmap>,
    /// The images that backups, or readers in other processes, read from.
    pub(super) held: Vec<(u64, Bitmap)>,
    pub(super) next_hold: u64,
    /// The number of pages that were not in use, and could not be handed out, when the last image
    /// became durable or a hold ended later: a further checkpoint does not free them.
    pub(super) kept: u64,
    pub(super) used: u64,
    /// The number of pages in `used` that segments of the logs have, and that never were in memory;
    /// an estimate that is rather too low.
    pub(super) log: u64,
    /// The number of pages that may not be handed out.
    pub(super) taken: u64,
    /// The number of pages in `taken` that become free when the checkpoint under way is durable.
    pub(super) gain: u64,
    /// The word at which the search for single pages continues.
    pub(super) cursor: usize,
    /// The word at which the search for pages in a row continues. Rows are rare, and the rest of a
    /// row should not be where single pages are taken next.
    pub(super) row_cursor: usize,
    /// The pages before which single pages, and pages in a row, are looked for first; 0 means
    /// anywhere.
    pub(super) fronts: [u64; 2],
    /// The size in bytes from which on the device refused to grow.
    pub(super) refused_bytes: Option<u64>,
    /// The number of reservations that will be kept or given back.
    pub(super) pending: u64,
    /// Whether the store is being closed, so that nothing is reserved any more.
    pub(super) closing: bool,
}

impl Inner {
    #[inline]
    fn in_use(&self, index: usize) -> u64 {
        self.linked.word(index) | self.unlinked.word(index)
    }

    pub(super) fn is_used(&self, page_id: u64) -> bool {
        self.linked.get(page_id) || self.unlinked.get(page_id)
    }

    /// Returns the pages of a word that may not be handed out.
    #[inline]
    pub(super) fn word(&self, index: usize) -> u64 {
        let mut word = self.in_use(index) | self.durable.word(index);
        if let Some(image) = &self.image {
            word |= image.word(index);
        }
        for (_, held) in &self.held {
            word |= held.word(index);
        }
        word
    }

    /// Whether an image, durable or under way or held by a backup, has a page.
    pub(super) fn is_kept(&self, page_id: u64) -> bool {
        self.durable.get(page_id)
            || self.image.as_ref().is_some_and(|image| image.get(page_id))
            || self.held.iter().any(|(_, held)| held.get(page_id))
    }

    pub(super) fn is_taken(&self, page_id: u64) -> bool {
        self.word((page_id / 64) as usize) >> (page_id % 64) & 1 == 1
    }

    /// Returns the number of pages in a part of the bitmaps that may not be handed out.
    pub(super) fn count_part(&self, part: usize) -> u64 {
        let words = part * PART_WORDS..(part + 1) * PART_WORDS;
        words.map(|word| u64::from(self.word(word).count_ones())).sum()
    }

    pub(super) fn free(&self, capacity: u64) -> u64 {
        capacity.saturating_sub(self.taken)
    }

    /// Returns the end of the last durable checkpoint's pages, rounded up to a word.
    pub(super) fn durable_end(&self) -> u64 {
        self.durable.words_len() as u64 * 64
    }

    /// Finds `count` pages in a row below `capacity`, from where the last such search ended and
    /// round.
    pub(super) fn find(&mut self, count: u64, capacity: u64) -> Option<u64> {
        let words = capacity.div_ceil(64) as usize;
        let (mut run_start, mut run) = (0, 0);
        let cursor = if count == 1 { self.cursor } else { self.row_cursor };
        let begin = cursor.min(words.saturating_sub(1));
        for step in 0..=words {
            let index = (begin + step) % words.max(1);
            if index == 0 {
                run = 0;
            }
            let word = self.word(index);
            if word == u64::MAX {
                run = 0;
                continue;
            }
            if word == 0 && run + 64 < count {
                if run == 0 {
                    run_start = index as u64 * 64;
                }
                run += 64;
                continue;
            }
            let mut bit = 0;
            while bit < 64 {
                let rest = word >> bit;
                let zeros = if rest == 0 { 64 - bit } else { u64::from(rest.trailing_zeros()) };
                if zeros > 0 {
                    if run == 0 {
                        run_start = index as u64 * 64 + bit;
                    }
                    run += zeros.min(64 - bit);
                    if run >= count {
                        if run_start + count > capacity {
                            run = 0;
                            break;
                        }
                        let cursor =
                            if count == 1 { &mut self.cursor } else { &mut self.row_cursor };
                        *cursor = ((run_start + count) / 64) as usize;
                        return Some(run_start);
                    }
                    bit += zeros;
                }
                if bit < 64 {
                    run = 0;
                    bit += u64::from((word >> bit).trailing_ones());
                }
            }
        }
        None
    }

    /// Works like [`Inner::find`], before the front that pages move to. After a failure the front
    /// counts as full, because searching each time would cost much.
    pub(super) fn find_before_front(&mut self, count: u64, capacity: u64) -> Option<u64> {
        let of = usize::from(count > 1);
        let front = self.fronts[of].min(capacity);
        if front == 0 {
            return None;
        }
        let found = self.find(count, front);
        if found.is_none() {
            self.fronts[of] = 0;
        }
        found
    }

    /// Returns the first page after the last one that may not be handed out.
    pub(super) fn end(&self) -> u64 {
        let kept = self.held.iter().map(|(_, held)| held).chain(&self.image);
        let all = kept.chain([&self.linked, &self.unlinked, &self.durable]);
        all.map(Bitmap::end).max().unwrap_or(0)
    }

    /// Finds the last page of the shortest row near the end of the last search for a single page. A
    /// full device takes single pages from there, so that long rows are left for the logs of the
    /// store's next incarnation, and for descriptions of checkpoints.
    pub(super) fn find_in_short_row(&mut self, capacity: u64) -> Option<u64> {
        let words = capacity.div_ceil(64) as usize;
        let begin = self.cursor.min(words.saturating_sub(1));
        // A row that begins before the first word looks longer than it is.
        let mut len = if begin > 0 { self.word(begin - 1).leading_zeros() } else { 0 };
        let mut shortest = None;
        for step in 0..words.min(SHORT_ROW_WORDS) {
            let index = (begin + step) % words;
            let end = (capacity - index as u64 * 64).min(64) as u32;
            if index == 0 {
                len = 0;
            }
            let word = self.word(index);
            let mut bit = 0;
            while bit < end {
                let free = (word >> bit).trailing_zeros().min(end - bit);
                bit += free;
                len += free;
                if bit == 64 {
                    break;
                }
                if len > 0 && shortest.is_none_or(|(least, _)| len < least) {
                    shortest = Some((len, index as u64 * 64 + u64::from(bit) - 1));
                }
                if len == 1 {
                    break;
                }
                len = 0;
                bit += (word >> bit).trailing_ones();
            }
            if matches!(shortest, Some((1, _))) {
                break;
            }
        }
        let (_, page_id) = shortest?;
        self.cursor = (page_id / 64) as usize;
        Some(page_id)
    }

    pub(super) fn take(&mut self, start: u64, count: u64) {
        self.linked.change(start, count, true);
        self.used += count;
        self.taken += count;
    }

    pub(super) fn give(&mut self, start: u64, count: u64) {
        for page_id in start..start + count {
            if !self.is_used(page_id) {
                continue;
            }
            self.linked.change(page_id, 1, false);
            self.unlinked.change(page_id, 1, false);
            self.used -= 1;
            self.taken -= u64::from(!self.is_taken(page_id));
        }
    }

    /// Unlinks pages that are in use: they belong to no checkpoint that begins from now on.
    pub(super) fn unlink(&mut self, start: u64, count: u64) {
        self.unlinked.take_over(&mut self.linked, start, count);
    }

    pub(super) fn link(&mut self, start: u64, count: u64) {
        self.linked.take_over(&mut self.unlinked, start, count);
    }
}
