//! The device and its options.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qpair_block::{
    BlockDevice, ChannelOptions, DeviceInfo, Error, ErrorKind, IoChannel, Result, UnflushedWrites,
};

use qpair_nvme_wire::Range;
use qpair_socket::client::Setting;

use super::association::Association;
use super::protocol::{NvmeTcp, NvmeTcpChannel};
use crate::address::Place;
use crate::wire::Digests;

const TRANSFER_BYTES_MAX: u32 = 1 << 20;
pub(super) const DEPTH_MAX: u32 = 255;
/// Bits of ONCS.
const DATASET_MANAGEMENT: u16 = 1 << 2;
const WRITE_ZEROES: u16 = 1 << 3;

#[derive(Clone, Debug)]
pub struct NvmeTcpOptions {
    /// The digests to ask the target for. Default: none.
    pub digests: Digests,
    /// The time limit for the target to answer while a connection is made, and of admin commands.
    /// Default: 5 s.
    pub timeout: Duration,
    /// The time limit of a request, and of connecting again to a target that has gone. Default:
    /// 30 s.
    pub request_timeout: Duration,
    /// Whether a channel that waits looks at its socket all the time and does not sleep: a core for
    /// a shorter latency. Default: no.
    pub polls: bool,
    /// The time without a sign of life after which the target ends the controller. Default: 10 s.
    pub keep_alive: Duration,
    /// The name of this host (NQN). Default: that in `/etc/nvme/hostnqn`, or one made of the
    /// machine's identifier.
    pub host: String,
    /// The identifier of this host. Default: that in `/etc/nvme/hostid`, or the machine's.
    pub host_id: [u8; 16],
    /// The file with the key by which this host proves who it is (DH-HMAC-CHAP). Empty: none.
    pub dhchap_key: String,
    /// The file with the key by which the target must prove who it is. Empty: it need not.
    pub dhchap_ctrlr_key: String,
    /// The file with the key of TLS that the target has too. A connection then fails unless the
    /// target has TLS. Empty: none.
    pub tls_psk: String,
}

impl Default for NvmeTcpOptions {
    fn default() -> Self {
        let read = |path: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.trim().to_owned()
        };
        let id = |text: &str| u128::from_str_radix(&text.replace('-', ""), 16).ok();
        // Without both files it is a host that has no name of its own.
        let number = id(&read("/etc/nvme/hostid")).or_else(|| id(&read("/etc/machine-id")));
        let host_id = number.unwrap_or(1).to_be_bytes();
        let hex = format!("{:032x}", u128::from_be_bytes(host_id));
        let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
        let dashed = parts.map(|(from, to)| &hex[from..to]).join("-");
        let named = Some(read("/etc/nvme/hostnqn")).filter(|name| name.starts_with("nqn."));
        let host = named.unwrap_or_else(|| format!("nqn.2014-08.org.nvmexpress:uuid:{dashed}"));
        Self {
            digests: Digests::default(),
            timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            polls: false,
            keep_alive: Duration::from_secs(10),
            host,
            host_id,
            dhchap_key: String::new(),
            dhchap_ctrlr_key: String::new(),
            tls_psk: String::new(),
        }
    }
}

/// A namespace that a target serves by NVMe/TCP.
pub struct NvmeTcpDevice {
    info: DeviceInfo,
    options: NvmeTcpOptions,
    association: Arc<Association>,
    resets: Arc<AtomicU64>,
    writes: Arc<UnflushedWrites>,
}

impl NvmeTcpDevice {
    /// Connects to a target and finds a namespace: `HOST:PORT/NQN[/nsN]`. Without a number it is
    /// the subsystem's only namespace.
    ///
    /// # Errors
    /// `Invalid` for another name; `NotFound` for a subsystem or namespace that does not exist;
    /// `Denied` for a target that does not allow this host or is not the one whose key is known;
    /// `Unsupported` for a target that requires more than this host has; the errors of connecting.
    pub fn open(name: &str, options: NvmeTcpOptions) -> Result<Self> {
        let place: Place = name.parse()?;
        let name = format!("nvme:tcp:{place}");
        let association = Association::begin(place, options.clone())?;
        let facts = &association.facts;
        let block = facts.block_bytes;
        let Digests { header, data } = options.digests;
        let sums = match (header, data) {
            (false, false) => "no digests",
            (true, false) => "header digests",
            (false, true) => "data digests",
            (true, true) => "digests",
        };
        let mode = format!("{sums}{}", if options.polls { ", polled" } else { "" });
        let most = if facts.transfer_bytes_max == 0 { u32::MAX } else { facts.transfer_bytes_max };
        let info = DeviceInfo {
            name,
            interface: "nvme-tcp".into(),
            mode,
            logical_block_bytes: block,
            memory_alignment_bytes: 1,
            transfer_bytes_max: most.min(TRANSFER_BYTES_MAX) / block * block,
            atomic_write_bytes_min: 0,
            atomic_write_bytes: 0,
            volatile_write_cache: facts.has_cache,
            read_only: facts.read_only,
            // Ranges go in the capsule.
            discards: facts.commands & DATASET_MANAGEMENT != 0
                && facts.capsule_bytes >= Range::BYTES as u32,
            writes_zeroes: facts.commands & WRITE_ZEROES != 0,
            growable: false,
            depth_max: DEPTH_MAX.min(facts.entries_max - 1),
            shared_memory: false,
        };
        if info.transfer_bytes_max == 0 {
            let context = format!("{} allows no transfer of a block", info.name);
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let (resets, writes) = Default::default();
        Ok(Self { info, options, association, resets, writes })
    }
}

impl fmt::Debug for NvmeTcpDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.info.name)
    }
}

impl BlockDevice for NvmeTcpDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.association.size_bytes()
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        if size_bytes <= self.size_bytes() {
            return Ok(());
        }
        let context = format!("{} cannot grow to {size_bytes} bytes", self.info.name);
        Err(Error::new(ErrorKind::NoSpace, context).hint("make it larger where it is served"))
    }

    fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        self.info.check_channel(options)?;
        let Some(number) = self.association.take_number() else {
            let queues = self.association.facts.queues;
            let context = format!("{} allows {queues} queues", self.info.name);
            return Err(Error::new(ErrorKind::Busy, context).hint("use fewer workers"));
        };
        let queue = (number, (options.depth + 1).max(2));
        let NvmeTcpOptions { digests, polls, request_timeout: limit, .. } = self.options;
        let (protocol, wire) = NvmeTcp::connect(self.association.clone(), queue, digests, polls)?;
        let setting = Setting {
            info: self.info.clone(),
            limit,
            resets: self.resets.clone(),
            writes: self.writes.clone(),
        };
        Ok(Box::new(NvmeTcpChannel::new(protocol, wire, setting, options)?))
    }
}
