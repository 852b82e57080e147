//! Copying pages from one device to another.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use qpair_block::{BlockDevice, Completion, IoChannel, Op, Request};
use qpair_format::bitmap::Bitmap;
use qpair_format::page::{Node, damage, own_place};
use qpair_format::{Error, ErrorKind, Result};

use super::tally::Tally;
use qpair_members::{open_channel, transfer_arena, wait};

/// The maximum number of damaged pages that are reported.
const SUSPECTS_MAX: usize = 16;

/// Copies the pages of an image to the same places on the target. `roots` are the roots of the
/// image's trees. Returns a description of each page that is damaged or is not the one that the
/// image refers to.
pub(super) fn copy_pages(
    (source, target): (&Arc<dyn BlockDevice>, &Arc<dyn BlockDevice>),
    (page_size, page_bytes): (usize, usize),
    pages: &Bitmap,
    roots: impl Iterator<Item = u64>,
    progress: &dyn Fn(u64, u64) -> ControlFlow<()>,
) -> Result<Vec<String>> {
    let arena = transfer_arena(&[source.as_ref(), target.as_ref()])?;
    let most = (arena.block_size() / page_size) as u64;
    let mut from = open_channel(source.as_ref(), &arena)?;
    let mut to = open_channel(target.as_ref(), &arena)?;
    let mut runs = pages.runs(most.max(1)).peekable();
    let mut under_way: BTreeMap<u64, u64> = BTreeMap::new();
    let (all, mut done) = (pages.count(), 0);
    let mut suspects = Vec::new();
    let mut tally = Tally::default();
    roots.for_each(|place| tally.expect(place));
    let mut outcome = Ok(());
    let mut completions: Vec<Completion> = Vec::new();
    loop {
        while outcome.is_ok() && runs.peek().is_some() {
            let Some(buffer) = arena.lease() else { break };
            let Some((first, count)) = runs.next() else { break };
            let (offset_bytes, len) = (first * page_size as u64, count as usize * page_size);
            submit(from.as_mut(), Request::read(offset_bytes, len as u32, buffer, first))?;
            under_way.insert(first, count);
        }
        if under_way.is_empty() {
            break;
        }
        from.kick();
        to.kick();
        if from.poll(&mut completions) + to.poll(&mut completions) == 0 {
            let busy = if to.in_flight() > 0 { &mut to } else { &mut from };
            wait(busy.as_mut(), &mut completions);
        }
        for Completion { tag: first, op, buffer, result } in completions.drain(..) {
            let count = under_way.get(&first).copied().unwrap_or(0);
            let (offset_bytes, len) = (first * page_size as u64, count as usize * page_size);
            match (op, result, buffer) {
                (Op::Read, Ok(()), Some(mut buffer)) if outcome.is_ok() => {
                    for (page_id, offset) in (first..).zip((0..len).step_by(page_size)) {
                        let page = &buffer.as_slice()[offset..offset + page_bytes];
                        match damage(page, own_place(page, page_id)) {
                            None => {
                                let part = buffer.part_mut(offset, page_bytes);
                                tally.take(Node::new(part.read()));
                            }
                            Some(damage) if suspects.len() < SUSPECTS_MAX => {
                                suspects.push(format!("page {page_id} {damage}"));
                            }
                            Some(_) => {}
                        }
                    }
                    let request = Request::write(offset_bytes, len as u32, buffer, first);
                    submit(to.as_mut(), request)?;
                }
                (_, result, _) => {
                    under_way.remove(&first);
                    done += count;
                    let doing = if op == Op::Read { "reading" } else { "writing" };
                    let what = || format!("{doing} pages {first} to {} of a backup", first + count);
                    outcome = outcome.and_then(|()| result.map_err(|e| Error::io(e, what())));
                    if outcome.is_ok() && progress(done, all).is_break() {
                        outcome = Err(Error::new(
                            ErrorKind::Interrupted,
                            "the backup was interrupted; its target has no store",
                        ));
                    }
                }
            }
        }
    }
    if suspects.is_empty() && !tally.is_even() {
        suspects.push("a page is not the one that is referred to".to_owned());
    }
    outcome.map(|()| suspects)
}

/// Submits a request to a channel, which has room: there are no more buffers than the channel takes
/// requests.
fn submit(channel: &mut dyn IoChannel, request: Request) -> Result<()> {
    channel
        .submit(request)
        .map_err(|_| Error::new(ErrorKind::Io, "a channel with room refused a request"))
}

pub(super) struct PageWriter {
    target: Arc<dyn BlockDevice>,
    arena: Arc<qpair_block::Arena>,
    channel: Box<dyn IoChannel>,
    page_size: usize,
}

impl PageWriter {
    pub(super) fn new(target: &Arc<dyn BlockDevice>, page_size: usize) -> Result<Self> {
        let arena = transfer_arena(&[target.as_ref()])?;
        let channel = open_channel(target.as_ref(), &arena)?;
        Ok(Self { target: target.clone(), arena, channel, page_size })
    }

    pub(super) fn write(&mut self, page_id: u64, page: &[u8]) -> Result<()> {
        let mut buffer = self.arena.lease().ok_or_else(|| {
            Error::new(ErrorKind::NoMemory, "the arena has no free buffer to write a page from")
        })?;
        buffer.copy_from(0, page);
        let offset_bytes = page_id * self.page_size as u64;
        self.run(Request::write(offset_bytes, self.page_size as u32, buffer, 0))
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        self.run(Request::flush(0))
    }

    fn run(&mut self, request: Request) -> Result<()> {
        submit(self.channel.as_mut(), request)?;
        let mut completions = Vec::new();
        while completions.is_empty() {
            wait(self.channel.as_mut(), &mut completions);
        }
        completions.into_iter().try_for_each(|completion| {
            let what = || format!("writing the backup to {}", self.target.info().name);
            completion.result.map_err(|error| Error::io(error, what()))
        })
    }
}
