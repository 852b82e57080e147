//! The reading of the configuration file, when the target starts and at SIGHUP.

use std::path::Path;

use qpair_serve::{ConfigChange, ConfigFault, Manager};
use tracing::error;

use super::config::Config;
use crate::events::Events;
use crate::failure::{Exit, Failure, Result};

/// The target of this command's log messages.
pub(super) const LOG: &str = "qpair_serve";

pub(super) fn read(file: &Path) -> Result<std::result::Result<Config, Vec<ConfigFault>>> {
    let text = std::fs::read_to_string(file);
    Ok(Config::parse(&text.map_err(|error| Failure::io(&error, file.display()))?))
}

/// Makes the difference between what the file says now and what there is.
pub(super) fn read_again(
    file: &Path,
    manager: &Manager,
    events: &Events,
) -> std::result::Result<ConfigChange, Vec<ConfigFault>> {
    let unreadable = |what: String| vec![ConfigFault { line: None, what }];
    let text = std::fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
    let config = Config::parse(&text)?;
    let change = manager.apply(&config.calls)?;
    if let Some(levels) = config.settings.log {
        events.set(levels);
    }
    Ok(change)
}

pub(super) fn tell_of_faults(file: &Path, faults: &[ConfigFault]) {
    let (file, count) = (file.display(), faults.len());
    for ConfigFault { line, what } in faults {
        error!(name: "fault", target: LOG, %file, line, "{what}");
    }
    error!(name: "refused", target: LOG, %file, faults = count, "the configuration was refused: nothing has changed");
}

/// `FILE:LINE: WHAT`, a line for each.
pub(super) fn refused(file: &Path, faults: &[ConfigFault]) -> Failure {
    let file = file.display();
    let text = |fault: &ConfigFault| match fault.line {
        Some(line) => format!("{file}:{line}: {}", fault.what),
        None => format!("{file}: {}", fault.what),
    };
    Failure::new(Exit::Failed, faults.iter().map(text).collect::<Vec<_>>().join("\n"))
}
