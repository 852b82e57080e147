//! `qpair study diff`.

use std::path::PathBuf;

use clap::Args;
use qpair_study::{Diff, diff};

use crate::failure::{Exit, Result};
use crate::show::output::print_report;
use crate::show::text::count;
use crate::study::files::read_study;

/// Show the differences between two studies: points outside both intervals, and verdicts
#[derive(Args, Debug)]
pub(super) struct StudyDiff {
    /// Numbers (.json) of the first study
    #[arg(value_name = "A")]
    before: PathBuf,

    /// Numbers (.json) of the second study
    #[arg(value_name = "B")]
    after: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl StudyDiff {
    pub(super) fn run(&self) -> Result<Exit> {
        let found = diff(&read_study(&self.before)?, &read_study(&self.after)?);
        print_report(self.json, &found, || lines(&found))?;
        Ok(Exit::Done)
    }
}

fn lines(found: &Diff) -> Vec<String> {
    let mut lines: Vec<String> = found.notes.iter().map(|note| format!("note: {note}")).collect();
    for one in &found.points {
        lines.push(format!(
            "{:>6.2} times  {}: {} IOPS, then {}",
            one.times,
            one.point,
            count(one.before as u64),
            count(one.after as u64)
        ));
    }
    for one in &found.verdicts {
        lines.push(format!("{}: {}, then {}", one.finding, one.before.words(), one.after.words()));
    }
    lines.push(format!(
        "{} points differ beyond both intervals, {} do not, {} are in one study only; {} findings have another outcome",
        found.points.len(),
        found.alike,
        found.alone,
        found.verdicts.len()
    ));
    lines
}
