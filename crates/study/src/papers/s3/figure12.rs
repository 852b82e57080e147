//! S3 Figures 1 and 12: other storage engines.

use super::{store_at, store_plan};
use crate::papers::prelude::*;

pub(crate) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "s3-fig12",
    figure: "S3 Figures 1 and 12, section 4.2",
    shows: "lookups and transactions of this engine, RocksDB and WiredTiger, with ten times more data than memory",
    found: "The authors' engine had 13.2 million lookups a second, RocksDB 2.8 and WiredTiger 1.8; with TPC-C 1.07 million transactions, 10 and 40 \
            thousand.",
    needs: "the study's own file, and the program qpair-peers",
    plan,
}];

/// The other engines, by their names in `qpair-peers`.
const PEERS: [&str; 2] = ["rocksdb", "wiredtiger"];

const LARGE_PAGE: u32 = 32 << 10;

fn plan(lab: &Lab) -> Plan {
    let plan = Plan::new("threads", Scale::Log, &[(Metric::IosPerS, Scale::Log)]);
    store_plan(lab, plan, |mut plan, name| {
        for (title, work) in [("lookup", Lookup), ("tpcc", Tpcc)] {
            if let Some(why) = Peers(title).lacking(&lab.here()) {
                plan = plan.skip(why);
                continue;
            }
            let store = StoreUse::new(work);
            let own = store_at(lab.cores(), name, store);
            let mut all = vec![series("this engine", [own.threads], |_| Some(own.clone()))];
            for peer in PEERS {
                let threads = peer_threads(lab.cores());
                all.push(series(peer, threads, |threads| {
                    Some(blocking(peer, lab.cores(), threads, store))
                }));
            }
            let large = StoreUse { page_bytes: LARGE_PAGE, ..store };
            all.push(series("wiredtiger, pages of 32 KiB", peer_threads(lab.cores()), |threads| {
                Some(blocking("wiredtiger", lab.cores(), threads, large))
            }));
            plan = plan.group(title, all);
        }
        plan
    })
}

/// The numbers of threads of the other engines, which block in I/O.
fn peer_threads(cores: u32) -> [u32; 3] {
    [cores, 8 * cores, 32 * cores]
}

/// Returns a point of an engine in which each operation has a thread, which blocks.
pub(super) fn blocking(engine: &str, cores: u32, threads: u32, store: StoreUse) -> Config {
    Config { cores, threads, depth: 1, ..store.on(engine, cores) }
}

/// Returns the fastest point of another engine, or of all.
fn peer(view: &View<'_>, engines: &[&str], store: StoreUse) -> Result<Config, String> {
    let all = all_configs(view, "s3-fig12");
    let of = all
        .into_iter()
        .filter(|one| one.store == Some(store) && engines.contains(&one.interface.as_str()));
    view.fastest(of).cloned().ok_or_else(|| view.skipped("s3-fig12"))
}

fn own(view: &View<'_>, store: StoreUse) -> Result<Config, String> {
    let all = all_configs(view, "s3-fig12");
    let own = |one: &&Config| one.store == Some(store) && !PEERS.contains(&one.interface.as_str());
    all.into_iter().find(own).cloned().ok_or_else(|| view.skipped("s3-fig12"))
}

pub(crate) const ROWS: &[Finding] = &[
    Finding {
        name: "s3-gap",
        source: "S3 Figure 1",
        experiment: "s3-fig12",
        needs: &[Stores(STORE_KERNEL), Peers("lookup")],
        claim: "The best existing engine has 3.6 million lookups a second where the array allows 12.5 million reads.",
        test: "lookups: the faster of RocksDB and WiredTiger at most 0.35 times the most reads a second of the device, this engine at least 0.9 times",
        judge: |view| {
            let store = StoreUse::new(Lookup);
            let reads = all_configs(view, "s1-fig2");
            let most = view.fastest(reads).ok_or_else(|| view.skipped("s1-fig2"))?;
            let (peer, own) = (peer(view, &PEERS, store)?, own(view, store)?);
            let what = format!("lookups of {} over reads of the device", peer.interface);
            let own_what = "lookups of this engine over reads of the device";
            Ok(vec![
                view.chosen_ratio(what, IosPerS, &peer, most, AtMost(0.35))?,
                view.chosen_ratio(own_what, IosPerS, &own, most, AtLeast(0.9))?,
            ])
        },
    },
    Finding {
        name: "s3-peers-lookup",
        source: "S3 Figure 12",
        experiment: "s3-fig12",
        needs: &[Stores(STORE_KERNEL), Peers("lookup")],
        claim: "With random lookups the authors' engine is several times faster than RocksDB and WiredTiger.",
        test: "ten times more data than memory, each at its best number of threads: at least 2 times the lookups of the faster of both",
        judge: |view| against_peers(view, Lookup, 2.0),
    },
    Finding {
        name: "s3-peers-tpcc",
        source: "S3 Figure 12",
        experiment: "s3-fig12",
        needs: &[Stores(STORE_KERNEL), Peers("tpcc")],
        claim: "With TPC-C it is more than twenty times faster than they are.",
        test: "ten times more data than memory, each at its best number of threads: at least 3 times the transactions of the faster of both",
        judge: |view| against_peers(view, Tpcc, 3.0),
    },
    Finding {
        name: "s3-wt-page",
        source: "S3 section 4.2",
        experiment: "s3-fig12",
        needs: &[Stores(STORE_KERNEL), Peers("tpcc")],
        claim: "Pages of 4 instead of 32 KiB help WiredTiger a little, not by the factor of eight that its I/O shrinks.",
        test: "TPC-C, ten times more data than memory: pages of 4 KiB 1.1 to 3 times the transactions of 32 KiB",
        judge: |view| {
            let page = |page_bytes| {
                let store = StoreUse { page_bytes, ..StoreUse::new(Tpcc) };
                peer(view, &["wiredtiger"], store)
            };
            let what = "transactions of WiredTiger, pages of 4 over 32 KiB";
            let (small, large) = (page(4096)?, page(LARGE_PAGE)?);
            Ok(vec![view.chosen_ratio(what, IosPerS, &small, &large, Between(1.1, 3.0))?])
        },
    },
];

fn against_peers(view: &View<'_>, work: StoreWork, least: f64) -> Judged {
    let store = StoreUse::new(work);
    let (own, peer) = (own(view, store)?, peer(view, &PEERS, store)?);
    let what = format!("operations a second, this engine over {}", peer.interface);
    Ok(vec![view.chosen_ratio(what, IosPerS, &own, &peer, AtLeast(least))?])
}
