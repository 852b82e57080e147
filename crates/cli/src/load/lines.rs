//! Lines of bytes, numbered from 1, with a limit on their length.

use std::io::{self, BufRead, Read};

use super::record::{ReadError, only};

/// The maximum length of a line, in bytes: four times the longest value.
pub(super) const LINE_LEN_MAX: u64 = 64 << 20;

pub(crate) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, line: Vec::new(), number: 0 }
    }

    /// Returns the next line that is not blank, with its number and without its end. Returns `None`
    /// at the end of input.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &[u8])>, ReadError> {
        loop {
            self.line.clear();
            let count = (&mut self.input).take(LINE_LEN_MAX).read_until(b'\n', &mut self.line)?;
            if count == 0 {
                return Ok(None);
            }
            self.number += 1;
            if count as u64 == LINE_LEN_MAX && self.line.last() != Some(&b'\n') {
                self.skip_rest()?;
                let why = format!("the line is longer than {LINE_LEN_MAX} bytes");
                return Err(ReadError::Bad { lines: only(self.number), why });
            }
            let mut end = self.line.len();
            if self.line.ends_with(b"\n") {
                end -= 1 + usize::from(self.line.ends_with(b"\r\n"));
            }
            let byte_order_mark = self.number == 1 && self.line.starts_with(b"\xef\xbb\xbf");
            let start = if byte_order_mark { 3 } else { 0 };
            if start < end {
                return Ok(Some((self.number, &self.line[start..end])));
            }
        }
    }

    fn skip_rest(&mut self) -> io::Result<()> {
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return Ok(());
            }
            let (count, found) = match buffer.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (buffer.len(), false),
            };
            self.input.consume(count);
            if found {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ends() {
        let mut lines = Lines::new(&b"\xef\xbb\xbfa\r\n\n\r\nb\r\nc"[..]);
        let mut next = || lines.next().unwrap().map(|(number, line)| (number, line.to_vec()));
        assert_eq!(next(), Some((1, b"a".to_vec())));
        assert_eq!(next(), Some((4, b"b".to_vec())));
        assert_eq!(next(), Some((5, b"c".to_vec())));
        assert_eq!(next(), None);
    }
}
