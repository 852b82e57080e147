//! `qpair rekey`.

use clap::Args;
use qpair::{EncryptionKey, ErrorKind};

use crate::failure::{Exit, Failure, Result};
use crate::parse::store::{Effort, StoreArgs, parse_key};

/// Replace the key of an encrypted store
///
/// Only the superblocks are written: the data stay encrypted with a key of the store's own, which
/// the new key wraps in place of the old one. Copies of the superblocks that were made before still
/// open with the old key. If the old key may be known to others, make a backup or a copy, which has
/// another key of its own, and remove the store.
///
/// No process may have the store open. A crashed store is recovered first. After an interruption
/// one of the two keys opens the store.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  openssl rand -hex 32 > new.key
  qpair rekey users.qpair --key-file old.key --new-key-file new.key")]
pub(crate) struct Rekey {
    #[command(flatten)]
    store: StoreArgs,

    /// File with the new key
    #[arg(long, value_name = "PATH", value_parser = parse_key)]
    new_key_file: EncryptionKey,
}

impl Rekey {
    pub(crate) fn run(self) -> Result<Exit> {
        let Some(present) = self.store.key() else {
            let what = "the present key of the store is missing";
            return Err(Failure::usage(what).hint("give it with --key-file"));
        };
        match self.store.closed().replace_key(present, &self.new_key_file) {
            Err(error) if error.kind() == ErrorKind::Unclean => {
                let (store, _) = self.store.open_to_write(Effort::Small, None, None)?;
                store.close()?;
                self.store.closed().replace_key(present, &self.new_key_file)?;
            }
            replaced => replaced?,
        }
        Ok(Exit::Done)
    }
}
