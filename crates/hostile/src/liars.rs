//! Servers of NVMe/TCP and NBD that break the protocol, and clients whose requests must end as they
//! say.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use qpair_block::{
    Arena, BlockDevice, ChannelOptions, Completion, RamDevice, RamOptions, Request, WaitOptions,
};
use qpair_nbd::{NbdDevice, NbdOptions};
use qpair_nvme_tcp::wire::Digests;
use qpair_nvme_tcp::{HostPort, NvmeTcpDevice, NvmeTcpOptions};
use qpair_serve::{Disk, NbdAddress, NbdExport, Target, TargetOptions};

use crate::relay::{Relay, Wrong};
use crate::served::said;

const NQN: &str = "nqn.2026-11.invalid.example:liar";
/// Requests are for one region each, and a region has one request at a time.
const REGIONS: usize = 32;
const REGION_BYTES: u32 = 64 << 10;
const DEPTH: usize = 4;
/// The time limit of a request, and the time in which it must have ended.
const LIMIT: Duration = Duration::from_millis(400);
const PATIENT: Duration = Duration::from_secs(30);

pub(super) struct Liars {
    // The servers end with it.
    _target: Target,
    nvme_tcp: HostPort,
    nbd: u16,
}

/// The stamp in a region, and the bytes that have it; `None` after a write that failed.
type Known = [Option<(u64, u32)>; REGIONS];

impl Liars {
    pub(super) fn start() -> Result<Self, String> {
        let target = Target::new(TargetOptions::default()).map_err(said)?;
        let disk = || -> Result<Arc<Disk>, String> {
            let size_bytes = REGIONS as u64 * u64::from(REGION_BYTES);
            let options = RamOptions { size_bytes, growable: false, ..RamOptions::default() };
            Ok(Disk::new("liar", Arc::new(RamDevice::new(options).map_err(said)?)))
        };
        let any = HostPort { host: "127.0.0.1".into(), port: 0 };
        let nvme_tcp = target.serve_nvme_tcp(&any, NQN, &[disk()?]).map_err(said)?;
        let export = NbdExport { disk: disk()?, read_only: false };
        let at = NbdAddress::Tcp("127.0.0.1".into(), 0);
        let nbd = target.serve_nbd(&at, vec![export], None);
        let NbdAddress::Tcp(_, nbd) = nbd.map_err(said)? else {
            return Err("an NBD server listens elsewhere".to_owned());
        };
        Ok(Self { _target: target, nvme_tcp, nbd })
    }

    /// Runs one session. Returns whether there was I/O; an error means that the client failed.
    pub(super) fn attack(&self, random: &mut Rng, name: impl Fn(&str)) -> Result<bool, String> {
        let is_nbd = random.u8(0..3) == 0;
        let wrongs = [
            Wrong::Breaks,
            Wrong::Garbles,
            Wrong::Nonsense,
            Wrong::Misorders,
            Wrong::Misorders,
            Wrong::Lies,
            Wrong::Lies,
        ];
        let wrong = wrongs[random.usize(0..if is_nbd { 3 } else { wrongs.len() })];
        let digests = Digests::of(random.u8(0..4));
        let one_in = [4, 16, 64, 256][random.usize(0..4)];
        let seed = random.u64(..);
        let protocol = if is_nbd { "NBD" } else { "NVMe/TCP" };
        name(&format!("a server of {protocol}, {wrong:?}, one in {one_in}, seed {seed}"));
        // Changes that nobody could notice are not looked for.
        let is_checked = match wrong {
            Wrong::Breaks | Wrong::Misorders => true,
            Wrong::Garbles => !is_nbd && digests == Digests { header: true, data: true },
            Wrong::Lies | Wrong::Nonsense => false,
        };
        let port = if is_nbd { self.nbd } else { self.nvme_tcp.port };
        let genuine = SocketAddr::from(([127, 0, 0, 1], port));
        let relay = Relay::start(genuine, wrong, one_in, seed)?;
        let open = |port: u16, limit| -> Option<Box<dyn BlockDevice>> {
            if is_nbd {
                let options =
                    NbdOptions { timeout: limit, request_timeout: limit, ..NbdOptions::default() };
                let device = NbdDevice::open(&format!("tcp:127.0.0.1:{port}/liar"), options);
                return Some(Box::new(device.ok()?));
            }
            let options = NvmeTcpOptions {
                digests,
                timeout: limit,
                request_timeout: limit,
                keep_alive: limit * 4,
                ..NvmeTcpOptions::default()
            };
            let device = NvmeTcpDevice::open(&format!("127.0.0.1:{port}/{NQN}"), options);
            Some(Box::new(device.ok()?))
        };
        let mut known: Known = [None; REGIONS];
        let Some(device) = open(relay.address.port(), LIMIT) else { return Ok(false) };
        let writes = random.usize(1..120);
        run(&*device, random, &mut known, Some(writes), is_checked)
            .map_err(|what| format!("{protocol}, {wrong:?}, {digests:?}: {what}"))?;
        drop((device, relay));
        if is_checked {
            let device = open(port, Duration::from_secs(20)).ok_or("no genuine server answers")?;
            run(&*device, random, &mut known, None, true)
                .map_err(|what| format!("{protocol}, {wrong:?}, {digests:?}, after: {what}"))?;
        }
        Ok(true)
    }
}

/// Runs random requests, or reads the known regions. What ends well must be so.
fn run(
    device: &dyn BlockDevice,
    random: &mut Rng,
    known: &mut Known,
    count: Option<usize>,
    is_checked: bool,
) -> Result<(), String> {
    // A server of NBD may execute a write of a connection that was lost after later ones.
    let writes_once = device.info().interface == "nbd";
    let is_small = device.info().transfer_bytes_max < REGION_BYTES;
    if device.size_bytes() < REGIONS as u64 * u64::from(REGION_BYTES)
        || device.info().logical_block_bytes > 4096
        || is_small
    {
        return Ok(());
    }
    let options = device.info().arena_options();
    let arena = Arena::new(REGION_BYTES as usize, DEPTH as u32, options)
        .map_err(|cause| format!("an arena: {cause}"))?;
    let options = ChannelOptions { depth: DEPTH as u32, arenas: vec![arena.clone()], wake: None };
    let Ok(mut channel) = device.open_channel(&options) else { return Ok(()) };
    let mut stamps: [Option<(u64, u32)>; REGIONS] = [None; REGIONS];
    let mut is_written = [false; REGIONS];
    let mut is_busy = [false; REGIONS];
    let (mut left, mut done) = (count.unwrap_or(REGIONS), Vec::<Completion>::new());
    let begun = Instant::now();
    while left > 0 || channel.in_flight() > 0 {
        while left > 0 && (channel.in_flight() as usize) < DEPTH {
            left -= 1;
            let region = if count.is_none() { left } else { random.usize(0..REGIONS) };
            let Some(mut buffer) = arena.lease() else { break };
            if std::mem::replace(&mut is_busy[region], true) {
                left += 1;
                break;
            }
            let (at, tag) = (region as u64 * u64::from(REGION_BYTES), region as u64);
            let may_write = count.is_some() && !(writes_once && is_written[region]);
            let request = if may_write && random.bool() {
                let (stamp, len) = (random.u64(..), [4096, REGION_BYTES][random.usize(0..2)]);
                buffer.copy_from(0, &stamp.to_le_bytes().repeat(len as usize / 8));
                (known[region], stamps[region]) = (None, Some((stamp, len)));
                is_written[region] = true;
                Request::write(at, len, buffer, tag)
            } else {
                stamps[region] = None;
                let len = known[region].map_or(4096, |(_, len)| len);
                Request::read(at, len, buffer, tag)
            };
            if channel.submit(request).is_err() {
                return Err("a channel with room took no request".to_owned());
            }
        }
        channel.kick();
        let timeout = Some(Duration::from_secs(1));
        let one = WaitOptions { want: 1, linger: Duration::ZERO, timeout };
        channel.wait(&mut done, one);
        for it in done.drain(..) {
            let region = it.tag as usize;
            is_busy[region] = false;
            let Some(buffer) = it.buffer else { return Err("a buffer is lost".to_owned()) };
            match (it.result, stamps[region]) {
                // Later requests may fail too, and soon.
                (Err(_), _) => {}
                (Ok(()), stamp @ Some(_)) => known[region] = stamp,
                (Ok(()), None) => {
                    let Some((stamp, len)) = known[region].filter(|_| is_checked) else { continue };
                    let bytes = &buffer.as_slice()[..len as usize];
                    let is_right = |word: &[u8]| word == stamp.to_le_bytes();
                    if !bytes.chunks(8).all(is_right) {
                        let what = format!("region {region} does not have what was written to it");
                        return Err(what);
                    }
                }
            }
        }
        if begun.elapsed() > PATIENT {
            return Err(format!("{} requests do not end", channel.in_flight()));
        }
    }
    Ok(())
}
