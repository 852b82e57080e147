//! Workers and tasks, see docs/design/tasks.md.
//!
//! A worker is a thread with a channel of its own. It runs light tasks (futures); a task that must
//! wait for a page, a frame or a latch gives control back, and the worker goes on with the next.
//! Eviction and write-back run in the worker's loop; there are no other threads.

mod flush;
mod handle;
mod lists;
mod operation;
mod sleep;
pub(crate) mod stepped;
mod tasks;
mod transfer;
mod upkeep;
mod worker;

pub(crate) use flush::flush;
pub use handle::JoinHandle;
pub(crate) use handle::{
    OneshotSender, guarded_here, oneshot, spawn_here, spawn_program, spawn_to,
};
pub(crate) use lists::extents_of;
pub use operation::yield_now;
pub(crate) use operation::{
    Context, Descent, LoadPlan, Need, Operation, astray, check_here, refuse_on_worker, run,
    run_all, run_as, run_at_once, run_inline, take_turn,
};
pub use sleep::sleep;
pub use stepped::{Runtime, Step, abandon_stepped, is_stepped_here};
pub(crate) use transfer::{
    Reserved, Transfer, give_scratch, read_page, scratch_frame, scratch_frame_now,
};
pub(crate) use upkeep::Upkeep;
pub(crate) use worker::{
    Deadline, Loading, Worker, WorkerOptions, current, latch_free, log_arena, verify,
};
