//! Verification of what lies in a place: all objects that are needed are there and undamaged, and
//! others are counted.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use qpair_engine::{Error, ErrorKind, Result};

use crate::change::{Change, read_piece};
use crate::journal::{PARTS, garbage, read_existing};
use crate::manifest::Piece;
use crate::objects::Objects;
use crate::plan::{Point, points};

/// The result of [`verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// The points that the store can be restored to, the oldest first.
    pub points: Vec<Point>,
    /// The number of parts.
    pub parts: u64,
    /// The bytes of all parts.
    pub bytes: u64,
    /// Descriptions of missing and damaged objects.
    pub faults: Vec<String>,
    /// The objects that nothing refers to. A running backup removes them in time.
    pub unused: u64,
}

/// Reads all parts of a backup, and checks them. `progress` gets the bytes read and of all parts,
/// and may break the verification off.
///
/// # Errors
/// `NotFound` if there is no backup; `Interrupted` if `progress` broke it off; `Corrupt` if the
/// journal is damaged; errors of the place.
pub fn verify(
    objects: &dyn Objects,
    progress: &dyn Fn(u64, u64) -> ControlFlow<()>,
) -> Result<Verification> {
    let (manifest, manifest_at) = read_existing(objects)?;
    let parts = manifest.parts.values();
    let mut found = Verification {
        points: points(&manifest),
        parts: parts.len() as u64,
        bytes: parts.map(|part| part.bytes).sum(),
        ..Verification::default()
    };
    let listed = objects.list(PARTS, "")?;
    let sizes: BTreeMap<&str, u64> = listed.iter().map(|o| (o.name.as_str(), o.bytes)).collect();
    let mut done = 0;
    for part in manifest.parts.values() {
        for piece in &part.pieces {
            if progress(done, found.bytes).is_break() {
                let what = "the verification was interrupted";
                return Err(Error::new(ErrorKind::Interrupted, what));
            }
            done += piece.bytes;
            let is_short = |piece: &Piece| {
                piece.object.starts_with(PARTS)
                    && sizes.get(piece.object.as_str()).is_some_and(|bytes| *bytes != piece.bytes)
            };
            match read_piece(objects, piece) {
                Ok(bytes) => {
                    let order = Change::fault(&bytes);
                    found.faults.extend(order.map(|why| format!("{}: {why}", piece.object)));
                }
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) => {
                    let short = if is_short(piece) { " (its length is wrong)" } else { "" };
                    found.faults.push(format!("{error}{short}"));
                }
                Err(error) => return Err(error),
            }
        }
    }
    found.unused = garbage(objects, &manifest, manifest_at, manifest.next_part)?.len() as u64;
    Ok(found)
}
