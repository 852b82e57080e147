//! The formats of exports and imports.

use std::io::{BufRead, Cursor, Read};
use std::path::Path;

use clap::ValueEnum;

use super::section::ReadDump;
use super::tally::Tally;
use super::{binary, json, mdb, rocksdb};
use crate::failure::{Failure, Result};
use crate::load::{Format, Input, write_record};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WriteFormat {
    /// One JSON object a line, for programs of all languages
    Json,
    /// Lengths and bytes: smaller, and faster to read
    Binary,
    /// The text that LMDB's mdb_load reads
    Mdb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReadFormat {
    /// JSON lines of qpair export
    Json,
    /// The binary format of qpair export
    Binary,
    /// The text of LMDB's mdb_dump, or of Berkeley DB's db_dump
    Mdb,
    /// Lines of RocksDB's ldb scan --hex, ldb dump --hex, or sst_dump --output_hex
    Rocksdb,
}

impl WriteFormat {
    pub(crate) fn head(self, page_size: u64) -> Vec<u8> {
        match self {
            Self::Json => json::head(page_size).into_bytes(),
            Self::Binary => binary::head(page_size),
            Self::Mdb => Vec::new(),
        }
    }

    /// `map_bytes` is the size of the environment that LMDB is to make.
    pub(crate) fn table(self, name: &str, map_bytes: u64) -> Vec<u8> {
        match self {
            Self::Json => json::table(name).into_bytes(),
            Self::Binary => binary::table(name),
            Self::Mdb => mdb::table(name, map_bytes).into_bytes(),
        }
    }

    pub(crate) fn record(self, out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
        match self {
            Self::Json => {
                write_record(Format::Json, out, key, Some(value));
                out.push(b'\n');
            }
            Self::Binary => binary::record(out, key, value),
            Self::Mdb => mdb::record(out, key, value),
        }
    }

    pub(crate) fn end_of_table(self, tally: &Tally) -> Vec<u8> {
        match self {
            Self::Json => json::end_of_table(tally).into_bytes(),
            Self::Binary => binary::end_of_table(tally),
            Self::Mdb => mdb::END_OF_TABLE.into(),
        }
    }

    pub(crate) fn end(self, tables: u64) -> Vec<u8> {
        match self {
            Self::Json => json::end(tables).into_bytes(),
            Self::Binary => binary::end(tables),
            Self::Mdb => Vec::new(),
        }
    }
}

/// The number of bytes that tell formats apart.
const START_LEN: usize = 32;

/// Opens a dump, in the given format or in that which its first bytes show.
pub(crate) fn open(
    input: Input,
    path: &Path,
    format: Option<ReadFormat>,
) -> Result<Box<dyn ReadDump>> {
    let name = input.name.clone();
    let mut input = input.into_reader();
    let mut start = Vec::new();
    (&mut input)
        .take(START_LEN as u64)
        .read_to_end(&mut start)
        .map_err(|error| Failure::io(&error, format!("reading {name}")))?;
    let format = match format {
        Some(format) => format,
        None => guess(&start).ok_or_else(|| unknown(&name, path, &start))?,
    };
    Ok(reader(format, Cursor::new(start).chain(input)))
}

fn reader(format: ReadFormat, input: impl BufRead + Send + 'static) -> Box<dyn ReadDump> {
    match format {
        ReadFormat::Json => Box::new(json::JsonDump::new(input)),
        ReadFormat::Binary => Box::new(binary::BinaryDump::new(input)),
        ReadFormat::Mdb => Box::new(mdb::MdbDump::new(input)),
        ReadFormat::Rocksdb => Box::new(rocksdb::RocksDump::new(input)),
    }
}

fn guess(start: &[u8]) -> Option<ReadFormat> {
    if start.starts_with(json::START) {
        Some(ReadFormat::Json)
    } else if start.starts_with(binary::START) {
        Some(ReadFormat::Binary)
    } else if start.starts_with(mdb::START) {
        Some(ReadFormat::Mdb)
    } else {
        rocksdb::is_start(start).then_some(ReadFormat::Rocksdb)
    }
}

/// Explains which command makes a dump of a store's own file.
fn unknown(name: &str, path: &Path, start: &[u8]) -> Failure {
    let shown = path.display();
    let known = [
        (
            &b"SQLite format 3\0"[..],
            0,
            "is an SQLite database",
            "sqlite3 FILE \"select json_object('key_hex', hex(k), 'value_hex', hex(v)) from t order by k\" | qpair load STORE - --format json --key key --value value --sorted".to_owned(),
        ),
        (b"\xde\xc0\xef\xbe", 16, "is a file of LMDB", "mdb_dump -a -n FILE | qpair import STORE".to_owned()),
        (b"qpair\r\n\x1a", 0, "is a store of qpair", format!("qpair copy {shown} STORE")),
    ];
    for (magic, at, what, hint) in known {
        if start.get(at..).is_some_and(|rest| rest.starts_with(magic)) {
            return Failure::usage(format!("{name} {what}, not an export")).hint(hint);
        }
    }
    let what = if start.is_empty() { "is empty" } else { "is in none of the formats of imports" };
    Failure::usage(format!("{name} {what}"))
        .hint("give an export, or the output of mdb_dump or of ldb scan --hex; for TSV, CSV and other JSON there is qpair load")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::load::Record;

    type Tables = Vec<(String, Vec<(Vec<u8>, Vec<u8>)>)>;

    fn write(format: WriteFormat, tables: &Tables) -> Vec<u8> {
        let mut out = format.head(4096);
        for (name, records) in tables {
            out.extend(format.table(name, 1 << 20));
            let mut tally = Tally::new();
            for (key, value) in records {
                format.record(&mut out, key, value);
                tally.add(key, value);
            }
            out.extend(format.end_of_table(&tally));
        }
        out.extend(format.end(tables.len() as u64));
        out
    }

    /// Reads a dump. Returns `None` for an error.
    fn read(format: Option<ReadFormat>, bytes: &[u8]) -> Option<Tables> {
        let input = Input::of_bytes(bytes.to_vec());
        let mut dump = open(input, Path::new("dump"), format).ok()?;
        let mut tables = Tables::new();
        while let Some(head) = dump.next_table().ok()? {
            let mut records = Vec::new();
            let mut record = Record::default();
            while dump.read(&mut record).ok()?.is_some() {
                records.push((std::mem::take(&mut record.key), std::mem::take(&mut record.value)));
            }
            tables.push((head.name?, records));
        }
        Some(tables)
    }

    fn tables() -> impl Strategy<Value = Tables> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..9);
        let records = prop::collection::vec((bytes(), bytes()), 0..4);
        // A name in a dump of LMDB is a line.
        prop::collection::vec(("[a-z =]{1,6}", records), 0..4)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(tables in tables()) {
            for format in [WriteFormat::Json, WriteFormat::Binary] {
                prop_assert_eq!(read(None, &write(format, &tables)), Some(tables.clone()));
            }
            let mdb = write(WriteFormat::Mdb, &tables);
            prop_assert_eq!(read(Some(ReadFormat::Mdb), &mdb), Some(tables));
        }

        #[test]
        fn any_input_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for format in ReadFormat::value_variants() {
                let _ = read(Some(*format), &bytes);
            }
        }
    }

    /// Exports of version 1 stay readable: the example of the reference page.
    #[test]
    fn version_1_stays() {
        let json = "\
            {\"qpair_export\":1,\"page_size\":4096}\n\
            {\"table\":\"users\"}\n\
            {\"key\":\"ada\",\"value\":\"1815\"}\n\
            {\"key_hex\":\"ff00\",\"value\":\"a line\\n\"}\n\
            {\"end\":\"table\",\"records\":2,\"crc32\":\"e6dc126e\"}\n\
            {\"end\":\"export\",\"tables\":1}\n";
        assert!(include_str!("../../../../docs/reference/export.md").contains(json));
        let binary = [
            &b"QPEXPORT\x01\0\0\0\0\x10\0\0"[..],
            b"\xf0\xff\xff\xff\x05\0\0\0users",
            b"\x03\0\0\0\x04\0\0\0ada1815",
            b"\x02\0\0\0\x07\0\0\0\xff\0a line\n",
            b"\xf1\xff\xff\xff\x02\0\0\0\0\0\0\0\x6e\x12\xdc\xe6",
            b"\xf2\xff\xff\xff\x01\0\0\0\0\0\0\0",
        ]
        .concat();
        let records =
            vec![(b"ada".to_vec(), b"1815".to_vec()), (b"\xff\0".to_vec(), b"a line\n".to_vec())];
        let tables = vec![("users".to_owned(), records)];
        for (format, bytes) in
            [(WriteFormat::Json, json.as_bytes()), (WriteFormat::Binary, &binary)]
        {
            assert_eq!(write(format, &tables), bytes, "{format:?}");
            assert_eq!(read(None, bytes).as_ref(), Some(&tables), "{format:?}");
        }
    }

    #[test]
    fn each_cut_and_each_changed_byte_is_noticed() {
        let record = |key: &str| (key.into(), b"a value".to_vec());
        let tables = vec![
            ("one".to_owned(), vec![record("a"), record("b")]),
            ("two".to_owned(), vec![record("c")]),
        ];
        for format in [WriteFormat::Json, WriteFormat::Binary] {
            let whole = write(format, &tables);
            let without_line_end = whole.strip_suffix(b"\n").unwrap_or(&whole);
            for len in 0..without_line_end.len() {
                assert_eq!(read(None, &whole[..len]), None, "{len} bytes of {format:?}");
            }
            assert_eq!(read(None, &whole).as_ref(), Some(&tables));
            let from = whole.windows(7).position(|window| window == b"a value").unwrap();
            for at in from..from + 7 {
                let mut changed = whole.clone();
                changed[at] ^= 1;
                assert_eq!(read(None, &changed), None, "byte {at} of {format:?}");
            }
        }
    }
}
