//! The device and its options.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use qpair_block::{BlockDevice, ChannelOptions, DeviceInfo, Error, ErrorKind, IoChannel, Result};
use qpair_pci::TimeoutPolicy;
use qpair_virtio::blk::feature as blk;
use rustix::event::{EventfdFlags, eventfd};

use super::channel::VhostUserChannel;
use super::link::{Facts, Link};

/// The maximum number of bytes of a request.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// The maximum number of requests of a channel: a ring of 1024 entries, three for each request.
const DEPTH_MAX: u32 = 256;

#[derive(Clone, Debug)]
pub struct VhostUserOptions {
    /// The time limit for the back end to answer. Default: 5 s.
    pub timeout: Duration,
    /// The time for which the back end may be gone before requests fail. Default: 10 s.
    pub reconnect: Duration,
    /// The timeout policy, which is asked whether to keep waiting. Default: none.
    pub timeout_policy: TimeoutPolicy,
    /// Whether the back end is given one region of reserved huge pages, through which requests are
    /// copied. SPDK's back end can map no other memory: it rounds each region outward to huge
    /// pages. Default: false.
    pub huge_pages: bool,
}

impl Default for VhostUserOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            reconnect: Duration::from_secs(10),
            timeout_policy: TimeoutPolicy::default(),
            huge_pages: false,
        }
    }
}

/// A disk that another process serves by vhost-user-blk.
pub struct VhostUserBlk {
    info: DeviceInfo,
    link: Arc<Link>,
    facts: Facts,
    keeper: Arc<Keeper>,
}

/// The thread that maintains a connection. It lives as long as the device or one of its channels.
pub(super) struct Keeper {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    fn start(link: &Arc<Link>) -> Result<Self> {
        let failed = |cause: std::io::Error| Error::os(cause, "creating an event");
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let stop = Arc::new(eventfd(0, flags).map_err(|errno| failed(errno.into()))?);
        let thread = std::thread::Builder::new()
            .name("qpair-vhost-user".into())
            .spawn({
                let (link, stop) = (link.clone(), stop.clone());
                move || link.keep(&stop)
            })
            .map_err(|cause| Error::thread(cause, "watching a connection"))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked will not report anything.
            let _ = thread.join();
        }
    }
}

impl VhostUserBlk {
    /// Connects to the back end that listens at `path`.
    ///
    /// # Errors
    /// `NotFound` and `Denied` about the socket; `Gone`, `Io` and `Unsupported` about the back end;
    /// `Interrupted`.
    pub fn open(path: &Path, options: VhostUserOptions) -> Result<Self> {
        let (link, facts) = Link::open(path.to_owned(), options)?;
        let block_bytes = match facts.features & blk::BLK_SIZE {
            0 => 512,
            _ => facts.config.block_bytes,
        };
        let name = format!("vhost-user:{}", path.display());
        if !block_bytes.is_power_of_two() || !(512..=65536).contains(&block_bytes) {
            let context = format!("{name} has blocks of {block_bytes} bytes");
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let info = DeviceInfo {
            name,
            interface: "vhost-user".into(),
            mode: format!("{} queues", facts.queues),
            logical_block_bytes: block_bytes,
            memory_alignment_bytes: 1,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            atomic_write_bytes_min: 0,
            atomic_write_bytes: 0,
            volatile_write_cache: facts.features & blk::FLUSH != 0,
            read_only: facts.features & blk::READ_ONLY != 0,
            discards: facts.features & blk::DISCARD != 0,
            writes_zeroes: facts.features & blk::WRITE_ZEROES != 0,
            growable: false,
            depth_max: DEPTH_MAX,
            shared_memory: true,
        };
        let keeper = Arc::new(Keeper::start(&link)?);
        Ok(Self { info, link, facts, keeper })
    }
}

impl fmt::Debug for VhostUserBlk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} queues", self.info.name, self.facts.queues)
    }
}

impl BlockDevice for VhostUserBlk {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.link.size_bytes.load(Ordering::Acquire)
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        if size_bytes <= self.size_bytes() {
            return Ok(());
        }
        let context = format!("{} cannot grow to {size_bytes} bytes", self.info.name);
        Err(Error::new(ErrorKind::NoSpace, context).hint("make it larger where it is served"))
    }

    fn resets(&self) -> u64 {
        self.link.word().life()
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        self.info.check_channel(options)?;
        let channel =
            VhostUserChannel::open(&self.link, &self.keeper, &self.facts, &self.info, options)?;
        Ok(Box::new(channel))
    }
}
