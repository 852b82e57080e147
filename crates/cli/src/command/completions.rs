//! `qpair completions`.

use std::collections::BTreeMap;

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
        if self.shell == Shell::Bash {
            bytes.extend(device_keys().bytes());
        }
        print_bytes(&bytes)?;
        Ok(Exit::Done)
    }
}

/// Returns what completes the keys of devices: after a kind and a colon, and after each comma.
fn device_keys() -> String {
    let mut kinds: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for section in qpair_drivers::sections() {
        let kind = section.prefix.trim_end_matches(':').rsplit(':').next().unwrap_or_default();
        kinds.entry(kind.to_owned()).or_default().extend(section.rows.iter().map(|row| row.name));
    }
    let kinds: String = kinds
        .iter()
        .map(|(kind, keys)| format!("{kind}) keys='{}' ;;\n", keys.join(" ")))
        .collect();
    KEYS_IN_BASH.replace("KINDS\n", &kinds)
}

const KEYS_IN_BASH: &str = r#"
_qpair_devices() {
    local word=${COMP_LINE:0:COMP_POINT} keys=
    word=${word##*[[:space:]]}
    local kind=${word%:*} part=${word##*:}
    kind=${kind##*[:=+\[]} part=${part##*,}
    [[ $word != *:* || $part == *=* ]] || case $kind in
KINDS
    esac
    if [[ -n $keys ]]; then
        COMPREPLY=( $(compgen -P "${2%"$part"}" -S = -W "$keys" -- "$part") )
        compopt -o nospace 2>/dev/null
    else
        _qpair "$@"
    fi
}
complete -F _qpair_devices -o nosort -o bashdefault -o default qpair 2>/dev/null ||
    complete -F _qpair_devices -o bashdefault -o default qpair
"#;
