//! Configurations: the calls in a file, and their difference from the calls whose effects exist.
//!
//! Invariants:
//! - When [`Manager::apply`] fails, nothing has changed: the calls that it made are undone, and the
//!   calls that it undid are made again;
//! - objects that a client has made are not removed because they are missing in a file.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use tracing::debug;

use super::limits::no_limits;
use super::manager::{Call, Manager};
use super::methods::METHODS;
use super::params::Failure;

/// A call of a configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigCall {
    /// The line of the file at which the call begins.
    pub line: usize,
    /// The name of the method.
    pub method: String,
    /// The parameters of the call, an object.
    pub params: Value,
}

/// A fault in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// The line of the file, if the fault is in the file.
    pub line: Option<usize>,
    /// A description of the fault.
    pub what: String,
}

/// The numbers of calls that were made and undone when a configuration was applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigChange {
    /// Calls that were made.
    pub made: usize,
    /// Calls that were undone, to be made with other parameters or not at all.
    pub undone: usize,
}

/// Returns the call that undoes another, if there is one.
fn undoing(method: &str, params: &Value) -> Option<(String, Value)> {
    let (undo, keys): (String, &[&str]) = match method {
        // A disk that is no longer in the file keeps its content on the device.
        "bdev_scsi_create" => {
            let params = serde_json::json!({"name": params.get("name")?, "keep": true});
            return Some(("bdev_scsi_delete".into(), params));
        }
        "bdev_error_create" => {
            let name = format!("EE_{}", params.get("base_name")?.as_str()?);
            return Some(("bdev_error_delete".into(), serde_json::json!({"name": name})));
        }
        "bdev_split_create" => ("bdev_split_delete".into(), &["base_bdev"]),
        "bdev_nvme_attach_controller" => ("bdev_nvme_detach_controller".into(), &["name"]),
        "bdev_scsi_attach_controller" => ("bdev_scsi_detach_controller".into(), &["name"]),
        "bdev_virtio_attach_controller" => ("bdev_virtio_detach_controller".into(), &["name"]),
        "bdev_set_qos_limit" => return Some((method.into(), no_limits(params.get("name")?))),
        "vhost_scsi_controller_add_target" => {
            ("vhost_scsi_controller_remove_target".into(), &["ctrlr", "scsi_target_num"])
        }
        "keyring_file_add_key" => ("keyring_file_remove_key".into(), &["name"]),
        "nbd_create_server" => ("nbd_delete_server".into(), &["address"]),
        "nvmf_create_transport" => ("nvmf_delete_transport".into(), &["trtype"]),
        "nvmf_create_subsystem" => ("nvmf_delete_subsystem".into(), &["nqn"]),
        "nvmf_subsystem_add_host" => ("nvmf_subsystem_remove_host".into(), &["nqn", "host"]),
        "nvmf_subsystem_add_listener" => {
            ("nvmf_subsystem_remove_listener".into(), &["nqn", "listen_address"])
        }
        "nvmf_subsystem_add_ns" => {
            let nsid = params.get("namespace")?.get("nsid");
            let params = serde_json::json!({"nqn": params.get("nqn")?, "nsid": nsid});
            return Some(("nvmf_subsystem_remove_ns".into(), params));
        }
        _ if method.starts_with("vhost_create_") && method.ends_with("_controller") => {
            ("vhost_delete_controller".into(), &["ctrlr"])
        }
        _ => (format!("{}_delete", method.strip_suffix("_create")?), &["name"]),
    };
    METHODS.iter().find(|known| known.name == undo)?;
    let named: Map<String, Value> = keys
        .iter()
        .map(|key| ((*key).to_owned(), params.get(*key).cloned().unwrap_or_default()))
        .collect();
    Some((undo, Value::Object(named)))
}

/// Whether a call makes no named object: the names in its parameters refer to existing objects.
fn is_about(method: &str) -> bool {
    matches!(method, "bdev_set_qos_limit" | "vhost_scsi_controller_add_target")
}

/// Returns a function that tells whether a name is that of an object that a call made.
fn made_by(call: &Call) -> impl Fn(&str) -> bool {
    let is_about = is_about(call.method);
    let of = |key: &str, letter: &str| {
        Some(format!("{}{letter}", call.params[key].as_str().unwrap_or_default()))
    };
    // The text before the numbers of parts, namespaces and units.
    let parts = match call.method {
        "bdev_split_create" => of("base_bdev", "p"),
        "bdev_nvme_attach_controller" => of("name", "n"),
        "bdev_scsi_attach_controller" => of("name", "t"),
        "bdev_virtio_attach_controller" if call.params["dev_type"] == "scsi" => of("name", "t"),
        _ => None,
    };
    let what = match call.method {
        "bdev_virtio_attach_controller" => of("name", "").unwrap_or_default(),
        _ => call.what.clone(),
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    move |name| match &parts {
        _ if is_about => false,
        None => name == what,
        // A unit that is not its target's first has its own number after an `l`.
        Some(parts) => {
            name.strip_prefix(parts.as_str()).is_some_and(|rest| rest.splitn(2, 'l').all(is_number))
        }
    }
}

/// Whether a call names something that another call has made.
fn uses(call: &Call, makes: &impl Fn(&str) -> bool) -> bool {
    fn names(params: &Value, is_about: bool, makes: &impl Fn(&str) -> bool) -> bool {
        let is_used = |key: &str| is_about || (key != "name" && key != "ctrlr");
        match params {
            Value::String(text) => makes(text),
            Value::Array(all) => all.iter().any(|one| names(one, is_about, makes)),
            // The call makes the object with this name, and does not use it.
            Value::Object(map) => {
                map.iter().any(|(key, one)| is_used(key) && names(one, is_about, makes))
            }
            _ => false,
        }
    }
    names(&call.params, is_about(call.method), makes)
}

impl Manager {
    /// Applies the calls of a configuration. Makes new calls, undoes calls that are no longer in
    /// it, and undoes and repeats calls that have changed. Everything else stays, including objects
    /// that clients have made.
    ///
    /// # Errors
    /// All faults of the calls; nothing has changed then. Removing a disk that a guest uses is such
    /// a fault.
    pub fn apply(&self, wanted: &[ConfigCall]) -> Result<ConfigChange, Vec<ConfigFault>> {
        let _alone = self.alone();
        let mut faults = Vec::new();
        for ConfigCall { line, method, params } in wanted {
            let fault = if !METHODS.iter().any(|known| known.name == method) {
                format!("there is no method {method}")
            } else if undoing(method, params).is_none() {
                format!("{method} makes nothing: it has no place in a configuration")
            } else {
                continue;
            };
            faults.push(ConfigFault { line: Some(*line), what: fault });
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let (undo, make) = self.difference(wanted)?;
        let mut change = ConfigChange { made: 0, undone: 0 };
        // Undo the last calls first: objects built on others are removed before these.
        let mut undone = Vec::new();
        for call in undo.iter().rev() {
            match self.undo(call) {
                Ok(()) => {
                    debug!(name: "undone", method = call.method, what = call.what, "a call was undone");
                    undone.push(call);
                }
                Err(failure) => {
                    let what = format!("{} stays: {}", call.what, failure.message);
                    faults.push(ConfigFault { line: None, what });
                    break;
                }
            }
        }
        let mut made = Vec::new();
        for entry in make.iter().filter(|_| undone.len() == undo.len()) {
            match self.make(&entry.method, entry.params.clone(), true) {
                Ok(_) => {
                    debug!(name: "made", method = entry.method, line = entry.line, "a call was made");
                    made.push(entry);
                }
                Err(failure) => {
                    let what = format!("{}: {}", entry.method, failure.message);
                    faults.push(ConfigFault { line: Some(entry.line), what });
                }
            }
        }
        if faults.is_empty() {
            (change.made, change.undone) = (made.len(), undone.len());
            return Ok(change);
        }
        for entry in made.into_iter().rev() {
            // Record the call as executed, with the names and numbers that it chose.
            let carried_out = |call: &&Call| {
                call.method == entry.method && call.of_file && call.given == entry.params
            };
            let params = self.calls().iter().rfind(carried_out).map(|call| call.params.clone());
            if let Some((method, params)) = params.and_then(|it| undoing(&entry.method, &it))
                && let Err(failure) = self.make(&method, params, true)
            {
                let what = format!("it could not be undone: {}", failure.message);
                faults.push(ConfigFault { line: Some(entry.line), what });
            }
        }
        for call in undone.into_iter().rev() {
            if let Err(failure) = self.make(call.method, call.given.clone(), call.of_file) {
                let what = format!("{} could not be made again: {}", call.what, failure.message);
                faults.push(ConfigFault { line: None, what });
            }
        }
        Err(faults)
    }

    /// Returns the calls to undo and the calls to make.
    #[allow(clippy::type_complexity, reason = "two lists")]
    fn difference<'w>(
        &self,
        wanted: &'w [ConfigCall],
    ) -> Result<(Vec<Call>, Vec<&'w ConfigCall>), Vec<ConfigFault>> {
        let mut calls = self.calls();
        let mut kept: BTreeSet<usize> = BTreeSet::new();
        let mut make: Vec<&ConfigCall> = Vec::new();
        let mut of_wanted: Vec<(usize, &ConfigCall)> = Vec::new();
        for entry in wanted {
            let same = |(at, call): &(usize, &Call)| {
                call.method == entry.method
                    && (call.given == entry.params || call.params == entry.params)
                    && !kept.contains(at)
            };
            match calls.iter().enumerate().find(same).map(|(at, _)| at) {
                Some(at) => {
                    kept.insert(at);
                    of_wanted.push((at, entry));
                }
                None => make.push(entry),
            }
        }
        let mut doomed: BTreeSet<usize> =
            (0..calls.len()).filter(|at| calls[*at].of_file && !kept.contains(at)).collect();
        let mut faults = Vec::new();
        // Calls that use an object to be removed come after the call that made it.
        for at in 0..calls.len() {
            let call = &calls[at];
            let base = doomed.iter().find(|base| uses(call, &made_by(&calls[**base])));
            let Some(base) = base.filter(|_| !doomed.contains(&at)) else { continue };
            match of_wanted.iter().find(|(its, _)| *its == at) {
                Some((_, entry)) => {
                    make.push(*entry);
                    doomed.insert(at);
                }
                None => {
                    let what = format!(
                        "{} is not to be taken away: a client has made {} of it ({})",
                        calls[*base].what, call.what, call.method
                    );
                    faults.push(ConfigFault { line: None, what });
                }
            }
        }
        for export in self.target.exports().iter().filter(|export| export.has_client) {
            let goes = |at: &usize| {
                let call = &calls[*at];
                // Targets of a SCSI host may be added and removed while a guest uses it.
                call.method.starts_with("vhost_create_")
                    && call.params.get("ctrlr").is_some_and(|ctrlr| *ctrlr == json!(export.name))
            };
            if doomed.iter().any(goes) {
                let what = format!(
                    "{} is not to be taken away or changed: a guest has it (vhost_delete_controller with force=true takes it)",
                    export.name
                );
                faults.push(ConfigFault { line: None, what });
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        for (at, _) in of_wanted {
            calls[at].of_file = true;
        }
        // Make the calls in the order of the file.
        make.sort_by_key(|entry| entry.line);
        Ok((doomed.into_iter().map(|at| calls[at].clone()).collect(), make))
    }

    fn undo(&self, call: &Call) -> Result<(), Failure> {
        let undo = undoing(call.method, &call.params);
        let (method, params) =
            undo.ok_or_else(|| Failure::new(-95, "nothing undoes it while the target runs"))?;
        self.make(&method, params, true).map(|_| ())
    }
}
