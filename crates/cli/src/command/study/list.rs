//! `qpair study --list`.

use qpair_study::{
    Effort, Finding, Here, Lab, Means, Mix, Options, catalogue, commands, cpus, interfaces,
};
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
    let mut lab = Lab {
        cpus: cpus()?,
        drivers: crate::interrupt::drivers(),
        means: Means::probe(&devices),
        folder: args.folder().to_owned(),
        devices,
        interfaces,
        effort,
        mix: Mix::default(),
    };
    lab.place_stores();
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
                commands: commands(experiment),
                points,
                seconds,
                skipped: plan.skipped,
            }
        })
        .collect();
    let findings = catalogue().map(|finding| ListedFinding::of(finding, &lab.here()));
    let findings: Vec<ListedFinding> = findings.collect();
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
        let tested = self.findings.iter().filter(|finding| finding.lacks.is_empty()).count();
        lines.push(String::new());
        lines.push(format!(
            "findings of the papers: {}, of which this machine can test {tested}",
            self.findings.len()
        ));
        for finding in &self.findings {
            lines.push(format!("{:<27} {}", finding.name, finding.source));
            lines.push(format!("    {}", finding.claim));
            lines.push(format!("    test: {}", finding.test));
            if !finding.lacks.is_empty() {
                lines.push(format!("    not here: {}", finding.lacks.join("; ")));
            }
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
    /// The commands that repeat the experiment.
    commands: Vec<String>,
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
        let mut lines = vec![
            format!("{:<15} {}", self.name, self.figure),
            format!("    {}", self.shows),
            format!("    needs: {}", self.needs),
        ];
        lines.extend(self.commands.iter().map(|command| format!("    run: {command}")));
        lines.push(format!("    here: {here}"));
        lines
    }
}

#[derive(Serialize)]
struct ListedFinding {
    name: &'static str,
    source: &'static str,
    claim: &'static str,
    experiment: &'static str,
    /// The test, with its experiment and needs.
    test: String,
    of_model: bool,
    needs: Vec<String>,
    /// The needs that this machine does not meet, with the reasons.
    lacks: Vec<String>,
}

impl ListedFinding {
    fn of(finding: &'static Finding, here: &Here<'_>) -> Self {
        Self {
            name: finding.name,
            source: finding.source,
            claim: finding.claim,
            experiment: finding.experiment,
            test: finding.words(),
            of_model: finding.is_of_model(here),
            needs: finding.needs.iter().map(|need| need.words()).collect(),
            lacks: finding.lacks(here),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::Arguments;

    #[test]
    fn commands_are_understood() {
        for experiment in qpair_study::experiments() {
            let commands = commands(experiment);
            assert!(!commands.is_empty());
            for command in commands {
                let words = command.strip_prefix("sudo ").unwrap_or(&command).split(' ');
                let parsed = Arguments::try_parse_from(words);
                assert!(parsed.is_ok(), "{command}: {}", parsed.err().unwrap());
            }
        }
    }
}
