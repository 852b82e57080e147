//! The two ends: what is the same for all their connections.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::Waker;

use s2n_tls::callbacks::{ClientHelloCallback, ConnectionFuture};
use s2n_tls::config::{Builder, Config};
use s2n_tls::connection::Connection as State;
use s2n_tls::enums::{Blinding, Mode, PskHmac};
use s2n_tls::error::Error;
use s2n_tls::psk::Psk;
use s2n_tls::security::Policy;

use crate::connection::{Connection, broken};
use crate::key::{Key, KeyHash, KeySource};
use crate::offered::offered;

/// TLS 1.3 alone, with AES-GCM before ChaCha20, and groups of elliptic curves (X25519, P-256,
/// P-384).
const POLICY: &str = "CloudFront-TLS-1-3-2025-no-pq";

fn psk(key: &Key) -> Result<Psk, Error> {
    let mut builder = Psk::builder()?;
    builder.set_identity(&key.identity)?;
    builder.set_secret(&key.secret)?;
    builder.set_hmac(match key.hash {
        KeyHash::Sha256 => PskHmac::SHA256,
        KeyHash::Sha384 => PskHmac::SHA384,
    })?;
    builder.build()
}

fn builder() -> Result<Builder, Error> {
    let mut builder = Config::builder();
    builder.with_system_certs(false)?;
    builder.set_security_policy(&Policy::from_version(POLICY)?)?;
    Ok(builder)
}

fn begin(mode: Mode, config: &Config, keys: &[Key]) -> Result<State, Error> {
    let mut state = State::new(mode);
    state.set_config(config.clone())?;
    // Without it, s2n-tls sleeps after an error. The caller ends the connection at once.
    state.set_blinding(Blinding::SelfService)?;
    state.prefer_throughput()?;
    // The callback for a ClientHello asks for one, though it ends at once.
    state.set_waker(Some(Waker::noop()))?;
    for key in keys {
        state.append_psk(&psk(key)?)?;
    }
    Ok(state)
}

/// A server. A clone shares its settings.
#[derive(Clone)]
pub struct Server(Config);

/// A client. A clone shares its settings.
#[derive(Clone)]
pub struct Client {
    config: Config,
    keys: Arc<[Key]>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// Gives a connection the keys that its client has named.
struct Chooser(Arc<dyn KeySource>);

impl ClientHelloCallback for Chooser {
    fn on_client_hello(
        &self,
        connection: &mut State,
    ) -> Result<Option<std::pin::Pin<Box<dyn ConnectionFuture>>>, Error> {
        let hello = connection.client_hello()?.raw_message()?;
        let mut seen: Vec<&[u8]> = Vec::new();
        for identity in offered(&hello) {
            // A key that is there twice is an error for s2n-tls.
            if seen.contains(&identity) {
                continue;
            }
            seen.push(identity);
            if let Some(key) = self.0.find(identity) {
                connection.append_psk(&psk(&key)?)?;
            }
        }
        Ok(None)
    }
}

impl Server {
    /// # Errors
    /// The errors of s2n-tls.
    pub fn new(keys: Arc<dyn KeySource>) -> io::Result<Self> {
        let make = || {
            let mut builder = builder()?;
            builder.set_client_hello_callback(Chooser(keys))?;
            builder.build()
        };
        make().map(Self).map_err(|error| broken(&error))
    }

    /// Begins the TLS of a connection that was accepted.
    ///
    /// # Errors
    /// The errors of s2n-tls.
    pub fn connection(&self) -> io::Result<Connection> {
        let state = begin(Mode::Server, &self.0, &[]).map_err(|error| broken(&error))?;
        Connection::new(state)
    }
}

impl Client {
    /// Makes a client that offers `keys`, the first of which it prefers.
    ///
    /// # Errors
    /// The errors of s2n-tls.
    pub fn new(keys: &[Key]) -> io::Result<Self> {
        let config = builder().and_then(Builder::build).map_err(|error| broken(&error))?;
        Ok(Self { config, keys: keys.into() })
    }

    /// Begins the TLS of a connection to a server.
    ///
    /// # Errors
    /// The errors of s2n-tls, as for a secret that is too short.
    pub fn connection(&self) -> io::Result<Connection> {
        let state =
            begin(Mode::Client, &self.config, &self.keys).map_err(|error| broken(&error))?;
        let mut connection = Connection::new(state)?;
        // Makes the first message.
        connection.open(&mut &[][..], &mut [])?;
        Ok(connection)
    }
}
