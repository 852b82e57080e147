//! TLS of a client: the files.

use std::path::PathBuf;

use qpair_block::{Error, ErrorKind, Result};
use qpair_tls::{ClientFiles, TlsClient};

use crate::Address;

/// The files of a client that uses TLS. A connection then fails unless the server has TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NbdTls {
    /// The file with the certificate authorities that the client trusts (PEM). Empty: no TLS.
    pub ca: String,
    /// The files with the client's certificate and its private key, for a server that asks for
    /// them. Empty: none.
    pub certificate: String,
    pub key: String,
    /// The name that the server's certificate must have. Empty: the host of the address.
    pub name: String,
}

/// The settings of a client, and the name of the server.
#[derive(Clone, Debug)]
pub(super) struct Trust {
    pub(super) client: TlsClient,
    pub(super) name: String,
}

impl NbdTls {
    /// Reads the files; `None` without TLS.
    ///
    /// # Errors
    /// `Invalid` for files that do not belong together or are not of TLS; the errors of reading.
    pub(super) fn read(&self, address: &Address) -> Result<Option<Trust>> {
        let Self { ca, certificate, key, name } = self;
        let wrong = |what: &str| Err(Error::new(ErrorKind::Invalid, what.to_owned()));
        if ca.is_empty() {
            let is_empty = [certificate, key, name].iter().all(|text| text.is_empty());
            return if is_empty { Ok(None) } else { wrong("TLS of an NBD client needs tls_ca") };
        }
        let identity = match (certificate.is_empty(), key.is_empty()) {
            (true, true) => None,
            (false, false) => Some((PathBuf::from(certificate), PathBuf::from(key))),
            _ => return wrong("tls_certificate and tls_key are given together"),
        };
        let name = match address {
            _ if !name.is_empty() => name.clone(),
            Address::Tcp(host, _) => host.clone(),
            Address::Unix(_) => "localhost".to_owned(),
        };
        let client = TlsClient::new(&ClientFiles { ca: ca.into(), identity })?;
        Ok(Some(Trust { client, name }))
    }
}
