//! A look at one way down a tree, to estimate the whole of it.

use qpair_format::large::Descriptor;
use qpair_format::page::Node;

use super::Tree;
use super::descend::child;
use crate::task::{Context, Descent, Need, Operation};

/// Ways down that are looked at for one estimate at most.
const SAMPLES_MAX: usize = 64;

/// How far apart two ways, one after the other, go on at each level below the root, as a part of a page: the fractions of the
/// square roots of 2, 3, 5 and 7. Steps by an irrational number are spread evenly, however many there are; by one of its own for
/// each level, none of two levels fall into step.
const STEPS: [f64; 4] = [0.414_213_562, 0.732_050_808, 0.236_067_977, 0.645_751_311];

/// An estimate of a tree, made by one way down: the sizes that the tree would have if all of it was
/// like the pages on that way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampled {
    /// The number of levels, including the leaf's.
    pub(crate) levels: u8,
    pub(crate) leaves: f64,
    pub(crate) records: f64,
    /// The bytes of keys and values.
    pub(crate) value_bytes: f64,
    /// The number of ways to look at. If there is one for each leaf, their mean is exact.
    pub(crate) samples: usize,
}

/// Goes down one of several ways that begin at even distances in the root, and go on anywhere. A page with few children is met
/// oftener than one with many, and its children stand for fewer: the mean is right whatever the shape of the tree is.
pub(crate) struct Sample {
    tree: Tree,
    number: usize,
    /// How many ways there are; unknown to the first.
    samples: Option<usize>,
    /// A key, or the descriptor of a large value.
    bytes: Vec<u8>,
    descent: Descent,
}

impl Sample {
    /// `samples`: as the first of them said, whatever has become of the tree since, so that they go down at even distances all the same.
    pub(crate) fn new(tree: Tree, number: usize, samples: Option<usize>) -> Self {
        Self { tree, number, samples, bytes: Vec::new(), descent: Descent::default() }
    }

    /// Bytes of a leaf's keys and values.
    fn value_bytes(&mut self, leaf: Node<'_>, page_size: usize) -> usize {
        let mut total = 0;
        for position in 0..leaf.count() {
            self.bytes.clear();
            leaf.key(position, &mut self.bytes);
            let value = leaf.value(position);
            total += self.bytes.len();
            if !value.overflow {
                total += value.len;
                continue;
            }
            self.bytes.clear();
            leaf.bytes.append_to(value.offset, value.len, &mut self.bytes);
            // One that makes no sense counts as nothing: the leaf is being changed, or `check` tells.
            let descriptor = Descriptor::decode(&self.bytes, page_size);
            total += descriptor.map_or(0, |descriptor| descriptor.len as usize);
        }
        total
    }
}

impl Operation for Sample {
    type Output = Sampled;

    fn step(&mut self, context: Context<'_>) -> Result<Sampled, Need> {
        let mut page = self.tree.read_root(context)?;
        let root = Node::new(page.bytes());
        let levels = root.level().saturating_add(1);
        let samples = self.samples.unwrap_or_else(|| match levels {
            1 => 1,
            2 => SAMPLES_MAX.min(root.count() + 1),
            _ => SAMPLES_MAX,
        });
        let number = self.number as f64 + 0.5;
        // Not from left to right: a tree that shrinks meanwhile would have its left as it was, and its right as it is.
        let turn =
            if samples == SAMPLES_MAX { self.number * 25 % SAMPLES_MAX } else { self.number };
        let mut at = (turn as f64 + 0.5) / samples as f64;
        let mut steps = STEPS.iter().cycle();
        let mut leaves = 1.0;
        loop {
            let node = Node::new(page.bytes());
            if node.is_leaf() {
                let (count, bytes) =
                    (node.count(), self.value_bytes(node, context.shared.page_size));
                let (records, value_bytes) = (leaves * count as f64, leaves * bytes as f64);
                let sampled = Sampled { levels, leaves, records, value_bytes, samples };
                return if page.validate() { Ok(sampled) } else { Err(Need::Retry) };
            }
            let children = node.count() + 1;
            let position = ((at * children as f64) as usize).min(children - 1);
            at = (number * steps.next().unwrap_or(&0.0)).fract();
            leaves *= children as f64;
            page = child(context, page, position)?;
        }
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
