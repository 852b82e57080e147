//! Commands that mend, as the user of this process would have to type them.

use crate::finding::Finding;
use crate::machine::Machine;

/// What a setting lasts that is written to the running kernel.
pub(super) const UNTIL_RESTART: &str = "now, until the next start";

/// A command that needs root.
pub(super) fn as_root(machine: &Machine, command: &str) -> String {
    if machine.process.is_root() { command.to_owned() } else { format!("sudo {command}") }
}

/// Several commands that need root, one after the other.
pub(super) fn all_as_root(machine: &Machine, commands: &[String]) -> String {
    let line = commands.join(" && ");
    if machine.process.is_root() { line } else { format!("sudo sh -c '{line}'") }
}

/// Writes a word into a file of root's.
pub(super) fn write(machine: &Machine, word: &str, path: &str) -> String {
    if machine.process.is_root() {
        format!("echo {word} > {path}")
    } else {
        format!("echo {word} | sudo tee {path}")
    }
}

/// Sets a variable of sysctl, now and for good.
pub(super) fn sysctl(machine: &Machine, finding: Finding, name: &str, value: &str) -> Finding {
    let file = format!("/etc/sysctl.d/90-{}.conf", name.replace('.', "-"));
    finding
        .mend(as_root(machine, &format!("sysctl -w {name}={value}")), UNTIL_RESTART)
        .mend(write(machine, &format!("'{name} = {value}'"), &file), "from the next start")
}

/// Adds words to the kernel's command line.
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

/// Raises a limit of processes: of the shell, and of the user.
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
