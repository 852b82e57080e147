//! Parts that models of PCI functions share: the configuration space, MSI-X vectors, the table of
//! open memory.

mod config;
mod dma;
mod vectors;

pub use config::{BAR4_BYTES, CONFIG_BYTES, Config, Identity};
pub use dma::{DmaSpan, DmaTable, Extent, LastHit, Piece, SharedTable};
pub use vectors::{VectorTable, is_access};
