//! The source of lines, and the progress of reading.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::{Failure, Result};

const BUFFER_BYTES: usize = 256 << 10;

pub(crate) struct Input {
    pub(crate) name: String,
    /// The size in bytes, if it is known before reading.
    pub(crate) size_bytes: Option<u64>,
    pub(crate) read_bytes: Arc<AtomicU64>,
    source: Box<dyn Read + Send>,
}

impl Input {
    /// Opens a file, or standard input for `-`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let read_bytes = Arc::new(AtomicU64::new(0));
        if path.as_os_str() == "-" {
            if io::stdin().is_terminal() {
                eprintln!("qpair: note: reading records from the terminal; Ctrl-D ends them");
            }
            let (name, source) = ("standard input".to_owned(), Box::new(io::stdin()));
            return Ok(Self { name, size_bytes: None, read_bytes, source });
        }
        let name = path.display().to_string();
        let file = File::open(path).map_err(Failure::at("opening", path))?;
        let metadata = file.metadata().map_err(Failure::at("looking at", path))?;
        if metadata.is_dir() {
            return Err(Failure::usage(format!("{name} is a directory"))
                .hint("give a file of records, or - for standard input"));
        }
        let size_bytes = metadata.is_file().then_some(metadata.len());
        Ok(Self { name, size_bytes, read_bytes, source: Box::new(file) })
    }

    /// Returns an input with these bytes, for tests of readers.
    #[cfg(test)]
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Self {
        Self {
            name: "bytes".to_owned(),
            size_bytes: None,
            read_bytes: Arc::default(),
            source: Box::new(io::Cursor::new(bytes)),
        }
    }

    pub(crate) fn into_reader(self) -> BufReader<Counted> {
        let counted = Counted { source: self.source, read_bytes: self.read_bytes };
        BufReader::with_capacity(BUFFER_BYTES, counted)
    }
}

/// Counts the bytes read through it.
pub(crate) struct Counted {
    source: Box<dyn Read + Send>,
    read_bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.read_bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
