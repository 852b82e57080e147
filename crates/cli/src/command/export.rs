//! `qpair export`.

use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use qpair::{Store, Table};

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{Interrupt, interrupted};
use crate::parse::store::{Effort, StoreArgs, TableArgs};
use crate::show::bar::{progress_bar, show};
use crate::show::output::Output;
use crate::show::text::{counted, size};
use crate::transfer::{Tally, WriteFormat};

/// Print whole tables for another store or program
///
/// The output has all tables, or those of --table, with the number of their records and a checksum.
/// `qpair import` reads it, also that of an older or newer version whose stores have another
/// format. All records are of one moment. A crashed store is recovered first; of a
/// store that another process has open, export a backup (see `qpair backup`).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair export files.qpair > files.export
  qpair export files.qpair --format binary | zstd > files.export.zst
  qpair export files.qpair --table users | qpair import copy.qpair
  qpair export files.qpair --table users --format mdb | mdb_load -s users folder")]
pub(crate) struct Export {
    #[command(flatten)]
    store: StoreArgs,

    /// Export only this table; repeat it for several [default: all]
    #[arg(long = "table", value_name = "NAME")]
    tables: Vec<String>,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = WriteFormat::Json)]
    format: WriteFormat,

    /// Print no progress and no summary
    #[arg(long, short)]
    quiet: bool,
}

/// The number of records between two updates of the progress.
const SHOWN_EVERY: u64 = 4 << 10;

impl Export {
    pub(crate) fn run(self) -> Result<Exit> {
        if self.format == WriteFormat::Binary && Output::is_terminal() {
            return Err(Failure::usage("the binary format is not for a terminal")
                .hint("redirect the output to a file or a pipe"));
        }
        let interrupt = Interrupt::install()?;
        let (store, _) = self.store.open_to_read(Effort::Large)?;
        let names = match self.tables.is_empty() {
            true => store.table_names()?,
            false => self.tables.clone(),
        };
        // Look all tables up before the first byte of output.
        let tables = names
            .into_iter()
            .map(|table| {
                let table = TableArgs { table };
                table.existing(&store).map(|found| (table.table, found))
            })
            .collect::<Result<Vec<_>>>()?;
        let mut writer = Writer::new(&self, &store, &tables, interrupt)?;
        writer.out.write(&self.format.head(store.report().page_size as u64))?;
        for (name, table) in &tables {
            if !writer.table(name, table)? {
                writer.bar.finish_and_clear();
                return interrupted("the output is incomplete, and an import of it says so");
            }
        }
        writer.out.write(&self.format.end(tables.len() as u64))?;
        writer.out.finish()?;
        writer.bar.finish_and_clear();
        store.close()?;
        if !self.quiet {
            eprintln!(
                "qpair: exported {} in {} ({})",
                counted(writer.records, "record"),
                counted(tables.len() as u64, "table"),
                size(writer.bytes),
            );
        }
        Ok(Exit::Done)
    }
}

struct Writer {
    out: Output,
    format: WriteFormat,
    /// The size of an LMDB environment that has room for the store.
    map_bytes: u64,
    records: u64,
    /// The bytes of keys and values.
    bytes: u64,
    expected_records: u64,
    bar: ProgressBar,
    shown: Instant,
    interrupt: Interrupt,
}

impl Writer {
    fn new(
        export: &Export,
        store: &Store,
        tables: &[(String, Table)],
        interrupt: Interrupt,
    ) -> Result<Self> {
        let bar = progress_bar(export.quiet);
        // The estimate reads pages of each table, for the bar alone.
        let expected_records = match bar.is_hidden() {
            true => 0,
            false => {
                tables.iter().map(|(_, table)| table.len_estimate()).sum::<Result<u64, _>>()?
            }
        };
        // LMDB's pages are fuller or emptier than ours; its file grows only as it is filled.
        let map_bytes = (2 * store.metrics()?.used_bytes + (64 << 20)).next_multiple_of(1 << 20);
        Ok(Self {
            out: Output::new(),
            format: export.format,
            map_bytes,
            records: 0,
            bytes: 0,
            expected_records,
            bar,
            shown: Instant::now(),
            interrupt,
        })
    }

    /// Writes a table. Returns `false` if the command was interrupted.
    fn table(&mut self, name: &str, table: &Table) -> Result<bool> {
        self.out.write(&self.format.table(name, self.map_bytes))?;
        let mut tally = Tally::new();
        let mut line = Vec::new();
        for record in table.range(..)? {
            let (key, value) = record?;
            line.clear();
            self.format.record(&mut line, &key, &value);
            self.out.write(&line)?;
            tally.add(&key, &value);
            if tally.records.is_multiple_of(SHOWN_EVERY) && !self.go_on(&tally) {
                return Ok(false);
            }
        }
        self.out.write(&self.format.end_of_table(&tally))?;
        self.records += tally.records;
        self.bytes += tally.bytes;
        Ok(true)
    }

    /// Shows the progress. Returns `false` if the command was interrupted.
    fn go_on(&mut self, tally: &Tally) -> bool {
        if !self.bar.is_hidden() && self.shown.elapsed() >= Duration::from_millis(200) {
            self.shown = Instant::now();
            let done = self.records + tally.records;
            show(&self.bar, done, self.expected_records.max(done), counted(done, "record"));
        }
        !self.interrupt.is_requested()
    }
}
