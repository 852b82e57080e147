//! S3 Figure 13 as the paper draws it: each rung adds one technique to the rungs below.

use super::figure12::blocking;
use super::figure13::{LARGE_PAGE, from_root};
use super::{store_at, store_plan};
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s3-ladder",
    figure: "S3 Figure 13, the ladder",
    shows: "lookups and transactions as one technique after the other is added: small pages, less work of the processor, striping in the engine, tasks, \
            the user-space driver",
    found: "From 16 KiB pages over md and blocking threads to SPDK, each rung added 4 % to 100 % of transactions.",
    needs: "a store, as s3-fig13",
    plan,
}];

/// The number of blocking threads below the rung of tasks. More would need more memory than a store
/// with pages of 16 KiB has here.
const THREADS: u32 = 8;

/// A rung: its number, its name, and its point.
type Rung = (u32, &'static str, Config);

fn plan(lab: &Lab) -> Plan {
    let shown = [(Metric::IosPerS, Scale::Log), (Metric::CpuUsPerIo, Scale::Log)];
    store_plan(lab, Plan::new("rung", Scale::Linear, &shown), |mut plan, main| {
        if lab.effort == Effort::Quick {
            return plan
                .skip("the memory of a quick study's store is too small for blocking threads");
        }
        // The paper's ladder begins with libaio.
        let name = if lab.has("libaio") { "libaio" } else { main };
        for (title, work) in [("lookups", Lookup), ("TPC-C", Tpcc)] {
            let (rungs, last) = rungs(lab, name, work);
            let line = |label: &str, rungs: &[Rung]| Series {
                label: label.to_owned(),
                points: rungs.iter().map(|(x, _, at)| (f64::from(*x), at.clone())).collect(),
            };
            plan = plan.group(title, vec![line(name, &rungs)]);
            match last {
                Some(last) if lab.means.user_space_store_is_model() => {
                    let title = format!("a model of a drive, {title}");
                    plan = plan.group(&title, vec![line("user space", &[last])]);
                }
                Some(last) => {
                    if let Some(group) = plan.groups.last_mut() {
                        group.series.push(line("user space", &[last]));
                    }
                }
                None => {
                    plan = plan.skip(Stores(USER_SPACE).lacking(&lab.here()).unwrap_or_default())
                }
            }
        }
        let (rungs, last) = rungs(lab, name, Lookup);
        let words = rungs.iter().chain(&last).map(|(x, words, _)| format!("{x}: {words}"));
        plan.remark(format!(
            "Each rung has all that is below it. {}. Rung 4, striping in the engine in place of md, is s3-md: md keeps its drives, so a \
             store over them and one over md cannot be in one study.",
            words.collect::<Vec<String>>().join("; ")
        ))
    })
}

/// Returns the rungs over a kernel interface, and the one over the user-space driver.
fn rungs(lab: &Lab, name: &str, work: StoreWork) -> (Vec<Rung>, Option<Rung>) {
    let small = StoreUse::new(work);
    let large = StoreUse { page_bytes: LARGE_PAGE, ..small };
    let threads = |store| blocking(name, lab.cores(), THREADS, store);
    let rungs = vec![
        (
            1,
            "pages of 16 KiB, 8 blocking threads, parents from the root, one lock for I/O",
            threads(from_root(large)).channels(Channels::OneLock),
        ),
        (2, "pages of 4 KiB", threads(from_root(small)).channels(Channels::OneLock)),
        (3, "parents remembered, no lock for I/O", threads(small)),
        (5, "tasks", store_at(lab.cores(), name, small)),
    ];
    let own = lab.means.user_space_store();
    let last = own.map(|own| (6, "the user-space driver", store_at(lab.cores(), own, small)));
    (rungs, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rung_changes_something() {
        let lab = crate::synthetic::lab(4, 1, &["libaio", "io_uring", USER_SPACE]);
        let (rungs, last) = rungs(&lab, "libaio", Tpcc);
        let all: Vec<Rung> = rungs.into_iter().chain(last).collect();
        assert_eq!(all.len(), 5);
        for pair in all.windows(2) {
            assert!(pair[0].0 < pair[1].0 && pair[0].2 != pair[1].2, "{pair:?}");
        }
        let plan = plan(&lab);
        assert!(plan.skipped.is_empty() && plan.configs().count() == 10, "{plan:?}");
    }

    #[test]
    fn a_model_has_a_plot_of_its_own() {
        let mut lab = crate::synthetic::lab(4, 1, &["io_uring"]);
        lab.means.stores = vec![STORE_KERNEL.to_owned(), "softnvme:profile=tlc".to_owned()];
        let titles: Vec<String> = plan(&lab).groups.into_iter().map(|group| group.title).collect();
        assert_eq!(titles.len(), 4, "{titles:?}");
        assert!(titles[1].starts_with("a model"), "{titles:?}");
        lab.means.stores.pop();
        lab.means.no_user_space_stores = Some("there is no memory".to_owned());
        assert!(plan(&lab).skipped.contains(&"there is no memory".to_owned()));
    }
}
