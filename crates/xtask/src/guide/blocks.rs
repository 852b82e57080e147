//! The blocks of code of a page.

/// A command of a session, and the output that the page shows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The line of the page, from 1.
    pub(super) line: usize,
    pub(super) command: String,
    pub(super) output: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Block {
    Console {
        needs: Vec<String>,
        steps: Vec<Step>,
    },
    /// Commands that are not run, with their lines of the page.
    Shell(Vec<(usize, String)>),
}

impl Block {
    pub(super) fn shell(&self) -> Option<Vec<(usize, String)>> {
        match self {
            Self::Shell(lines) => Some(lines.clone()),
            Self::Console { .. } => None,
        }
    }
}

pub(super) fn parse(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().zip(1..);
    while let Some((line, _)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let mut words = info.split_whitespace();
        let language = words.next().unwrap_or_default();
        let content: Vec<(&str, usize)> =
            lines.by_ref().take_while(|(line, _)| !line.trim_start().starts_with("```")).collect();
        match language {
            "console" => {
                let needs = words.filter_map(|word| word.strip_prefix("needs="));
                let needs = needs.map(str::to_owned).collect();
                blocks.push(Block::Console { needs, steps: steps(&content) });
            }
            "sh" => blocks.push(Block::Shell(joined(&content))),
            _ => {}
        }
    }
    blocks
}

fn steps(content: &[(&str, usize)]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (text, line) in content {
        if let Some(command) = text.strip_prefix("$ ") {
            steps.push(Step { line: *line, command: command.to_owned(), output: Vec::new() });
        } else if let Some(step) = steps.last_mut() {
            match text.strip_prefix("> ") {
                Some(more) if step.output.is_empty() => {
                    step.command.push('\n');
                    step.command.push_str(more);
                }
                _ => step.output.push((*text).to_owned()),
            }
        }
    }
    steps
}

/// Joins lines that end with a backslash or a pipe.
fn joined(content: &[(&str, usize)]) -> Vec<(usize, String)> {
    let mut commands: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (text, line) in content {
        match commands.last_mut() {
            Some((_, command)) if continues => {
                command.push(' ');
                command.push_str(text.trim());
            }
            _ => commands.push((*line, text.trim().to_owned())),
        }
        continues = text.ends_with('\\') || text.ends_with('|');
    }
    for (_, command) in &mut commands {
        *command = command.replace('\\', " ");
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_and_commands_are_found() {
        let page = "text\n```console needs=jq\n$ a \\\n> b\nout\n\n$ c\n```\n```text\n$ no\n```\n\
                    ```sh\nqpair x | \\\n    qpair y   # why\nz\n```\n";
        let step = |line, command: &str, output: &[&str]| Step {
            line,
            command: command.to_owned(),
            output: output.iter().map(|line| (*line).to_owned()).collect(),
        };
        let console = Block::Console {
            needs: vec!["jq".to_owned()],
            steps: vec![step(3, "a \\\nb", &["out", ""]), step(7, "c", &[])],
        };
        let shell = vec![(13, "qpair x |   qpair y   # why".to_owned()), (15, "z".to_owned())];
        assert_eq!(parse(page), [console, Block::Shell(shell)]);
    }
}
