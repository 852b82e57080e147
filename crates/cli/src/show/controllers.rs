//! Controllers of this machine, NVMe's or others.

use qpair_drivers::{reasons, uses};
use qpair_pci::sysfs::{Function, Neighbour, Node};
use serde_json::{Value, json};

use super::output::{print, say};
use super::text::size;
use crate::failure::{Exit, Result};

pub(crate) fn controllers(all: &[Function], none: &str, json: bool) -> Result<Exit> {
    match (json, all.is_empty()) {
        (true, _) => say(Value::from_iter(all.iter().map(object)).to_string())?,
        (false, true) => say(none)?,
        (false, false) => print(all.iter().flat_map(lines))?,
    }
    Ok(Exit::Done)
}

fn state(function: &Function) -> &'static str {
    match function.iommu_group {
        _ if function.is_bound_to_vfio() => "bound",
        _ if !reasons(function).is_empty() => "in use",
        None => "no IOMMU",
        Some(_) => "free",
    }
}

fn lines(function: &Function) -> Vec<String> {
    let mut words = vec![
        format!("{}  {:8}", function.address, state(function)),
        format!("driver {}", function.driver.as_deref().unwrap_or("none")),
        format!("{:04x}:{:04x}", function.vendor, function.device),
    ];
    words.extend(function.model.clone());
    words.extend(function.iommu_group.map(|group| format!("IOMMU group {group}")));
    words.extend(function.numa_node.map(|node| format!("NUMA node {node}")));
    let mut lines = vec![words.join("  ")];
    for node in &function.nodes {
        let mut words = vec![format!("    {}  {}", node.name, size(node.size_bytes))];
        words.extend(uses(node));
        if !node.partitions.is_empty() {
            words.push(format!("partitions {}", node.partitions.join(", ")));
        }
        lines.push(words.join("  "));
    }
    for other in function.in_the_way() {
        let driver = other.driver.as_deref().unwrap_or("none");
        lines.push(format!(
            "    shares its group with {} (driver {driver}), which would have to leave its driver too",
            other.address
        ));
    }
    lines
}

fn object(function: &Function) -> Value {
    json!({
        "address": function.address.to_string(),
        "state": state(function),
        "driver": function.driver,
        "class": format!("{:06x}", function.class),
        "vendor": format!("{:04x}", function.vendor),
        "device": format!("{:04x}", function.device),
        "model": function.model,
        "serial": function.serial,
        "iommu_group": function.iommu_group,
        "group_members": function.neighbours.iter().map(neighbour).collect::<Vec<_>>(),
        "numa_node": function.numa_node,
        "block_devices": function.nodes.iter().map(block_device).collect::<Vec<_>>(),
    })
}

fn neighbour(other: &Neighbour) -> Value {
    json!({
        "address": other.address.to_string(),
        "driver": other.driver,
        "in_the_way": other.is_in_the_way(),
    })
}

fn block_device(node: &Node) -> Value {
    json!({
        "name": node.name,
        "size_bytes": node.size_bytes,
        "partitions": node.partitions,
        "in_use": uses(node),
    })
}
