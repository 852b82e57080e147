//! S1: libaio, SPDK and `io_uring`, by queue depth, cores and drives.

pub(super) mod figure2;
pub(super) mod figure3;
pub(super) mod figure4;
pub(super) mod figure5;
pub(super) mod lessons;

use crate::papers::prelude::*;

/// The depth of S1's comparisons at load.
const DEEP: u32 = 128;

/// The name of S1's iou+k.
const K: &str = "io_uring+k";

/// Interfaces without a kernel thread, in the order of S1.
const PLAIN: [&str; 4] = ["libaio", "io_uring", "io_uring+p", USER_SPACE];

/// The depths of the figure.
pub(super) fn depths(lab: &Lab) -> &'static [u32] {
    match lab.effort {
        Effort::Quick | Effort::Usual => &[1, 4, 16, 64, 128],
        Effort::Full => &[1, 2, 4, 8, 16, 32, 64, 128],
    }
}

fn at(interface: &str, cores: u32) -> Config {
    Config::new(interface, cores).depth(DEEP)
}

/// Returns a configuration with one thread for each of several drives.
fn array(interface: &str, cores: u32, drives: u32) -> Config {
    at(interface, cores).threads(drives).drives(drives, Assignment::Own)
}

/// Returns every usable kernel interface at the depth of S1's comparisons.
fn kernel(view: &View<'_>, cores: u32) -> Vec<Config> {
    view.kernel_interfaces().map(|name| at(name, cores)).collect()
}

/// Collects evidence for each interface. Those that cannot be used are parts that were not tested.
fn each(
    view: &View<'_>,
    names: &[&str],
    part: impl Fn(&str) -> Result<Evidence, String>,
) -> Judged {
    names.iter().map(|name| view.where_usable(name, name, || part(name))).collect()
}
