//! The roots of trees, which stay in memory while their tables are open.

use std::sync::Arc;

use qpair_format::page::{Node, NodeInit, NodeMut};
use qpair_format::place::page_of;
use qpair_format::{Error, ErrorKind, Result};
use qpair_memory::ExclusiveFrame;

use crate::pool::{Root, state};
use crate::shared::Shared;
use crate::space::Purpose;
use crate::task::{Transfer, give_scratch, latch_free, scratch_frame, verify};
use crate::tree::Tree;

/// Frees the root of a tree that was just made and that nothing refers to.
pub(super) fn drop_root(shared: &Shared, tree: Tree) {
    shared.forest.roots().remove(&tree.id);
    give_root(shared, tree, latch_free(shared, tree.root));
    give_scratch(tree.root);
}

/// Frees the page of a tree's root, and the frame, which the caller has latched.
pub(super) fn give_root(shared: &Shared, tree: Tree, page: ExclusiveFrame<'_>) {
    let place = shared.pool.frames.page_id(tree.root);
    tree.leave(&shared.pool);
    shared.pool.release_frame(page);
    shared.space.free(page_of(place), 1);
}

/// Returns `NoMemory` if another root in memory would leave too few frames to work with.
fn check_room_for_root(shared: &Shared) -> Result<()> {
    let (frames, workers) = (shared.pool.active() as usize, shared.worker_handles.len());
    let most = tables_open_max(frames, workers);
    let roots = shared.forest.roots();
    let is_open = |root: &&Root| matches!(root, Root::Open(_));
    if roots.len() < most || roots.values().filter(is_open).count() < most {
        return Ok(());
    }
    Err(Error::with_hint(
        ErrorKind::NoMemory,
        format!(
            "{most} tables are open, the limit with {frames} pages of memory and {workers} workers: each open table pins one frame"
        ),
        "give the store more memory; a table that was opened has its frame until the store is closed",
    ))
}

/// Returns the number of tables that can be open at the same time, the catalog among them. The
/// remaining frames suffice for each worker's path down a tree.
fn tables_open_max(frames: usize, workers: usize) -> usize {
    frames - (32 * workers).min(frames / 2)
}

/// Makes an empty tree, on a worker.
pub(super) async fn make_tree(shared: &Arc<Shared>, id: u32) -> Result<Tree> {
    check_room_for_root(shared)?;
    let frame = scratch_frame().await?;
    let page_id = match shared.space.allocate(1, Purpose::New) {
        Ok(page_id) => page_id,
        Err(error) => {
            give_scratch(frame);
            return Err(error);
        }
    };
    let frames = &shared.pool.frames;
    let mut page = latch_free(shared, frame);
    NodeMut::new(page.bytes_mut()).init(NodeInit {
        level: 0,
        tree_id: id,
        page_id,
        lower: &[],
        upper: None,
    });
    frames.set_page_id(frame, page_id);
    frames.set_dirty(frame, true);
    frames.set_epoch(frame, shared.checkpointing.epochs.epoch().number);
    frames.set_state(frame, state::PINNED);
    let tree = Tree::new(id, frame);
    tree.settle(&shared.pool);
    drop(page);
    shared.forest.roots().insert(id, Root::Open(frame));
    Ok(tree)
}

/// Loads the root of a tree, which stays in memory from then on; on a worker.
pub(super) async fn open_tree(shared: &Arc<Shared>, id: u32) -> Result<Tree> {
    let _alone = shared.forest.opening.enter().await;
    let root = shared.forest.roots().get(&id).copied();
    let root_place = match root {
        Some(Root::Open(root)) => return Ok(Tree::new(id, root)),
        Some(Root::Closed(place)) => place,
        None => {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("the checkpoint has no root of tree {id}"),
            ));
        }
    };
    let page_id = page_of(root_place);
    if page_id >= shared.space.capacity() {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!("a tree's root is at page {page_id}, past the store's end"),
        ));
    }
    check_room_for_root(shared)?;
    let frame = scratch_frame().await?;
    let frames = &shared.pool.frames;
    let completion = Transfer::read(shared, frame, root_place).done().await?;
    let Some(buffer) = completion.buffer else {
        return Err(Error::new(ErrorKind::Io, "a read came back without its memory"));
    };
    let page = frames.end_read(buffer);
    let node = Node::new(page.bytes());
    let fault = match completion.result {
        Err(error) => Some(Error::io(error, format!("reading page {page_id}"))),
        Ok(()) => verify(page.as_slice(), root_place).or_else(|| {
            let is_root = node.tree_id() == id && node.fault().is_none();
            let what = || format!("page {page_id} is not the root of tree {id}");
            (!is_root).then(|| Error::new(ErrorKind::Corrupt, what()))
        }),
    };
    frames.set_state(frame, if fault.is_none() { state::PINNED } else { state::SCRATCH });
    frames.set_dirty(frame, false);
    frames.set_epoch(frame, shared.checkpointing.epochs.epoch().number);
    let tree = Tree::new(id, frame);
    if fault.is_none() {
        tree.settle(&shared.pool);
        shared.forest.roots().insert(id, Root::Open(frame));
    }
    shared.pool.end_read(page);
    match fault {
        None => Ok(tree),
        Some(error) => {
            give_scratch(frame);
            Err(error)
        }
    }
}
