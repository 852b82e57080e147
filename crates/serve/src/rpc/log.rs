//! The log level, and the methods that show and set it.

use serde_json::{Value, json};

use super::manager::Manager;
use super::params::{Failure, Params, Result};

/// A log level, with SPDK's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Failures.
    Error,
    /// Conditions that the operator should look at.
    Warning,
    /// Events of normal operation.
    Notice,
    /// The same events as for `Notice`: our log has one level for both.
    Info,
    /// Requests and answers as well.
    Debug,
}

impl Level {
    /// All levels, from the one that logs least.
    pub const ALL: [Self; 5] = [Self::Error, Self::Warning, Self::Notice, Self::Info, Self::Debug];

    /// Returns SPDK's name of the level.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Warning => "WARNING",
            Self::Notice => "NOTICE",
            Self::Info => "INFO",
            Self::Debug => "DEBUG",
        }
    }

    /// Returns the level of a name, in upper or lower case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

/// The program's log, as calls see it.
pub trait Log: Send + Sync {
    /// Returns the level of crates that have no level of their own.
    fn level(&self) -> Level;

    /// Sets the level of crates that have no level of their own.
    fn set_level(&self, level: Level);
}

fn log(manager: &Manager) -> Result<&dyn Log> {
    let log = manager.log.get().map(|log| &**log);
    log.ok_or_else(|| Failure::new(-95, "this program does not log"))
}

pub(super) fn log_get_level(manager: &Manager, params: Params) -> Result<Value> {
    params.finish()?;
    Ok(json!(log(manager)?.level().name()))
}

pub(super) fn log_set_level(manager: &Manager, mut params: Params) -> Result<Value> {
    let name = params.name("level")?;
    params.finish()?;
    let level = Level::named(&name).ok_or_else(|| {
        let all = Level::ALL.map(Level::name).join(", ");
        Failure::new(-32603, format!("there is no level {name}; the levels are {all}"))
    })?;
    log(manager)?.set_level(level);
    Ok(json!(true))
}
