//! The uses of a drive: mounts, swap and layers above it.

use qpair_machine::Device;
use qpair_pci::sysfs::{Function, Node, Root};

/// Returns the reasons against taking a drive from the kernel: "nvme0n1p1 is mounted at /".
#[must_use]
pub fn reasons(function: &Function) -> Vec<String> {
    function.nodes.iter().flat_map(reasons_of).collect()
}

fn reasons_of(node: &Node) -> Vec<String> {
    let mut reasons = uses(node);
    if reasons.is_empty() && node.is_claimed(&Root::system()) {
        reasons
            .push(format!("{} is in use by a program, or in another mount namespace", node.name));
    }
    if !node.partitions.is_empty() {
        reasons.push(format!("{} has partitions: {}", node.name, node.partitions.join(", ")));
    }
    reasons
}

/// Returns the mounts, swap areas and layers above a block device.
#[must_use]
pub fn uses(node: &Node) -> Vec<String> {
    let device = Device::named(&qpair_machine::Root::system(), &node.name);
    device.map_or_else(Vec::new, |device| device.in_use)
}
