//! The files with certificates and keys, all in PEM.

use std::path::PathBuf;

/// The files of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFiles {
    /// The server's certificate, and those between it and the certificate authority.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The certificate authorities of clients. With it, a client needs a certificate of one of
    /// them; without it, any client that trusts the server may connect.
    pub client_ca: Option<PathBuf>,
}

/// The files of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The certificate authorities that the client trusts for the server.
    pub ca: PathBuf,
    /// The client's certificate and its private key, for a server that asks for them.
    pub identity: Option<(PathBuf, PathBuf)>,
}
