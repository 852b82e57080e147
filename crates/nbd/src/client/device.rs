//! The device and its options.

use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use qpair_block::{
    BlockDevice, ChannelOptions, DeviceInfo, Error, ErrorKind, IoChannel, Result, UnflushedWrites,
};
use qpair_socket::client::Setting;

use super::handshake::Facts;
use super::peer::Peer;
use super::protocol::{Nbd, NbdChannel};
use super::tls::NbdTls;
use crate::Address;
use crate::wire::export_flag as flag;

const TRANSFER_BYTES_MAX: u32 = 1 << 20;
const DEPTH_MAX: u32 = 256;

#[derive(Clone, Debug)]
pub struct NbdOptions {
    /// The time limit for the server to answer while a connection is made. Default: 5 s.
    pub timeout: Duration,
    /// The time limit of a request, and of connecting again to a server that has gone. Default:
    /// 30 s.
    pub request_timeout: Duration,
    /// The files for TLS. Default: no TLS.
    pub tls: NbdTls,
}

impl Default for NbdOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            tls: NbdTls::default(),
        }
    }
}

/// A disk that a server exports by NBD.
pub struct NbdDevice {
    info: DeviceInfo,
    peer: Peer,
    options: NbdOptions,
    facts: Facts,
    channels: Arc<AtomicU32>,
    resets: Arc<AtomicU64>,
    writes: Arc<UnflushedWrites>,
}

/// Splits a name into the address and the export. The path of a UNIX socket ends where there is a
/// socket.
fn split(name: &str) -> Result<(Address, &str)> {
    if let Some(path) = name.strip_prefix("unix:") {
        let is_socket = |path: &str| {
            std::fs::metadata(Path::new(path)).is_ok_and(|it| it.file_type().is_socket())
        };
        let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
        let end = ends.into_iter().find(|at| is_socket(&path[..*at]));
        return match end {
            Some(at) => Ok((Address::Unix(path[..at].into()), &path[at + 1..])),
            None => Ok((name.parse()?, "")),
        };
    }
    let (address, export) = name.split_once('/').unwrap_or((name, ""));
    Ok((address.parse()?, export))
}

impl NbdDevice {
    /// Connects to a server and asks for an export: `unix:PATH[/EXPORT]` or
    /// `tcp:HOST[:PORT][/EXPORT]`. Without a name it is the server's default export.
    ///
    /// # Errors
    /// `Invalid` for another name, and for files of TLS that cannot be used; `NotFound` for an
    /// export that does not exist; `Unsupported` for a server that requires more than this client
    /// has, or has no TLS although this client does; `Denied` for a certificate that one end does
    /// not accept; `Gone`; the errors of connecting.
    pub fn open(name: &str, options: NbdOptions) -> Result<Self> {
        let (address, export) = split(name)?;
        let trust = options.tls.read(&address)?;
        let is_private = trust.is_some();
        let peer = Peer { address, export: export.to_owned(), trust, timeout: options.timeout };
        let (_, facts) = peer.connect()?;
        let name = format!("nbd:{name}");
        let block = facts.block_bytes;
        if !block.is_power_of_two() || block > 65536 {
            let context = format!("{name} has blocks of {block} bytes");
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let has = |bit: u16| facts.flags & bit != 0;
        let framing = match (facts.structured, is_private) {
            (true, false) => "structured replies",
            (false, false) => "simple replies",
            (true, true) => "structured replies, TLS",
            (false, true) => "simple replies, TLS",
        };
        let info = DeviceInfo {
            name,
            interface: "nbd".into(),
            mode: framing.into(),
            logical_block_bytes: block,
            memory_alignment_bytes: 1,
            transfer_bytes_max: facts.payload_bytes_max.min(TRANSFER_BYTES_MAX) / block * block,
            atomic_write_bytes_min: 0,
            atomic_write_bytes: 0,
            volatile_write_cache: has(flag::SEND_FLUSH),
            read_only: has(flag::READ_ONLY),
            discards: has(flag::SEND_TRIM),
            writes_zeroes: has(flag::SEND_WRITE_ZEROES),
            growable: false,
            depth_max: DEPTH_MAX,
            shared_memory: false,
        };
        if info.transfer_bytes_max == 0 {
            let context = format!("{} allows no transfer of a block", info.name);
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let (channels, resets, writes) = Default::default();
        Ok(Self { info, peer, options, facts, channels, resets, writes })
    }
}

impl fmt::Debug for NbdDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.info.name)
    }
}

impl BlockDevice for NbdDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        let block = u64::from(self.info.logical_block_bytes);
        self.facts.size_bytes / block * block
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        if size_bytes <= self.size_bytes() {
            return Ok(());
        }
        let context = format!("{} cannot grow to {size_bytes} bytes", self.info.name);
        Err(Error::new(ErrorKind::NoSpace, context)
            .hint("make it larger where it is served, and open it again"))
    }

    fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        self.info.check_channel(options)?;
        let count = Count::of(&self.channels);
        if self.facts.flags & flag::CAN_MULTI_CONN == 0 && count.before > 0 {
            let context = format!("{} allows one connection at a time", self.info.name);
            return Err(Error::new(ErrorKind::Busy, context)
                .hint("use one worker, or let the server allow several (qemu-nbd --shared=0)"));
        }
        let (wire, facts) = self.peer.connect()?;
        if facts.size_bytes < self.facts.size_bytes || facts.block_bytes != self.facts.block_bytes {
            let context = format!("{} has changed since it was opened", self.info.name);
            return Err(Error::new(ErrorKind::Gone, context).hint("open it again"));
        }
        let (peer, size_bytes) = (self.peer.clone(), self.size_bytes());
        let protocol = Nbd { peer, facts, size_bytes, following: None, _count: count };
        let setting = Setting {
            info: self.info.clone(),
            limit: self.options.request_timeout,
            resets: self.resets.clone(),
            writes: self.writes.clone(),
        };
        Ok(Box::new(NbdChannel::new(protocol, wire, setting, options)?))
    }
}

/// An open channel in the device's count of them.
pub(super) struct Count {
    channels: Arc<AtomicU32>,
    before: u32,
}

impl Count {
    fn of(channels: &Arc<AtomicU32>) -> Self {
        Self { before: channels.fetch_add(1, Ordering::Relaxed), channels: channels.clone() }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.channels.fetch_sub(1, Ordering::Relaxed);
    }
}
