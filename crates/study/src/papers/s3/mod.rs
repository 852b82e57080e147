//! S3: the throughput of an array of NVMe drives, and a storage engine that reaches it.
//!
//! Figures of storage engines are repeated with this project's own engine. A store is one file in
//! the study's folder, or a stripe over the given devices.

pub(super) mod figure10;
pub(super) mod figure11;
pub(super) mod figure12;
pub(super) mod figure13;
pub(super) mod figure14;
pub(super) mod figure15;
pub(super) mod figure16;
pub(super) mod figure17;
pub(super) mod figure2;
pub(super) mod figure3;
pub(super) mod figure4;
pub(super) mod figure6;
pub(super) mod ladder;
pub(super) mod section2;
pub(super) mod section4;

use crate::papers::prelude::*;

/// Requests in flight on each drive where the depth is not compared.
const DEPTH: u32 = 128;

/// The amount of data that fits into memory, in percent of the memory.
const FITS: u32 = 50;

/// Ten times as much data as memory, in percent of the memory.
const TEN: u32 = 1000;

/// The needs of findings about a store of the study.
const STORE: &[Need] = &[Stores(STORE_KERNEL)];

/// The reason why a quick study leaves TPC-C out, except where page sizes are compared.
const NOT_QUICK: &str = "TPC-C takes a while to load, and a quick study leaves it out";

/// Compares operations over the user-space driver's series, one of the points, with those over
/// another interface. If that series is of a soft drive, whose speed is not that of the devices,
/// operations for a second of processor time are compared.
fn user_space_ratio(
    view: &View<'_>,
    what: String,
    (above, below): (&Config, &Config),
    wanted: Threshold,
    is_chosen: bool,
) -> Result<Evidence, String> {
    let (what, metric) = match view.report.means.user_space_store_is_model() {
        true => (format!("{what}, for a second of processor time"), IosPerCpuS),
        false => (format!("{what}, a second"), IosPerS),
    };
    match is_chosen {
        true => view.chosen_ratio(what, metric, above, below, wanted),
        false => view.ratio(what, metric, above, below, wanted),
    }
}

/// Returns the series of stores over the user-space driver.
fn user_space<'a>(view: &'a View<'_>) -> Result<&'a str, String> {
    let series = view.report.means.user_space_store();
    series.ok_or_else(|| view.skipped("s3-fig15"))
}

/// Returns the point over the interface that is used where the interface is not compared.
fn store_at(lab_cores: u32, interface: &str, of: StoreUse) -> Config {
    of.on(interface, lab_cores.min(2))
}

/// Completes a plan with the main interface, or notes why the plan has no points.
fn store_plan(lab: &Lab, plan: Plan, with: impl FnOnce(Plan, &str) -> Plan) -> Plan {
    if let Some(why) = Stores(STORE_KERNEL).lacking(&lab.here()) {
        return plan.skip(why);
    }
    match lab.main_interface() {
        Some(name) => with(plan, name),
        None => plan,
    }
}

/// Adds lookups and, except to a quick study, TPC-C over one interface: a store for each x.
fn both_works(
    lab: &Lab,
    plan: Plan,
    (title, name): (&str, &str),
    xs: &[u32],
    of: impl Fn(StoreUse, u32) -> StoreUse,
) -> Plan {
    let all = |label, work| {
        let of = |x| Some(store_at(lab.cores(), name, of(StoreUse::new(work), x)));
        series(label, xs.iter().copied(), of)
    };
    let lookups = all("lookups", Lookup);
    match lab.effort {
        Effort::Quick => plan.skip(NOT_QUICK).group(title, vec![lookups]),
        _ => plan.group(title, vec![lookups, all("TPC-C", Tpcc)]),
    }
}

/// Returns the point of a store in an experiment, over the interface that the experiment was run
/// with.
fn store_of(view: &View<'_>, experiment: &str, store: StoreUse) -> Result<Config, String> {
    let interface = view.main_interface(experiment)?;
    Ok(store.on(interface, view.report.cores.min(2)))
}
