//! The answer of a study in sentences: the interface to use on the machine and the reasons, or the
//! data that is missing for an answer.

use qpair_plots::{range, thousands};

use super::advisor::{Advisor, Lead};
use super::{Choice, Question, advise};
use crate::experiment::cores_words;
use crate::report::StudyReport;

/// The experiment that compares the interfaces.
pub(crate) const COMPARES: &str = "s1-fig2";

/// The answer of a study for 4 KiB random reads and all cores that it could use.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The interface to use, and the reasons. Without a choice, the reasons why there is none.
    pub sentences: Vec<String>,
    /// The notes of the study, reasons to rely on the answer less, and its risks.
    pub doubts: Vec<String>,
    /// The interface to use; `None` if the study does not allow an answer.
    pub choice: Option<Choice>,
    /// The other interfaces that were measured, the fastest first.
    pub others: Vec<Choice>,
}

/// Returns the answer of a study.
#[must_use]
pub fn answer(study: &StudyReport) -> Answer {
    let question = Question::default();
    let advice = advise(study, &question);
    let advisor = Advisor::new(study, &question);
    let (sentences, doubts) = match &advice.choice {
        Some(choice) => {
            let mut doubts = doubts(study, choice, &advice.others);
            doubts.extend(advice.warnings.iter().map(|text| format!("Beware: {text}.")));
            (sentences(&advisor, choice, &advice.others), doubts)
        }
        None => {
            let missing = missing(study).unwrap_or_else(|| advice.reasons.join("; "));
            let what = "This study does not say which interface to use on this machine";
            (vec![format!("{what}: {missing}.")], study.notes.clone())
        }
    };
    Answer { sentences, doubts, choice: advice.choice, others: advice.others }
}

fn sentences(advisor: &Advisor<'_>, choice: &Choice, others: &[Choice]) -> Vec<String> {
    let (allowed, left_out): (Vec<&Choice>, Vec<&Choice>) =
        others.iter().partition(|other| advisor.may_advise(&other.interface));
    let with = |lead| allowed.iter().copied().filter(move |one| advisor.lead(choice, one) == lead);
    let mut because = Vec::new();
    let times = |other: &Choice| choice.ios_per_s / other.ios_per_s.max(1e-9);
    let leads = with(Lead::Faster).enumerate().map(|(at, other)| {
        let base = if at == 0 { "the IOPS" } else { "those" };
        format!("{:.2} times {base} of {}", times(other), other.interface)
    });
    let leads: Vec<String> = leads.collect();
    if !leads.is_empty() {
        because.push(format!("it has {}", list(&leads)));
    }
    let cheaper =
        with(Lead::Cheaper).map(|one| format!("{} ({:.1})", one.interface, one.cpu_us_per_io));
    let cheaper: Vec<String> = cheaper.collect();
    if !cheaper.is_empty() {
        because.push(format!(
            "it takes {:.1} us of processor time for an I/O, less than {}, which {} not surely faster",
            choice.cpu_us_per_io,
            list(&cheaper),
            if cheaper.len() == 1 { "is" } else { "are" }
        ));
    }
    if because.is_empty() {
        because.push(match (allowed.is_empty(), with(Lead::Neither).next()) {
            (true, _) => "it is the only one that was measured here".to_owned(),
            (_, Some(_)) => "no other is faster or cheaper beyond chance".to_owned(),
            _ => "it had the most IOPS, in runs that allow no comparison".to_owned(),
        });
    }
    let mut all = vec![format!(
        "Use {} with {} for each drive on this machine, because {}.",
        choice.interface,
        requests(choice.depth),
        because.join(", and ")
    )];
    let as_good: Vec<String> = with(Lead::Neither).map(|one| one.interface.clone()).collect();
    if !as_good.is_empty() {
        let names = list(&as_good);
        all.push(format!("No difference from {names} could be measured."));
    }
    let apart = with(Lead::NotCompared)
        .map(|one| format!("{} ({} IOPS)", one.interface, thousands(one.ios_per_s)));
    let apart: Vec<String> = apart.collect();
    if !apart.is_empty() {
        all.push(format!("Not measured close enough in time to compare: {}.", list(&apart)));
    }
    let interval = range(choice.ios_per_s_interval, 1.0);
    all.push(format!(
        "{} had {} IOPS{interval} of 4 KiB random reads with one drive and {}, at a median latency of {:.0} us and {:.1} us of processor time \
         for an I/O.",
        choice.interface,
        thousands(choice.ios_per_s),
        cores_words(choice.cores),
        choice.p50_us,
        choice.cpu_us_per_io
    ));
    for other in left_out {
        let name = &other.interface;
        all.push(format!("{name} is left out: its kernel thread needs a second core."));
    }
    let there = advisor.with_other_cores();
    if let Some(then) = there.choose_any() {
        let (words, iops) = (cores_words(then.cores), thousands(then.ios_per_s));
        all.push(match then.interface == choice.interface {
            true => format!("With {words} for each drive the answer is the same ({iops} IOPS)."),
            false => format!(
                "With {words} for each drive use {} with {} ({iops} IOPS).",
                then.interface,
                requests(then.depth)
            ),
        });
    }
    all
}

fn doubts(study: &StudyReport, choice: &Choice, others: &[Choice]) -> Vec<String> {
    let mut all = study.notes.clone();
    if choice.ios_per_s_interval.is_none() {
        all.push("Each point was run once, so the answer may be chance: repeat the study with --repeat 5.".to_owned());
    }
    if study.resolution().is_some_and(|resolution| resolution.differs) {
        all.push("Something disturbed the study: a point differed from itself.".to_owned());
    }
    let known =
        |name: &str| name == choice.interface || others.iter().any(|other| other.interface == name);
    let missing: Vec<String> = study
        .interfaces
        .iter()
        .filter(|one| !known(&one.name))
        .map(|one| match &one.unavailable {
            Some(_) => one.name.clone(),
            None => format!("{} (its runs failed)", one.name),
        })
        .collect();
    if !missing.is_empty() {
        let names = list(&missing);
        all.push(format!(
            "Not measured, and so not ruled out: {names} (qpair advise --study says why)."
        ));
    }
    all
}

/// Returns the reason why the interfaces were not compared, if the study shows it.
fn missing(study: &StudyReport) -> Option<String> {
    let Some(ran) = study.experiment(COMPARES) else {
        return Some(format!("experiment {COMPARES}, which compares the interfaces, was not run"));
    };
    if study.interfaces.iter().all(|known| known.unavailable.is_some()) {
        return Some("no interface can be used on its devices".to_owned());
    }
    let mut points = ran.plan.configs().filter_map(|config| study.point(config));
    let (config, error) = points.find_map(|one| Some((&one.config, one.errors.first()?)))?;
    Some(format!("the runs of experiment {COMPARES} failed, such as {config}: {error}"))
}

fn requests(depth: u32) -> String {
    if depth == 1 { "one request".to_owned() } else { format!("{depth} requests in flight") }
}

/// Joins names: "a, b and c".
fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
