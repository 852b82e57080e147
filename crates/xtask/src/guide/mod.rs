//! Runs the commands of the guide, and compares their output with that in its pages.
//!
//! A block marked `console` is a session: lines after `$ ` are commands, lines after `> ` continue
//! them, and all others are output. Each page has a folder and a shell of its own. In output, `…`
//! stands for any characters, and a line `...` for any lines. A command without output in the page
//! may print anything; each must succeed. `needs=TOOL` behind `console` skips the block where TOOL
//! is not installed.
//!
//! Blocks marked `sh` need a drive, a guest or root, and are not run: their subcommands and options
//! are looked up in the help.

mod blocks;
mod help;
mod session;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;

use blocks::Block;
use help::Help;

#[derive(Args)]
pub(crate) struct Options {
    /// The command
    #[arg(long, default_value = "target/ci/qpair")]
    qpair: PathBuf,

    /// The pages [default: all of docs/guide and docs/reference]
    pages: Vec<PathBuf>,
}

#[expect(clippy::print_stdout, reason = "this is a command")]
pub(crate) fn run(options: &Options) -> ExitCode {
    match check(options) {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            println!("{}", faults.join("\n"));
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Checks all pages. Returns the faults in them.
#[expect(clippy::print_stdout, reason = "people see which page is checked")]
fn check(options: &Options) -> std::io::Result<Vec<String>> {
    let qpair = options.qpair.canonicalize()?;
    let mut help = Help::new(&qpair);
    let mut faults = Vec::new();
    for page in pages(&options.pages)? {
        let text = std::fs::read_to_string(&page)?;
        let (start, before) = (Instant::now(), faults.len());
        let blocks = blocks::parse(&text);
        let mut at = |line: usize, fault: String| {
            faults.push(format!("{}:{line}: {fault}", page.display()));
        };
        for (line, words) in blocks.iter().filter_map(Block::shell).flatten() {
            help.check(&words).into_iter().for_each(|fault| at(line, fault));
        }
        let mut steps = Vec::new();
        for block in &blocks {
            let Block::Console { needs, steps: more } = block else { continue };
            match needs.iter().find(|tool| !is_installed(tool)) {
                Some(tool) => println!("skipped: {}: {tool} is not installed", page.display()),
                None => steps.extend(more),
            }
        }
        for step in &steps {
            help.check(&step.command).into_iter().for_each(|fault| at(step.line, fault));
        }
        session::run(&qpair, &steps)?.into_iter().for_each(|(line, fault)| at(line, fault));
        let (seconds, faults) = (start.elapsed().as_secs_f64(), faults.len() - before);
        if !blocks.is_empty() {
            let (page, steps) = (page.display(), steps.len());
            println!("{page}: {steps} commands run, {faults} faults, {seconds:.1} s");
        }
    }
    Ok(faults)
}

fn pages(given: &[PathBuf]) -> std::io::Result<Vec<PathBuf>> {
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").canonicalize()?;
    let mut pages = Vec::new();
    for folder in ["guide", "reference"] {
        for entry in docs.join(folder).read_dir()? {
            pages.push(entry?.path());
        }
    }
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    Ok(pages)
}

fn is_installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}
