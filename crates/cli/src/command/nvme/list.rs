//! `qpair nvme list`.

use clap::Args;
use qpair_drivers::{reasons, uses};
use qpair_pci::sysfs::{Function, Neighbour, Node, Root};
use serde_json::{Value, json};

use crate::failure::{Exit, Result};
use crate::output::Output;
use crate::text::size;

/// List NVMe controllers: driver, IOMMU group and content
///
/// Nothing is changed, and root is not needed.
#[derive(Args, Debug)]
#[command(after_help = "\
States:
  bound    bound to vfio-pci: a program can use it
  free     the kernel's driver has it, and it is not in use: it can be bound
  in use   mounted, partitioned, held or used as swap
  no IOMMU cannot be bound: see qpair doctor

Examples:
  qpair nvme list
  qpair nvme list --json | jq -r '.[] | select(.state == \"free\") | .address'")]
pub(crate) struct List {
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

impl List {
    pub(crate) fn run(self) -> Result<Exit> {
        controllers(&Function::all_nvme(&Root::system()), "no NVMe controllers", self.json)
    }
}

/// Lists NVMe controllers or others.
pub(crate) fn controllers(all: &[Function], none: &str, json: bool) -> Result<Exit> {
    let mut out = Output::new();
    if json {
        out.line(Value::from_iter(all.iter().map(object)).to_string())?;
    } else {
        if all.is_empty() {
            out.line(none)?;
        }
        all.iter().try_for_each(|function| print(&mut out, function))?;
    }
    out.finish()?;
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

fn print(out: &mut Output, function: &Function) -> Result<()> {
    let mut words = vec![
        format!("{}  {:8}", function.address, state(function)),
        format!("driver {}", function.driver.as_deref().unwrap_or("none")),
        format!("{:04x}:{:04x}", function.vendor, function.device),
    ];
    words.extend(function.model.clone());
    words.extend(function.iommu_group.map(|group| format!("IOMMU group {group}")));
    words.extend(function.numa_node.map(|node| format!("NUMA node {node}")));
    out.line(words.join("  "))?;
    for node in &function.nodes {
        let mut words = vec![format!("    {}  {}", node.name, size(node.size_bytes))];
        words.extend(uses(node));
        if !node.partitions.is_empty() {
            words.push(format!("partitions {}", node.partitions.join(", ")));
        }
        out.line(words.join("  "))?;
    }
    for other in function.in_the_way() {
        let driver = other.driver.as_deref().unwrap_or("none");
        out.line(format!(
            "    shares its group with {} (driver {driver}), which would have to leave its driver too",
            other.address
        ))?;
    }
    Ok(())
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
