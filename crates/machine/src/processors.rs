//! Processors: their number, kind and speed, and which of them this process may use.

use std::collections::BTreeSet;

use qpair_sysfs::Root;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::cpu_list::CpuList;

#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Processors {
    pub model: Option<String>,
    /// The vendor that the processor reports: "GenuineIntel".
    pub vendor: Option<String>,
    /// The number of packages.
    pub sockets: Option<u32>,
    /// The number of cores in all packages.
    pub cores: Option<u32>,
    /// The number of hardware threads that are online; the kernel calls them CPUs.
    pub threads: Option<u32>,
    pub allowed: Option<CpuList>,
    /// The processor time that the control group permits, in processors: 1.5 is one and a half.
    pub quota: Option<f64>,
    /// Frequency governors in use, each once.
    pub governors: Vec<String>,
    pub frequency_driver: Option<String>,
    pub numa_nodes: Vec<NumaNode>,
    /// Weaknesses of the processor whose mitigation costs performance.
    pub mitigations: Vec<Mitigation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct NumaNode {
    pub id: u32,
    pub cpus: CpuList,
}

/// The kernel's mitigation of one weakness of the processor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Mitigation {
    /// The weakness: `spectre_v2`.
    pub name: String,
    /// The state of the mitigation: "Mitigation: Retpolines; ...", "Vulnerable".
    pub state: String,
}

const CPU: &str = "/sys/devices/system/cpu";

impl Processors {
    pub(crate) fn read(root: &Root) -> Self {
        let info = root.text("/proc/cpuinfo").unwrap_or_default();
        let status = root.text("/proc/self/status").unwrap_or_default();
        let online = online(root, &info);
        let (sockets, cores) = topology(root, &online);
        let (governors, frequency_driver) = frequency(root, &online);
        Self {
            model: field(&info, "model name").or_else(|| field(&info, "Model")),
            vendor: field(&info, "vendor_id"),
            sockets,
            cores,
            threads: u32::try_from(online.count()).ok().filter(|&count| count > 0),
            allowed: field(&status, "Cpus_allowed_list").and_then(|list| list.parse().ok()),
            quota: crate::cgroup::processor_quota(root),
            governors,
            frequency_driver,
            numa_nodes: numa_nodes(root),
            mitigations: mitigations(root),
        }
    }

    /// As [`Processors::usable`], without reading anything else.
    pub(crate) fn usable_at(root: &Root) -> Option<u32> {
        let status = root.text("/proc/self/status").unwrap_or_default();
        let allowed = field(&status, "Cpus_allowed_list").and_then(|list| list.parse().ok());
        let quota = crate::cgroup::processor_quota(root);
        Self { allowed, quota, ..Self::default() }.usable()
    }

    /// Returns the number of processors that this process can keep busy within its affinity and
    /// control group.
    #[must_use]
    pub fn usable(&self) -> Option<u32> {
        let allowed = self.allowed.as_ref().and_then(|list| u32::try_from(list.count()).ok());
        let count = allowed.or(self.threads)?;
        // A fraction of a processor sometimes has to be waited for, so round down.
        let quota = self.quota.map_or(u32::MAX, |quota| (quota.floor() as u32).max(1));
        Some(count.min(quota))
    }

    #[must_use]
    pub fn has_smt(&self) -> Option<bool> {
        Some(self.threads? > self.cores?)
    }
}

/// Returns the value after "name :" in the kernel's lists.
pub(crate) fn field(list: &str, name: &str) -> Option<String> {
    let value = list.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })?;
    (!value.is_empty()).then(|| value.to_owned())
}

fn online(root: &Root, info: &str) -> CpuList {
    root.text(format!("{CPU}/online")).and_then(|list| list.parse().ok()).unwrap_or_else(|| {
        let numbers = info.lines().filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == "processor").then(|| value.trim().parse().ok())?
        });
        numbers.collect()
    })
}

fn topology(root: &Root, online: &CpuList) -> (Option<u32>, Option<u32>) {
    let mut sockets = BTreeSet::new();
    let mut cores = BTreeSet::new();
    for cpu in online.iter() {
        let of = |leaf: &str| root.number::<i64>(format!("{CPU}/cpu{cpu}/topology/{leaf}"));
        let Some(socket) = of("physical_package_id") else { continue };
        sockets.insert(socket);
        // Sibling lists distinguish cores on every architecture; on some, core numbers restart on
        // each die.
        let siblings = ["core_cpus_list", "thread_siblings_list"]
            .iter()
            .find_map(|leaf| root.text(format!("{CPU}/cpu{cpu}/topology/{leaf}")));
        let core = siblings.or_else(|| of("core_id").map(|id| id.to_string()));
        cores.extend(core.map(|core| (socket, core)));
    }
    let count = |len: usize| u32::try_from(len).ok().filter(|&count| count > 0);
    (count(sockets.len()), count(cores.len()))
}

/// Returns the frequency governors, each once, and the frequency driver.
fn frequency(root: &Root, online: &CpuList) -> (Vec<String>, Option<String>) {
    let mut governors = BTreeSet::new();
    let mut driver = None;
    for cpu in online.iter() {
        let of = |leaf: &str| root.text(format!("{CPU}/cpu{cpu}/cpufreq/{leaf}"));
        governors.extend(of("scaling_governor"));
        driver = driver.or_else(|| of("scaling_driver"));
    }
    (governors.into_iter().collect(), driver)
}

fn numa_nodes(root: &Root) -> Vec<NumaNode> {
    let directory = "/sys/devices/system/node";
    let names = root.names(directory);
    let node = |name: &String| {
        let id = name.strip_prefix("node")?.parse().ok()?;
        let cpus = root.text(format!("{directory}/{name}/cpulist")).unwrap_or_default();
        Some(NumaNode { id, cpus: cpus.parse().unwrap_or_default() })
    };
    names.iter().filter_map(node).collect()
}

fn mitigations(root: &Root) -> Vec<Mitigation> {
    let directory = format!("{CPU}/vulnerabilities");
    let names = root.names(&directory);
    let states = names.into_iter().filter_map(|name| {
        let state = root.text(format!("{directory}/{name}"))?;
        (state != "Not affected").then_some(Mitigation { name, state })
    });
    states.collect()
}
