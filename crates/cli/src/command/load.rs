//! `qpair load`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use qpair::Compression;
use qpair::report::OpenReport;
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{Interrupt, interrupted};
use crate::load::{
    Columns, Fill, Format, Hints, Input, Layout, Loaded, Progress, begin, finish, parse_delimiter,
};
use crate::parse::number::parse_ttl;
use crate::parse::store::{CreateArgs, Effort, LogArgs, StoreArgs, TableArgs};
use crate::show::output::say;
use crate::show::text::{counted, size};

const HINTS: Hints = Hints {
    malformed: "correct the line, or leave such lines out with --skip-bad",
    unsorted: "leave out --sorted, or sort the input by bytes: LC_ALL=C sort",
};

fn parse_compression(text: &str) -> std::result::Result<Compression, String> {
    text.parse().map_err(str::to_owned)
}

/// Load records from a file or standard input
///
/// A missing store or table is created. A record replaces one with the same key; if the input
/// repeats a key, the last record wins. When the command returns, all records survive power loss.
/// Ctrl-C keeps the records loaded so far.
///
/// Each line is one record; blank lines are skipped. --key and --value take a column's header or
/// number (from 1), or a JSON field (OUTER.INNER if nested).
///
/// TSV keys and single-column values have the escapes \t \n \r \\ \x00, except with --raw. CSV
/// quotes may enclose a column; a quote inside is doubled. A JSON string is decoded; any other JSON
/// value is stored as its bytes stand in the input. If field F is missing, F_hex gives its bytes as
/// hexadecimal digits. A whole line, or several columns, become a value in the input's format,
/// unchanged except for unnecessary CSV quotes.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair load cities.qpair cities.csv --key name
  qpair load events.qpair events.jsonl --key user.id --value time
  find /usr -printf '%p\\t%s\\n' | qpair load files.qpair - --format tsv --raw --key 1 --value 2
  qpair scan old.qpair | qpair load new.qpair - --format tsv --key 1 --value 2
  LC_ALL=C sort big.tsv | qpair load big.qpair - --format tsv --sorted")]
pub(crate) struct Load {
    #[command(flatten)]
    store: StoreArgs,

    /// File of records; - is standard input
    #[arg(default_value = "-")]
    file: PathBuf,

    /// Format of the input [default: by the file name's extension]
    #[arg(long, value_enum, help_heading = "Input")]
    format: Option<Format>,

    /// Column or field of the key [default: column 1]
    #[arg(long, value_name = "COLUMN", help_heading = "Input")]
    key: Option<String>,

    /// Column or field of the value; several become one value in the input's format [default: the
    /// whole line]
    #[arg(long = "value", value_name = "COLUMN", help_heading = "Input")]
    values: Vec<String>,

    /// The first line names the columns [default: yes for CSV, and if --key or --value is a name]
    #[arg(long, conflicts_with = "no_header", help_heading = "Input")]
    header: bool,

    /// The first line is a record
    #[arg(long, help_heading = "Input")]
    no_header: bool,

    /// Delimiter of columns: one byte, or \t [default: tab for TSV, comma for CSV]
    #[arg(long, value_name = "BYTE", value_parser = parse_delimiter, help_heading = "Input")]
    delimiter: Option<u8>,

    /// Read backslashes in TSV as they are, not as escapes
    #[arg(long, help_heading = "Input")]
    raw: bool,

    /// Compress the values of a new table, each by itself: lz4 is quick, zstd smaller
    #[arg(long, value_name = "HOW", value_parser = parse_compression, help_heading = "New store")]
    compress: Option<Compression>,

    /// Make a new table with a time to live, as 30s, 15m, 12h or 7d: records expire so long after
    /// they were put last
    #[arg(long, value_name = "TIME", value_parser = parse_ttl, help_heading = "New store")]
    ttl: Option<Duration>,

    /// Accept empty keys; otherwise their lines are malformed
    #[arg(long, help_heading = "Input")]
    empty_key: bool,

    /// The input is sorted by key, byte by byte; an empty table is then built much faster
    #[arg(long, help_heading = "Input")]
    sorted: bool,

    /// Skip and count malformed lines; otherwise the first one ends the load
    #[arg(long, help_heading = "Input")]
    skip_bad: bool,

    #[command(flatten)]
    table: TableArgs,

    /// Print what was done as one JSON object
    #[arg(long)]
    json: bool,

    /// Print no progress and no summary
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    log: LogArgs,

    #[command(flatten)]
    create: CreateArgs,
}

impl Load {
    pub(crate) fn run(self) -> Result<Exit> {
        let layout = self.layout()?;
        // Read the input before opening the store, so that no store is created for an input or a
        // column that does not exist.
        let input = Input::open(&self.file)?;
        let (name, size_bytes) = (input.name.clone(), input.size_bytes);
        let read_bytes = input.read_bytes.clone();
        let mut reader = layout.reader(input)?;
        begin(&mut *reader, &name)?;
        let interrupt = Interrupt::install()?;
        let (store, opened) =
            self.store.open_to_write(Effort::Large, Some(&self.create), Some(&self.log))?;
        let progress = Progress::new(size_bytes, self.quiet);
        let start = Instant::now();
        let fill = Fill {
            store: &store,
            input_name: name,
            read_bytes,
            compression: self.compress,
            ttl: self.ttl,
            empty_key: self.empty_key,
            skip_bad: self.skip_bad,
            hints: HINTS,
            interrupt: interrupt.clone(),
            progress: &progress,
        };
        let filled = fill.table(&self.table.table, reader, self.sorted)?;
        progress.say("closing the store");
        let closed = store.close();
        progress.finish();
        let skipped = filled.skipped;
        if let Some(first) = skipped.first {
            let lines = counted(skipped.lines, "bad line");
            eprintln!("qpair: note: left out {lines}; the first: {first}");
        }
        let loaded = finish(filled.loaded, closed, &self.store.store)?;
        let seconds = start.elapsed().as_secs_f64().max(1e-6);
        self.print(&loaded, skipped.lines, seconds, filled.is_bulk, &opened)?;
        if interrupt.is_requested() {
            return interrupted("the store was closed cleanly");
        }
        Ok(Exit::Done)
    }

    fn layout(&self) -> Result<Layout> {
        let Some(format) = self.format.or_else(|| Format::guess(&self.file)) else {
            return Err(Failure::usage(format!(
                "the name of {} does not tell its format",
                self.file.display()
            ))
            .hint("give --format tsv, csv or json"));
        };
        let header = match (self.header, self.no_header) {
            (false, false) => None,
            (header, _) => Some(header),
        };
        let columns = Columns { key: self.key.clone(), values: self.values.clone() };
        Ok(Layout { format, columns, header, delimiter: self.delimiter, raw: self.raw })
    }

    fn print(
        &self,
        loaded: &Loaded,
        skipped: u64,
        seconds: f64,
        bulk: bool,
        opened: &OpenReport,
    ) -> Result<()> {
        let records_per_s = (loaded.records as f64 / seconds).round();
        let bytes_per_s = (loaded.bytes as f64 / seconds).round();
        if self.json {
            return say(json!({
                "store": self.store.store.display().to_string(),
                "table": self.table.table,
                "created": opened.created,
                "records": loaded.records,
                "replaced": loaded.replaced,
                "skipped_bad": skipped,
                "bytes": loaded.bytes,
                "seconds": seconds,
                "records_per_s": records_per_s,
                "bytes_per_s": bytes_per_s,
                "sorted_load": bulk,
                "io": opened.interface,
            })
            .to_string());
        }
        if !self.quiet {
            let new = if opened.created { "new store " } else { "" };
            let replaced = match loaded.replaced {
                0 => String::new(),
                replaced => format!(", {replaced} of them in place of others"),
            };
            say(format!(
                "loaded {} ({}) into table \"{}\" of {new}{} in {seconds:.1} s, {}/s, {}/s{replaced}",
                counted(loaded.records, "record"),
                size(loaded.bytes),
                self.table.table,
                self.store.store.display(),
                counted(records_per_s as u64, "record"),
                size(bytes_per_s as u64),
            ))?;
        }
        Ok(())
    }
}
