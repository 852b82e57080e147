//! Judges a state after a loss of power: the store must open, be sound, and have the data that it
//! must have.

use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_engine::{Error, ErrorKind, Store, StoreOptions};

use super::history::{Bounds, Found, History};
use super::image::Image;
use super::load::{read_all, said};
use super::plan::Plan;

pub(super) struct Expected<'a> {
    pub(super) history: &'a History,
    pub(super) bounds: &'a [Bounds],
    /// Whether the store must exist. Otherwise it may have been incomplete.
    pub(super) is_made: bool,
}

/// Judges a store. Returns the data found in it, or `None` if there is no store and none was
/// required.
pub(super) fn judge(
    plan: &Plan,
    images: &[Image],
    expected: &Expected<'_>,
) -> Result<Option<Found>, String> {
    let devices = devices(images)?;
    let (members, options) = plan.store(devices.clone());
    if expected.is_made {
        check(
            members.clone(),
            &StoreOptions { read_only: true, at_checkpoint: true, ..options.clone() },
        )
        .map_err(|wrong| format!("as the last checkpoint has it: {wrong}"))?;
    }
    let store = match Store::open(members.clone(), &options) {
        Ok(store) => store,
        Err(error) if !expected.is_made && is_nobodys(&error) => return Ok(None),
        Err(error) => return Err(said("opening it")(error)),
    };
    let found = read_all(&store)?;
    expected.history.explain(expected.bounds, &found)?;
    store.close().map_err(said("closing it"))?;
    check(members, &StoreOptions { read_only: true, ..options })
        .map_err(|wrong| format!("after it was recovered and closed: {wrong}"))?;
    Ok(Some(found))
}

/// Judges a store that a command made, with options of its own.
pub(super) fn judge_made(
    plan: &Plan,
    images: &[Image],
    expected: &Expected<'_>,
) -> Result<(), String> {
    let members = devices(images)?;
    let options = StoreOptions {
        memory_bytes: 16 << 20,
        workers: 1,
        encryption: plan.key(),
        ..StoreOptions::default()
    };
    let store = match Store::open(members.clone(), &options) {
        Ok(store) => store,
        Err(error) if !expected.is_made && is_nobodys(&error) => return Ok(()),
        Err(error) => return Err(said("opening the store that was made")(error)),
    };
    let found = read_all(&store)?;
    expected.history.explain(expected.bounds, &found)?;
    store.close().map_err(said("closing the store that was made"))?;
    check(members, &StoreOptions { read_only: true, ..options })
}

/// Whether an incomplete store is refused correctly: as no store, or as one that was never
/// complete.
fn is_nobodys(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotAStore | ErrorKind::Unclean | ErrorKind::Member | ErrorKind::NotFound
    )
}

fn devices(images: &[Image]) -> Result<Vec<Arc<dyn BlockDevice>>, String> {
    images.iter().map(Image::device).collect()
}

fn check(members: Vec<Arc<dyn BlockDevice>>, options: &StoreOptions) -> Result<(), String> {
    let store = Store::open(members, options).map_err(said("opening it to check"))?;
    let report = store.check(&|_, _| ()).map_err(said("checking it"))?;
    store.close().map_err(said("closing it after a check"))?;
    if report.is_sound() {
        return Ok(());
    }
    Err(format!("{} faults: {}", report.faults.len(), report.faults.join("; ")))
}
