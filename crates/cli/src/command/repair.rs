//! `qpair repair`.

use std::path::PathBuf;

use clap::Args;
use indicatif::ProgressBar;
use qpair::ErrorKind;
use qpair::inspect::{KeyRange, RepairReport, RepairStep, RepairedTable};
use serde_json::{Map, Value, json};

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::parse::store::StoreArgs;
use crate::show::bar::{show, styled};
use crate::show::output::{Output, insert_bytes};
use crate::show::text::{counted, escape, size};

/// Save the readable records of a damaged store into a new one
///
/// The damaged store is not changed. A table that lost its name becomes table-N. The report lists
/// the key ranges that are lost, and those found only in older copies. If the whole store is
/// readable, no new store is created. If the superblocks are lost, the whole device is searched for
/// the store's pages.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair repair broken.qpair saved.qpair
  qpair repair broken.qpair saved.qpair --json | jq .tables

The exit code is 0 if all records were readable or saved, and 1 if some are lost or may be out of date.")]
pub(crate) struct Repair {
    #[command(flatten)]
    store: StoreArgs,

    /// Target of the new store: a file, a block device, or a device specifier
    target: PathBuf,

    /// Overwrite the target; its content is lost
    #[arg(long)]
    force: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Repair {
    pub(crate) fn run(self) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let bar = styled(ProgressBar::new(0), "{bar:24} {msg}");
        let target = self.store.target(&self.target, self.force)?;
        let repaired = self.store.closed().repair_into(target, &|step, done, all| {
            let message = match step {
                RepairStep::Check => format!("checking: {}", counted(done, "page")),
                RepairStep::Search => format!("looking for the first pages: {}", size(done)),
                RepairStep::Scan => format!("looking for leaves: {}", counted(done, "page")),
                RepairStep::Save => format!("saving: {}", counted(done, "record")),
                RepairStep::Replay => format!("the log: {}", counted(done, "commit")),
                _ => String::new(),
            };
            show(&bar, done.min(all), all.max(1), message);
            interrupt.flow()
        });
        bar.finish_and_clear();
        let report = repaired.map_err(|error| match error.kind() {
            ErrorKind::Exists => Failure::from(error).hint("if it may be lost, give --force"),
            _ => error.into(),
        })?;
        let mut out = Output::new();
        if self.json {
            out.line(object(&report).to_string())?;
        } else {
            self.print(&mut out, &report)?;
        }
        out.finish()?;
        Ok(if report.is_complete() { Exit::Done } else { Exit::Negative })
    }

    fn print(&self, out: &mut Output, report: &RepairReport) -> Result<()> {
        let source = self.store.store.display();
        for what in &report.harmless {
            out.line(format!("damage: {what}, cannot be read; its second copy can"))?;
        }
        if !report.harmless.is_empty() {
            return out.line(format!(
                "nothing is lost, and nothing was done: the next change of {source} writes it again"
            ));
        }
        if report.healthy {
            return out.line(format!("{source} is not damaged; nothing was done"));
        }
        for remark in &report.remarks {
            out.line(format!("damage: {remark}"))?;
        }
        for table in &report.tables {
            let name = escape(table.name.as_bytes());
            out.line(format!("table {name}: {} saved", counted(table.records, "record")))?;
            for range in &table.lost {
                out.line(format!("  lost: {}", range_in_words(range)))?;
            }
            for range in &table.stale {
                out.line(format!("  may be out of date: {}", range_in_words(range)))?;
            }
            if table.large_values_lost > 0 {
                let keys: Vec<String> =
                    table.large_keys_lost.iter().map(|key| escape(key)).collect();
                let more = if table.large_values_lost > keys.len() as u64 { ", ..." } else { "" };
                let lost = counted(table.large_values_lost, "large value");
                out.line(format!("  lost: {lost}, with their records: {}{more}", keys.join(", ")))?;
            }
        }
        if let Some(log) = report.log {
            let commits = counted(log.commits, "commit");
            out.line(format!("log: {commits} made again, up to commit {}", log.last_timestamp))?;
            if log.damaged {
                out.line("  commits behind that were durable, or may have been, and are lost")?;
            }
        }
        let target = self.target.display();
        let is_empty = report.tables.iter().all(|table| table.records == 0);
        out.line(match report.is_complete() {
            true => format!("saved all of it to {target}"),
            false if is_empty => {
                format!("no record can be read; {target} is a store without records")
            }
            false => format!("saved the readable records to {target}"),
        })
    }
}

fn range_in_words(range: &KeyRange) -> String {
    let from = match &range.from[..] {
        [] => "from the first key".to_owned(),
        from => format!("from key {}", escape(from)),
    };
    let to = match &range.to {
        Some(to) => format!(" up to and without {}", escape(to)),
        None => " to the last".to_owned(),
    };
    format!("{from}{to} ({})", range.why)
}

fn object(report: &RepairReport) -> Value {
    let tables: Vec<Value> = report.tables.iter().map(table_object).collect();
    json!({
        "healthy": report.healthy,
        "complete": report.is_complete(),
        "harmless": report.harmless,
        "names_uncertain": report.names_uncertain,
        "remarks": report.remarks,
        "tables": tables,
        "log": report.log.map(|log| json!({
            "commits": log.commits,
            "last_timestamp": log.last_timestamp,
            "dropped": log.dropped,
            "damaged": log.damaged,
        })),
    })
}

fn table_object(table: &RepairedTable) -> Value {
    let ranges = |ranges: &[KeyRange]| -> Vec<Value> {
        let object = |range: &KeyRange| {
            let mut object = Map::new();
            insert_bytes(&mut object, "from", &range.from);
            if let Some(to) = &range.to {
                insert_bytes(&mut object, "to", to);
            }
            object.insert("why".to_owned(), range.why.clone().into());
            Value::from(object)
        };
        ranges.iter().map(object).collect()
    };
    json!({
        "name": table.name,
        "records": table.records,
        "lost": ranges(&table.lost),
        "stale": ranges(&table.stale),
        "large_values_lost": table.large_values_lost,
    })
}
