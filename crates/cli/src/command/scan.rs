//! `qpair scan`.

use std::ffi::OsString;

use clap::Args;

use crate::failure::{Exit, Result};
use crate::load::{Format, write_record};
use crate::parse::key::KeyArgs;
use crate::parse::store::{Effort, StoreArgs, TableArgs};
use crate::show::output::Output;

/// Print records in the order of their keys
///
/// Each line is one record: key, tab, value. Tabs, line ends, backslashes, control bytes and
/// non-UTF-8 bytes are escaped: \t \n \r \\ \x00. CSV has a header line, and quotes where they are
/// needed. JSON has non-UTF-8 bytes as hexadecimal digits, in key_hex and value_hex. `qpair load`
/// reads all three formats back byte for byte, and --raw output if no record contains a tab or a
/// line end.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair scan files.qpair --prefix /usr/share/doc/ --limit 10
  qpair scan files.qpair --from a --to b --reverse
  qpair scan files.qpair --count
  qpair scan files.qpair --json | jq .value
  qpair scan files.qpair | qpair load copy.qpair - --format tsv --key 1 --value 2
  qpair scan files.qpair --format csv | qpair load copy.qpair - --format csv --key key --value value
  qpair scan files.qpair --json | qpair load copy.qpair - --format json --key key --value value")]
pub(crate) struct Scan {
    #[command(flatten)]
    store: StoreArgs,

    /// Print only keys with this prefix
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,

    /// Print only this key and later keys
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,

    /// Print only keys before this one
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,

    /// Print the last key first
    #[arg(long)]
    reverse: bool,

    /// Stop after this many records
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// Print keys only
    #[arg(long)]
    keys_only: bool,

    /// Print only the number of records
    #[arg(long, conflicts_with_all = ["keys_only", "raw", "format", "json"])]
    count: bool,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Tsv)]
    format: Format,

    /// Print bytes as they are, without escapes
    #[arg(long, conflicts_with_all = ["format", "json"])]
    raw: bool,

    /// Print one JSON object per line, like --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,

    #[command(flatten)]
    table: TableArgs,

    #[command(flatten)]
    keys: KeyArgs,
}

impl Scan {
    pub(crate) fn run(self) -> Result<Exit> {
        let (from, to) =
            self.keys.bounds(self.prefix.as_ref(), self.from.as_ref(), self.to.as_ref())?;
        let (store, _) = self.store.open_to_read(Effort::Large)?;
        let table = self.table.existing(&store)?;
        let mut range = table.range((from, to))?;
        if self.reverse {
            range = range.reverse();
        }
        if let Some(limit) = self.limit {
            range = range.limit(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        let mut out = Output::new();
        let mut line = Vec::new();
        let mut records = 0;
        if self.format == Format::Csv && !self.count {
            self.write(&mut line, b"key", b"value");
            out.line(&line)?;
        }
        for record in range {
            let (key, value) = match record {
                Ok(record) => record,
                Err(error) => {
                    // Print the records before the error: they are valid, and were requested.
                    out.finish()?;
                    return Err(error.into());
                }
            };
            records += 1;
            if !self.count {
                line.clear();
                self.write(&mut line, &key, &value);
                out.line(&line)?;
            }
        }
        if self.count {
            out.line(records.to_string())?;
        }
        out.finish()?;
        store.close()?;
        Ok(Exit::Done)
    }

    fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    fn write(&self, line: &mut Vec<u8>, key: &[u8], value: &[u8]) {
        let value = (!self.keys_only).then_some(value);
        if !self.raw {
            return write_record(self.format(), line, key, value);
        }
        line.extend_from_slice(key);
        if let Some(value) = value {
            line.push(b'\t');
            line.extend_from_slice(value);
        }
    }
}
