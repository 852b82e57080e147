//! `qpair study --list`.

use qpair_study::{Effort, Lab, Mix, Need, Options, Row, catalogue, cpus, interfaces};
use serde::Serialize;

use crate::failure::Result;
use crate::show::output::print_report;
use crate::study::lab::DeviceArgs;

pub(super) fn list(
    args: &DeviceArgs,
    allow_writes: bool,
    effort: Effort,
    options: &Options,
    json: bool,
) -> Result<()> {
    let devices = match &args.devices[..] {
        // Without a device, plan as if a file was given.
        [] => vec![qpair_study::Device::of("null:size=1GiB", true, true)?],
        _ => args.given(allow_writes)?,
    };
    let mut interfaces = interfaces(&devices);
    if args.devices.is_empty() {
        interfaces = qpair_study::INTERFACES[..5]
            .iter()
            .filter(|candidate| !candidate.name.contains("+p"))
            .map(|candidate| qpair_study::InterfaceReport {
                name: candidate.name.to_owned(),
                about: candidate.about.to_owned(),
                ran_as: None,
                unavailable: None,
                way_out: None,
            })
            .collect();
    }
    let stores = args.devices.is_empty();
    let lab = Lab {
        cpus: cpus()?,
        drivers: crate::interrupt::drivers(),
        devices,
        interfaces,
        effort,
        stores,
        mix: Mix::default(),
    };
    let settings = options.settings(lab.effort);
    let experiments: Vec<Listed> = options
        .experiments
        .iter()
        .map(|experiment| {
            let plan = experiment.plan(&lab);
            let points = plan.configs().count();
            let seconds = if plan.over_time { None } else { Some(settings.estimate_s(points)) };
            Listed {
                name: experiment.name,
                figure: experiment.figure,
                shows: experiment.shows,
                needs: experiment.needs,
                points,
                seconds,
                skipped: plan.skipped,
            }
        })
        .collect();
    let findings: Vec<ListedFinding> = catalogue().map(ListedFinding::of).collect();
    let list = List { experiments, findings };
    print_report(json, &list, || list.lines())
}

#[derive(Serialize)]
struct List {
    experiments: Vec<Listed>,
    findings: Vec<ListedFinding>,
}

impl List {
    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.experiments.iter().flat_map(Listed::lines).collect();
        let tested = self.findings.iter().filter(|finding| finding.experiment.is_some()).count();
        lines.push(String::new());
        lines.push(format!("findings of the papers: {}, tested: {tested}", self.findings.len()));
        for finding in &self.findings {
            lines.push(format!("{:<27} {}", finding.name, finding.source));
            lines.push(format!("    {}", finding.claim));
            lines.push(format!("    here: {}", finding.here));
        }
        lines
    }
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    figure: &'static str,
    shows: &'static str,
    needs: &'static str,
    points: usize,
    /// The measured seconds; `None` for an experiment that is one long run.
    seconds: Option<f64>,
    skipped: Vec<String>,
}

impl Listed {
    fn lines(&self) -> Vec<String> {
        let long = self
            .seconds
            .map_or_else(|| "one long run".to_owned(), |seconds| format!("about {seconds:.0} s"));
        let here = match self.points {
            0 => self.skipped.join("; "),
            points => format!("{points} points, {long}"),
        };
        vec![
            format!("{:<15} {}", self.name, self.figure),
            format!("    {}", self.shows),
            format!("    needs: {}", self.needs),
            format!("    here: {here}"),
        ]
    }
}

#[derive(Serialize)]
struct ListedFinding {
    name: &'static str,
    source: &'static str,
    claim: &'static str,
    experiment: Option<&'static str>,
    needs: &'static [Need],
    here: String,
}

impl ListedFinding {
    fn of(row: &'static Row) -> Self {
        Self {
            name: row.name(),
            source: row.source(),
            claim: row.claim(),
            experiment: row.tested().map(|finding| finding.experiment),
            needs: row.needs(),
            here: row.here(),
        }
    }
}
