//! `qpair man`.

use std::path::{Path, PathBuf};

use clap::builder::{Resettable, Str};
use clap::{Args, Command};

use crate::failure::{Exit, Failure, Result};
use crate::show::output::print_bytes;

/// Print the manual page of a command, or write all pages to a folder
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair man bench io | man -l -
  qpair man --dir /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// The command [default: qpair itself]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,

    /// Write the pages of all commands to this folder
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self, mut whole: Command) -> Result<Exit> {
        whole.build();
        if let Some(dir) = &self.dir {
            std::fs::create_dir_all(dir).map_err(Failure::at("making", dir))?;
            write(&whole, dir)?;
            return Ok(Exit::Done);
        }
        let mut command = &whole;
        for word in &self.command {
            command = command.find_subcommand(word).ok_or_else(|| {
                Failure::usage(format!("there is no command {}", self.command.join(" ")))
                    .hint("qpair --help lists them")
            })?;
        }
        print_bytes(&page(command)?)?;
        Ok(Exit::Done)
    }
}

/// Returns the name of a page, such as `qpair-bench-io`.
fn title(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).replace(' ', "-")
}

fn page(command: &Command) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Use the text of --help: a list of all options, without their values, does not show how to
    // call a command.
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    let named = command.clone().name(title(command)).override_usage(usage);
    // The page names one version, not the build.
    let named = named.long_version(Resettable::<Str>::Reset);
    clap_mangen::Man::new(named)
        .source(concat!("qpair ", env!("CARGO_PKG_VERSION")))
        .render(&mut bytes)
        .map_err(|error| Failure::io(&error, "writing the manual page"))?;
    Ok(bytes)
}

fn write(command: &Command, dir: &Path) -> Result<()> {
    let path = dir.join(format!("{}.1", title(command)));
    std::fs::write(&path, page(command)?).map_err(Failure::at("writing", &path))?;
    for sub in
        command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set())
    {
        write(sub, dir)?;
    }
    Ok(())
}
