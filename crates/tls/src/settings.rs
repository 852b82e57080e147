//! Settings, made of certificates and keys from files.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};

use crate::files::{ClientFiles, ServerFiles};
use crate::session::Session;

/// The settings of a server. A clone shares them.
#[derive(Clone)]
pub struct TlsServer(Arc<ServerConfig>);

/// The settings of a client. A clone shares them.
#[derive(Clone)]
pub struct TlsClient(Arc<ClientConfig>);

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").finish_non_exhaustive()
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient").finish_non_exhaustive()
    }
}

fn invalid(path: &Path, why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("{}: {why}", path.display()))
}

/// The parser's own texts may quote the file, which may hold a key.
fn unreadable(path: &Path, error: pem::Error, what: &str) -> Error {
    match error {
        pem::Error::Io(cause) => Error::os(cause, format!("{}: reading {what}", path.display())),
        _ => invalid(path, format_args!("the file has no {what} in PEM"))
            .hint("give a file with a line -----BEGIN …-----"),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let failed = |error| unreadable(path, error, "certificate");
    let all = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let all = all.collect::<std::result::Result<Vec<_>, _>>().map_err(failed)?;
    if all.is_empty() { Err(failed(pem::Error::NoItemsFound)) } else { Ok(all) }
}

fn authorities(path: &Path) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|error| {
            invalid(path, format_args!("a certificate cannot be used as an authority: {error}"))
        })?;
    }
    Ok(store)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(certificate: &Path, key: &Path) -> Result<Identity> {
    let chain = certificates(certificate)?;
    let key =
        PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error, "private key"))?;
    Ok((chain, key))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls_graviola::default_provider())
}

fn protocol(error: rustls::Error) -> Error {
    Error::new(ErrorKind::Unsupported, format!("TLS cannot be set up: {error}"))
}

impl TlsServer {
    /// Reads a server's files.
    ///
    /// # Errors
    /// `Invalid` for a file without a certificate or key, and for a key of another certificate; the
    /// errors of reading.
    pub fn new(files: &ServerFiles) -> Result<Self> {
        let provider = provider();
        let (chain, key) = identity(&files.certificate, &files.key)?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(protocol)?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(authorities(ca)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| invalid(ca, error))?)
            }
        };
        let config = builder.with_single_cert(chain, key).map_err(|error| {
            invalid(&files.certificate, format_args!("the certificate cannot be used: {error}"))
        })?;
        Ok(Self(Arc::new(config)))
    }

    /// Begins the TLS of a connection that was accepted.
    ///
    /// # Errors
    /// The errors of rustls.
    pub fn session(&self) -> io::Result<Session> {
        let connection = ServerConnection::new(self.0.clone()).map_err(io::Error::other)?;
        Ok(Session::new(Connection::Server(connection)))
    }
}

impl TlsClient {
    /// Reads a client's files.
    ///
    /// # Errors
    /// As [`TlsServer::new`].
    pub fn new(files: &ClientFiles) -> Result<Self> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(protocol)?
            .with_root_certificates(authorities(&files.ca)?);
        let config = match &files.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let (chain, key) = identity(certificate, key)?;
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    invalid(certificate, format_args!("the certificate cannot be used: {error}"))
                })?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    /// Begins the TLS of a connection to a server, whose certificate must have this name or
    /// address.
    ///
    /// # Errors
    /// `InvalidInput` for a name that no certificate can have.
    pub fn session(&self, server: &str) -> io::Result<Session> {
        let bare = server.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned()).map_err(|_| {
            let what = format!("'{server}' cannot be the name of a server's certificate");
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        let connection = ClientConnection::new(self.0.clone(), name).map_err(io::Error::other)?;
        Ok(Session::new(Connection::Client(connection)))
    }
}
