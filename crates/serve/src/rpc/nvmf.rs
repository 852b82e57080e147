//! Subsystems, their namespaces, and their controllers for drivers.

use std::collections::BTreeSet;

use qpair_nvme_tcp::HostPort;
use serde_json::{Value, json};

use super::ana::{ana_name, ana_state_of};
use super::manager::Manager;
use super::methods::kept;
use super::nvmf_hosts::{NvmeHost, host_of};
use super::params::{Failure, Params, Result, failed};
use crate::bdevs::uuid_of;
use crate::nvmf::{SubsystemInfo, Transport};

pub(super) const VFIOUSER: &str = "VFIOUSER";
const TCP: &str = "TCP";
/// The number of namespaces of a subsystem if the call does not set it.
const NAMESPACES: u64 = 32;
const NAMESPACES_MAX: u64 = 1024;

/// Returns the name of a namespace in the list of calls.
fn namespace_of(nqn: &str, nsid: u32) -> String {
    format!("namespace {nsid} of {nqn}")
}

pub(super) fn controller_of(nqn: &str, traddr: &str) -> String {
    format!("controller of {nqn} at {traddr}")
}

/// The way by which drivers or hosts reach a subsystem.
pub(super) enum Listen {
    VfioUser(String),
    Tcp(HostPort),
}

/// Returns the known name of a transport type.
fn trtype_of(trtype: &str) -> Result<&'static str> {
    let known = [VFIOUSER, TCP].into_iter().find(|it| trtype.eq_ignore_ascii_case(it));
    known.ok_or_else(|| Failure::params(format!("Transport type '{trtype}' unavailable")))
}

/// Returns the requested number, or else the default, if it is within the bounds.
fn within(name: &str, asked: Option<u64>, usual: u64, bounds: [u64; 2]) -> Result<u64> {
    let ([least, most], amount) = (bounds, asked.unwrap_or(usual));
    match (least..=most).contains(&amount) {
        true => Ok(amount),
        false => {
            Err(Failure::params(format!("{name} must be from {least} to {most}, not {amount}")))
        }
    }
}

pub(super) fn nvmf_create_transport(manager: &Manager, mut params: Params) -> Result<Value> {
    let trtype = params.name("trtype")?;
    let depth = params.number("max_queue_depth")?;
    let queues = params.number("max_io_qpairs_per_ctrlr")?;
    let io_size = params.number("max_io_size")?;
    let trap_doorbells = params.flag("disable_mappable_bar0")?;
    let shadow_doorbells = !params.flag("disable_shadow_doorbells")?;
    // An option of the TCP transport.
    params.flag("c2h_success")?;
    params.finish()?;
    if trtype_of(&trtype)? == TCP {
        // The limits of hosts are those of the blocks that all connections of a worker share.
        if std::mem::replace(&mut manager.nvmf().has_tcp, true) {
            return Err(Failure::new(-32603, format!("Transport type '{TCP}' already exists")));
        }
        let params = kept(&[("trtype", json!(TCP))]);
        manager.made("nvmf", TCP, "nvmf_create_transport", params);
        return Ok(json!(true));
    }
    let usual = Transport::default();
    let entries = within("max_queue_depth", depth, usual.queue_entries_max.into(), [2, 65536])?;
    let pairs = within("max_io_qpairs_per_ctrlr", queues, usual.queues_max.into(), [1, 511])?;
    let bytes = within("max_io_size", io_size, 4096 << usual.mdts, [8192, 1 << 20])?;
    let mut nvmf = manager.nvmf();
    if nvmf.transport.is_some() {
        return Err(Failure::new(-32603, format!("Transport type '{VFIOUSER}' already exists")));
    }
    nvmf.transport = Some(Transport {
        queue_entries_max: entries as u32,
        queues_max: pairs as u16,
        mdts: (bytes / 4096).ilog2() as u8,
        trap_doorbells,
        shadow_doorbells,
    });
    let params = kept(&[
        ("trtype", json!(VFIOUSER)),
        ("max_queue_depth", json!(depth)),
        ("max_io_qpairs_per_ctrlr", json!(queues)),
        ("max_io_size", json!(io_size)),
        ("disable_mappable_bar0", if trap_doorbells { json!(true) } else { Value::Null }),
        ("disable_shadow_doorbells", if shadow_doorbells { Value::Null } else { json!(true) }),
    ]);
    manager.made("nvmf", VFIOUSER, "nvmf_create_transport", params);
    Ok(json!(true))
}

pub(super) fn nvmf_delete_transport(manager: &Manager, mut params: Params) -> Result<Value> {
    let trtype = params.name("trtype")?;
    params.finish()?;
    let trtype = trtype_of(&trtype)?;
    let mut nvmf = manager.nvmf();
    if trtype == TCP {
        if nvmf.has_portals() {
            return Err(Failure::new(-16, "Device or resource busy: there are listeners"));
        }
        if !std::mem::take(&mut nvmf.has_tcp) {
            return Err(Failure::params(format!("there is no transport of the type {TCP}")));
        }
        drop(nvmf);
        manager.unmade("nvmf", TCP);
        return Ok(json!(true));
    }
    if nvmf.has_controllers() {
        return Err(Failure::new(-16, "Device or resource busy: there are controllers"));
    }
    if nvmf.transport.take().is_none() {
        return Err(Failure::params(format!("there is no transport of the type {VFIOUSER}")));
    }
    manager.unmade("nvmf", VFIOUSER);
    Ok(json!(true))
}

pub(super) fn nvmf_create_subsystem(manager: &Manager, mut params: Params) -> Result<Value> {
    let nqn = params.name("nqn")?;
    let (serial, model) = (params.text("serial_number")?, params.text("model_number")?);
    let most = params.number("max_namespaces")?;
    // Any driver that can connect to a controller's socket may use the controller, because a driver
    // has no name in vfio-user. Hosts over TCP have names.
    let any_host = params.flag("allow_any_host")?;
    let reports_ana = params.flag("ana_reporting")?;
    params.finish()?;
    let most = within("max_namespaces", most, NAMESPACES, [1, NAMESPACES_MAX])?;
    if !nqn.starts_with("nqn.") || nqn.len() > 223 || !nqn.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Failure::params(format!("{nqn} is not an NQN")));
    }
    // The serial number is derived from the name, so it never changes.
    let of_name = || uuid_of(&nqn).replace('-', "")[..20].to_uppercase();
    let serial_number = serial.clone().unwrap_or_else(of_name);
    let model_number = model.clone().unwrap_or_else(|| "qpair bdev Controller".to_owned());
    let is_text = |text: &str, most: usize| {
        !text.is_empty()
            && text.len() <= most
            && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
    };
    if !is_text(&serial_number, 20) || serial_number.contains(' ') || !is_text(&model_number, 40) {
        let message = "a serial number has at most 20 printable characters, a model 40";
        return Err(Failure::params(message));
    }
    let mut nvmf = manager.nvmf();
    nvmf.create(&nqn, serial_number, model_number, most as u32).map_err(failed)?;
    if reports_ana {
        nvmf.report_ana(&nqn).map_err(failed)?;
    }
    if !any_host {
        nvmf.change_hosts(&nqn, |hosts| *hosts = Some(BTreeSet::new())).map_err(failed)?;
    }
    drop(nvmf);
    let params = kept(&[
        ("nqn", json!(nqn)),
        ("serial_number", json!(serial)),
        ("model_number", json!(model)),
        ("max_namespaces", json!(most)),
        ("allow_any_host", if any_host { json!(true) } else { Value::Null }),
        ("ana_reporting", if reports_ana { json!(true) } else { Value::Null }),
    ]);
    manager.made("nvmf", &nqn, "nvmf_create_subsystem", params);
    Ok(json!(true))
}

pub(super) fn nvmf_delete_subsystem(manager: &Manager, mut params: Params) -> Result<Value> {
    let (nqn, force) = (params.name("nqn")?, params.flag("force")?);
    params.finish()?;
    let info = manager.nvmf().infos().into_iter().find(|info| info.nqn == nqn);
    let disks = manager.nvmf().delete(&nqn, force).map_err(failed)?;
    let mut bdevs = manager.bdevs();
    for disk in disks {
        bdevs.claim(&disk.name, false);
    }
    drop(bdevs);
    if let Some(SubsystemInfo { namespaces, addresses, tcp_addresses, hosts, .. }) = info {
        for address in tcp_addresses {
            manager.unmade("nvmf", &controller_of(&nqn, &address.to_string()));
        }
        for host in hosts.iter().flatten() {
            manager.unmade("nvmf", &host_of(&nqn, host));
        }
        for namespace in namespaces {
            manager.unmade("nvmf", &namespace_of(&nqn, namespace.nsid));
        }
        for traddr in addresses {
            manager.unmade("nvmf", &controller_of(&nqn, &traddr));
        }
    }
    manager.unmade("nvmf", &nqn);
    Ok(json!(true))
}

pub(super) fn nvmf_subsystem_add_ns(manager: &Manager, mut params: Params) -> Result<Value> {
    let nqn = params.name("nqn")?;
    let mut namespace = params.fields("namespace")?;
    params.finish()?;
    let bdev_name = namespace.name("bdev_name")?;
    let (nsid, uuid) = (namespace.number("nsid")?, namespace.text("uuid")?);
    namespace.finish()?;
    let mut bdevs = manager.bdevs();
    let bdev = bdevs.get(&bdev_name).and_then(|_| bdevs.unclaimed(&bdev_name)).map_err(failed)?;
    let its_uuid = uuid.as_ref().unwrap_or(&bdev.uuid);
    let digits = u128::from_str_radix(&its_uuid.replace('-', ""), 16);
    let digits = digits.map_err(|_| Failure::params(format!("{its_uuid} is not a UUID")))?;
    // Zero, like no number, asks for the first free one.
    let asked = nsid.filter(|nsid| *nsid != 0);
    let asked = asked.map(|nsid| u32::try_from(nsid).unwrap_or(u32::MAX));
    let disk = bdev.disk.clone();
    let added = manager.nvmf().add(&nqn, asked, &disk, digits.to_be_bytes()).map_err(failed)?;
    bdevs.claim(&bdev_name, true);
    let namespace =
        kept(&[("bdev_name", json!(bdev_name)), ("nsid", json!(added)), ("uuid", json!(uuid))]);
    let params = kept(&[("nqn", json!(nqn)), ("namespace", namespace)]);
    manager.made("nvmf", &namespace_of(&nqn, added), "nvmf_subsystem_add_ns", params);
    Ok(json!(added))
}

pub(super) fn nvmf_subsystem_remove_ns(manager: &Manager, mut params: Params) -> Result<Value> {
    let (nqn, nsid) = (params.name("nqn")?, params.amount("nsid")?);
    let force = params.flag("force")?;
    params.finish()?;
    let nsid = u32::try_from(nsid).unwrap_or(u32::MAX);
    let disk = manager.nvmf().remove(&nqn, nsid, force).map_err(failed)?;
    manager.bdevs().claim(&disk.name, false);
    manager.unmade("nvmf", &namespace_of(&nqn, nsid));
    Ok(json!(true))
}

/// Takes the parameter `listen_address`.
pub(super) fn address(params: &mut Params) -> Result<Listen> {
    let mut address = params.fields("listen_address")?;
    let trtype = address.name("trtype")?;
    let traddr = address.name("traddr")?;
    address.text("adrfam")?;
    let trsvcid = address.text("trsvcid")?;
    address.finish()?;
    if trtype_of(&trtype)? == TCP {
        let port = trsvcid.map_or(Ok(qpair_nvme_tcp::address::PORT), |text| text.parse());
        let port = port.map_err(|_| Failure::params("trsvcid is not a port"))?;
        let is_bare = traddr.contains(':') && !traddr.starts_with('[');
        let host = if is_bare { format!("[{traddr}]") } else { traddr };
        return Ok(Listen::Tcp(HostPort { host, port }));
    }
    match traddr.is_empty() {
        true => Err(Failure::params("traddr is not a path")),
        false => Ok(Listen::VfioUser(traddr)),
    }
}

pub(super) fn nvmf_subsystem_add_listener(manager: &Manager, mut params: Params) -> Result<Value> {
    let nqn = params.name("nqn")?;
    let (ana, is_secure) = (params.text("ana_state")?, params.flag("secure_channel")?);
    let listen = address(&mut params)?;
    params.finish()?;
    let state = ana.as_deref().map(ana_state_of).transpose()?;
    let (traddr, address) = match listen {
        Listen::VfioUser(_) if state.is_some() => {
            return Err(Failure::params("ana_state is for listeners of TCP"));
        }
        Listen::VfioUser(_) if is_secure => {
            return Err(Failure::params("secure_channel is for listeners of TCP"));
        }
        Listen::VfioUser(traddr) => {
            let path = manager.folder.join(&traddr);
            manager.nvmf().listen(&nqn, &traddr, &path).map_err(failed)?;
            let address = json!({"trtype": VFIOUSER, "traddr": traddr});
            (traddr, address)
        }
        Listen::Tcp(address) => {
            let mut nvmf = manager.nvmf();
            if !nvmf.has_tcp {
                let context = format!("there is no transport of the type {TCP}");
                return Err(Failure::params(context));
            }
            let address = nvmf.listen_tcp(&nqn, &address, is_secure).map_err(failed)?;
            if let Some(Err(error)) = state.map(|state| nvmf.set_ana(&nqn, &address, state)) {
                // The call fails as a whole.
                nvmf.unlisten_tcp(&nqn, &address).map_err(failed)?;
                return Err(failed(error));
            }
            (address.to_string(), tcp_in_json(&address))
        }
    };
    let ana = state.map_or(Value::Null, |state| json!(ana_name(state)));
    let secure = if is_secure { json!(true) } else { Value::Null };
    let params = kept(&[
        ("nqn", json!(nqn)),
        ("listen_address", address),
        ("secure_channel", secure),
        ("ana_state", ana),
    ]);
    let what = controller_of(&nqn, &traddr);
    manager.made("nvmf", &what, "nvmf_subsystem_add_listener", params);
    Ok(json!(true))
}

pub(super) fn nvmf_subsystem_remove_listener(
    manager: &Manager,
    mut params: Params,
) -> Result<Value> {
    let (nqn, force) = (params.name("nqn")?, params.flag("force")?);
    let listen = address(&mut params)?;
    params.finish()?;
    let traddr = match listen {
        Listen::VfioUser(traddr) => {
            manager.nvmf().unlisten(&nqn, &traddr, force).map_err(failed)?;
            traddr
        }
        // Hosts reconnect by themselves when the listener is back.
        Listen::Tcp(address) => {
            manager.nvmf().unlisten_tcp(&nqn, &address).map_err(failed)?;
            address.to_string()
        }
    };
    manager.unmade("nvmf", &controller_of(&nqn, &traddr));
    Ok(json!(true))
}

pub(super) fn tcp_in_json(address: &HostPort) -> Value {
    let HostPort { host, port } = address;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let family = if host.starts_with('[') { "IPv6" } else { "IPv4" };
    json!({"trtype": TCP, "adrfam": family, "traddr": bare, "trsvcid": port.to_string()})
}

impl Manager {
    /// Serves devices as namespaces of a new subsystem over TCP, for the command line: a saved
    /// configuration does not have the subsystem, which comes back with the same command line.
    /// Without hosts, all may connect.
    ///
    /// # Errors
    /// The message of a call.
    pub fn serve_nvme_tcp(
        &self,
        address: &HostPort,
        nqn: &str,
        names: &[String],
        hosts: &[NvmeHost],
    ) -> std::result::Result<HostPort, String> {
        let call = |method: &str, params: Value| {
            self.call(method, Some(params)).map_err(|failure| failure.message)
        };
        if !self.nvmf().has_tcp {
            call("nvmf_create_transport", json!({"trtype": TCP}))?;
        }
        let all = hosts.is_empty();
        call("nvmf_create_subsystem", json!({"nqn": nqn, "allow_any_host": all}))?;
        for host in hosts {
            self.add_nvme_host(nqn, host)?;
        }
        for name in names {
            let namespace = json!({"bdev_name": name});
            let params = json!({"nqn": nqn, "namespace": namespace});
            let nsid = call("nvmf_subsystem_add_ns", params)?;
            let nsid = nsid.as_u64().unwrap_or_default() as u32;
            self.unmade("nvmf", &namespace_of(nqn, nsid));
        }
        // Hosts with keys of TLS get in only by TLS, and so nobody else does.
        let requires_tls = hosts.iter().any(|host| host.psk.is_some());
        let listen = self.nvmf().listen_tcp(nqn, address, requires_tls);
        let address = listen.map_err(|error| error.to_string())?;
        self.unmade("nvmf", nqn);
        self.unmade("nvmf", TCP);
        Ok(address)
    }
}

pub(super) fn nvmf_get_subsystems(manager: &Manager, mut params: Params) -> Result<Value> {
    let nqn = params.text("nqn")?;
    params.finish()?;
    let all = manager.nvmf().infos();
    let shown: Vec<Value> = all
        .iter()
        .filter(|it| nqn.as_ref().is_none_or(|nqn| *nqn == it.nqn))
        .map(in_json)
        .collect();
    match nqn {
        Some(nqn) if shown.is_empty() => {
            Err(Failure::params(format!("Subsystem with NQN '{nqn}' not found")))
        }
        _ => Ok(Value::Array(shown)),
    }
}

fn in_json(info: &SubsystemInfo) -> Value {
    let hex = |uuid: [u8; 16]| format!("{:032X}", u128::from_be_bytes(uuid));
    let dashed = |uuid: [u8; 16]| {
        let hex = hex(uuid).to_lowercase();
        let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
        parts.map(|(from, to)| &hex[from..to]).join("-")
    };
    let namespaces: Vec<Value> = info
        .namespaces
        .iter()
        .map(|it| {
            let name = &it.disk.name;
            json!({
                "nsid": it.nsid, "bdev_name": name, "name": name,
                "nguid": hex(it.uuid), "uuid": dashed(it.uuid),
            })
        })
        .collect();
    let address = |traddr: &String| json!({"trtype": VFIOUSER, "adrfam": "", "traddr": traddr, "trsvcid": ""});
    let tcp = info.tcp_addresses.iter().map(tcp_in_json);
    let hosts = info.hosts.iter().flatten().map(|host| json!({"nqn": host}));
    json!({
        "nqn": info.nqn,
        "subtype": "NVMe",
        "listen_addresses": info.addresses.iter().map(address).chain(tcp).collect::<Vec<_>>(),
        "allow_any_host": info.hosts.is_none(),
        "hosts": hosts.collect::<Vec<_>>(),
        "serial_number": info.serial,
        "model_number": info.model,
        "max_namespaces": info.namespaces_max,
        "ana_reporting": info.ana.is_some(),
        "min_cntlid": 1,
        "max_cntlid": u16::MAX - 1,
        "namespaces": namespaces,
    })
}
