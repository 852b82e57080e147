//! `qpair import`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use qpair_block::locks::Mutex;
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{Interrupt, interrupted};
use crate::load::{Fill, Hints, Input, Loaded, Progress, ReadError, Record, failure, finish};
use crate::parse::show::ShowArgs;
use crate::parse::store::{CreateArgs, Effort, LogArgs, StoreArgs};
use crate::show::text::{counted, escape, size};
use crate::transfer::{Head, ReadFormat, Section, Shared, open};

const HINTS: Hints = Hints {
    malformed: "keys have up to 65,535 bytes (fewer in tables with a time to live) and values up to 16 MiB: shorten them in the other store, or import other tables with --table",
    unsorted: "give --unsorted, if the other store compares keys in another way than byte by byte",
};
/// The table for input that does not name its table.
const DEFAULT_TABLE: &str = "default";

/// Read tables from an export, or from dumps of LMDB and RocksDB
///
/// A missing store or table is created. A record replaces one with the same key. When the command
/// returns, all records survive power loss. Truncated or damaged input is an error; the records
/// before the damage are in the store. Ctrl-C keeps the records read so far.
///
/// The format is found by the first bytes. A new store has pages of the size of the exported store.
/// For SQLite, TSV, CSV and other JSON see `qpair load`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair import copy.qpair files.export
  zstd -dc files.export.zst | qpair import copy.qpair
  mdb_dump -a folder | qpair import store.qpair
  ldb scan --hex --db=folder | qpair import store.qpair --table users
  sqlite3 app.db \"select json_object('key_hex', hex(k), 'value_hex', hex(v)) from t order by k\" |
      qpair load store.qpair - --format json --key key --value value --sorted")]
pub(crate) struct Import {
    #[command(flatten)]
    store: StoreArgs,

    /// The export or dump; - is standard input
    #[arg(default_value = "-")]
    file: PathBuf,

    /// Format of the input [default: by its first bytes]
    #[arg(long, value_enum, help_heading = "Input")]
    format: Option<ReadFormat>,

    /// Import only this table; for input that names no table, the table to fill [default: all;
    /// default]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), help_heading = "Input")]
    table: Option<String>,

    /// The keys are not in the order of their bytes; slower
    #[arg(long, help_heading = "Input")]
    unsorted: bool,

    #[command(flatten)]
    show: ShowArgs,

    #[command(flatten)]
    log: LogArgs,

    #[command(flatten)]
    create: CreateArgs,
}

/// The tables that were read.
#[derive(Default)]
struct Imported {
    loaded: Loaded,
    tables: Vec<String>,
    /// The tables of the input that were not asked for.
    others: Vec<String>,
}

impl Import {
    pub(crate) fn run(mut self) -> Result<Exit> {
        let input = Input::open(&self.file)?;
        let (name, size_bytes) = (input.name.clone(), input.size_bytes);
        let read_bytes = input.read_bytes.clone();
        let mut dump = open(input, &self.file, self.format)?;
        // Read the beginning before opening the store, so that no store is created for input that
        // is no dump.
        let first = dump.next_table().map_err(|error| failure(error, &name))?;
        let create = self.create.or_page_size(dump.page_size());
        self.create = create;
        let dump: Shared = Arc::new(Mutex::new(dump));
        let interrupt = Interrupt::install()?;
        let (store, opened) =
            self.store.open_to_write(Effort::Large, Some(&self.create), Some(&self.log))?;
        let progress = Progress::new(size_bytes, self.show.quiet);
        let start = Instant::now();
        let fill = Fill {
            store: &store,
            input_name: name,
            read_bytes,
            compression: None,
            ttl: None,
            empty_key: true,
            skip_bad: false,
            hints: HINTS,
            interrupt: interrupt.clone(),
            progress: &progress,
        };
        let imported = self.tables(&fill, &dump, first);
        progress.say("closing the store");
        let closed = store.close();
        progress.finish();
        let imported = imported?;
        let loaded = finish(imported.loaded, closed, &self.store.store)?;
        if let (Some(table), []) = (&self.table, &imported.tables[..])
            && !interrupt.is_requested()
        {
            let table = escape(table.as_bytes());
            return Err(Failure::new(
                Exit::Negative,
                format!("the input has no table \"{table}\""),
            )
            .hint(format!("it has the tables {}", imported.others.join(", "))));
        }
        let seconds = start.elapsed().as_secs_f64().max(1e-6);
        let target = self.store.store.display();
        let object = json!({
            "store": target.to_string(),
            "created": opened.created,
            "tables": imported.tables,
            "records": loaded.records,
            "replaced": loaded.replaced,
            "bytes": loaded.bytes,
            "seconds": seconds,
        });
        self.show.print(&object, || {
            let replaced = match loaded.replaced {
                0 => String::new(),
                replaced => format!(", {replaced} of them in place of others"),
            };
            vec![format!(
                "imported {} ({}) into {} of {}{target} in {seconds:.1} s{replaced}",
                counted(loaded.records, "record"),
                size(loaded.bytes),
                counted(imported.tables.len() as u64, "table"),
                if opened.created { "new store " } else { "" },
            )]
        })?;
        if interrupt.is_requested() {
            return interrupted("the store was closed cleanly; the import is incomplete");
        }
        Ok(Exit::Done)
    }

    /// Reads the tables of the dump, from the first on.
    fn tables(&self, fill: &Fill<'_>, dump: &Shared, first: Option<Head>) -> Result<Imported> {
        let mut imported = Imported::default();
        let mut next = first;
        while let Some(head) = next {
            let wanted = self.table.as_deref();
            let name = head.name.as_deref().or(wanted).unwrap_or(DEFAULT_TABLE);
            if wanted.is_some_and(|wanted| wanted != name) {
                imported.others.push(name.to_owned());
                if let Err(error) = skip(dump) {
                    imported.loaded.failure = Some(failure(error, &fill.input_name));
                }
            } else {
                if let Some(note) = head.note {
                    eprintln!("qpair: note: table \"{}\": {note}", escape(name.as_bytes()));
                }
                let sorted = head.is_sorted && !self.unsorted;
                let filled = fill.table(name, Box::new(Section::new(dump)), sorted)?;
                imported.tables.push(name.to_owned());
                imported.loaded.add_table(filled.loaded);
            }
            // The thread that reads may still wait for input after an interrupt.
            if imported.loaded.failure.is_some() || fill.interrupt.is_requested() {
                break;
            }
            let read = dump.lock().next_table();
            next = match read {
                Ok(next) => next,
                Err(error) => {
                    imported.loaded.failure = Some(failure(error, &fill.input_name));
                    None
                }
            };
        }
        Ok(imported)
    }
}

/// Reads the rest of a table that is not asked for.
fn skip(dump: &Shared) -> Result<(), ReadError> {
    let mut record = Record::default();
    loop {
        record.key.clear();
        record.value.clear();
        if dump.lock().read(&mut record)?.is_none() {
            return Ok(());
        }
    }
}
