//! The methods that serve devices by NBD.

use qpair_nbd::Address;
use serde_json::{Value, json};

use super::manager::Manager;
use super::methods::kept;
use super::params::{Failure, Params, Result};
use crate::nbd::NbdExport;

pub(super) const NBD: &str = "nbd";

fn parse(address: &str) -> Result<Address> {
    Ok(match address.parse()? {
        Address::Unix(path) => Address::Unix(std::path::absolute(&path).unwrap_or(path)),
        tcp @ Address::Tcp(..) => tcp,
    })
}

pub(super) fn nbd_create_server(manager: &Manager, mut params: Params) -> Result<Value> {
    let address = params.name("address")?;
    let names = params.texts("bdev_names")?;
    let names = Params::needed("bdev_names", names)?;
    let read_only = params.flag("readonly")?;
    params.finish()?;
    let address = parse(&address)?;
    let mut bdevs = manager.bdevs();
    let mut exports = Vec::new();
    for name in &names {
        if exports.iter().any(|export: &NbdExport| export.disk.name == *name) {
            return Err(Failure::params(format!("{name} is named twice")));
        }
        let disk = bdevs.unclaimed(name)?.disk.clone();
        exports.push(NbdExport { disk, read_only });
    }
    let address = manager.target.serve_nbd(&address, exports)?;
    names.iter().for_each(|name| bdevs.claim(name, true));
    let address = address.to_string();
    let params = kept(&[
        ("address", json!(address)),
        ("bdev_names", json!(names)),
        ("readonly", if read_only { json!(true) } else { Value::Null }),
    ]);
    manager.made(NBD, &address, "nbd_create_server", params);
    Ok(json!(address))
}

pub(super) fn nbd_delete_server(manager: &Manager, mut params: Params) -> Result<Value> {
    let address = params.name("address")?;
    let force = params.flag("force")?;
    params.finish()?;
    let address = parse(&address)?;
    for export in manager.target.remove_nbd(&address, force)? {
        manager.bdevs().claim(&export.disk.name, false);
    }
    manager.unmade(NBD, &address.to_string());
    Ok(json!(true))
}

pub(super) fn nbd_get_servers(manager: &Manager, params: Params) -> Result<Value> {
    params.finish()?;
    let shown = manager.target.nbd_servers().into_iter().map(|server| {
        let exports = server
            .exports
            .iter()
            .map(|export| json!({"bdev_name": export.disk.name, "readonly": export.read_only}));
        json!({
            "address": server.address.to_string(), "connections": server.clients,
            "exports": exports.collect::<Vec<_>>(),
        })
    });
    Ok(Value::Array(shown.collect()))
}

impl Manager {
    /// Serves devices by NBD, as `nbd_create_server` does, for the command line: a saved
    /// configuration does not have the server, which comes back with the same command line.
    ///
    /// # Errors
    /// The message of the call.
    pub fn serve_nbd(
        &self,
        address: &Address,
        names: &[String],
        read_only: bool,
    ) -> std::result::Result<(), String> {
        let params = json!({
            "address": address.to_string(), "bdev_names": names, "readonly": read_only,
        });
        let made = self.call("nbd_create_server", Some(params));
        let address = made.map_err(|failure| failure.message)?;
        self.unmade(NBD, address.as_str().unwrap_or_default());
        Ok(())
    }
}
