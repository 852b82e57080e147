//! Point lookup.

use qpair_format::page::Node;

use super::descend::Route;
use super::{CursorHint, Tree};
use crate::task::{Context, Descent, Need, Operation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The value was appended to the output.
    Value,
    /// The value's overflow descriptor was appended to the output.
    Overflow,
    /// There is no such key.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) found: Found,
    /// The timestamp of the newest commit that changed the leaf.
    pub(crate) timestamp: u64,
    /// The position of the key in the leaf.
    pub(crate) cursor_hint: CursorHint,
}

/// Looks a key up and appends its value.
pub(crate) struct Get<'a> {
    tree: Tree,
    key: &'a [u8],
    output: &'a mut Vec<u8>,
    cursor_hint: Option<CursorHint>,
    descent: Descent,
    /// The position of the record whose cache lines were asked for.
    asked: Option<usize>,
}

impl<'a> Get<'a> {
    pub(crate) fn new(tree: Tree, key: &'a [u8], output: &'a mut Vec<u8>) -> Self {
        Self { tree, key, output, cursor_hint: None, descent: Descent::default(), asked: None }
    }

    /// Begins where the key was found before.
    pub(crate) fn at(mut self, cursor_hint: Option<CursorHint>) -> Self {
        self.descent.at = cursor_hint.map(|cursor_hint| cursor_hint.leaf);
        self.cursor_hint = cursor_hint;
        self
    }
}

impl Operation for Get<'_> {
    type Output = Seen;
    const IS_LOOKUP: bool = true;

    #[inline]
    fn step(&mut self, context: Context<'_>) -> Result<Seen, Need> {
        loop {
            let (page, position) = match (self.asked.take(), self.descent.at) {
                (Some(position), Some((frame, version))) => {
                    (context.shared.pool.frames.resume(frame, version), position)
                }
                _ => {
                    let page =
                        self.descent.walk_to_leaf(context, &self.tree, Route::To(self.key))?;
                    let node = Node::new(page.bytes());
                    let (position, found) = CursorHint::find_in(self.cursor_hint, page, self.key);
                    if !found {
                        let timestamp = node.timestamp();
                        if page.validate() {
                            let cursor_hint = CursorHint::new(page, (position, false));
                            return Ok(Seen { found: Found::Nothing, timestamp, cursor_hint });
                        }
                        self.descent.restart();
                        return Err(Need::Retry);
                    }
                    if context.interleave {
                        node.prefetch_record(position);
                        self.asked = Some(position);
                        return Err(Need::Prefetch);
                    }
                    (page, position)
                }
            };
            let value = Node::new(page.bytes()).value(position);
            let start = self.output.len();
            page.bytes().append_to(value.offset, value.len, self.output);
            let timestamp = Node::new(page.bytes()).timestamp();
            if page.validate() {
                let found = if value.overflow { Found::Overflow } else { Found::Value };
                return Ok(Seen {
                    found,
                    timestamp,
                    cursor_hint: CursorHint::new(page, (position, true)),
                });
            }
            self.output.truncate(start);
            self.descent.restart();
        }
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
