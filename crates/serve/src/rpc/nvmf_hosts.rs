//! The hosts of subsystems over TCP, and how they prove who they are.

use std::path::PathBuf;

use qpair_nvme_auth::{Group, Hash, Policy};
use serde_json::{Value, json};

use super::keyring::KEYRING;
use super::manager::Manager;
use super::methods::kept;
use super::params::{Failure, Params, Result, failed};

/// The name of the configuration of authentications in the list of calls.
const POLICY: &str = "authentication";

/// Returns the name of a host's permission in the list of calls.
pub(super) fn host_of(nqn: &str, host: &str) -> String {
    format!("host {host} of {nqn}")
}

pub(super) fn nvmf_subsystem_add_host(manager: &Manager, mut params: Params) -> Result<Value> {
    let (nqn, host) = (params.name("nqn")?, params.name("host")?);
    let (key, controller_key) = (params.text("dhchap_key")?, params.text("dhchap_ctrlr_key")?);
    let psk = params.text("psk")?;
    params.finish()?;
    let keys = manager.host_keys(key.as_deref(), controller_key.as_deref())?;
    let tls_key = manager.tls_key(psk.as_deref())?;
    let mut is_new = true;
    let mut nvmf = manager.nvmf();
    // Before the host may connect.
    if keys.is_some() {
        nvmf.set_keys(&nqn, &host, keys).map_err(failed)?;
    }
    if tls_key.is_some() {
        nvmf.set_tls_key(&nqn, &host, tls_key).map_err(failed)?;
    }
    nvmf.change_hosts(&nqn, |hosts| {
        if let Some(hosts) = hosts {
            is_new = hosts.insert(host.clone());
        }
    })
    .map_err(failed)?;
    drop(nvmf);
    if is_new || key.is_some() || psk.is_some() {
        let names = [psk, key, controller_key];
        note_host(manager, (&nqn, &host), names.each_ref().map(Option::as_deref));
    }
    Ok(json!(true))
}

/// Notes a host with its keys in the configuration, in place of what was noted of it.
fn note_host(
    manager: &Manager,
    (nqn, host): (&str, &str),
    [psk, key, controller_key]: [Option<&str>; 3],
) {
    let what = host_of(nqn, host);
    manager.unmade("nvmf", &what);
    let params = kept(&[
        ("nqn", json!(nqn)),
        ("host", json!(host)),
        ("psk", json!(psk)),
        ("dhchap_key", json!(key)),
        ("dhchap_ctrlr_key", json!(controller_key)),
    ]);
    manager.made("nvmf", &what, "nvmf_subsystem_add_host", params);
}

pub(super) fn nvmf_subsystem_set_keys(manager: &Manager, mut params: Params) -> Result<Value> {
    let (nqn, host) = (params.name("nqn")?, params.name("host")?);
    let (key, controller_key) = (params.text("dhchap_key")?, params.text("dhchap_ctrlr_key")?);
    params.finish()?;
    let keys = manager.host_keys(key.as_deref(), controller_key.as_deref())?;
    let info = manager.nvmf().infos().into_iter().find(|info| info.nqn == nqn);
    if !info.is_some_and(|info| info.hosts.is_none_or(|hosts| hosts.contains(&host))) {
        return Err(Failure::params(format!("{host} is not a host of {nqn}")));
    }
    manager.nvmf().set_keys(&nqn, &host, keys).map_err(failed)?;
    // The host keeps its key of TLS.
    let what = host_of(&nqn, &host);
    let psk = manager
        .calls()
        .iter()
        .find(|call| call.what == what)
        .and_then(|call| call.params["psk"].as_str().map(str::to_owned));
    let names = [psk, key, controller_key];
    note_host(manager, (&nqn, &host), names.each_ref().map(Option::as_deref));
    Ok(json!(true))
}

pub(super) fn nvmf_set_config(manager: &Manager, mut params: Params) -> Result<Value> {
    let (digests, groups) = (params.texts("dhchap_digests")?, params.texts("dhchap_dhgroups")?);
    params.finish()?;
    let mut policy = Policy::default();
    let unknown = |name: &String| Failure::params(format!("{name} is not known"));
    if let Some(names) = &digests {
        let find = |name: &String| Hash::ALL.into_iter().find(|it| it.name() == name);
        let found = names.iter().map(|name| find(name).ok_or_else(|| unknown(name)));
        policy.hashes = found.collect::<Result<_>>()?;
    }
    if let Some(names) = &groups {
        let find = |name: &String| Group::ALL.into_iter().find(|it| it.name() == name);
        let found = names.iter().map(|name| find(name).ok_or_else(|| unknown(name)));
        policy.groups = found.collect::<Result<_>>()?;
    }
    if policy.hashes.is_empty() || policy.groups.is_empty() {
        return Err(Failure::params("an empty list would refuse all hosts with keys"));
    }
    manager.nvmf().set_policy(policy);
    let params = kept(&[("dhchap_digests", json!(digests)), ("dhchap_dhgroups", json!(groups))]);
    manager.unmade("nvmf", POLICY);
    manager.made("nvmf", POLICY, "nvmf_set_config", params);
    Ok(json!(true))
}

pub(super) fn nvmf_subsystem_remove_host(manager: &Manager, mut params: Params) -> Result<Value> {
    let (nqn, host) = (params.name("nqn")?, params.name("host")?);
    params.finish()?;
    let mut was_there = false;
    let mut nvmf = manager.nvmf();
    nvmf.change_hosts(&nqn, |hosts| {
        was_there = hosts.as_mut().is_none_or(|hosts| hosts.remove(&host));
    })
    .map_err(failed)?;
    // A host that is no longer listed needs keys where any host may connect.
    if nvmf.infos().iter().any(|info| info.nqn == nqn && info.hosts.is_some()) {
        nvmf.set_keys(&nqn, &host, None).map_err(failed)?;
    }
    nvmf.set_tls_key(&nqn, &host, None).map_err(failed)?;
    drop(nvmf);
    if !was_there {
        return Err(Failure::params(format!("{host} is not a host of {nqn}")));
    }
    manager.unmade("nvmf", &host_of(&nqn, &host));
    Ok(json!(true))
}

/// A host that may connect over TCP, for the command line.
#[derive(Clone, Debug, Default)]
pub struct NvmeHost {
    pub nqn: String,
    /// The file with the key by which the host proves who it is; `None`: it need not.
    pub key: Option<PathBuf>,
    /// The file with the key by which the target proves who it is, if the host asks.
    pub controller_key: Option<PathBuf>,
    /// The file with the key by which the host uses TLS; `None`: it uses none.
    pub psk: Option<PathBuf>,
}

impl Manager {
    /// Lets a host connect, for the command line: a saved configuration has neither the host nor
    /// its keys.
    pub(super) fn add_nvme_host(
        &self,
        nqn: &str,
        host: &NvmeHost,
    ) -> std::result::Result<(), String> {
        let call = |method: &str, params: Value| {
            self.call(method, Some(params)).map_err(|failure| failure.message)
        };
        let name = &host.nqn;
        let mut names = Vec::new();
        let files = [(&host.key, "host"), (&host.controller_key, "controller"), (&host.psk, "tls")];
        for (path, end) in files {
            let Some(path) = path else {
                names.push(None);
                continue;
            };
            let key = format!("{name} {end}");
            call("keyring_file_add_key", json!({"name": key, "path": path}))?;
            self.unmade(KEYRING, &key);
            names.push(Some(key));
        }
        let params = json!({
            "nqn": nqn, "host": name, "dhchap_key": names[0], "dhchap_ctrlr_key": names[1],
            "psk": names[2],
        });
        call("nvmf_subsystem_add_host", params)?;
        self.unmade("nvmf", &host_of(nqn, name));
        Ok(())
    }
}
