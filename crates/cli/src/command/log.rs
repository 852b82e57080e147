//! `qpair log`.

use std::ops::ControlFlow;

use clap::Args;
use qpair::inspect::{LogDump, LogEntry, LogFileEnd, LogOperation};
use serde_json::{Map, Value, json};

use crate::failure::{Exit, Failure, Result};
use crate::parse::store::StoreArgs;
use crate::show::output::{Output, insert_bytes};
use crate::show::text::counted;

/// Print the write-ahead log of a store
///
/// The output lists the commits after the newest checkpoint in order, with their changes, and then
/// the end of each log. The store is neither recovered nor changed. A closed store has no log.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair log crashed.qpair --limit 20
  qpair log crashed.qpair --table users --json | jq .operations
  qpair log crashed.qpair --verify

The exit code is 1 if the log is damaged or cannot be read to its end: durable commits are missing, or may be.")]
pub(crate) struct Log {
    #[command(flatten)]
    store: StoreArgs,

    /// Print only commits in the log with this number
    #[arg(long, value_name = "N")]
    log: Option<u16>,

    /// Print only commits from this commit timestamp on
    #[arg(long, value_name = "TIMESTAMP", default_value_t = 0)]
    from: u64,

    /// Print only changes of this table
    #[arg(long, value_name = "NAME")]
    table: Option<String>,

    /// Stop after this many commits; the rest of the log is not read
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// Print only whether the log is complete, and where it ends
    #[arg(long, conflicts_with_all = ["limit", "from", "table", "log"])]
    verify: bool,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

impl Log {
    pub(crate) fn run(self) -> Result<Exit> {
        let mut out = Output::new();
        let (mut printed, mut limited, mut failed) = (0, false, None);
        let dump = self.store.closed().dump_log(&mut |entry| {
            if self.verify || !self.is_asked_for(entry) {
                return ControlFlow::Continue(());
            }
            if self.limit.is_some_and(|limit| printed >= limit) {
                limited = true;
                return ControlFlow::Break(());
            }
            printed += 1;
            match self.print(&mut out, entry) {
                Ok(()) => ControlFlow::Continue(()),
                Err(failure) => {
                    failed = Some(failure);
                    ControlFlow::Break(())
                }
            }
        });
        if let Some(failure) = failed {
            return Err(failure);
        }
        let dump = match dump {
            Ok(dump) => dump,
            Err(error) => {
                out.finish()?;
                return Err(error.into());
            }
        };
        match limited {
            // The ends of the log were not read.
            true if self.json => out.line(json!({ "limited": true }).to_string())?,
            true => {}
            false => self.print_end(&mut out, &dump)?,
        }
        out.finish()?;
        if printed == 0 && !limited && (self.log.is_some() || self.table.is_some()) {
            eprintln!("qpair: note: no commit of the log is what was asked for");
        }
        dump.remarks.iter().for_each(|remark| eprintln!("qpair: note: {remark}"));
        if !dump.damaged && !dump.unreadable {
            return Ok(Exit::Done);
        }
        let message = format!(
            "the log of {} {}: it ends at commit {}, and commits behind that {} durable",
            self.store.store.display(),
            if dump.damaged { "is damaged" } else { "cannot be read to its end" },
            dump.checkpoint_timestamp + dump.commits,
            if dump.damaged { "were" } else { "may have been" },
        );
        Err(Failure::new(Exit::Negative, message)
            .hint("restore the store from a backup, or salvage the readable records: qpair repair"))
    }

    fn is_asked_for(&self, entry: &LogEntry<'_>) -> bool {
        entry.timestamp >= self.from
            && self.log.is_none_or(|log| entry.log == log)
            && (self.table.is_none() || entry.operations.iter().any(|op| self.is_of_table(op)))
    }

    fn is_of_table(&self, operation: &LogOperation<'_>) -> bool {
        self.table.is_none() || operation.table == self.table
    }

    fn print(&self, out: &mut Output, entry: &LogEntry<'_>) -> Result<()> {
        let operations = entry.operations.iter().filter(|operation| self.is_of_table(operation));
        if self.json {
            let object = json!({
                "timestamp": entry.timestamp,
                "log": entry.log,
                "incarnation": entry.incarnation,
                "lsn": entry.lsn,
                "bytes": entry.bytes,
                "operations": operations.map(operation_object).collect::<Vec<_>>(),
            });
            return out.line(object.to_string());
        }
        out.line(format!(
            "commit {}  log {}  lsn {}  {} bytes  {}",
            entry.timestamp,
            entry.log,
            entry.lsn,
            entry.bytes,
            counted(entry.operations.len() as u64, "operation"),
        ))?;
        for operation in operations {
            out.line(format!("  {}", operation.text))?;
        }
        Ok(())
    }

    fn print_end(&self, out: &mut Output, dump: &LogDump) -> Result<()> {
        if self.json {
            let object = json!({
                "closed": dump.closed,
                "checkpoint_timestamp": dump.checkpoint_timestamp,
                "commits": dump.commits,
                "dropped": dump.dropped,
                "durable_timestamp": dump.durable_timestamp,
                "damaged": dump.damaged,
                "unreadable": dump.unreadable,
                "ends": dump.ends.iter().map(end_object).collect::<Vec<_>>(),
            });
            return out.line(object.to_string());
        }
        if dump.closed {
            return out.line(format!(
                "the store was closed at commit {}: it has no log",
                dump.checkpoint_timestamp
            ));
        }
        if dump.ends.is_empty() {
            // The log was not read to its end.
            return Ok(());
        }
        out.line(format!(
            "{} behind the checkpoint at commit {}{}",
            counted(dump.commits, "commit"),
            dump.checkpoint_timestamp,
            match dump.dropped {
                0 => String::new(),
                dropped => format!("; {} behind a gap do not count", counted(dropped, "commit")),
            }
        ))?;
        let several = dump.ends.iter().any(|end| end.incarnation != dump.ends[0].incarnation);
        for end in &dump.ends {
            let of_incarnation = if several {
                format!(" of incarnation {}", end.incarnation)
            } else {
                String::new()
            };
            let timestamp = end
                .timestamp
                .map_or("no commit".to_owned(), |timestamp| format!("commit {timestamp}"));
            let lost = end
                .lost_to_lsn
                .map_or(String::new(), |lsn| format!("; it was durable up to lsn {lsn}: DAMAGED"));
            out.line(format!(
                "log {}{of_incarnation} ends at lsn {} with {timestamp}: {}{lost}",
                end.log, end.lsn, end.reason
            ))?;
        }
        Ok(())
    }
}

fn operation_object(operation: &LogOperation<'_>) -> Value {
    let mut object = Map::new();
    object.insert("operation".to_owned(), operation.verb.into());
    object.insert("tree".to_owned(), operation.tree.into());
    if let Some(table) = &operation.table {
        object.insert("table".to_owned(), table.clone().into());
    }
    if let Some(key) = operation.key {
        insert_bytes(&mut object, "key", key);
    }
    if let Some(value) = operation.value {
        insert_bytes(&mut object, "value", value);
    }
    if let Some((len_bytes, first_page)) = operation.large {
        object.insert("large_bytes".to_owned(), len_bytes.into());
        object.insert("first_page".to_owned(), first_page.into());
    }
    if let Some(to) = operation.to {
        object.insert("to".to_owned(), to.into());
    }
    Value::from(object)
}

fn end_object(end: &LogFileEnd) -> Value {
    json!({
        "log": end.log,
        "incarnation": end.incarnation,
        "lsn": end.lsn,
        "timestamp": end.timestamp,
        "reason": end.reason,
        "lost_to_lsn": end.lost_to_lsn,
    })
}
