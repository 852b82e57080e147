//! Looks up subcommands and options of commands in the help.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) struct Help {
    qpair: PathBuf,
    /// The help of subcommands, by their words.
    texts: HashMap<String, String>,
}

impl Help {
    pub(super) fn new(qpair: &Path) -> Self {
        Self { qpair: qpair.to_owned(), texts: HashMap::new() }
    }

    /// Checks each call of `qpair` in a line of shell.
    pub(super) fn check(&mut self, line: &str) -> Vec<String> {
        let mut faults = Vec::new();
        for call in calls(line) {
            let mut words = call.into_iter().peekable();
            let mut command = String::new();
            let mut help = self.text("");
            while has_commands(&help) {
                let Some(word) = words.next_if(|word| !word.starts_with('-')) else { break };
                if !is_listed(&help, word) {
                    faults.push(format!("there is no command `qpair{command} {word}`"));
                    return faults;
                }
                command = format!("{command} {word}");
                help = self.text(&command);
            }
            for option in words.filter_map(|word| word.strip_prefix("--")) {
                let name = option.split('=').next().unwrap_or_default();
                if !name.is_empty() && name != "help" && !has_option(&help, name) {
                    faults.push(format!("`qpair{command}` has no option --{name}"));
                }
            }
        }
        faults
    }

    fn text(&mut self, command: &str) -> String {
        if let Some(text) = self.texts.get(command) {
            return text.clone();
        }
        let output =
            Command::new(&self.qpair).args(command.split_whitespace()).arg("--help").output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let text = text.unwrap_or_default();
        self.texts.insert(command.to_owned(), text.clone());
        text
    }
}

/// Returns the words of each call of `qpair` in a line.
fn calls(line: &str) -> Vec<Vec<&str>> {
    let mut calls: Vec<Vec<&str>> = Vec::new();
    let (mut begins, mut is_own) = (true, false);
    for word in line.split_whitespace() {
        if word.starts_with('#') {
            break;
        }
        if begins && word == "qpair" {
            calls.push(Vec::new());
            is_own = true;
        } else if is_own
            && !matches!(word, "|" | "&&" | "||" | "&" | ";" | ">")
            && let Some(call) = calls.last_mut()
        {
            call.push(word.trim_end_matches([';', ')']));
        }
        let ends = matches!(word, "|" | "&&" | "||" | "&" | ";" | "sudo") || word.ends_with(';');
        if ends || word == ">" {
            is_own = false;
        }
        begins = ends;
    }
    calls
}

fn has_commands(help: &str) -> bool {
    help.lines().any(|line| line == "Commands:")
}

fn is_listed(help: &str, word: &str) -> bool {
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    commands
        .take_while(|line| !line.is_empty())
        .any(|line| line.starts_with("  ") && line.split_whitespace().next() == Some(word))
}

fn has_option(help: &str, name: &str) -> bool {
    let name = format!("--{name}");
    help.match_indices(&name).any(|(at, _)| {
        let behind = help[at + name.len()..].chars().next();
        !behind.is_some_and(|next| next.is_alphanumeric() || next == '-' || next == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found() {
        assert_eq!(
            calls("sudo qpair nvme bind 0 --owner $USER   # qpair x"),
            [vec!["nvme", "bind", "0", "--owner", "$USER"]]
        );
        assert_eq!(
            calls(
                "find / -printf '%p' | qpair load a - --raw && qpair get a b; qpair scan a > qpair"
            ),
            [vec!["load", "a", "-", "--raw"], vec!["get", "a", "b"], vec!["scan", "a"]]
        );
        assert!(calls("echo qpair x --y").is_empty());
    }

    #[test]
    fn options_are_whole_words() {
        assert!(has_option("  --json  print", "json") && has_option("[--json]", "json"));
        assert!(!has_option("--json-lines", "json"));
        assert!(is_listed("Commands:\n  load  x\n\nOptions:\n  no", "load"));
        assert!(!is_listed("Commands:\n  load  x\n\nOptions:\n  no", "no"));
    }
}
