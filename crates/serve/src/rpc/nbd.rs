//! The methods that serve devices by NBD.

use std::path::PathBuf;

use qpair_nbd::Address;
use qpair_tls::ServerFiles;
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

/// Takes the files for TLS, if there is to be TLS.
fn tls_files(params: &mut Params) -> Result<Option<ServerFiles>> {
    let certificate = params.text("tls_certificate")?;
    let (key, client_ca) = (params.text("tls_key")?, params.text("tls_client_ca")?);
    let absolute = |path: String| std::path::absolute(&path).unwrap_or_else(|_| path.into());
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some(ServerFiles {
            certificate: absolute(certificate),
            key: absolute(key),
            client_ca: client_ca.map(absolute),
        })),
        (None, None) if client_ca.is_none() => Ok(None),
        _ => Err(Failure::params("TLS needs tls_certificate and tls_key")),
    }
}

pub(super) fn nbd_create_server(manager: &Manager, mut params: Params) -> Result<Value> {
    let address = params.name("address")?;
    let names = params.texts("bdev_names")?;
    let names = Params::needed("bdev_names", names)?;
    let read_only = params.flag("readonly")?;
    let files = tls_files(&mut params)?;
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
    let address = manager.target.serve_nbd(&address, exports, files.as_ref())?;
    names.iter().for_each(|name| bdevs.claim(name, true));
    let address = address.to_string();
    let path = |path: Option<&PathBuf>| path.map_or(Value::Null, |path| json!(path));
    let files = files.as_ref();
    let params = kept(&[
        ("address", json!(address)),
        ("bdev_names", json!(names)),
        ("readonly", if read_only { json!(true) } else { Value::Null }),
        ("tls_certificate", path(files.map(|files| &files.certificate))),
        ("tls_key", path(files.map(|files| &files.key))),
        ("tls_client_ca", path(files.and_then(|files| files.client_ca.as_ref()))),
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
            "tls": server.requires_tls,
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
        tls: Option<&ServerFiles>,
    ) -> std::result::Result<(), String> {
        let params = json!({
            "address": address.to_string(), "bdev_names": names, "readonly": read_only,
            "tls_certificate": tls.map(|files| &files.certificate),
            "tls_key": tls.map(|files| &files.key),
            "tls_client_ca": tls.and_then(|files| files.client_ca.as_ref()),
        });
        let made = self.call("nbd_create_server", Some(params));
        let address = made.map_err(|failure| failure.message)?;
        self.unmade(NBD, address.as_str().unwrap_or_default());
        Ok(())
    }
}
