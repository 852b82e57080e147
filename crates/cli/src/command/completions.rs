//! `qpair completions`.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::{Exit, Result};
use crate::show::output::print_bytes;

/// Print completions for a shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair completions bash > ~/.local/share/bash-completion/completions/qpair
  qpair completions zsh > ~/.zfunc/_qpair
  qpair completions fish > ~/.config/fish/completions/qpair.fish")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, mut whole: Command) -> Result<Exit> {
        let mut bytes = Vec::new();
        clap_complete::generate(self.shell, &mut whole, "qpair", &mut bytes);
        print_bytes(&bytes)?;
        Ok(Exit::Done)
    }
}
