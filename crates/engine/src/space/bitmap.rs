//! A bit for each page.

/// Bits by page id; those past the end are clear.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    pub(crate) fn from_words(words: Vec<u64>) -> Self {
        Self { words }
    }

    /// The words up to the last that is not zero.
    pub(crate) fn words(&self) -> &[u64] {
        let len = self.words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        &self.words[..len]
    }

    #[inline]
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    pub(crate) fn get(&self, page_id: u64) -> bool {
        self.word((page_id / 64) as usize) >> (page_id % 64) & 1 == 1
    }

    /// Sets or clears the bits of a run of pages.
    pub(crate) fn change(&mut self, start: u64, count: u64, set: bool) {
        let end = start + count;
        if set && self.words.len() < end.div_ceil(64) as usize {
            self.words.resize(end.div_ceil(64) as usize, 0);
        }
        let mut page = start;
        while page < end {
            let (word, bit) = ((page / 64) as usize, page % 64);
            let many = (64 - bit).min(end - page);
            let mask = (u64::MAX >> (64 - many)) << bit;
            match self.words.get_mut(word) {
                Some(word) if set => *word |= mask,
                Some(word) => *word &= !mask,
                None => break,
            }
            page += many;
        }
    }

    /// The page behind the last one that is set.
    pub(crate) fn end(&self) -> u64 {
        let words = self.words();
        let spare = words.last().map_or(0, |word| u64::from(word.leading_zeros()));
        words.len() as u64 * 64 - spare
    }

    /// The runs of set bits, each cut into pieces of up to `most` pages.
    pub(crate) fn runs(&self, most: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            loop {
                let word = *self.words.get((at / 64) as usize)? >> (at % 64);
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

    pub(crate) fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
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
        assert_eq!((bitmap.count(), bitmap.words().len()), (0, 0));
    }
}
