//! Samples one way down a tree, to estimate the size of the whole tree.

use qpair_format::large::Descriptor;
use qpair_format::page::Node;

use super::Tree;
use super::descend::child;
use crate::task::{Context, Descent, Need, Operation};

/// The maximum number of ways down for one estimate.
const SAMPLES_MAX: usize = 64;

/// The distance between two consecutive ways at each level below the root, as a fraction of a page:
/// the fractional parts of the square roots of 2, 3, 5 and 7. Multiples of an irrational number are
/// spread evenly, however many there are. Each level has another number, so that no two levels fall
/// into step.
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

/// Goes down one of several ways, which begin at even distances in the root and continue at evenly
/// spread positions below it. A page with few children is met more often than one with many, and
/// its children stand for fewer pages, so that the mean is right for any shape of the tree.
pub(crate) struct Sample {
    tree: Tree,
    number: usize,
    /// The number of ways; unknown to the first one.
    samples: Option<usize>,
    /// Scratch memory for a key, or the descriptor of a large value.
    bytes: Vec<u8>,
    descent: Descent,
}

impl Sample {
    /// Creates the operation. `samples` is the number that the first one returned, so that all
    /// begin at even distances even if the tree has changed since.
    pub(crate) fn new(tree: Tree, number: usize, samples: Option<usize>) -> Self {
        Self { tree, number, samples, bytes: Vec::new(), descent: Descent::default() }
    }

    /// Returns the bytes of a leaf's keys and values.
    fn value_bytes(&mut self, leaf: Node<'_>, page_bytes: usize) -> usize {
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
            // An invalid descriptor counts as nothing: either the leaf is being changed, or `check`
            // reports the damage.
            let descriptor = Descriptor::decode(&self.bytes, page_bytes);
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
        // The samples are not taken from left to right: if the tree shrank meanwhile, its left part
        // would count with its old size and its right part with the new one.
        let turn =
            if samples == SAMPLES_MAX { self.number * 25 % SAMPLES_MAX } else { self.number };
        let mut at = (turn as f64 + 0.5) / samples as f64;
        let mut steps = STEPS.iter().cycle();
        let mut leaves = 1.0;
        loop {
            let node = Node::new(page.bytes());
            if node.is_leaf() {
                let (count, bytes) =
                    (node.count(), self.value_bytes(node, context.shared.page_bytes));
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
