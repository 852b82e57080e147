//! `qpair check`.

use clap::Args;
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Result};
use crate::parse::store::{Checked, StoreArgs};
use crate::show::bar::progress_bar;
use crate::show::output::Output;
use crate::show::text::{count, counted, escape, size};

/// Check every page of a store
///
/// The check covers checksums, page addresses, the order of keys and large values, and finds pages
/// that are used twice. It does not change the store, and lists damaged pages with their place in
/// the file. If the store was not closed, it covers the last checkpoint, and then the log after it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair check files.qpair
  qpair check files.qpair --json | jq .faults

The exit code is 1 for any damage, even to a superblock or a checkpoint record with an intact second copy. Damage is \
listed on standard error; with --json, in the object.")]
pub(crate) struct Check {
    #[command(flatten)]
    store: StoreArgs,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Print nothing but damage
    #[arg(long, short)]
    quiet: bool,
}

impl Check {
    pub(crate) fn run(self) -> Result<Exit> {
        let (store, state) = self.store.open_to_check()?;
        let at_checkpoint = state == Checked::AtCheckpoint;
        let page_size = store.report().page_size as u64;
        let bar = progress_bar(self.quiet);
        let outcome = store.check(&|done, total| {
            bar.set_length(total);
            bar.set_position(done);
            if !bar.is_hidden() {
                let bytes = (bar.per_sec() * page_size as f64) as u64;
                bar.set_message(format!("{}, {}/s", counted(done, "page"), size(bytes)));
            }
        });
        bar.finish_and_clear();
        let report = outcome?;
        store.close()?;
        let log_faults = match at_checkpoint {
            true => self.store.closed().examine_log()?,
            false => Vec::new(),
        };
        let sound = report.is_sound() && log_faults.is_empty();
        // A crash may have come between the writes of two copies, and a writer may be between them.
        let copies_lost = match state {
            Checked::Closed => report.harmless.len() as u64,
            Checked::AtCheckpoint | Checked::BesideWriter => 0,
        };
        let mut out = Output::new();
        if self.json {
            let tables: Vec<Value> = report
                .tables
                .iter()
                .map(|table| {
                    json!({
                        "name": table.name,
                        "records": table.records,
                        "leaf_pages": table.leaf_pages,
                        "inner_pages": table.inner_pages,
                        "overflow_pages": table.overflow_pages,
                        "height": table.height,
                        "used_bytes": table.used_bytes,
                    })
                })
                .collect();
            let object = json!({
                "sound": sound && copies_lost == 0,
                "at_checkpoint": at_checkpoint,
                "pages_checked": report.pages_checked,
                "tables": tables,
                "faults": report.faults,
                "log_faults": log_faults,
                "harmless": report.harmless,
                "leaked_pages": report.leaked_pages,
                "unreached_pages": report.unreached_pages,
                "free_pages": report.free_pages,
            });
            out.line(object.to_string())?;
        } else if !self.quiet {
            for table in &report.tables {
                let pages = table.leaf_pages + table.inner_pages + table.overflow_pages;
                let full = 100.0 * table.used_bytes as f64 / (pages * page_size).max(1) as f64;
                out.line(format!(
                    "table {}: {} in {} ({} leaves, {} inner, {} overflow), {}, {full:.0} % full",
                    escape(table.name.as_bytes()),
                    counted(table.records, "record"),
                    counted(pages, "page"),
                    count(table.leaf_pages),
                    count(table.inner_pages),
                    count(table.overflow_pages),
                    counted(table.height.into(), "level"),
                ))?;
            }
            out.line(format!(
                "{} checked ({}), {} free",
                counted(report.pages_checked, "page"),
                size(report.pages_checked * page_size),
                count(report.free_pages),
            ))?;
            if report.leaked_pages > 0 {
                let leaked = counted(report.leaked_pages, "page");
                out.line(format!(
                    "{leaked} lost: not in use, yet not free; no record is affected"
                ))?;
            }
            if sound && copies_lost == 0 {
                out.line(match state {
                    Checked::AtCheckpoint => "no damage found: the store was not closed, and recovery can read all of its log",
                    Checked::BesideWriter => "no damage found in that checkpoint; the log was not looked at",
                    Checked::Closed => "no damage found",
                })?;
            }
        }
        out.finish()?;
        if !self.json {
            for what in &report.harmless {
                eprintln!("damage: {what}, cannot be read; its second copy can");
            }
            for fault in report.faults.iter().chain(&log_faults) {
                eprintln!("damage: {fault}");
            }
        }
        let name = self.store.store.display();
        if sound {
            return match copies_lost {
                0 => Ok(Exit::Done),
                _ => Err(Failure::new(
                    Exit::Negative,
                    format!(
                        "{name} is damaged in {} with an intact second copy: no data is lost, and the next change of the store repairs it",
                        counted(copies_lost, "place"),
                    ),
                )),
            };
        }
        if report.unreached_pages > 0 {
            let unreached = counted(report.unreached_pages, "page");
            eprintln!("{unreached} could not be reached: what led to them may be what is damaged");
        }
        let faults = counted((report.faults.len() + log_faults.len()) as u64, "fault");
        let message = format!("{name} is damaged: {faults}");
        Err(Failure::new(Exit::Negative, message)
            .hint("records on other pages can still be read; restore the store from a backup, or salvage the readable records: qpair repair"))
    }
}
