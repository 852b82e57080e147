//! Commands of the program on recorded devices.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fastrand::Rng;

use super::history::Operation;
use super::load::Load;
use super::plan::Action;
use super::recorder::Mark;
use super::rig::{Rig, name};

/// A command that is about to be run: its arguments, what it reads, and what it changes.
struct Call {
    arguments: Vec<String>,
    input: Vec<u8>,
    operation: Option<Operation>,
}

impl Load<'_> {
    /// Runs a command on the store, which is closed.
    pub(super) fn command(
        &self,
        program: &Path,
        folder: &Path,
        rig: &Rig,
        action: Action,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let mut call = self.call(rig, action, rng);
        call.arguments.extend(self.plan.key_arguments(folder)?);
        self.recorder.mark(Mark::Command);
        let operation = call.operation.map(|operation| self.begin(self.plan.writers, operation));
        run(program, &call.arguments, &call.input)?;
        if let Some(operation) = operation {
            self.returned(self.plan.writers, operation, true);
        }
        if action.targets() > 0 {
            self.recorder.mark(Mark::Made);
        }
        Ok(())
    }

    fn call(&self, rig: &Rig, action: Action, rng: &mut Rng) -> Call {
        let devices = self.plan.shapes().len();
        let (own, targets) = rig.sockets.split_at(devices.min(rig.sockets.len()));
        let store = || self.store(own);
        let (mut arguments, mut input, mut operation) = (Vec::new(), Vec::new(), None);
        let mut say =
            |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
        match action {
            Action::Load { sorted } => {
                say(&["load", "--quiet", "--format", "tsv", "--key", "1", "--value", "2"]);
                let name = format!("loaded-{}", self.value(0).stamp);
                say(&["--table", &name]);
                if sorted {
                    say(&["--sorted"]);
                }
                let records = self.records(&name, rng.u32(1..3000), 300, rng);
                for (place, value) in &records {
                    let value = value.map(|value| value.bytes(&place.key)).unwrap_or_default();
                    input.extend(place.key.bytes().chain([b'\t']).chain(value).chain([b'\n']));
                }
                operation = Some(Operation { is_atomic: sorted, sets: records });
                arguments.extend(store());
                arguments.push("-".to_owned());
            }
            Action::Delete => {
                // The keys that the last writer has in some table. There may be no such table.
                let state = {
                    let history = self.history.lock();
                    let writer = &history.writers[self.plan.writers];
                    writer.state(writer.operations.len())
                };
                let Some(table) = state.keys().next().map(|place| place.table.clone()) else {
                    return self.call(rig, Action::Compact, rng);
                };
                let prefix = format!("{:02}/{:04}", self.plan.writers, rng.u32(0..20));
                let sets: BTreeMap<_, _> = state
                    .into_keys()
                    .filter(|place| place.table == table && place.key.starts_with(&prefix))
                    .map(|place| (place, None))
                    .collect();
                say(&["delete", "--table", &table, "--prefix", &prefix]);
                operation = Some(Operation { is_atomic: false, sets });
                arguments.extend(store());
            }
            Action::Compact => {
                say(&["compact", "--quiet"]);
                arguments.extend(store());
            }
            Action::Copy { .. } | Action::Backup { .. } => {
                say(&[
                    if matches!(action, Action::Copy { .. }) { "copy" } else { "backup" },
                    "--quiet",
                ]);
                arguments.extend(store());
                arguments.push(target(targets));
            }
        }
        arguments.extend([
            "--memory".to_owned(),
            "8MiB".to_owned(),
            "--workers".to_owned(),
            self.plan.workers.to_string(),
        ]);
        Call { arguments, input, operation }
    }

    fn store(&self, sockets: &[PathBuf]) -> Vec<String> {
        let (members, log) = sockets.split_at(self.plan.members.min(sockets.len()));
        let mut arguments = Vec::new();
        for (number, member) in members.iter().enumerate() {
            if number > 0 {
                arguments.push("--member".to_owned());
            }
            arguments.push(name(member));
        }
        for log in log {
            arguments.extend(["--log-device".to_owned(), name(log)]);
        }
        arguments
    }
}

fn target(sockets: &[PathBuf]) -> String {
    let names: Vec<_> = sockets.iter().map(|socket| name(socket)).collect();
    match &names[..] {
        [one] => one.clone(),
        several => format!("stripe:unit=64KiB:{}", several.join("+")),
    }
}

fn run(program: &Path, arguments: &[String], input: &[u8]) -> Result<(), String> {
    let said = |doing: &str, error: std::io::Error| {
        format!("{doing} qpair {}: {error}", arguments.join(" "))
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| said("starting", error))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If the command has ended, its exit status is reported below.
        let _ = stdin.write_all(input);
    }
    let output = child.wait_with_output().map_err(|error| said("waiting for", error))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(format!(
                "qpair {} ended with {}: {}",
                arguments.join(" "),
                output.status,
                text.trim()
            ))
        }
    }
}
