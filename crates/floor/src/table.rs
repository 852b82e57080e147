//! The report on a terminal.

use qpair_plots::{Interval, number, range};

use crate::report::{Counts, Parts, Point, Report, Turns};

/// The names of the columns, in the order of [`cells`].
pub(crate) const COLUMNS: [&str; 9] = [
    "IOPS",
    "MiB/s",
    "mean us",
    "p50",
    "p99",
    "p99.9",
    "gap us",
    "gap, % of the floor",
    "gap, % of its own",
];

/// Returns the lines of the report.
#[must_use]
pub fn table(report: &Report) -> Vec<String> {
    let mut lines = vec![
        format!("{}: {}", report.device, report.mode),
        report.machine.one_line(),
        format!(
            "turns of {} s, {} rounds; medians, in brackets 95 % intervals",
            report.seconds, report.repeat
        ),
    ];
    lines.extend(report.ways().iter().map(|way| format!("  {:<10} {}", way.name(), way.about())));
    lines.extend(report.notes.iter().map(|note| format!("note: {note}")));
    for point in &report.points {
        lines.push(String::new());
        lines.push(title(point));
        let header = std::iter::once("").chain(COLUMNS).map(str::to_owned).collect();
        let rows: Vec<Vec<String>> =
            std::iter::once(header).chain(point.ways.iter().map(cells)).collect();
        lines.extend(columns(&rows));
        lines.extend(counts(point).map(|line| format!("  {line}")));
        lines.extend(work(point).map(|line| format!("  {line}")));
        lines.extend(point.parts.iter().map(|parts| format!("  {}", in_parts(parts))));
    }
    lines
}

/// Describes a load in words.
pub(crate) fn title(point: &Point) -> String {
    let load = point.load;
    let jobs = if load.jobs == 1 { String::new() } else { format!(", {} jobs", load.jobs) };
    let busy = match point.drive_is_busy {
        true => " (the drive is busy: gaps say nothing of software)",
        false => "",
    };
    format!("{}, depth {}{jobs}{busy}", load.workload.words(), load.depth)
}

/// Returns the commands and doorbells of each way that counts them.
pub(crate) fn counts(point: &Point) -> impl Iterator<Item = String> {
    point.ways.iter().filter_map(|way| {
        let counted = way.turns.iter().filter_map(|turn| turn.commands_and_doorbells);
        let (commands, doorbells) = counted.reduce(|a, b| (a.0 + b.0, a.1 + b.1))?;
        let (name, backwards) = (way.way.name(), way.turns.iter().map(|turn| turn.backwards).sum());
        let differ = match backwards {
            0_u64 => String::new(),
            _ => format!(
                "; {backwards} latencies were below zero and count as zero: the clocks (TSC) of the two processors differ"
            ),
        };
        Some(format!(
            "the {name} sent {commands} commands and rang {doorbells} submission doorbells{differ}"
        ))
    })
}

/// Describes the work that was counted for each way.
pub(crate) fn work(point: &Point) -> impl Iterator<Item = String> {
    point.ways.iter().filter_map(|way| {
        let Counts { ios, interrupts, doorbells, system_calls, copied, processor_us } =
            way.counts?;
        let each = |count: f64| number(count / ios.max(1) as f64);
        let count = |what: &str, count: Option<u64>| {
            Some(format!("{} {what} ({} an I/O)", count?, each(count? as f64)))
        };
        let parts = [
            count("interrupts", interrupts),
            count("doorbells", doorbells),
            count("system calls", system_calls),
            count("copies", copied),
            processor_us.map(|us| format!("{} us of processor time an I/O", each(us))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        Some(format!("counted, {}: {ios} I/Os, {}", way.way.name(), parts.join(", ")))
    })
}

/// Describes the breakdown of the time, each part with its share.
pub(crate) fn in_parts(parts: &Parts) -> String {
    let share = |us: f64| format!("{} us ({} %)", number(us), number(100.0 * us / parts.mean_us));
    format!(
        "where the time of io_uring goes, by tracepoints, in a turn of its own of {} I/Os, % of their {} us: system call and waking up {}, \
         block layer {}, driver and interrupt {}, device (the floor) {}",
        parts.ios,
        number(parts.mean_us),
        share(parts.interface_us),
        share(parts.block_us),
        share(parts.driver_us),
        share(parts.device_us)
    )
}

/// Returns a way's figures, in the order of [`COLUMNS`].
pub(crate) fn cells(way: &Turns) -> Vec<String> {
    let of = |figure: &dyn Fn(&crate::report::Turn) -> f64| {
        way.interval(figure).map_or_else(|| "-".to_owned(), |found| number(found.mid))
    };
    let mut cells = vec![
        format!("  {}", way.way.name()),
        of(&|turn| turn.ios_per_s),
        of(&|turn| turn.bytes_per_s / f64::from(1 << 20)),
        way.interval(|turn| turn.mean_us).map_or_else(|| "-".to_owned(), with_bounds),
        of(&|turn| turn.percentiles_us[0]),
        of(&|turn| turn.percentiles_us[2]),
        of(&|turn| turn.percentiles_us[3]),
    ];
    match &way.gap {
        None => cells.extend(std::iter::repeat_n(String::new(), 3)),
        Some(gap) => {
            let bounds = gap.percent_of_floor_bounds;
            cells.push(signed(gap.us));
            cells.push(match bounds {
                Some((low, high)) => {
                    format!(
                        "{} [{} to {}]",
                        signed(gap.percent_of_floor),
                        signed(low),
                        signed(high)
                    )
                }
                None => signed(gap.percent_of_floor),
            });
            cells.push(signed(gap.percent_of_own));
        }
    }
    cells
}

fn with_bounds(interval: Interval) -> String {
    format!("{}{}", number(interval.mid), range(interval.bounds, 1.0))
}

fn signed(value: f64) -> String {
    if value > 0.0 { format!("+{}", number(value)) } else { number(value) }
}

/// Aligns columns: the first to the left, the others to the right.
fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let count = rows.first().map_or(0, Vec::len);
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    rows.iter()
        .map(|row| {
            let mut line = format!("{:<1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                line += &format!("  {cell:>width$}");
            }
            line.trim_end().to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::synthetic;

    #[test]
    fn every_percentage_has_its_base() {
        let lines = table(&synthetic());
        let text = lines.join("\n");
        for word in ["gap, % of the floor", "gap, % of its own", "+25.0 [+25.0 to +25.0]", "+20.0"]
        {
            assert!(text.contains(word), "no \"{word}\" in:\n{text}");
        }
        assert!(text.contains("depth 16 (the drive is busy") && !text.contains("depth 1 (the"));
        let header = lines.iter().find(|line| line.contains("IOPS")).unwrap();
        let row = lines
            .iter()
            .find(|line| line.starts_with("  stack") && line.contains("us").eq(&false))
            .unwrap();
        assert!(row.len() <= header.len(), "columns are right-aligned");
    }

    #[test]
    fn clocks_that_differ_are_told() {
        let mut report = synthetic();
        let turns = &mut report.points[0].ways[0].turns;
        turns[0].commands_and_doorbells = Some((1000, 1000));
        let said = |report: &Report| counts(&report.points[0]).collect::<Vec<_>>().join("\n");
        assert!(said(&report).ends_with("rang 1000 submission doorbells"), "{}", said(&report));
        report.points[0].ways[0].turns[1].backwards = 3;
        assert!(said(&report).contains("; 3 latencies were below zero"), "{}", said(&report));
    }

    #[test]
    fn parts_have_their_base() {
        let parts = Parts {
            ios: 9,
            mean_us: 20.0,
            interface_us: 4.0,
            block_us: 1.0,
            driver_us: 5.0,
            device_us: 10.0,
        };
        let text = in_parts(&parts);
        for word in [
            "9 I/Os, % of their 20.0 us",
            "waking up 4.00 us (20.0 %)",
            "(the floor) 10.0 us (50.0 %)",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }

    #[test]
    fn signs() {
        assert_eq!([signed(1.0), signed(-1.0), signed(0.0)], ["+1.00", "-1.00", "0"]);
    }
}
