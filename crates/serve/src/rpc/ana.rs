//! Listeners of subsystems, and the states of access by them (ANA).

use qpair_nvme_wire::ana::AnaState;
use serde_json::{Value, json};

use super::manager::Manager;
use super::nvmf::{Listen, VFIOUSER, address, controller_of, tcp_in_json};
use super::params::{Failure, Params, Result, failed};

/// Returns a state of access by SPDK's name.
pub(super) fn ana_state_of(name: &str) -> Result<AnaState> {
    let is_it = |state: &AnaState| ana_name(*state).eq_ignore_ascii_case(name);
    AnaState::ALL
        .into_iter()
        .find(is_it)
        .ok_or_else(|| Failure::params(format!("'{name}' is not a state of access")))
}

pub(super) fn ana_name(state: AnaState) -> &'static str {
    match state {
        AnaState::Optimized => "optimized",
        AnaState::NonOptimized => "non_optimized",
        AnaState::Inaccessible => "inaccessible",
        AnaState::PersistentLoss => "persistent_loss",
        AnaState::Change => "change",
    }
}

pub(super) fn nvmf_subsystem_listener_set_ana_state(
    manager: &Manager,
    mut params: Params,
) -> Result<Value> {
    let nqn = params.name("nqn")?;
    let (state, group) = (params.name("ana_state")?, params.number("anagrpid")?);
    let listen = address(&mut params)?;
    params.finish()?;
    let state = ana_state_of(&state)?;
    if group.is_some_and(|group| group > 1) {
        return Err(Failure::params("all namespaces are in the group 1"));
    }
    let Listen::Tcp(address) = listen else {
        return Err(Failure::params("ana_state is for listeners of TCP"));
    };
    manager.nvmf().set_ana(&nqn, &address, state).map_err(failed)?;
    // A saved configuration has the state of now.
    let what = controller_of(&nqn, &address.to_string());
    for call in manager.calls().iter_mut().filter(|call| call.what == what) {
        call.params["ana_state"] = json!(ana_name(state));
    }
    Ok(json!(true))
}

pub(super) fn nvmf_subsystem_get_listeners(manager: &Manager, mut params: Params) -> Result<Value> {
    let nqn = params.name("nqn")?;
    params.finish()?;
    let info = manager.nvmf().infos().into_iter().find(|info| info.nqn == nqn);
    let info =
        info.ok_or_else(|| Failure::params(format!("Subsystem with NQN '{nqn}' not found")))?;
    let local = info.addresses.iter().map(|traddr| {
        json!({"address": {"trtype": VFIOUSER, "adrfam": "", "traddr": traddr, "trsvcid": ""}})
    });
    let tcp = info.tcp_addresses.iter().enumerate().map(|(number, address)| {
        let mut listener = json!({"address": tcp_in_json(address)});
        if let Some(state) = info.ana.as_ref().and_then(|states| states.get(number)) {
            listener["ana_states"] = json!([{"ana_group": 1, "ana_state": ana_name(*state)}]);
        }
        listener
    });
    Ok(Value::Array(local.chain(tcp).collect()))
}
