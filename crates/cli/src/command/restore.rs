//! `qpair restore`.

use std::path::{Path, PathBuf};

use clap::Args;
use qpair::Options;
use qpair::continuous::{At, Backup, Point, now_ms, open_place, verify};
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::parse::number::parse_size;
use crate::parse::show::ShowArgs;
use crate::show::bar::show;
use crate::show::text::{counted, size, utc_ms};

/// Restore a store from a continuous backup, as it was at a time
///
/// The new store has everything that was committed, and acknowledged, before the point, and nothing
/// later; it is checked before the command ends. Without --at it is the newest point. What was
/// received lies in a folder beside the target, TARGET.received, until the store is complete: a
/// restore that was interrupted goes on with the same command.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair restore --from s3://backups/app app.qpair
  qpair restore --from file:///backups/app --at '2026-11-28 20:15:00' app.qpair
  qpair restore --from file:///backups/app --at -15m app.qpair     # as it was a quarter of an hour ago
  qpair restore --from s3://backups/app --list
  qpair restore --from s3://backups/app --verify")]
pub(crate) struct Restore {
    /// The new store: a file, a block device, or a device specifier
    #[arg(required_unless_present_any = ["list", "verify"])]
    target: Option<PathBuf>,

    /// Place of the backup, as `qpair backup --to` had it
    #[arg(long, value_name = "URL")]
    from: String,

    /// Time of the point: 2026-11-28 20:15:00 or 2026-11-28T20:15:00.5Z, in UTC, or -90s, -15m, -6h
    /// or -2d before now [default: the newest point]
    #[arg(long, value_name = "TIME", value_parser = parse_at, allow_hyphen_values = true)]
    at: Option<u64>,

    /// List the points
    #[arg(long, conflicts_with_all = ["target", "at"])]
    list: bool,

    /// Read the whole backup, and report what is missing or damaged
    #[arg(long, conflicts_with_all = ["target", "at", "list"])]
    verify: bool,

    /// Page size of the new store [default: as the store had it]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    page_size: Option<u64>,

    /// Go through the page cache, for file systems without direct I/O
    #[arg(long)]
    buffered: bool,

    #[command(flatten)]
    show: ShowArgs,
}

impl Restore {
    pub(crate) fn run(self) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let place = open_place(&self.from)?;
        if self.verify {
            return self.verify(&*place, &interrupt);
        }
        let backup = Backup::open(place)?;
        let Some(target) = &self.target else { return self.list(&backup) };
        let at = self.at.map_or(At::Newest, At::Time);
        let received = self.received(target);
        let restore = backup.restore(at, received.clone())?;
        let page_size = usize::try_from(self.page_size.unwrap_or(backup.page_size()));
        let options =
            Options::new(target).page_size(page_size.unwrap_or(usize::MAX)).buffered(self.buffered);
        let bar = self.show.bar();
        let restored = options.restore_of(&restore, &|done, all| {
            show(&bar, done, all.max(1), "restoring");
            interrupt.flow()
        });
        bar.finish_and_clear();
        let report = restored.map_err(|error| match &received {
            Some(folder) if folder.exists() => {
                let folder = folder.display();
                Failure::from(error)
                    .or_hint(format!("what was received is in {folder}; the same command goes on"))
            }
            _ => error.into(),
        })?;
        if let Some(folder) = received {
            // The store is whole; what is left there only takes space.
            let _ = std::fs::remove_dir_all(folder);
        }
        let costs = backup.costs();
        let object = json!({
            "store": target.display().to_string(),
            "from": self.from,
            "id": report.id,
            "timestamp": report.point.timestamp,
            "time_ms": report.point.time_ms,
            "tables": report.tables,
            "records": report.records,
            "page_size": report.page_size,
            "requests": costs.requests(),
            "received_bytes": costs.received_bytes,
        });
        self.show.print(&object, || {
            vec![format!(
                "restored {} as of {} (commit {}): {} in {}; {}, {} received",
                target.display(),
                utc_ms(report.point.time_ms),
                report.point.timestamp,
                counted(report.records, "record"),
                counted(report.tables, "table"),
                counted(costs.requests(), "request"),
                size(costs.received_bytes),
            )]
        })?;
        Ok(Exit::Done)
    }

    /// Returns the folder for what is received. A folder on this machine is read as it is.
    fn received(&self, target: &Path) -> Option<PathBuf> {
        if !self.from.starts_with("s3://") {
            return None;
        }
        let mut name = target.as_os_str().to_owned();
        name.push(".received");
        Some(name.into())
    }

    fn list(&self, backup: &Backup) -> Result<Exit> {
        let points = backup.points();
        let object =
            json!({ "from": self.from, "points": points.iter().map(json_of).collect::<Vec<_>>() });
        self.show.print(&object, || {
            let line =
                |point: &Point| format!("{}  commit {}", utc_ms(point.time_ms), point.timestamp);
            points.iter().map(line).collect()
        })?;
        Ok(Exit::Done)
    }

    fn verify(
        &self,
        place: &dyn qpair::continuous::Objects,
        interrupt: &Interrupt,
    ) -> Result<Exit> {
        let bar = self.show.bar();
        let verified = verify(place, &|done, all| {
            show(&bar, done, all.max(1), "verifying");
            interrupt.flow()
        });
        bar.finish_and_clear();
        let found = verified?;
        let (first, last) = (found.points.first(), found.points.last());
        let object = json!({
            "from": self.from,
            "points": found.points.len(),
            "first": first.map(json_of),
            "last": last.map(json_of),
            "parts": found.parts,
            "bytes": found.bytes,
            "unused_objects": found.unused,
            "faults": found.faults,
        });
        self.show.print(&object, || {
            let mut lines = vec![format!(
                "{}: {} in {}, {}; {} unused",
                self.from,
                size(found.bytes),
                counted(found.parts, "part"),
                match (first, last) {
                    (Some(first), Some(last)) => format!(
                        "{} from {} to {}",
                        counted(found.points.len() as u64, "point"),
                        utc_ms(first.time_ms),
                        utc_ms(last.time_ms)
                    ),
                    _ => "no point to restore to".to_owned(),
                },
                counted(found.unused, "object"),
            )];
            lines.extend(found.faults.iter().map(|fault| format!("damaged: {fault}")));
            lines
        })?;
        Ok(if found.faults.is_empty() { Exit::Done } else { Exit::Negative })
    }
}

fn json_of(point: &Point) -> serde_json::Value {
    json!({ "time_ms": point.time_ms, "time": utc_ms(point.time_ms), "timestamp": point.timestamp })
}

/// Parses a time: a date and a time of day in UTC, or a duration before now.
fn parse_at(text: &str) -> std::result::Result<u64, String> {
    let wrong = || format!("'{text}' is not a time: give 2026-11-28 20:15:00 (UTC), or -15m");
    if let Some(before) = text.strip_prefix('-') {
        let unit = before.chars().last().ok_or_else(wrong)?;
        let unit_s = match unit {
            's' => 1.0,
            'm' => 60.0,
            'h' => 3600.0,
            'd' => 86_400.0,
            _ => return Err(wrong()),
        };
        let number: f64 = before[..before.len() - 1].parse().map_err(|_| wrong())?;
        if !(0.0..=1e9).contains(&number) {
            return Err(wrong());
        }
        return Ok(now_ms().saturating_sub((number * unit_s * 1000.0) as u64));
    }
    let text = text.trim_end_matches(" UTC").trim_end_matches('Z');
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let part = |text: &str, of: char, at: usize| text.split(of).nth(at).map(str::to_owned);
    let whole =
        |text: &str, of: char, at: usize| -> Option<u64> { part(text, of, at)?.parse().ok() };
    let ymd = (|| Some((whole(date, '-', 0)?, whole(date, '-', 1)?, whole(date, '-', 2)?)))();
    let hm = (|| Some((whole(time, ':', 0)?, whole(time, ':', 1)?)))();
    let seconds = part(time, ':', 2).map_or(Ok(0.0), |second| second.parse::<f64>());
    let (Some((year, month, day)), Some((hour, minute)), Ok(second)) = (ymd, hm, seconds) else {
        return Err(wrong());
    };
    let fits = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && (0.0..60.0).contains(&second);
    if !fits {
        return Err(wrong());
    }
    let of_day_ms = (hour * 3600 + minute * 60) * 1000 + (second * 1000.0) as u64;
    Ok(days(year, month, day) * 86_400_000 + of_day_ms)
}

/// Returns the days from 1970 to a date: the algorithm "days from civil", with years that begin in
/// March and eras of 400 years.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::text::utc;

    #[test]
    fn times_are_read_as_they_are_printed() {
        for seconds in [0, 86_399, 951_782_400, 1_709_164_800, 1_795_896_904, 4_102_444_799] {
            assert_eq!(parse_at(&utc(seconds)), Ok(seconds * 1000), "{}", utc(seconds));
            assert_eq!(parse_at(&utc_ms(seconds * 1000 + 250)), Ok(seconds * 1000 + 250));
        }
        assert_eq!(parse_at("2026-11-28T20:15:00.5Z"), Ok(1_795_896_900_500));
        let ago = now_ms() - parse_at("-15m").unwrap();
        assert!((900_000..910_000).contains(&ago));
        for wrong in
            ["", "-", "-5", "-xm", "yesterday", "2026-13-01", "2026-11-28 25:00:00", "-1e99d"]
        {
            assert!(parse_at(wrong).is_err(), "{wrong}");
        }
    }
}
