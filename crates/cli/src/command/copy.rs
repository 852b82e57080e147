//! `qpair copy`.

use std::path::PathBuf;

use clap::Args;
use qpair::{EncryptionKey, ErrorKind};
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::parse::number::parse_size;
use crate::parse::show::ShowArgs;
use crate::parse::store::{Effort, StoreArgs, parse_key};
use crate::show::bar::show;
use crate::show::text::counted;

/// Copy all tables into a new store, with pages of another size or another encryption
///
/// Records are read table by table in the order of their keys and loaded sorted, so the copy is as
/// small as it can be. A crashed store is recovered first. The target must not exist; a block
/// device must be blank. After Ctrl-C it holds nothing that looks like a store.
///
/// A store with pages smaller than the blocks below it does not open there. One in files does with
/// --buffered, and so does a file with the bytes of a block device: copy it from there.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair copy --page-size 4KiB old.qpair new.qpair
  qpair copy --page-size 16KiB old.qpair stripe:unit=64KiB:/dev/sdb+/dev/sdc
  qpair copy --new-key-file key old.qpair encrypted.qpair")]
pub(crate) struct Copy {
    #[command(flatten)]
    store: StoreArgs,

    /// Target of the copy: a file, a block device, or a device specifier
    target: PathBuf,

    /// Page size of the new store: 4KiB for records read one by one, 16KiB for long scans [default:
    /// as the store has it]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    page_size: Option<u64>,

    /// File with the key of the copy [default: the key of the store, if it is encrypted]
    #[arg(long, value_name = "PATH", value_parser = parse_key)]
    new_key_file: Option<EncryptionKey>,

    /// Make a copy of an encrypted store that is not encrypted
    #[arg(long, conflicts_with = "new_key_file")]
    decrypt: bool,

    #[command(flatten)]
    show: ShowArgs,
}

impl Copy {
    pub(crate) fn run(self) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let (store, _) = self.store.open_to_read(Effort::Large)?;
        let page_size = match self.page_size {
            Some(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
            None => store.report().page_size,
        };
        let bar = self.show.bar();
        let key = match self.decrypt {
            true => None,
            false => self.new_key_file.as_ref().or(self.store.key()),
        };
        let target = self.store.target_with_key(&self.target, key)?.page_size(page_size);
        let copied = target.copy_of(&store, &|done, all| {
            show(&bar, done, all.max(1), counted(done, "record"));
            interrupt.flow()
        });
        bar.finish_and_clear();
        let closed = store.close();
        let report = copied.map_err(|error| match error.kind() {
            ErrorKind::KeyTooLong => {
                Failure::from(error).or_hint("choose larger pages with --page-size")
            }
            _ => error.into(),
        })?;
        closed?;
        let (source, target) = (self.store.store.display(), self.target.display());
        let object = json!({
            "store": source.to_string(),
            "target": target.to_string(),
            "id": report.id,
            "tables": report.tables,
            "records": report.records,
            "page_size": report.page_size,
        });
        self.show.print(&object, || {
            vec![format!(
                "copied {source} to {target}: {} in {}, pages of {} bytes",
                counted(report.records, "record"),
                counted(report.tables, "table"),
                report.page_size,
            )]
        })?;
        Ok(Exit::Done)
    }
}
