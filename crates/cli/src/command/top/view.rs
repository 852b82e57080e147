//! One look at a store, and the changes since the previous look.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::show::adaptation::Adapted;
use crate::show::text::{count, counted, escape, size};

/// The age in seconds from which on a transaction may have been forgotten.
const FORGOTTEN_S: f64 = 10.0;
const LISTED: usize = 20;

#[derive(Debug, Default)]
pub(super) struct View {
    store: String,
    pid: u64,
    uptime_s: f64,
    numbers: BTreeMap<String, f64>,
    /// The processor time of the store's process in seconds; `None` if it cannot be read.
    cpu_s: Option<f64>,
    /// The counts of each histogram's buckets, by name.
    histograms: BTreeMap<String, Vec<u64>>,
    transactions: Vec<Transaction>,
    adapted: Vec<Adapted>,
}

#[derive(Debug)]
struct Transaction {
    name: String,
    worker: String,
    state: String,
    age_s: f64,
    age_commits: u64,
    snapshot_age: Option<u64>,
    locks: u64,
    write_set_bytes: u64,
}

impl View {
    /// Parses a report. Missing values are zero, because another version may report more or fewer.
    pub(super) fn read(told: &Value) -> Self {
        let number = |value: &Value| value.as_f64().unwrap_or_default();
        let metrics = || told["metrics"].as_object().into_iter().flatten();
        let buckets = |value: &Value| {
            let counts = value["buckets"].as_array()?.iter();
            Some(counts.map(|count| count.as_u64().unwrap_or_default()).collect())
        };
        let pid = told["pid"].as_u64().unwrap_or_default();
        Self {
            store: told["store"].as_str().unwrap_or_default().to_owned(),
            pid,
            cpu_s: cpu_s(pid),
            uptime_s: number(&told["uptime_s"]),
            adapted: Adapted::read(&told["auto"]),
            numbers: metrics().map(|(name, value)| (name.clone(), number(value))).collect(),
            histograms: metrics()
                .filter_map(|(name, value)| Some((name.clone(), buckets(value)?)))
                .collect(),
            transactions: told["transactions"]
                .as_array()
                .into_iter()
                .flatten()
                .map(Transaction::read)
                .collect(),
        }
    }

    fn number(&self, name: &str) -> f64 {
        self.numbers.get(name).copied().unwrap_or_default()
    }

    fn whole(&self, name: &str) -> u64 {
        self.number(name) as u64
    }

    /// Returns the increase of a counter per second since the previous look, or since the store was
    /// opened.
    fn rate(&self, before: Option<&Self>, name: &str) -> f64 {
        let (then, since) = before.map_or((0.0, 0.0), |b| (b.number(name), b.uptime_s));
        (self.number(name) - then).max(0.0) / (self.uptime_s - since).max(1e-3)
    }

    /// Returns a bound in microseconds below which this share of a histogram's counts since the
    /// previous look lies.
    fn below_us(&self, before: Option<&Self>, name: &str, share: f64) -> u64 {
        let now = self.histograms.get(name).map_or(&[][..], Vec::as_slice);
        let earlier = before.and_then(|before| before.histograms.get(name));
        let then =
            |index: usize| earlier.and_then(|counts| counts.get(index)).copied().unwrap_or(0);
        let counts: Vec<u64> = now
            .iter()
            .enumerate()
            .map(|(index, count)| count.saturating_sub(then(index)))
            .collect();
        let wanted = (counts.iter().sum::<u64>() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return 1 << index;
            }
        }
        0
    }

    pub(super) fn text(&self, before: Option<&Self>) -> String {
        let mut lines = Vec::new();
        let rate = |name: &str| count(self.rate(before, name).round() as u64);
        let below = |name: &str, share| count(self.below_us(before, name, share));
        let bytes_rate = |name: &str| size(self.rate(before, name) as u64);
        let read_only = if self.whole("read_only") == 1 { ", READ-ONLY" } else { "" };
        lines.push(format!(
            "{}  process {}, published for {:.1} s, commit {}{read_only}",
            escape(self.store.as_bytes()),
            self.pid,
            self.uptime_s,
            count(self.whole("last_timestamp")),
        ));
        lines.push(format!(
            "commits     {}/s, half of them below {} us, 99 % below {} us; conflicts {}/s, rollbacks {}/s",
            rate("commits"),
            below("commit_latency_us", 0.5),
            below("commit_latency_us", 0.99),
            rate("conflicts"),
            rate("rollbacks"),
        ));
        let writes = self.rate(before, "log_writes");
        let per_write = if writes > 0.0 { self.rate(before, "commits") / writes } else { 0.0 };
        lines.push(format!(
            "log         {}/s in {} writes/s, half of them below {} us, {per_write:.1} commits each; {} since the last of {} checkpoints",
            bytes_rate("log_bytes"),
            rate("log_writes"),
            below("log_write_us", 0.5),
            size(self.whole("log_since_checkpoint_bytes")),
            count(self.whole("checkpoints")),
        ));
        let log_max = self.whole("log_device_bytes_max");
        if log_max > 0 {
            let used = self.whole("log_device_used_bytes");
            lines.push(format!(
                "log device  {} of {} in use, {} %",
                size(used),
                size(log_max),
                100 * used / log_max,
            ));
        }
        lines.push(format!(
            "device      {} reads/s, {}/s, half of them below {} us, 99 % below {} us, at most {} in flight; {} writes/s, {}/s; {} flushes/s",
            rate("device_reads"),
            bytes_rate("device_read_bytes"),
            below("device_read_us", 0.5),
            below("device_read_us", 0.99),
            count(self.whole("reads_in_flight_max")),
            rate("device_writes"),
            bytes_rate("device_written_bytes"),
            rate("device_flushes"),
        ));
        for one in &self.adapted {
            let device = escape(one.device.as_bytes());
            let (now, why) = (one.interfaces(), escape(one.why.as_bytes()));
            lines.push(format!("interface   {now} to {device}, {} changes: {why}", one.changes));
        }
        let operations = self.rate(before, "operations");
        let reads = (self.rate(before, "device_reads") / operations.max(1e-3)).min(1.0);
        lines.push(format!(
            "operations  {}/s by the workers, {} gets/s among them, {:.1} % without a read of the device",
            rate("operations"),
            rate("lookups"),
            if operations > 0.0 { 100.0 * (1.0 - reads) } else { 0.0 },
        ));
        let since = before.map_or(0.0, |before| before.uptime_s);
        let cpu = self.cpu_s.filter(|_| before.is_some()).map(|now| {
            let then = before.and_then(|before| before.cpu_s).unwrap_or(now);
            format!("; processor {:.0} %", 100.0 * (now - then) / (self.uptime_s - since).max(1e-3))
        });
        lines.push(format!(
            "stalls      99 % of the workers' turns below {} us, all below {} us; the commit barrier closed for less than {} us{}",
            below("worker_turn_us", 0.99),
            below("worker_turn_us", 1.0),
            below("checkpoint_stall_us", 1.0),
            cpu.unwrap_or_default(),
        ));
        lines.push(format!(
            "memory      {} of {} frames free, {} pages/s evicted",
            count(self.whole("frames_free")),
            count(self.whole("frames")),
            rate("pages_evicted"),
        ));
        lines.push(format!(
            "space       {} used, {} free, {} kept for the last checkpoint and backups",
            size(self.whole("used_bytes")),
            size(self.whole("free_bytes")),
            size(self.whole("retained_bytes")),
        ));
        lines.push(format!(
            "snapshots   the oldest is {} commits old; older values: {} in memory, {} on the device",
            count(self.whole("oldest_snapshot_age_commits")),
            size(self.whole("versions_bytes")),
            size(self.whole("history_bytes")),
        ));
        self.list_transactions(&mut lines);
        lines.push(String::new());
        lines.join("\n")
    }

    fn list_transactions(&self, lines: &mut Vec<String>) {
        let open = self.transactions.len();
        lines.push(format!("\n{}", counted(open as u64, "open transaction")));
        if open == 0 {
            return;
        }
        lines.push(format!(
            "{:<24} {:>6} {:<10} {:>9} {:>10} {:>10} {:>7} {:>10}",
            "name", "worker", "state", "age s", "commits", "snapshot", "locks", "writes"
        ));
        for transaction in self.transactions.iter().take(LISTED) {
            let snapshot = transaction.snapshot_age.map_or("-".to_owned(), count);
            let forgotten = if transaction.age_s >= FORGOTTEN_S { "  forgotten?" } else { "" };
            lines.push(format!(
                "{:<24} {:>6} {:<10} {:>9.1} {:>10} {snapshot:>10} {:>7} {:>10}{forgotten}",
                transaction.name,
                transaction.worker,
                transaction.state,
                transaction.age_s,
                count(transaction.age_commits),
                count(transaction.locks),
                size(transaction.write_set_bytes),
            ));
        }
        if open > LISTED {
            lines.push(format!("and {} more", count((open - LISTED) as u64)));
        }
    }
}

fn cpu_s(pid: u64) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which may contain spaces, comes the state. Fields 12 and 13 after it are user
    // and system time in ticks.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: Vec<u64> =
        rest.split_whitespace().skip(11).take(2).filter_map(|word| word.parse().ok()).collect();
    // On all supported machines, the kernel reports hundredths of a second.
    (ticks.len() == 2).then(|| (ticks[0] + ticks[1]) as f64 / 100.0)
}

impl Transaction {
    fn read(told: &Value) -> Self {
        let whole = |name: &str| told[name].as_u64().unwrap_or_default();
        let id = whole("id");
        Self {
            name: told["name"]
                .as_str()
                .map_or_else(|| format!("#{id}"), |name| escape(name.as_bytes())),
            worker: told["worker"].as_u64().map_or("-".to_owned(), |worker| worker.to_string()),
            state: told["state"].as_str().unwrap_or_default().to_owned(),
            age_s: told["age_s"].as_f64().unwrap_or_default(),
            age_commits: whole("age_commits"),
            snapshot_age: told["snapshot_age_commits"].as_u64(),
            locks: whole("locks"),
            write_set_bytes: whole("write_set_bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a histogram with these counts below these powers of two.
    fn histogram(counts: &[(u32, u64)]) -> Value {
        let mut buckets = vec![0; 20];
        counts.iter().for_each(|(below, count)| buckets[*below as usize] = *count);
        json!({ "buckets": buckets, "sum": 0, "max": 0 })
    }

    fn look(uptime_s: f64, cpu_s: f64, metrics: Value) -> View {
        let told = json!({
            "store": "s.qpair", "uptime_s": uptime_s, "metrics": metrics,
            "transactions": [{
                "id": 7, "worker": 1, "state": "waits", "age_s": 12.0, "age_commits": 1500,
                "snapshot_age_commits": 3, "locks": 2, "write_set_bytes": 4096,
            }],
        });
        View { cpu_s: Some(cpu_s), ..View::read(&told) }
    }

    #[test]
    fn what_people_are_shown_is_of_the_time_since_the_look_before() {
        let before = look(
            10.0,
            4.0,
            json!({
                "operations": 1000, "lookups": 900, "device_reads": 500, "commits": 10, "log_writes": 10,
                "device_read_us": histogram(&[(3, 500)]),
                "worker_turn_us": histogram(&[(15, 1)]),
            }),
        );
        let now = look(
            12.0,
            5.0,
            json!({
                "operations": 3000, "lookups": 2500, "device_reads": 1000, "commits": 50, "log_writes": 20,
                "device_read_us": histogram(&[(3, 500), (7, 300), (9, 200)]),
                "log_write_us": histogram(&[(8, 10)]),
                "commit_latency_us": histogram(&[(9, 39), (12, 1)]),
                "worker_turn_us": histogram(&[(2, 99), (5, 1), (15, 1)]),
                "checkpoint_stall_us": histogram(&[(10, 1)]),
                "log_since_checkpoint_bytes": 3 << 20, "checkpoints": 4, "read_only": 1,
                "reads_in_flight_max": 64,
            }),
        );
        let text = now.text(Some(&before));
        for line in [
            "s.qpair  process 0, published for 12.0 s, commit 0, READ-ONLY",
            "commits     20/s, half of them below 512 us, 99 % below 4,096 us; conflicts 0/s, rollbacks 0/s",
            "log         0 B/s in 5 writes/s, half of them below 256 us, 4.0 commits each; 3.00 MiB since the last of 4 checkpoints",
            "device      250 reads/s, 0 B/s, half of them below 128 us, 99 % below 512 us, at most 64 in flight; 0 writes/s, 0 B/s; 0 flushes/s",
            "operations  1,000/s by the workers, 800 gets/s among them, 75.0 % without a read of the device",
            "stalls      99 % of the workers' turns below 4 us, all below 32 us; the commit barrier closed for less than 1,024 us; processor 50 %",
            "1 open transaction",
            "#7                            1 waits           12.0      1,500          3       2   4.00 KiB  forgotten?",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        // Without a previous look, rates cover the whole time, and the processor's rate is unknown.
        let first = now.text(None);
        assert!(first.contains("operations  250/s by the workers, 208 gets/s"), "{first}");
        assert!(!first.contains("processor"), "{first}");
    }
}
