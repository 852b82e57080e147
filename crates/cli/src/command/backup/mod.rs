//! `qpair backup`.

mod to;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use qpair::ErrorKind;
use qpair::published::ask_for_backup;
use qpair::report::BackupReport;
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::parse::show::ShowArgs;
use crate::parse::store::{Effort, StoreArgs, is_socket, published_at};
use crate::show::bar::show;
use crate::show::text::{counted, size};
use to::ToArgs;

/// Make a complete and consistent copy of a store
///
/// The copy is an independent, closed store; each page is checked while it is written. A crashed
/// store is recovered first. The target is a file, a block device, or several:
/// stripe:unit=64KiB:A+B. After Ctrl-C it holds nothing that looks like a store. With --force a
/// backup in a file is replaced once the new one is whole, so there must be room for both. On a
/// block device the old backup is lost as soon as the new one is found to fit: after Ctrl-C, a kill
/// or a power loss the device has neither. Two devices in turn always leave one.
///
/// If another process has the store open and publishes it (see `qpair top`), that process makes the
/// copy, with its own rights, onto a file, a block device or a stripe of these. If it publishes
/// nothing, this command copies the newest checkpoint beside it.
///
/// With --to the store is shipped to a place that keeps its past: parts of sorted records, and the
/// changes since. `qpair restore` makes a store of it as it was at a time. With --follow it is
/// shipped all the time, by the process that has it open, with that process's access to the place;
/// `qpair top --prometheus` has the age of what is not shipped.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair backup files.qpair /backup/files.qpair
  qpair backup files.qpair /dev/sdb --force
  qpair backup files.qpair --to s3://backups/files --follow
  qpair backup /run/app/store.top copy.qpair     # published elsewhere than beside the store")]
pub(crate) struct Backup {
    #[command(flatten)]
    store: StoreArgs,

    /// Target of the copy: a file, a block device, or a device specifier
    #[arg(required_unless_present = "to")]
    target: Option<PathBuf>,

    #[command(flatten)]
    to: ToArgs,

    /// Overwrite the target; its content is lost
    #[arg(long, conflicts_with = "to")]
    force: bool,

    #[command(flatten)]
    show: ShowArgs,
}

impl Backup {
    pub(crate) fn run(self) -> Result<Exit> {
        if let Some(url) = &self.to.to {
            return self.to.run(&self.store, url, &self.show);
        }
        let target = self.target.clone().unwrap_or_default();
        let interrupt = Interrupt::install()?;
        let bar = self.show.bar();
        let made = self.make(&target, &|done, all| {
            let message = match all {
                0 => "waiting for the process that has the store open".to_owned(),
                _ => counted(done, "page"),
            };
            show(&bar, done, all, message);
            interrupt.flow()
        });
        bar.finish_and_clear();
        let report = made?;
        let bytes = report.pages * report.page_size as u64;
        let (source, target) = (self.store.store.display(), target.display());
        let object = json!({
            "store": source.to_string(),
            "target": target.to_string(),
            "id": report.id,
            "timestamp": report.timestamp,
            "pages": report.pages,
            "bytes": bytes,
        });
        self.show.print(&object, || {
            vec![format!(
                "copied {source} as of commit {} to {target}: {}, {}",
                report.timestamp,
                counted(report.pages, "page"),
                size(bytes),
            )]
        })?;
        Ok(Exit::Done)
    }

    fn make(
        &self,
        target: &Path,
        progress: &dyn Fn(u64, u64) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        if is_socket(&self.store.store) {
            let nobody =
                || Failure::new(Exit::Failed, "the process behind this socket makes no backups");
            return self.ask(target, progress)?.ok_or_else(|| nobody().hint(BUSY));
        }
        match self.store.open_to_read(Effort::Large) {
            Ok((store, report)) => {
                if report.beside_writer
                    && let Some(made) = self.ask(target, progress)?
                {
                    return Ok(made);
                }
                let options = self.store.target(target, self.force)?;
                let made = options.backup_of(&store, progress);
                let closed = store.close();
                let report = made.map_err(|error| told(error, self.force))?;
                closed?;
                Ok(report)
            }
            Err(failure) if failure.kind() == Some(ErrorKind::Busy) => {
                self.ask(target, progress)?.ok_or_else(|| failure.hint(BUSY))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Asks the process that has the store open to make the backup. Returns `None` if that process
    /// does not publish the store.
    fn ask(
        &self,
        target: &Path,
        progress: &dyn Fn(u64, u64) -> ControlFlow<()>,
    ) -> Result<Option<BackupReport>> {
        self.store.refuse_own(target)?;
        let published = published_at(&self.store.store);
        ask_for_backup(&published, target, self.force, progress).map_err(|error| {
            match error.kind() {
                // The other process writes, and may have begun to overwrite the target.
                ErrorKind::Interrupted if self.force => Failure::from(error)
                    .hint("a backup that was on a block device may be gone; run the backup again"),
                _ => told(error, self.force),
            }
        })
    }
}

const BUSY: &str =
    "the process that has it open makes the backup if it publishes the store, or by Store::backup";

/// Adds advice to an error. With `--force` the advice differs: a complete backup of an earlier
/// attempt is never overwritten.
fn told(error: qpair::Error, force: bool) -> Failure {
    match error.kind() {
        ErrorKind::Exists if !force => Failure::from(error).hint("if it may be lost, give --force"),
        _ => Failure::from(error).with_larger_target(),
    }
}
