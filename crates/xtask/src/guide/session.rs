//! Runs the commands of a page in one shell, and compares their output.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::blocks::Step;

/// The time that a page may take, in seconds.
const LIMIT_S: &str = "180";
/// The beginning of lines that the script prints between commands.
const MARK: &str = "end-of-step-7a1c";

/// Runs the steps in a folder of their own. Returns what is wrong, with lines of the page.
pub(super) fn run(qpair: &Path, steps: &[&Step]) -> std::io::Result<Vec<(usize, String)>> {
    // Where the build is, direct I/O is likelier to work than in /tmp.
    let own = qpair.parent().unwrap_or(Path::new("/"));
    let folder = own.join(format!("guide-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut script = String::from("exec 2>&1 </dev/null\n");
    for step in steps {
        let _ = write!(script, "{}\nprintf '\\n{MARK} %d\\n' $?\n", step.command);
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("timeout")
        .args(["-k", "1", LIMIT_S, "bash", "-c", &script])
        .current_dir(&folder)
        .env("PATH", format!("{}:{path}", own.display()))
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output();
    let removed = std::fs::remove_dir_all(&folder);
    let text = String::from_utf8_lossy(&output?.stdout).into_owned();
    removed?;
    Ok(compare(steps, &text))
}

fn compare(steps: &[&Step], text: &str) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    let mut rest = text;
    for step in steps {
        let Some((output, code, behind)) = split(rest) else {
            let fault = format!("the session ended or took more than {LIMIT_S} s here: {rest}");
            faults.push((step.line, fault));
            break;
        };
        rest = behind;
        if code != "0" {
            faults.push((step.line, format!("exit code {code}: {output}")));
        } else if !step.output.is_empty() {
            let expected: Vec<&str> = step.output.iter().map(String::as_str).collect();
            let expected = trim(&expected);
            let lines: Vec<&str> = output.lines().collect();
            if !lines_match(expected, trim(&lines)) {
                let fault = format!("the output is not that of the page:\n{output}");
                faults.push((step.line, fault));
            }
        }
    }
    faults
}

/// Splits text behind the next mark into output, exit code and rest.
fn split(text: &str) -> Option<(&str, &str, &str)> {
    let (output, rest) = text.split_once(MARK)?;
    let (code, rest) = rest.split_once('\n')?;
    Some((output, code.trim(), rest))
}

/// Drops empty lines at both ends.
fn trim<'a, 'b>(mut lines: &'a [&'b str]) -> &'a [&'b str] {
    while let [rest @ .., last] = lines
        && last.trim().is_empty()
    {
        lines = rest;
    }
    while let [first, rest @ ..] = lines
        && first.trim().is_empty()
    {
        lines = rest;
    }
    lines
}

fn lines_match(expected: &[&str], lines: &[&str]) -> bool {
    match expected {
        [] => lines.is_empty(),
        ["...", rest @ ..] => (0..=lines.len()).any(|skip| lines_match(rest, &lines[skip..])),
        [first, rest @ ..] => {
            let Some((line, others)) = lines.split_first() else { return false };
            line_matches(first, line) && lines_match(rest, others)
        }
    }
}

fn line_matches(expected: &str, line: &str) -> bool {
    let mut parts = expected.trim_end().split('…');
    let Some(mut rest) = line.trim_end().strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts = parts.peekable();
    let has_gap = parts.peek().is_some();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    has_gap || rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_stand_for_anything() {
        for (expected, line, matches) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a…c", "abbc", true),
            ("a…c", "abcd", false),
            ("…b…", "abc", true),
            ("x…", "y", false),
            ("in … s", "in 0.1 s", true),
        ] {
            assert_eq!(line_matches(expected, line), matches, "{expected} {line}");
        }
        assert!(lines_match(&["a", "...", "b"], &["a", "x", "y", "b"]));
        assert!(lines_match(&["..."], &[]));
        assert!(!lines_match(&["a", "...", "b"], &["a", "x"]));
    }

    #[test]
    fn each_step_has_its_output() {
        let step = |line, output: &[&str]| Step {
            line,
            command: String::new(),
            output: output.iter().map(|line| (*line).to_owned()).collect(),
        };
        let (first, second) = (step(1, &["x"]), step(2, &[]));
        let faults = |text: &str| {
            let lines = compare(&[&first, &second], text);
            lines.into_iter().map(|(line, _)| line).collect::<Vec<usize>>()
        };
        let end = |code| format!("\n{MARK} {code}\n");
        assert_eq!(faults(&format!("x\n{}y{}", end(0), end(0))), Vec::<usize>::new());
        assert_eq!(faults(&format!("z{}{}", end(0), end(1))), [1, 2]);
        assert_eq!(faults(&format!("x{}more", end(0))), [2]);
    }
}
