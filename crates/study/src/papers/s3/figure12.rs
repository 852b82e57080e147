//! S3 Figures 1 and 12: other storage engines.

use crate::papers::prelude::*;

pub(crate) const ROWS: &[Row] = &[
    untested(
        "s3-gap",
        "S3 Figure 1",
        "The best existing engine has 3.6 million lookups a second where the array allows 12.5 million reads.",
        &[Engine, Peers],
    ),
    untested(
        "s3-peers-lookup",
        "S3 Figure 12",
        "With random lookups the authors' engine is several times faster than RocksDB and WiredTiger.",
        &[Engine, Peers],
    ),
    untested(
        "s3-peers-tpcc",
        "S3 Figure 12",
        "With TPC-C it is more than twenty times faster than they are.",
        &[Engine, Peers],
    ),
    untested(
        "s3-wt-page",
        "S3 section 4.2",
        "Pages of 4 instead of 32 KiB help WiredTiger a little, not by the factor of eight that its I/O shrinks.",
        &[Peers],
    ),
];
