//! `qpair backup`.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use qpair::ErrorKind;
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::store_args::{Effort, StoreArgs};
use crate::text::{counted, size};

/// Copy a store, whole and consistent, to another place
///
/// The copy is a store of its own, closed and checked page by page as it is made. A store that a crash left is recovered
/// first. The target may be a file, a block device, or several: stripe:unit=64KiB:A+B. Ctrl-C leaves nothing behind that
/// looks like a store.
///
/// A store that another process has open is backed up by that process: Store::backup copies it while it is written to.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair backup files.qpair /backup/files.qpair
  qpair backup files.qpair /dev/sdb --force")]
pub(crate) struct Backup {
    #[command(flatten)]
    store: StoreArgs,

    /// Where the copy goes: a file, a block device, or a device specifier
    target: PathBuf,

    /// Write over what is on the target; it is lost
    #[arg(long)]
    force: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Print no progress and no summary
    #[arg(long, short)]
    quiet: bool,
}

impl Backup {
    pub(crate) fn run(self) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let opened = self.store.open_to_read(Effort::Large);
        let (store, _) = opened.map_err(|failure| match failure.kind() {
            Some(ErrorKind::Busy) => {
                failure.hint("let the process that has it open make the backup: Store::backup")
            }
            _ => failure,
        })?;
        let bar = if self.quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
        if let Ok(style) =
            ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}, {eta} left")
        {
            bar.set_style(style);
        }
        let page_size = store.report().page_size as u64;
        let target = self.store.target(&self.target, self.force);
        let made = target.backup_of(&store, &|done, all| {
            bar.set_length(all);
            bar.set_position(done);
            bar.set_message(counted(done, "page"));
            match interrupt.is_requested() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        bar.finish_and_clear();
        let closed = store.close();
        let report = made.map_err(|error| match error.kind() {
            ErrorKind::Exists => Failure::from(error).hint("if it may be lost: --force"),
            _ => error.into(),
        })?;
        closed?;
        let (source, target) = (self.store.store.display(), self.target.display());
        let mut out = Output::new();
        if self.json {
            let object = json!({
                "store": source.to_string(),
                "target": target.to_string(),
                "id": report.id,
                "stamp": report.stamp,
                "pages": report.pages,
                "bytes": report.pages * page_size,
            });
            out.line(object.to_string())?;
        } else if !self.quiet {
            out.line(format!(
                "copied {source} as of commit {} to {target}: {}, {}",
                report.stamp,
                counted(report.pages, "page"),
                size(report.pages * page_size),
            ))?;
        }
        out.finish()?;
        Ok(Exit::Done)
    }
}
