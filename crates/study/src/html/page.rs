//! The whole page of the report.

use std::fmt::Write as _;

use qpair_block::{Error, ErrorKind, Result};
use qpair_plots::{capital, escape, number, page, range};

use super::experiment::{one_group, section};
use crate::advice::{COMPARES, answer};
use crate::experiment::cores_words;
use crate::outcome::Outcome;
use crate::papers::Paper;
use crate::report::StudyReport;
use crate::tally::{COLUMNS, Tally, tallies};
use crate::verdict::{Evidence, Verdict};

/// Returns the report as HTML. The page starts with the answer, a plot and a row of counts for each
/// paper. `begun`: the time at which the study began, in words.
///
/// # Errors
/// `Invalid` if a plot cannot be drawn, which would be a bug.
pub fn to_html(report: &StudyReport, begun: &str) -> Result<String> {
    let mut out = String::with_capacity(256 << 10);
    out += "<h1>Storage interfaces on this machine</h1>\n";
    out += &first_words(report, begun)?;
    out += &papers(report);
    out += &verdicts(report);
    out += &interfaces(report);
    out += "<h2>Experiments</h2>\n";
    out += &method(report);
    for experiment in &report.experiments {
        out += &section(report, experiment)?;
    }
    out += &machine(report)?;
    Ok(page("Storage interfaces on this machine", &out))
}

fn first_words(report: &StudyReport, begun: &str) -> Result<String> {
    let answer = answer(report);
    let mut out = "<div class=\"advice\">\n".to_owned();
    for (at, sentence) in answer.sentences.iter().enumerate() {
        let sentence = escape(sentence);
        out += &match at {
            0 => format!("<p><strong>{sentence}</strong></p>\n<p>"),
            _ => format!("{sentence} "),
        };
    }
    out += "</p>\n";
    for doubt in &answer.doubts {
        let _ = writeln!(out, "<p class=\"warning\">{}</p>", escape(doubt));
    }
    if answer.choice.is_some() {
        out += "<p class=\"soft\"><code>qpair advise --study</code> answers for other requests, depths, latencies and cores, and says what \
                would change the answer.</p>\n";
    }
    let devices: Vec<&str> = report.devices.iter().map(|device| device.spec.as_str()).collect();
    let _ = writeln!(
        out,
        "<p class=\"soft\">Measured on {}, {}: {}; qpair {}.</p>\n</div>",
        escape(&devices.join(", ")),
        escape(begun),
        escape(&report.machine.one_line()),
        escape(&report.program)
    );
    if let (Some(choice), Some(compared)) = (&answer.choice, report.experiment(COMPARES)) {
        out += &one_group(report, compared, &cores_words(choice.cores))?;
    }
    Ok(out)
}

/// Returns a table with a row of counts for each paper.
fn papers(report: &StudyReport) -> String {
    let signs = OUTCOMES.map(symbol);
    // Findings that were not run look like those that could not be tested, and so do those of
    // models.
    let [holds, part, not, undecided, untested] = signs;
    let looks = [holds, part, not, undecided, untested, untested, untested];
    let mut out = "<h2>The five papers, here</h2>\n<div class=\"wide\"><table>\n<tr><th>Paper</th>"
        .to_owned();
    for (name, (sign, class)) in COLUMNS.into_iter().zip(looks) {
        let _ = write!(out, "<th class=\"number verdict {class}\">{sign} {name}</th>");
    }
    out += "</tr>\n";
    for Tally { paper, counts, .. } in tallies(report) {
        let _ = write!(
            out,
            "<tr><td><a href=\"#{}\">{}</a>: {}</td>",
            paper.id,
            paper.id,
            escape(paper.title)
        );
        for count in counts {
            let _ = write!(out, "<td class=\"number\">{count}</td>");
        }
        out += "</tr>\n";
    }
    out += "</table></div>\n";
    out
}

fn symbol(outcome: Outcome) -> (&'static str, &'static str) {
    match outcome {
        Outcome::Holds => ("\u{2713}", "holds"),
        Outcome::HoldsInPart => ("\u{25d0}", "holds"),
        Outcome::DoesNotHold => ("\u{2717}", "does_not_hold"),
        Outcome::Undecided => ("?", "undecided"),
        Outcome::NotTestable => ("\u{2013}", "not_testable"),
    }
}

const OUTCOMES: [Outcome; 5] = [
    Outcome::Holds,
    Outcome::HoldsInPart,
    Outcome::DoesNotHold,
    Outcome::Undecided,
    Outcome::NotTestable,
];

fn verdicts(report: &StudyReport) -> String {
    let mut out = "<h2>The papers' findings, here</h2>\n<p class=\"soft\">Each verdict is a test on the runs made here; the papers' numbers \
                   are not used. In brackets: 99 % intervals, from the spread between blocks of runs. Undecided: the interval includes the threshold. In part: other parts \
                   could not be tested.</p>\n"
        .to_owned();
    if let Some(resolution) = report.resolution() {
        let _ = writeln!(out, "<p>{}.</p>", capital(&resolution.words()));
    }
    for Tally { paper: Paper { id, title, .. }, verdicts, .. } in tallies(report) {
        let (not, tested): (Vec<&Verdict>, Vec<&Verdict>) =
            verdicts.into_iter().partition(|one| one.outcome == Outcome::NotTestable);
        let _ = writeln!(out, "<h3 id=\"{id}\">{id}: {}</h3>", escape(title));
        out += &table(report, &tested);
        if !not.is_empty() {
            let summary = format!("{} findings that can't be tested here", not.len());
            let _ = writeln!(
                out,
                "<details><summary>{summary}</summary>\n{}</details>",
                table(report, &not)
            );
        }
    }
    out
}

fn table(report: &StudyReport, verdicts: &[&Verdict]) -> String {
    if verdicts.is_empty() {
        return String::new();
    }
    let mut out = String::new();
    out += "<table class=\"verdicts stacked\">\n<tr><th>Here</th><th>Finding</th><th>Test and what it rests on</th></tr>\n";
    for verdict in verdicts {
        out += &row(report, verdict);
    }
    out += "</table>\n";
    out
}

fn row(report: &StudyReport, verdict: &Verdict) -> String {
    let (sign, class) = symbol(verdict.outcome);
    let source = if report.experiment(&verdict.experiment).is_some() {
        format!("<a href=\"#{}\">{}</a>", verdict.experiment, escape(&verdict.source))
    } else {
        escape(&verdict.source)
    };
    let of_model = if verdict.of_model { " (a model)" } else { "" };
    let mut out = format!(
        "<tr><td class=\"verdict {class}\">{sign} {}{of_model}</td><td>{} <span class=\"soft\">{source}</span></td><td>",
        verdict.outcome.words(),
        escape(&verdict.claim),
    );
    if let Some(before) = verdict.before {
        let _ = write!(out, "<p><b>{}</b></p>", escape(&verdict.differs_words(before)));
    }
    if !verdict.evidence.is_empty() {
        let _ = write!(out, "{}<ul class=\"evidence\">", escape(&capital(&verdict.test)));
        for part in &verdict.evidence {
            let _ = write!(out, "<li>{}</li>", evidence(part));
        }
        out += "</ul>";
    }
    if let Some(why) = &verdict.why {
        out += &escape(why);
    }
    out += "</td></tr>\n";
    out
}

fn evidence(part: &Evidence) -> String {
    if let Some(why) = &part.untested {
        let (sign, _) = symbol(part.outcome);
        return format!(
            "{sign} {}: <span class=\"soft\">{}</span>",
            escape(&part.what),
            escape(why)
        );
    }
    let bounds = range(part.low.zip(part.high), 1.0);
    let wanted =
        part.wanted.map(|wanted| format!(", wanted {}", wanted.words())).unwrap_or_default();
    let sign = if part.wanted.is_some() { symbol(part.outcome).0 } else { "\u{b7}" };
    format!("{sign} {}: <b>{}</b>{bounds}{wanted}", escape(&part.what), number(part.mid))
}

fn interfaces(report: &StudyReport) -> String {
    let mut out = "<h2>Interfaces</h2>\n<table class=\"stacked\">\n<tr><th>Interface</th><th>What it is</th><th>Here</th></tr>\n".to_owned();
    for interface in &report.interfaces {
        let here = match (&interface.unavailable, &interface.ran_as) {
            (Some(reason), _) => {
                let way_out =
                    interface.way_out.as_ref().map(|way| format!(" ({way})")).unwrap_or_default();
                format!(
                    "<span class=\"soft\">not available: {}{}</span>",
                    escape(reason),
                    escape(&way_out)
                )
            }
            (None, Some(ran_as)) => escape(ran_as),
            (None, None) => "measured".to_owned(),
        };
        let _ = writeln!(
            out,
            "<tr><td><code>{}</code></td><td>{}</td><td>{here}</td></tr>",
            escape(&interface.name),
            escape(&interface.about)
        );
    }
    out += "</table>\n";
    out
}

fn method(report: &StudyReport) -> String {
    let settings = &report.settings;
    format!(
        "<p>{} configurations, each run {} times or more for {} s after {} s that do not count. A round runs all of them once, in an \
         order of its own; then points that a finding compares are run next to each other, in {} blocks that are spread over the time. \
         Points are medians, bars 95 % intervals by Student's t. I/O goes around the page cache (O_DIRECT), one request a call, where \
         nothing else is said. The study took {:.0} s.</p>\n",
        report.points.len(),
        settings.repeat,
        settings.seconds_per_point,
        settings.ramp_s,
        settings.blocks,
        report.took_s
    )
}

fn machine(report: &StudyReport) -> Result<String> {
    let mut out = format!(
        "<h2>Machine and devices</h2>\n<p>{}; {} cores could be used.</p>\n<ul>\n",
        escape(&report.machine.one_line()),
        report.cores
    );
    for device in &report.devices {
        let own = if device.own { " (made by the study, removed again)" } else { "" };
        let (spec, about) = (escape(&device.spec), escape(&device.about));
        let _ = writeln!(out, "<li><code>{spec}</code>{own}: {about}</li>");
    }
    let _ = writeln!(
        out,
        "</ul>\n<details><summary>Machine</summary><pre>{}</pre></details>\n<details><summary>Devices</summary><pre>{}</pre></details>",
        escape(&pretty(&report.machine)?),
        escape(&pretty(&report.devices)?)
    );
    Ok(out)
}

fn pretty(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string_pretty(value)
        .map_err(|error| Error::new(ErrorKind::Invalid, "writing JSON").caused_by(error))
}
