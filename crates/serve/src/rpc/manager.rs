//! The state that calls work on: devices, the target, and the calls that made them.
//!
//! Invariant: `calls` has the calls whose effect still exists, in an order in which they can be
//! made again.

use qpair_memory::locks::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Instant;

use serde_json::{Value, json};
use tracing::{debug, info};

use super::keyring::Keyring;
use super::log::Log;
use super::methods::{METHODS, Method};
use super::params::{Failure, Params, Result};
use super::schema;
use crate::bdevs::{Attach, Bdevs, OpenFile};
use crate::nvmf::Nvmf;
use crate::target::{BlkOptions, Target};

/// A call that can be repeated, with the name of its effect.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) subsystem: &'static str,
    pub(super) what: String,
    pub(super) method: &'static str,
    pub(super) params: Value,
    /// The parameters as they were given.
    pub(super) given: Value,
    /// Whether a configuration file has the call.
    pub(super) of_file: bool,
}

/// Carries out calls.
pub struct Manager {
    pub(super) target: Arc<Target>,
    pub(super) bdevs: Mutex<Bdevs>,
    pub(super) calls: Mutex<Vec<Call>>,
    /// Held while a call runs, so that calls run one after the other.
    alone: Mutex<()>,
    /// Disks of the command line that are served at their default sockets.
    default_sockets: Mutex<BTreeMap<String, BlkOptions>>,
    pub(super) open: OpenFile,
    pub(super) attach: OnceLock<Attach>,
    pub(super) log: OnceLock<Arc<dyn Log>>,
    pub(super) keyring: Keyring,
    /// The folder of the sockets at which disks and controllers are served.
    pub(super) folder: PathBuf,
    pub(super) version: String,
    started: Instant,
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Manager of {:?}", self.target)
    }
}

impl Manager {
    /// Makes a manager without devices. `version` is the version that it reports to clients.
    #[must_use]
    pub fn new(target: Arc<Target>, open: OpenFile, folder: PathBuf, version: &str) -> Arc<Self> {
        Arc::new(Self {
            target,
            bdevs: Mutex::default(),
            calls: Mutex::default(),
            alone: Mutex::default(),
            default_sockets: Mutex::default(),
            open,
            attach: OnceLock::new(),
            log: OnceLock::new(),
            keyring: Keyring::default(),
            folder,
            version: version.to_owned(),
            started: Instant::now(),
        })
    }

    /// Sets the functions that attach controllers and hosts. Only the first call has an effect.
    pub fn attach_with(&self, attach: Attach) {
        let _ = self.attach.set(attach);
    }

    /// Sets the log whose level calls show and set. Only the first call has an effect.
    pub fn log_with(&self, log: Arc<dyn Log>) {
        let _ = self.log.set(log);
    }

    pub(super) fn bdevs(&self) -> MutexGuard<'_, Bdevs> {
        self.bdevs.lock()
    }

    pub(super) fn nvmf(&self) -> MutexGuard<'_, Nvmf> {
        self.target.nvmf()
    }

    pub(super) fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock()
    }

    /// Returns the ticks since the start. A tick is a nanosecond.
    pub(super) fn ticks(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the names of all methods.
    #[must_use]
    pub fn methods() -> Vec<&'static str> {
        METHODS.iter().map(|method| method.name).collect()
    }

    pub(super) fn alone(&self) -> MutexGuard<'_, ()> {
        self.alone.lock()
    }

    /// Locks like [`Manager::alone`], if no call is under way.
    pub(super) fn try_alone(&self) -> Option<MutexGuard<'_, ()>> {
        self.alone.try_lock()
    }

    pub(super) fn default_sockets(&self) -> MutexGuard<'_, BTreeMap<String, BlkOptions>> {
        self.default_sockets.lock()
    }

    pub(super) fn call(&self, method: &str, params: Option<Value>) -> Result<Value> {
        let _alone = self.alone();
        let result = self.make(method, params.unwrap_or_default(), false);
        match &result {
            Ok(_) => debug!(name: "called", method, "a call was made"),
            Err(failure) => info!(name: "called", method, error = failure.message, "a call failed"),
        }
        result
    }

    /// Makes a call, while no other call runs.
    pub(super) fn make(&self, method: &str, params: Value, of_file: bool) -> Result<Value> {
        let found = METHODS.iter().find(|known| known.name == method);
        let Method { run, .. } =
            found.ok_or_else(|| Failure::new(Failure::METHOD, "Method not found"))?;
        let mut checked = params.clone();
        schema::check(method, &mut checked)?;
        let given = Params::new(Some(checked.clone()))?;
        let result = self.with_devices_of(method, &checked, || run(self, given))?;
        // If the call made something, it is now the last of `calls`.
        if let Some(call) = self.calls().last_mut().filter(|call| call.given.is_null()) {
            (call.given, call.of_file) = (params, of_file);
        }
        Ok(result)
    }

    /// Makes the calls of a configuration, as `save_config` of SPDK's client writes it.
    ///
    /// # Errors
    /// The message of the first call that fails, after the call's method.
    pub fn load(&self, config: &Value) -> std::result::Result<(), String> {
        let subsystems = config.get("subsystems").and_then(Value::as_array);
        let subsystems = subsystems.ok_or("a configuration must have a list \"subsystems\"")?;
        for subsystem in subsystems {
            let Some(calls) = subsystem.get("config").and_then(Value::as_array) else { continue };
            for call in calls {
                let method = call.get("method").and_then(Value::as_str);
                let method = method.ok_or("an entry of a configuration must have a \"method\"")?;
                self.call(method, call.get("params").cloned())
                    .map_err(|failure| format!("{method}: {}", failure.message))?;
            }
        }
        Ok(())
    }

    /// Returns calls that make everything that exists now again.
    #[must_use]
    pub fn save(&self) -> Value {
        let config = |subsystem: &str| {
            let calls = self.calls();
            let its = calls.iter().filter(|call| call.subsystem == subsystem);
            its.map(|call| json!({"method": call.method, "params": call.params}))
                .collect::<Vec<_>>()
        };
        let subsystems: Vec<Value> = super::methods::SUBSYSTEMS
            .iter()
            .map(|name| json!({"subsystem": name, "config": config(name)}))
            .collect();
        json!({ "subsystems": subsystems })
    }
}
