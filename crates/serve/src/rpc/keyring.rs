//! The keyring: names of files with keys. Calls and saved configurations have names, never keys.

use std::collections::BTreeMap;
use std::path::PathBuf;

use qpair_memory::locks::Mutex;
use qpair_nvme_auth::psk::InterchangeKey;
use qpair_nvme_auth::{HostKeys, Secret};
use serde_json::{Value, json};

use super::manager::Manager;
use super::methods::kept;
use super::params::{Failure, Params, Result};

pub(super) const KEYRING: &str = "keyring";

/// The files by name.
pub(super) type Keyring = Mutex<BTreeMap<String, PathBuf>>;

pub(super) fn keyring_file_add_key(manager: &Manager, mut params: Params) -> Result<Value> {
    let (name, path) = (params.name("name")?, params.name("path")?);
    params.finish()?;
    let path = std::path::absolute(&path).unwrap_or_else(|_| path.into());
    if !path.is_file() {
        let what = format!("{} is not a file with a key", path.display());
        return Err(Failure::new(-2, what));
    }
    let mut keys = manager.keyring.lock();
    if keys.contains_key(&name) {
        return Err(Failure::new(-17, format!("a key is called {name} already")));
    }
    let params = kept(&[("name", json!(name)), ("path", json!(path))]);
    keys.insert(name.clone(), path);
    manager.made(KEYRING, &name, "keyring_file_add_key", params);
    Ok(json!(true))
}

pub(super) fn keyring_file_remove_key(manager: &Manager, mut params: Params) -> Result<Value> {
    let name = params.name("name")?;
    params.finish()?;
    // Hosts keep the keys that were read.
    if manager.keyring.lock().remove(&name).is_none() {
        return Err(missing(&name));
    }
    manager.unmade(KEYRING, &name);
    Ok(json!(true))
}

pub(super) fn keyring_get_keys(manager: &Manager, params: Params) -> Result<Value> {
    params.finish()?;
    let keys = manager.keyring.lock();
    let shown = keys.iter().map(|(name, path)| {
        json!({"name": name, "module": "keyring_file", "removed": false, "path": path})
    });
    Ok(Value::Array(shown.collect()))
}

fn missing(name: &str) -> Failure {
    Failure::new(-126, format!("there is no key {name}: keyring_file_add_key adds one"))
}

impl Manager {
    fn path_of_key(&self, name: &str) -> Result<PathBuf> {
        self.keyring.lock().get(name).cloned().ok_or_else(|| missing(name))
    }

    fn key(&self, name: &str) -> Result<Secret> {
        Ok(Secret::read(&self.path_of_key(name)?)?)
    }

    /// Reads a key of TLS from the file of this name.
    pub(super) fn tls_key(&self, name: Option<&str>) -> Result<Option<InterchangeKey>> {
        let Some(name) = name else { return Ok(None) };
        Ok(Some(InterchangeKey::read(&self.path_of_key(name)?)?))
    }

    /// Reads the keys of a host from the files of these names.
    pub(super) fn host_keys(
        &self,
        host: Option<&str>,
        controller: Option<&str>,
    ) -> Result<Option<HostKeys>> {
        match (host, controller) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Failure::params(
                "dhchap_ctrlr_key needs dhchap_key: a host proves itself first",
            )),
            (Some(host), controller) => Ok(Some(HostKeys {
                host: self.key(host)?,
                controller: controller.map(|name| self.key(name)).transpose()?,
            })),
        }
    }
}
