//! `qpair compact`.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::parse::number::parse_size;
use crate::parse::show::ShowArgs;
use crate::parse::store::{Effort, StoreArgs};
use crate::show::bar::show;
use crate::show::text::{counted, size};

/// Shorten a store's files to about the size of their content
///
/// Pages move from the end of the files to the front, and the files are truncated after the last
/// page in use. Ctrl-C ends it early; the store stays consistent, and moved pages stay where they
/// are. If another process has the store open, only that process can compact it (Store::compact). A
/// store on block devices is not changed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair compact files.qpair
  qpair compact files.qpair --limit 50MiB     # reads and writes up to 50 MiB a second each")]
pub(crate) struct Compact {
    #[command(flatten)]
    store: StoreArgs,

    /// Maximum bytes to move per second [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    limit: Option<u64>,

    #[command(flatten)]
    show: ShowArgs,
}

impl Compact {
    pub(crate) fn run(self) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let file_bytes = self.store.file_bytes();
        let (store, _) = self.store.open_to_write(Effort::Large, None, None)?;
        let page_size = store.report().page_size as u64;
        let bar = self.show.bar();
        let began = Instant::now();
        let compacted = store.compact(&|moved, all| {
            show(&bar, moved, all, counted(moved, "page"));
            if let Some(bytes_per_s) = self.limit.filter(|limit| *limit > 0) {
                let due = Duration::from_secs_f64((moved * page_size) as f64 / bytes_per_s as f64);
                while let ControlFlow::Continue(()) = interrupt.flow()
                    && let Some(left) = due.checked_sub(began.elapsed())
                {
                    std::thread::sleep(left.min(Duration::from_millis(100)));
                }
            }
            interrupt.flow()
        });
        bar.finish_and_clear();
        let closed = store.close();
        let report = compacted.map_err(Failure::from)?;
        closed?;
        // Closing frees the space of the log.
        let (bytes_before, bytes_after) = file_bytes
            .zip(self.store.file_bytes())
            .unwrap_or((report.bytes_before, report.bytes_after));
        let name = self.store.store.display();
        let object = json!({
            "store": name.to_string(),
            "bytes_before": bytes_before,
            "bytes_after": bytes_after,
            "moved_pages": report.moved_pages,
            "bytes_behind": report.bytes_behind,
            "elapsed_s": report.elapsed.as_secs_f64(),
        });
        self.show.print(&object, || {
            let mut lines = vec![format!(
                "compacted {name}: {} before, {} after, {} moved",
                size(bytes_before),
                size(bytes_after),
                counted(report.moved_pages, "page"),
            )];
            if report.bytes_behind > 0 {
                lines.push(format!(
                    "{} lie behind free space and were not moved: no row is free for large values, or others write there",
                    size(report.bytes_behind)
                ));
            }
            lines
        })?;
        Ok(Exit::Done)
    }
}
