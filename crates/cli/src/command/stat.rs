//! `qpair stat`.

use std::time::Duration;

use clap::Args;
use qpair::Compression;
use qpair::metrics::TableStatistics;
use qpair::report::{OpenReport, StoreReport};
use qpair_block::Backing;
use qpair_kernel::Growth;
use serde_json::json;

use crate::failure::{Exit, Result};
use crate::parse::store::{Effort, StoreArgs};
use crate::show::output::{Output, aligned, print_bytes};
use crate::show::text::{count, counted, escape, size, size_exact, utc};

/// Show a store's sizes, members and tables
///
/// The size of each table is estimated from a few of its pages. `growth` is shown where files grow
/// by writing zeros.
///
/// For the metrics of a store that another process has open, see qpair top.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair stat files.qpair
  qpair stat files.qpair --json
  qpair stat files.qpair --prometheus")]
pub(crate) struct Stat {
    #[command(flatten)]
    store: StoreArgs,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Print the store's metrics in the format of Prometheus
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
}

impl Stat {
    pub(crate) fn run(self) -> Result<Exit> {
        let (store, opened) = self.store.open_to_read(Effort::Small)?;
        let (report, tables) = (store.report(), store.table_names()?);
        let key_len_max = store.key_len_max();
        let metrics = store.metrics()?;
        let estimate = |name: &String| {
            // A damaged table, or one of too many for the memory, is still listed by name. `check`
            // says what is wrong.
            store.existing_table(name).ok().flatten().and_then(|table| table.statistics().ok())
        };
        let kept: Vec<(Compression, Option<Duration>)> = tables
            .iter()
            .map(|name| store.existing_table(name).ok().flatten())
            .map(|table| table.map_or_else(Default::default, |it| (it.compression(), it.ttl())))
            .collect();
        let estimates: Vec<Option<TableStatistics>> = match self.prometheus {
            true => Vec::new(),
            false => tables.iter().map(estimate).collect(),
        };
        store.close()?;
        let growth = self.store.growth();
        if self.prometheus {
            print_bytes(metrics.to_prometheus().as_bytes())?;
            return Ok(Exit::Done);
        }
        let mut out = Output::new();
        if self.json {
            let object = json!({
                "id": report.id,
                "created_s": report.created_s,
                "page_size": report.page_size,
                "pages": report.pages,
                "log_pages": report.log_pages,
                "free_pages": report.free_pages,
                "reserve_pages": report.reserve_pages,
                "retained_pages": report.retained_pages,
                "used_bytes": used_bytes(&report),
                "content_bytes": used_bytes(&report) - report.log_pages * report.page_size as u64,
                "log_bytes": report.log_pages * report.page_size as u64,
                "free_bytes": report.free_pages * report.page_size as u64,
                "memory_bytes": report.memory_bytes,
                "memory_pages": backing_names(report.memory_backing).0,
                "key_len_max": key_len_max,
                "members": report.members,
                "stripe_unit_bytes": report.stripe_unit_bytes,
                "log_device": report.log_device.as_ref().map(|log| json!({ "name": log.name, "id": log.id })),
                "encrypted": report.encrypted,
                "tables": tables,
                "table_estimates": tables.iter().zip(&estimates).zip(&kept).map(|((name, estimate), (compression, ttl))| json!({
                    "name": name,
                    "records": estimate.map(|it| it.records),
                    "value_bytes": estimate.map(|it| it.value_bytes),
                    "leaves": estimate.map(|it| it.leaves),
                    "depth": estimate.map(|it| it.depth),
                    "compression": compression.to_string(),
                    "ttl_s": ttl.map(|ttl| ttl.as_secs_f64()),
                })).collect::<Vec<_>>(),
                "growth": growth.map(growth_name),
                "io": opened.interface,
                "io_mode": opened.mode,
                "io_why": opened.why,
            });
            out.line(object.to_string())?;
        } else {
            let mut facts = lines(&report, &opened, key_len_max);
            facts.extend((growth == Some(Growth::Zeroed)).then(|| ("growth", ZEROED.to_owned())));
            aligned(12, facts).into_iter().try_for_each(|line| out.line(line))?;
            let rows = tables.iter().zip(&estimates).zip(&kept);
            for (index, ((table, estimate), (compression, ttl))) in rows.enumerate() {
                let name = if index == 0 { "tables" } else { "" };
                let estimate = estimate.as_ref().map_or_else(String::new, in_words);
                let compressed = match compression {
                    Compression::None => String::new(),
                    compression => format!(", compressed by {compression}"),
                };
                let expires = match ttl {
                    Some(ttl) => format!(", expires after {}", in_units(*ttl)),
                    None => String::new(),
                };
                let table = escape(table.as_bytes());
                out.line(format!("{name:<12} {table}{estimate}{compressed}{expires}"))?;
            }
        }
        out.finish()?;
        Ok(Exit::Done)
    }
}

/// Returns a time to live in the largest unit of which it is a whole number.
fn in_units(ttl: Duration) -> String {
    let ms = ttl.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")];
    let unit = units.into_iter().find(|(unit_ms, _)| ms.is_multiple_of(*unit_ms));
    unit.map_or_else(String::new, |(unit_ms, unit)| format!("{}{unit}", ms / unit_ms))
}

fn in_words(table: &TableStatistics) -> String {
    let leaves = match table.leaves {
        1 => "1 leaf".to_owned(),
        leaves => format!("{} leaves", count(leaves)),
    };
    format!(
        ": about {} with {} of keys and values, in {}",
        counted(table.records, "record"),
        size(table.value_bytes),
        leaves
    )
}

/// The text for a store on a file system that cannot reserve space: it says what growing costs
/// there.
const ZEROED: &str = "by writing zeros, as the file system cannot reserve space (fallocate): each byte that the store grows by is written \
    once more, and workers wait for that";

fn growth_name(growth: Growth) -> &'static str {
    match growth {
        Growth::Reserved => "reserved",
        Growth::Zeroed => "zeroed",
    }
}

/// The kind of pages that memory has, for programs and for people.
fn backing_names(backing: Backing) -> (&'static str, &'static str) {
    match backing {
        Backing::HugePages => ("huge", "reserved huge pages"),
        Backing::Transparent => {
            ("transparent_huge", "transparent huge pages where the kernel gives them")
        }
        Backing::Small => ("small", "small pages"),
    }
}

fn used_bytes(report: &StoreReport) -> u64 {
    used_pages(report) * report.page_size as u64
}

fn in_pages(pages: u64, report: &StoreReport) -> String {
    format!("{} pages, {}", count(pages), size_exact(pages * report.page_size as u64))
}

fn used_pages(report: &StoreReport) -> u64 {
    report.pages - report.free_pages - report.retained_pages
}

fn lines(
    report: &StoreReport,
    opened: &OpenReport,
    key_len_max: usize,
) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("id", report.id.clone()),
        ("created", utc(report.created_s)),
        ("page size", format!("{} bytes", report.page_size)),
        ("used", in_pages(used_pages(report), report)),
        ("free", in_pages(report.free_pages, report)),
        ("retained", format!("{} pages, for the last checkpoint", count(report.retained_pages))),
        ("longest key", format!("{key_len_max} bytes")),
        ("members", report.members.to_string()),
    ];
    if report.encrypted {
        lines.push(("encrypted", "pages and log".to_owned()));
    }
    if report.log_pages > 0 {
        lines.insert(4, ("of the log", in_pages(report.log_pages, report)));
    }
    if report.members > 1 {
        lines.push(("stripe unit", format!("{} bytes", report.stripe_unit_bytes)));
    }
    if let Some(log) = &report.log_device {
        lines.push(("log device", log.name.clone()));
    }
    let memory = size_exact(report.memory_bytes);
    let memory = format!("{memory} for pages, of {}", backing_names(report.memory_backing).1);
    lines.push(("memory", memory));
    lines.push(("interface", format!("{} ({})", opened.interface, opened.mode)));
    lines.extend(opened.why.iter().map(|why| ("", why.clone())));
    lines
}
