//! Checkpoints: an exact image of all trees on the device, made while they change. See
//! docs/design/checkpoints.md.
//!
//! - The image is of one instant, between commits: the barrier is closed for a moment, the *epoch*
//!   advances by one, the barrier opens.
//! - From then on the first change of a page that belongs to the image saves a copy of the page
//!   first; the checkpoint writer saves the rest.
//! - No page of the last durable image is overwritten ([`crate::space::Space`]), so that a crash
//!   finds that image whole.

mod fit;
mod record;
mod space_retry;
mod stage;
mod writer;

pub(crate) use fit::fit_before_changes;
pub(crate) use record::{read_image, read_newest, read_records, write_record};
pub(crate) use space_retry::{SpaceRetry, no_place};
pub(crate) use writer::{
    checkpoint, checkpoint_since, checkpoint_to_its_end, name_logs, note_described, on_every_worker,
};
