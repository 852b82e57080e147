//! A bitmap with a bit for each page. Its parts are shared between copies until one of them is
//! changed: a copy costs one word for each part.

use std::sync::Arc;

pub const PART_WORDS: usize = 2048;

type Part = [u64; PART_WORDS];

/// A bitmap by page id. Bits past the end are clear, and so are the bits of missing parts.
#[derive(Clone, Debug, Default)]
pub struct Bitmap {
    parts: Vec<Option<Arc<Part>>>,
}

pub static EMPTY: Bitmap = Bitmap { parts: Vec::new() };

impl PartialEq for Bitmap {
    fn eq(&self, other: &Self) -> bool {
        self.words().eq(other.words())
    }
}

impl Eq for Bitmap {}

/// Returns the words that a run of pages lies in, and the run's bits in each.
fn masks(start: u64, count: u64) -> impl Iterator<Item = (usize, u64)> {
    let (end, mut page) = (start + count, start);
    std::iter::from_fn(move || {
        let (word, bit) = ((page / 64) as usize, page % 64);
        let many = (64 - bit).min(end - page);
        page += many;
        (many > 0).then(|| (word, (u64::MAX >> (64 - many)) << bit))
    })
}

impl Bitmap {
    /// Creates a bitmap from words of 64 pages each.
    #[inline]
    pub fn from_words(words: impl Iterator<Item = u64>) -> Self {
        let mut bitmap = Self::default();
        for (index, word) in words.enumerate().filter(|(_, word)| *word != 0) {
            *bitmap.word_mut(index) = word;
        }
        bitmap
    }

    /// Returns the words up to the last one that is not zero.
    #[inline]
    pub fn words(&self) -> impl Iterator<Item = u64> {
        (0..self.words_len()).map(|index| self.word(index))
    }

    /// Returns the number of words up to the last one that is not zero.
    #[inline]
    pub fn words_len(&self) -> usize {
        let last = self.parts.iter().enumerate().rev().find_map(|(index, part)| {
            let last = part.as_ref()?.iter().rposition(|word| *word != 0)?;
            Some(index * PART_WORDS + last)
        });
        last.map_or(0, |last| last + 1)
    }

    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        match self.parts.get(index / PART_WORDS) {
            Some(Some(part)) => part[index % PART_WORDS],
            _ => 0,
        }
    }

    /// Returns a word for changes. Its part is no longer shared from then on.
    fn word_mut(&mut self, index: usize) -> &mut u64 {
        let at = index / PART_WORDS;
        if at >= self.parts.len() {
            self.parts.resize(at + 1, None);
        }
        let part = self.parts[at].get_or_insert_with(|| Arc::new([0; PART_WORDS]));
        &mut Arc::make_mut(part)[index % PART_WORDS]
    }

    #[inline]
    pub fn get(&self, page_id: u64) -> bool {
        self.word((page_id / 64) as usize) >> (page_id % 64) & 1 == 1
    }

    #[inline]
    pub fn change(&mut self, start: u64, count: u64, set: bool) {
        for (word, mask) in masks(start, count) {
            let (before, set) = (self.word(word), if set { mask } else { 0 });
            if before & mask != set {
                *self.word_mut(word) = before & !mask | set;
            }
        }
    }

    /// Sets those bits of a run of pages that `other` has set, and clears them there.
    #[inline]
    pub fn take_over(&mut self, other: &mut Self, start: u64, count: u64) {
        for (word, mask) in masks(start, count) {
            let bits = other.word(word) & mask;
            if bits != 0 {
                *other.word_mut(word) &= !bits;
                *self.word_mut(word) |= bits;
            }
        }
    }

    fn part(&self, part: usize) -> Option<&Arc<Part>> {
        self.parts.get(part)?.as_ref()
    }

    #[inline]
    pub fn shares_part(&self, other: &Self, part: usize) -> bool {
        match (self.part(part), other.part(part)) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// Replaces a part by that of another bitmap, and shares its memory.
    #[inline]
    pub fn share_part(&mut self, other: &Self, part: usize) {
        self.parts.resize(self.parts.len().max(part + 1), None);
        self.parts[part] = other.part(part).cloned();
    }

    #[must_use]
    pub fn count_from(&self, page_id: u64) -> u64 {
        let first = (page_id / 64) as usize;
        let words = (first + 1).min(self.words_len())..self.words_len();
        let rest: u64 = words.map(|word| u64::from(self.word(word).count_ones())).sum();
        rest + u64::from((self.word(first) >> (page_id % 64)).count_ones())
    }

    /// Returns the first page after the last set bit.
    #[inline]
    pub fn end(&self) -> u64 {
        let len = self.words_len();
        let spare = len.checked_sub(1).map_or(0, |last| self.word(last).leading_zeros());
        len as u64 * 64 - u64::from(spare)
    }

    /// Returns the runs of set bits, each cut into pieces of up to `most` pages.
    #[inline]
    pub fn runs(&self, most: u64) -> impl Iterator<Item = (u64, u64)> {
        let (mut at, words) = (0, self.words_len() as u64);
        std::iter::from_fn(move || {
            loop {
                if at / 64 >= words {
                    return None;
                }
                let word = self.word((at / 64) as usize) >> (at % 64);
                if word != 0 {
                    at += u64::from(word.trailing_zeros());
                    break;
                }
                at = (at / 64 + 1) * 64;
            }
            let start = at;
            while at - start < most && self.get(at) {
                at += 1;
            }
            Some((start, at - start))
        })
    }

    #[inline]
    pub fn count(&self) -> u64 {
        self.parts
            .iter()
            .flatten()
            .flat_map(|part| part.iter())
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }

    #[inline]
    pub fn own_parts(&self) -> usize {
        self.parts.iter().flatten().filter(|part| Arc::strong_count(part) == 1).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cross_words() {
        let mut bitmap = Bitmap::default();
        bitmap.change(60, 140, true);
        assert_eq!(bitmap.count(), 140);
        assert!(!bitmap.get(59) && bitmap.get(60) && bitmap.get(199) && !bitmap.get(200));
        assert_eq!(bitmap.runs(100).collect::<Vec<_>>(), [(60, 100), (160, 40)]);
        assert_eq!((bitmap.end(), Bitmap::default().end()), (200, 0));
        bitmap.change(64, 64, false);
        assert_eq!(bitmap.runs(u64::MAX).collect::<Vec<_>>(), [(60, 4), (128, 72)]);
        assert_eq!((bitmap.count(), bitmap.get(63), bitmap.get(64)), (76, true, false));
        bitmap.change(0, 1000, false);
        assert_eq!((bitmap.count(), bitmap.words_len()), (0, 0));
    }

    #[test]
    fn a_copy_shares_the_parts_that_nobody_changes() {
        const PART_PAGES: u64 = PART_WORDS as u64 * 64;
        let mut bitmap = Bitmap::default();
        bitmap.change(0, 8 * PART_PAGES, true);
        assert_eq!(bitmap.own_parts(), 8);
        let mut copy = bitmap.clone();
        assert_eq!((bitmap.own_parts(), copy.own_parts()), (0, 0));
        // A bit that already has the value is not a change.
        copy.change(0, 3 * PART_PAGES, true);
        copy.change(PART_PAGES - 1, 2, false);
        assert_eq!((bitmap.own_parts(), copy.own_parts()), (2, 2));
        assert!(bitmap.get(PART_PAGES) && !copy.get(PART_PAGES) && bitmap != copy);
        let shared: Vec<usize> = (0..10).filter(|part| copy.shares_part(&bitmap, *part)).collect();
        assert_eq!(shared, [2, 3, 4, 5, 6, 7, 8, 9]);
        (0..8).for_each(|part| copy.share_part(&bitmap, part));
        assert_eq!((copy.own_parts(), &copy), (0, &bitmap));
        let mut other = Bitmap::default();
        other.take_over(&mut copy, 5, 3);
        other.take_over(&mut copy, 5, 3);
        assert_eq!((other.count(), copy.count()), (3, 8 * PART_PAGES - 3));
    }
}
