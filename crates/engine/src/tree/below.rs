//! Finds the pages below inner pages, for code that reads trees into memory in the order of the
//! device instead of the order of keys.
//!
//! A page is named by its frame, as in its parent, and no task has kept it latched since it was
//! seen. The frame may therefore hold another page by now. The page is used only if one version
//! shows both: the frame's state is that of a page of a tree, and the tree is the expected one. A
//! page enters a frame only under the frame's latch, together with its state.

use qpair_format::page::Node;
use qpair_format::place::page_of;
use qpair_format::swip::Swip;
use qpair_memory::{Blocked, FrameIndex, OptimisticFrame};

use crate::pool::state;
use crate::task::{Context, Descent, LoadPlan, Loading, Need, Operation};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    pub(crate) tree_id: u32,
    pub(crate) frame: FrameIndex,
}

/// A page that is not in memory, and the position of the reference to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Absent {
    place: u64,
    parent: Resident,
    position: u32,
}

impl Absent {
    /// Returns the page's id, and so its position on the device.
    pub(crate) fn page_id(&self) -> u64 {
        page_of(self.place)
    }
}

impl Resident {
    /// Begins to read the page. Returns `None` if the frame no longer holds an inner page of the
    /// tree.
    fn read<'a>(self, context: Context<'a>) -> Result<Option<OptimisticFrame<'a>>, Need> {
        let frames = &context.shared.pool.frames;
        let page = frames.optimistic(self.frame).map_err(|blocked| match blocked {
            Blocked::InFlight => Need::Io(self.frame),
            Blocked::Contended => Need::Retry,
        })?;
        let node = Node::new(page.bytes());
        let is_here =
            matches!(frames.state(self.frame), state::HOT | state::COOLING | state::PINNED)
                && node.tree_id() == self.tree_id
                && !node.is_leaf();
        if page.validate() { Ok(is_here.then_some(page)) } else { Err(Need::Retry) }
    }
}

/// The pages one level below another page, by whether they are in memory.
#[derive(Debug, Default)]
pub(crate) struct Children {
    /// The level of the page above; 0 if that page has left, or is a leaf.
    pub(crate) level: u8,
    pub(crate) resident: Vec<Resident>,
    pub(crate) absent: Vec<Absent>,
}

/// Looks at the references of a page.
pub(crate) struct Below {
    page: Resident,
    descent: Descent,
}

impl Below {
    pub(crate) fn new(page: Resident) -> Self {
        Self { page, descent: Descent::default() }
    }
}

impl Operation for Below {
    type Output = Children;

    fn step(&mut self, context: Context<'_>) -> Result<Children, Need> {
        let Some(page) = self.page.read(context)? else { return Ok(Children::default()) };
        let node = Node::new(page.bytes());
        let mut children = Children { level: node.level(), ..Children::default() };
        for position in 0..=node.count() {
            match Swip::decode(node.child(position)) {
                Swip::Hot(frame) => children.resident.push(Resident { frame, ..self.page }),
                Swip::Cold(place) => {
                    let (parent, position) = (self.page, position as u32);
                    children.absent.push(Absent { place, parent, position });
                }
            }
        }
        if page.validate() { Ok(children) } else { Err(Need::Retry) }
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}

pub(crate) enum Fetched {
    /// The load into this frame has begun.
    Begun(FrameIndex),
    /// The page is in memory already, or the reference is not where it was.
    Nothing,
    NoFrame,
    /// The reference does not lead to a page.
    Failed,
}

/// Begins to load a page without waiting for it, if the reference to the page is still where it was
/// seen.
pub(crate) struct Fetch {
    page: Absent,
    descent: Descent,
}

impl Fetch {
    pub(crate) fn new(page: Absent) -> Self {
        Self { page, descent: Descent::default() }
    }
}

impl Operation for Fetch {
    type Output = Fetched;

    fn step(&mut self, context: Context<'_>) -> Result<Fetched, Need> {
        let Some(worker) = context.worker else { return Err(Need::Worker) };
        let Absent { place, parent, position } = self.page;
        let position = position as usize;
        let Some(page) = parent.read(context)? else { return Ok(Fetched::Nothing) };
        let node = Node::new(page.bytes());
        let is_here =
            position <= node.count() && Swip::decode(node.child(position)) == Swip::Cold(place);
        if !page.validate() {
            return Err(Need::Retry);
        }
        if !is_here {
            return Ok(Fetched::Nothing);
        }
        let plan = LoadPlan { parent: page.index(), version: page.version(), position, place };
        match worker.load(plan) {
            Loading::Started(frame, _) => Ok(Fetched::Begun(frame)),
            Loading::Stale => Err(Need::Retry),
            Loading::ParentInFlight => Err(Need::Io(parent.frame)),
            Loading::NoFrame => Ok(Fetched::NoFrame),
            Loading::Failed(_) => Ok(Fetched::Failed),
        }
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}

/// Waits while a device transfers a frame's bytes.
pub(crate) struct Arrival {
    frame: FrameIndex,
    descent: Descent,
}

impl Arrival {
    pub(crate) fn new(frame: FrameIndex) -> Self {
        Self { frame, descent: Descent::default() }
    }
}

impl Operation for Arrival {
    type Output = ();

    fn step(&mut self, context: Context<'_>) -> Result<(), Need> {
        match context.shared.pool.frames.is_in_flight(self.frame) {
            true => Err(Need::Io(self.frame)),
            false => Ok(()),
        }
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
