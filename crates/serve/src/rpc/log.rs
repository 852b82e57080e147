//! How much is logged.

use serde_json::{Value, json};

use super::manager::Manager;
use super::params::{Failure, Params, Result};

/// How much is logged, by SPDK's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What went wrong.
    Error,
    /// What the operator should look at.
    Warning,
    /// What happened.
    Notice,
    /// As much: what is logged has one level for both.
    Info,
    /// What was asked for and said, too.
    Debug,
}

impl Level {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Error, Self::Warning, Self::Notice, Self::Info, Self::Debug];

    /// The word.
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

    /// The level of that name, in letters of any size.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

/// Whatever logs, as calls see it.
pub trait Log: Send + Sync {
    /// How much of crates that have no level of their own.
    fn level(&self) -> Level;

    /// Logs more of these from now on, or less.
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
        Failure::new(-32603, format!("no level is called {name}; there are {all}"))
    })?;
    log(manager)?.set_level(level);
    Ok(json!(true))
}
