//! Hostile hosts of an NVMe/TCP target, whose portal has a subsystem that they change, and one that
//! only a well-behaved host changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use qpair_block::{BlockDevice, ErrorKind, RamDevice, RamOptions};
use qpair_nvme_tcp::wire::Digests;
use qpair_nvme_tcp::{HostPort, NvmeTcpDevice, NvmeTcpOptions};
use qpair_serve::{Disk, SocketWay, Target, TargetOptions};

use crate::driver::{Blocks, Driver};
use crate::nvme_open::{self, init};
use crate::nvme_tls::{self, Keys};
use crate::raw_host::{ATTACKED, QUIET, RawHost};
use crate::served::said;

/// The maximum number of hosts that are kept after their attack.
const KEPT_MAX: usize = 24;
/// The connections of a crowd: more than a portal takes.
const CROWD: usize = 1100;
/// The time in which a request of the well-behaved host must end.
const PATIENT: Duration = Duration::from_secs(60);
/// The connections of the well-behaved host.
const OWN: usize = 2;

pub(super) struct NvmeTcp {
    target: Target,
    address: HostPort,
    /// Hosts that are in the middle of something, with their connections.
    kept: Vec<Vec<RawHost>>,
    quiet: Blocks,
    driver: Driver,
    /// With it, all hosts must use TLS, and they attack that.
    keys: Option<Keys>,
    /// The number of attacks.
    pub(super) hosts: u64,
}

impl NvmeTcp {
    pub(super) fn start(seed: u64, sockets: SocketWay) -> Result<Self, String> {
        let target = target(sockets)?;
        let address =
            target.serve_nvme_tcp(&any(), ATTACKED, &[disk("attacked")?]).map_err(said)?;
        target.serve_nvme_tcp(&address, QUIET, &[disk("quiet")?]).map_err(said)?;
        Self::over(seed, target, address, None)
    }

    /// Starts a target whose hosts must use TLS; `None` if this program was built without it.
    pub(super) fn start_with_tls(seed: u64, sockets: SocketWay) -> Result<Option<Self>, String> {
        let target = target(sockets)?;
        let serve =
            |address: &HostPort, nqn, disk| target.serve_nvme_tcp_by_tls(address, nqn, &[disk]);
        let address = match serve(&any(), ATTACKED, disk("attacked")?) {
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(None),
            address => address.map_err(said)?,
        };
        serve(&address, QUIET, disk("quiet")?).map_err(said)?;
        let keys = Keys::new(&target)?;
        Self::over(seed, target, address, Some(keys)).map(Some)
    }

    fn over(
        seed: u64,
        target: Target,
        address: HostPort,
        keys: Option<Keys>,
    ) -> Result<Self, String> {
        let driver = connect(&address, keys.as_ref())?;
        let (kept, quiet) = (Vec::new(), Blocks::new(seed));
        Ok(Self { target, address, kept, quiet, driver, keys, hosts: 0 })
    }

    fn kinds_beside_crowds(&self) -> usize {
        if self.keys.is_some() { nvme_tls::KINDS } else { nvme_open::KINDS }
    }

    /// Returns all kinds of attacks, some of them more than once.
    pub(super) fn kinds(&self) -> Vec<usize> {
        let occupying = (0..3).filter(|_| self.keys.is_none()).flat_map(|_| nvme_open::OCCUPYING);
        (0..=self.kinds_beside_crowds()).chain(occupying).collect()
    }

    /// Runs one attack. An error means that the target failed.
    pub(super) fn attack(&mut self, kind: usize, random: &mut Rng) -> Result<(), String> {
        self.hosts += 1;
        let address = &self.address;
        let kinds = self.kinds_beside_crowds();
        let kept = match (kind % (kinds + 1), &self.keys) {
            (kind, _) if kind == kinds => return self.crowd(random),
            (kind, Some(keys)) => nvme_tls::attack(address, keys, kind, random)?,
            (kind, None) => nvme_open::attack(address, kind, random)?,
        };
        if !kept.is_empty() {
            if self.kept.len() == KEPT_MAX {
                self.kept.swap_remove(random.usize(0..KEPT_MAX));
            }
            self.kept.push(kept);
        }
        Ok(())
    }

    /// Checks that the well-behaved host, which was connected before the attacks, and one that
    /// comes now read what they wrote. Returns the number of verified blocks.
    pub(super) fn clear(&mut self, random: &mut Rng) -> Result<u64, String> {
        let start = Instant::now();
        let mut verified = self.quiet.visit_with(&mut self.driver, "the quiet namespace", 16)?;
        if self.driver.resets() > 0 {
            return Err("the target disconnected a well-behaved host".to_owned());
        }
        let mut other = connect(&self.address, self.keys.as_ref())?;
        verified += self.quiet.visit_with(&mut other, "the quiet namespace, anew", 4)?;
        if random.u8(..) < 16 {
            self.driver = other;
        }
        match start.elapsed() {
            took if took > PATIENT => Err(format!("a well-behaved host of NVMe/TCP took {took:?}")),
            _ => Ok(verified),
        }
    }

    /// Drops the kept hosts, and waits until the target has noticed.
    pub(super) fn leave(&mut self) -> Result<(), String> {
        self.kept.clear();
        self.wait_for(OWN)
    }

    /// Waits until the target has so many connections at most.
    fn wait_for(&self, most: usize) -> Result<(), String> {
        for _ in 0..30_000 {
            if self.target.nvme_tcp_clients() <= most {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let clients = self.target.nvme_tcp_clients();
        Err(format!("the NVMe/TCP target has {clients} connections, of {most}"))
    }

    /// Connects more often than the target allows, while another host works.
    fn crowd(&mut self, random: &mut Rng) -> Result<(), String> {
        let mut crowd = Vec::new();
        for _ in 0..CROWD {
            // A target may be slower to accept than its queue of connections allows.
            let Ok(mut host) = RawHost::open(&self.address) else { break };
            if random.bool() {
                let first = self.keys.as_ref().map_or_else(|| init(random), |it| it.hello.clone());
                let _ = host.send(&first[..random.usize(1..=first.len())]);
            }
            crowd.push(host);
        }
        self.quiet.visit_with(&mut self.driver, "the quiet namespace in a crowd", 16)?;
        drop(crowd);
        self.wait_for(OWN + self.kept.iter().map(Vec::len).sum::<usize>())
    }
}

fn disk(name: &str) -> Result<Arc<Disk>, String> {
    let options = RamOptions { size_bytes: 2 << 20, growable: false, ..RamOptions::default() };
    Ok(Disk::new(name, Arc::new(RamDevice::new(options).map_err(said)?)))
}

fn target(sockets: SocketWay) -> Result<Target, String> {
    let options = TargetOptions { workers: 2, sockets, ..TargetOptions::default() };
    Target::new(options).map_err(said)
}

fn any() -> HostPort {
    HostPort { host: "127.0.0.1".into(), port: 0 }
}

fn connect(address: &HostPort, keys: Option<&Keys>) -> Result<Driver, String> {
    let options = NvmeTcpOptions {
        digests: Digests { header: true, data: true },
        // Hosts of a machine that is busy must not look silent.
        keep_alive: Duration::from_secs(120),
        tls_psk: keys.map_or_else(String::new, Keys::path),
        ..NvmeTcpOptions::default()
    };
    let device = NvmeTcpDevice::open(&format!("{address}/{QUIET}"), options).map_err(said)?;
    let device: Box<dyn BlockDevice> = Box::new(device);
    Driver::over(device).map_err(said)
}
