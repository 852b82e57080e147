//! How much the target tells.

use serde_json::{Value, json};

use super::manager::Manager;
use super::params::{Failure, Params, Result};
use crate::target::Level;

pub(super) fn log_get_level(manager: &Manager, params: Params) -> Result<Value> {
    params.finish()?;
    Ok(json!(manager.target.level().name()))
}

pub(super) fn log_set_level(manager: &Manager, mut params: Params) -> Result<Value> {
    let name = params.name("level")?;
    params.finish()?;
    let level = Level::named(&name).ok_or_else(|| {
        let all = Level::ALL.map(Level::name).join(", ");
        Failure::new(-32603, format!("no level is called {name}; there are {all}"))
    })?;
    manager.target.set_level(level);
    Ok(json!(true))
}
