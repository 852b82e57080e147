//! Commands that fix a finding, as the user of this process would have to type them.

use crate::finding::Finding;
use crate::machine::Machine;

/// The duration of a setting that is written to the running kernel.
pub(super) const UNTIL_RESTART: &str = "now, until the next start";

pub(super) fn as_root(machine: &Machine, command: &str) -> String {
    if machine.process.is_root() { command.to_owned() } else { format!("sudo {command}") }
}

pub(super) fn all_as_root(machine: &Machine, commands: &[String]) -> String {
    let line = commands.join(" && ");
    if machine.process.is_root() { line } else { format!("sudo sh -c '{line}'") }
}

pub(super) fn write(machine: &Machine, word: &str, path: &str) -> String {
    if machine.process.is_root() {
        format!("echo {word} > {path}")
    } else {
        format!("echo {word} | sudo tee {path}")
    }
}

/// Adds commands that set a sysctl variable now and permanently.
pub(super) fn sysctl(machine: &Machine, finding: Finding, name: &str, value: &str) -> Finding {
    let file = format!("/etc/sysctl.d/90-{}.conf", name.replace('.', "-"));
    finding
        .mend(as_root(machine, &format!("sysctl -w {name}={value}")), UNTIL_RESTART)
        .mend(write(machine, &format!("'{name} = {value}'"), &file), "from the next start")
}

/// Adds a command that extends the kernel's command line.
pub(super) fn at_boot(machine: &Machine, finding: Finding, words: &str) -> Finding {
    let grub = format!(
        "sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{words} /' /etc/default/grub && {}",
        as_root(machine, "update-grub")
    );
    let grubby = format!("grubby --update-kernel=ALL --args=\"{words}\"");
    finding
        .mend(as_root(machine, &grub), "Debian, Ubuntu: from the next start")
        .mend(as_root(machine, &grubby), "Fedora, RHEL: from the next start")
}

/// Adds commands that raise a process limit, for the shell and for the user.
pub(super) fn limit(
    machine: &Machine,
    finding: Finding,
    (option, item): (&str, &str),
    value: &str,
) -> Finding {
    let now = format!("prlimit --pid $$ --{option}={value}");
    let user = if machine.process.is_root() { "root" } else { "'$USER'" };
    let line = format!("'{user} - {item} {value}'");
    let file = format!("/etc/security/limits.d/90-{item}.conf");
    finding
        .mend(as_root(machine, &now), "now, in this shell")
        .mend(write(machine, &line, &file), "from the next login")
}
