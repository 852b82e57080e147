//! Operations: plain functions over optimistic latches that either finish or return the condition
//! that they wait for.
//!
//! An operation releases all latches before it returns such a condition, so no task waits with a
//! latch held. It may keep its place in the tree: a frame and the version it had, which is checked
//! before the frame is used again.

use std::future::poll_fn;
use std::hint::spin_loop;
use std::task::Poll;

use qpair_format::large::Descriptor;
use qpair_format::page::{LeafValue, Node};
use qpair_format::{Error, ErrorKind, Remedy, Result, SALVAGE};
use qpair_memory::{Blocked, ExclusiveFrame, FrameIndex, Version};

use super::lists::load;
use super::worker::{Loading, Worker, current};
use crate::large::Want;
use crate::panics::guarded;
use crate::pool::Epoch;
use crate::shared::Shared;
use crate::sync::Ticket;

/// A page that must be loaded before an operation can go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadPlan {
    /// Frame of the parent, and the version at which the reference was read.
    pub(crate) parent: FrameIndex,
    pub(crate) version: Version,
    pub(crate) position: usize,
    pub(crate) place: u64,
}

/// The condition that an operation waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// A latch that is held for a few instructions, or another try because a version moved.
    Retry,
    /// Cache lines that were just asked for. Continuing at once is correct too.
    Prefetch,
    /// The end of the I/O on a frame.
    Io(FrameIndex),
    /// A page.
    Load(LoadPlan),
    /// A free frame at the worker's hand.
    Frame,
    /// A worker; the operation cannot run on a caller's thread.
    Worker,
    /// Space on the device, of which there is none.
    NoSpace,
    /// A page that is where its tree leads to, which this one is not: the tree is damaged.
    Sound,
    /// A table that exists: this one was dropped.
    Table,
    /// The list of the runs of a large value whose record is replaced or deleted.
    List(Descriptor),
}

impl From<Blocked> for Need {
    fn from(blocked: Blocked) -> Self {
        debug_assert_eq!(
            blocked,
            Blocked::Contended,
            "an operation that waits for an I/O names the frame"
        );
        Self::Retry
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Descent {
    /// The page reached, and its version then; `None` is the root.
    pub(crate) at: Option<(FrameIndex, Version)>,
    /// The child to go to next, whose cache lines were asked for.
    pub(crate) next: Option<FrameIndex>,
}

impl Descent {
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }
}

/// The state that an operation may use while it runs.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a Shared,
    /// The worker that runs the operation; `None` on a caller's thread.
    pub(crate) worker: Option<&'a Worker>,
    /// Whether there is other work to do while cache lines travel.
    pub(crate) interleave: bool,
}

impl Worker {
    /// Returns a context for operations that run on this worker at once.
    pub(crate) fn context(&self) -> Context<'_> {
        Context { shared: self.shared(), worker: Some(self), interleave: false }
    }
}

impl Context<'_> {
    /// Prepares a page for a change. Call it with the page's exclusive latch held, before the
    /// content is changed: a checkpoint under way may still need the present content.
    #[inline(always)]
    pub(crate) fn begin_change(&self, page: &ExclusiveFrame<'_>) -> Result<(), Need> {
        let epoch = self.shared.checkpointing.epochs.epoch();
        let frames = &self.shared.pool.frames;
        if frames.epoch(page.index()) != epoch.number {
            self.first_change(page, epoch)?;
        }
        Ok(())
    }

    /// Whether the first change of `leaf` must save it for the checkpoint under way. A hint until
    /// the leaf is latched.
    #[inline]
    pub(crate) fn is_unsaved(&self, leaf: FrameIndex) -> bool {
        let epoch = self.shared.checkpointing.epochs.epoch();
        let frames = &self.shared.pool.frames;
        epoch.saving && frames.is_dirty_before(leaf, epoch.number)
    }

    #[cold]
    fn first_change(&self, page: &ExclusiveFrame<'_>, epoch: Epoch) -> Result<(), Need> {
        let pool = &self.shared.pool;
        if pool.is_unsaved(page.index(), Node::new(page.bytes()), epoch) {
            return self.worker.ok_or(Need::Worker)?.save_page(page, epoch);
        }
        pool.frames.set_epoch(page.index(), epoch.number);
        Ok(())
    }

    /// Checks that the pages of a value are known before its record loses it, if the value is in
    /// several runs.
    #[inline]
    pub(crate) fn want_list(&self, node: Node<'_>, value: Option<LeafValue>) -> Result<(), Need> {
        match value {
            Some(value) if value.overflow && self.shared.large.lists.may_be() => {
                self.want_list_of(node, value)
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn want_list_of(&self, node: Node<'_>, value: LeafValue) -> Result<(), Need> {
        let mut encoded = Vec::with_capacity(Descriptor::BYTES);
        node.bytes.append_to(value.offset, value.len, &mut encoded);
        match Descriptor::decode(&encoded, self.shared.page_bytes) {
            Ok(found) if found.listed && self.shared.large.lists.get(found).is_none() => {
                Err(Need::List(found))
            }
            _ => Ok(()),
        }
    }
}

pub(crate) trait Operation {
    type Output;

    const IS_LOOKUP: bool = false;

    /// Continues as far as possible.
    fn step(&mut self, context: Context<'_>) -> Result<Self::Output, Need>;

    fn descent(&mut self) -> &mut Descent;
}

/// The number of tries before a contended operation lets other tasks run.
const SPINS: u32 = 8;
/// The number of tries of a task that others wait for: longer than a latch is held, unless its
/// holder's thread does not run.
const SPINS_AT_ONCE: u32 = 64;

/// Runs an operation as part of a task of a worker.
#[inline]
pub(crate) fn run<O: Operation>(
    shared: &Shared,
    operation: O,
) -> impl Future<Output = Result<O::Output>> {
    run_as(shared, operation, true)
}

/// Runs an operation as part of a task that others wait for. The task keeps the worker while cache
/// lines travel, and gets a larger budget.
#[inline]
pub(crate) fn run_at_once<O: Operation>(
    shared: &Shared,
    operation: O,
) -> impl Future<Output = Result<O::Output>> {
    run_as(shared, operation, false)
}

/// Runs an operation. With `interleave`, other tasks may run while cache lines travel, and when the
/// task has used its budget.
#[inline]
pub(crate) async fn run_as<O: Operation>(
    shared: &Shared,
    mut operation: O,
    interleave: bool,
) -> Result<O::Output> {
    let (mut fresh, mut ticket) = (true, Ticket::default());
    poll_fn(|context| {
        current(|worker| {
            if fresh && O::IS_LOOKUP {
                worker.count_lookup();
            }
            // A task that finds all it needs in memory must still let others run, and completions
            // in.
            if std::mem::take(&mut fresh) && worker.spend_budget(interleave) {
                worker.requeue();
                return worker.keep_waker(context.waker(), Poll::Pending);
            }
            if !std::ptr::eq(worker.shared(), shared) {
                return Poll::Ready(Err(elsewhere()));
            }
            if let Some(panicked) = shared.lifecycle.panicked() {
                return Poll::Ready(Err(panicked.clone()));
            }
            let waker = context.waker();
            let polled =
                guarded(shared, || turn(worker, &mut operation, &mut ticket, waker, interleave));
            worker.keep_waker(waker, polled)
        })
        .unwrap_or_else(|| Poll::Ready(Err(elsewhere())))
    })
    .await
}

/// Lets other tasks run if the running task has used its budget.
#[inline]
pub(crate) async fn take_turn() {
    let mut fresh = true;
    poll_fn(|context| {
        current(|worker| {
            if std::mem::take(&mut fresh) && worker.spend_budget(true) {
                worker.requeue();
                return worker.keep_waker(context.waker(), Poll::Pending);
            }
            Poll::Ready(())
        })
        .unwrap_or(Poll::Ready(()))
    })
    .await;
}

/// Gives the worker to other tasks for one turn. In a task that computes for long, call it now and
/// then.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The maximum number of operations of one task that wait side by side, because each wake looks at
/// all of them.
const RUN_AT_ONCE: usize = 64;

/// Runs operations side by side as part of a task of a worker: while one waits for the device, the
/// others continue. After an error no more are begun. The error is returned once the operations
/// under way have ended, because the results of their loads are kept for the task.
pub(crate) async fn run_all<O: Operation<Output = ()>>(
    shared: &Shared,
    operations: impl IntoIterator<Item = O>,
) -> Result<()> {
    let mut coming = operations.into_iter();
    let mut open: Vec<(O, Ticket)> = Vec::new();
    let mut outcome = Ok(());
    poll_fn(|context| {
        current(|worker| {
            if !std::ptr::eq(worker.shared(), shared) {
                return Poll::Ready(Err(elsewhere()));
            }
            if let Some(panicked) = shared.lifecycle.panicked() {
                return Poll::Ready(Err(panicked.clone()));
            }
            let (mut at, mut more) = (0, true);
            loop {
                if at == open.len() {
                    if open.len() == RUN_AT_ONCE || outcome.is_err() {
                        break;
                    }
                    if worker.spend_budget(true) {
                        worker.requeue();
                        break;
                    }
                    let Some(next) = coming.next() else {
                        more = false;
                        break;
                    };
                    open.push((next, Ticket::default()));
                }
                let (operation, ticket) = &mut open[at];
                match guarded(shared, || turn(worker, operation, ticket, context.waker(), true)) {
                    Poll::Ready(ended) => {
                        // Nothing is under way, so the other operations would wait in vain, too.
                        let hopeless =
                            matches!(&ended, Err(error) if error.kind() == ErrorKind::NoMemory);
                        drop(open.swap_remove(at));
                        if outcome.is_ok() {
                            outcome = ended;
                        }
                        if hopeless {
                            (open, more) = (Vec::new(), false);
                            break;
                        }
                    }
                    Poll::Pending => at += 1,
                }
            }
            match open.is_empty() && (!more || outcome.is_err()) {
                true => Poll::Ready(std::mem::replace(&mut outcome, Ok(()))),
                false => worker.keep_waker(context.waker(), Poll::Pending),
            }
        })
        .unwrap_or_else(|| Poll::Ready(Err(elsewhere())))
    })
    .await
}

/// Refuses a blocking call on a worker, which would wait for itself.
pub(crate) fn refuse_on_worker() -> Result<()> {
    if current(|_| ()).is_some() {
        return Err(Error::with_hint(
            ErrorKind::Invalid,
            "a worker cannot make a blocking call",
            "in a task use the async calls, such as table.task().get(key).await; open, create and drop tables outside of tasks",
        ));
    }
    Ok(())
}

impl Shared {
    /// Refuses a blocking call where it would never return: on a worker, and in a fork of the
    /// process that has the workers.
    pub(crate) fn check_caller(&self) -> Result<()> {
        refuse_on_worker()?;
        self.lifecycle.check_process()
    }
}

/// Refuses a task's call that is not made on one of the store's workers.
pub(crate) fn check_here(shared: &Shared) -> Result<()> {
    match current(|worker| std::ptr::eq(worker.shared(), shared)) {
        Some(true) => Ok(()),
        _ => Err(elsewhere()),
    }
}

fn no_space() -> Error {
    Error::with_hint(
        ErrorKind::NoSpace,
        "the device has no free page to move a page to",
        "make room on the device, and open the store again",
    )
}

/// Returns the error of an operation that came to a page which a sound tree cannot have there.
#[cold]
pub(crate) fn astray() -> Error {
    Error::with_remedy(
        ErrorKind::Corrupt,
        "a leaf is not at the address that its tree has for it",
        format!("a check finds it; {SALVAGE}"),
        Remedy::Check,
    )
}

fn elsewhere() -> Error {
    Error::with_hint(
        ErrorKind::Invalid,
        "an async call was awaited outside of the store's workers",
        "start it with Store::spawn, or use the blocking calls",
    )
}

fn turn<O: Operation>(
    worker: &Worker,
    operation: &mut O,
    ticket: &mut Ticket,
    waker: &std::task::Waker,
    may_wait: bool,
) -> Poll<Result<O::Output>> {
    let mut spins = 0;
    loop {
        let interleave = may_wait && worker.has_ready();
        let context = Context { interleave, ..worker.context() };
        let need = match operation.step(context) {
            Ok(output) => return Poll::Ready(Ok(output)),
            Err(need) => need,
        };
        match need {
            Need::Retry | Need::Worker => {
                spins += 1;
                if spins < if may_wait { SPINS } else { SPINS_AT_ONCE } {
                    spin_loop();
                    continue;
                }
                match may_wait {
                    true => worker.requeue(),
                    false => worker.requeue_urgent(),
                }
                return Poll::Pending;
            }
            Need::Prefetch => {
                worker.requeue();
                return Poll::Pending;
            }
            Need::Io(frame) => {
                if worker.shared().pool.wait_for_io(frame, ticket, waker) {
                    return Poll::Pending;
                }
            }
            Need::Frame => return worker.wait_for_new_frame().map(Err),
            Need::NoSpace => return Poll::Ready(Err(no_space())),
            Need::Sound => return Poll::Ready(Err(astray())),
            Need::Table => return Poll::Ready(Err(Error::table_dropped())),
            Need::List(descriptor) => match worker.shared().large.lists.want(descriptor, waker) {
                Want::Known => {}
                Want::Load => {
                    worker.spawn_own(load(worker.shared_arc(), descriptor));
                    return Poll::Pending;
                }
                Want::Wait => return Poll::Pending,
                Want::Failed(error) => return Poll::Ready(Err(error)),
            },
            Need::Load(plan) => match worker.load(plan) {
                Loading::Started(_, version) => {
                    operation.descent().at = Some((plan.parent, version));
                    operation.descent().next = None;
                    return Poll::Pending;
                }
                Loading::Stale => operation.descent().restart(),
                Loading::ParentInFlight => {
                    if worker.shared().pool.wait_for_io(plan.parent, ticket, waker) {
                        return Poll::Pending;
                    }
                }
                Loading::NoFrame => return worker.wait_for_frame().map(Err),
                Loading::Failed(error) => return Poll::Ready(Err(error)),
            },
        }
    }
}

/// Runs an operation on a caller's thread as far as it goes without waiting. Returns `None` if the
/// operation must wait for more than a latch, if the store was closed, or on a worker, where no
/// call may block.
pub(crate) fn run_inline<O: Operation>(shared: &Shared, operation: &mut O) -> Option<O::Output> {
    if shared.lifecycle.has_ended()
        || shared.lifecycle.panicked().is_some()
        || refuse_on_worker().is_err()
    {
        return None;
    }
    guarded(shared, || spin_inline(shared, operation))
}

fn spin_inline<O: Operation>(shared: &Shared, operation: &mut O) -> Option<O::Output> {
    let context = Context { shared, worker: None, interleave: false };
    for spins in 0..1000u32 {
        match operation.step(context) {
            Ok(output) => return Some(output),
            Err(Need::Retry | Need::Prefetch) if spins % 16 == 15 => std::thread::yield_now(),
            Err(Need::Retry | Need::Prefetch) => spin_loop(),
            Err(_) => return None,
        }
    }
    None
}
