//! Hostile clients attack the servers of vfio-user, NBD and NVMe/TCP, and hostile servers attack
//! the clients of all three. In between, a well-behaved driver writes blocks and reads them again.
//! See docs/design/vfio-user.md, docs/design/nbd.md and docs/design/nvme-tcp.md.
//!
//! Despite the attacks, no block of another client may be wrong, nothing may end or block the
//! process, and memory and descriptors must return to their initial level.

mod clients;
mod driver;
mod liars;
mod meter;
mod nbd;
mod nvme_open;
mod nvme_tcp;
mod nvme_tls;
mod raw;
mod raw_host;
mod relay;
mod served;
mod servers;
mod watchdog;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use driver::Blocks;
use meter::Meter;
use nvme_tcp::NvmeTcp;
use qpair_serve::SocketWay;
use served::Served;
use watchdog::Watchdog;

/// The interval of progress messages.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// The number of attacks on one end before the other end's turn.
const TURN: u32 = 8;
const WITHOUT_TLS: &str = "TLS of NVMe/TCP was left out of this build; use the feature nvme-tls";

/// Options of `cargo xtask hostile`.
#[derive(clap::Args)]
pub struct Options {
    /// Duration, seconds
    #[arg(long)]
    seconds: u64,
    /// Seed of the random choices [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// Attack only this end
    #[arg(long, value_enum)]
    end: Option<End>,
    /// Way of the sockets of the NBD and NVMe/TCP servers: epoll or io_uring
    #[arg(long, value_name = "WAY", default_value = "epoll")]
    sockets: SocketWay,
}

/// The end of the connection that is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum End {
    /// The server, by hostile clients
    Server,
    /// The driver, by hostile servers
    Driver,
    /// The NBD server, by hostile clients
    Nbd,
    /// The NVMe/TCP target, by hostile hosts
    NvmeTcp,
    /// The NVMe/TCP target with TLS, by hostile hosts; needs the feature nvme-tls
    NvmeTls,
    /// The NVMe/TCP host and the NBD client, by hostile servers
    Clients,
}

/// Runs the attacks. The exit code is 1 if something was wrong.
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a command")]
pub fn run(options: &Options) -> ExitCode {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("hostile: {} s, seed {seed}", options.seconds);
    match attack(options, seed) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("hostile: seed {seed}: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Default)]
struct Counts {
    clients: u64,
    nbd_clients: u64,
    servers: u64,
    /// Sessions with a hostile server of NVMe/TCP or NBD, and those with I/O.
    liars: u64,
    believed: u64,
    /// Sessions with a hostile server in which the driver did I/O.
    driven: u64,
    /// Sessions whose driver left a buffer to a device that could not be stopped.
    lost: u64,
    verified: u64,
}

#[allow(clippy::print_stdout, reason = "it is a command")]
fn attack(options: &Options, seed: u64) -> Result<String, String> {
    let watchdog = Watchdog::start();
    let mut random = fastrand::Rng::with_seed(seed);
    let served = Served::start()?;
    let mut counts = Counts::default();
    // No hostile client visits this drive, served by the same thread, so its blocks stay known.
    let mut quiet = Blocks::new(seed);
    counts.verified += quiet.visit(served.path(1), 64)?;
    // Run each attack once, so that lazily created resources exist before they are counted.
    let mut hostile = clients::Clients::new(served.path(0));
    for number in 0..clients::KINDS {
        watchdog.set(&format!("the first client of kind {number}"));
        hostile.attack(number, &mut random)?;
    }
    clear(&served, &mut counts, &mut quiet, seed)?;
    for _ in 0..TURN {
        servers::attack(&mut random, watchdog.name())?;
    }
    hostile.leave();
    served.wait_until_alone()?;
    let mut nbd = nbd::Nbd::start(seed, options.sockets)?;
    for number in 0..nbd::KINDS {
        watchdog.set(&format!("the first NBD client of kind {number}"));
        nbd.attack(number, &mut random)?;
        counts.verified += nbd.clear(&mut random)?;
    }
    nbd.leave()?;
    let mut targets = vec![(End::NvmeTcp, NvmeTcp::start(seed, options.sockets)?)];
    match NvmeTcp::start_with_tls(seed, options.sockets)? {
        Some(target) => targets.push((End::NvmeTls, target)),
        None if options.end == Some(End::NvmeTls) => return Err(WITHOUT_TLS.to_owned()),
        None => println!("skipped: {WITHOUT_TLS}"),
    }
    for (end, target) in &mut targets {
        for number in target.kinds() {
            watchdog.set(&format!("the first host of {end:?} of kind {number}"));
            target.attack(number, &mut random)?;
            counts.verified += target.clear(&mut random)?;
        }
        target.leave()?;
    }
    let liars = liars::Liars::start()?;
    for _ in 0..TURN {
        liars.attack(&mut random, watchdog.name())?;
    }
    let before = Meter::settled()?;

    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut tell_at = Instant::now() + TELL_EVERY;
    while Instant::now() < end {
        if options.end.is_none_or(|end| end == End::Server) {
            for _ in 0..TURN {
                watchdog.set(&format!("client {}", counts.clients));
                hostile.attack(random.usize(..), &mut random)?;
                counts.clients += 1;
            }
            clear(&served, &mut counts, &mut quiet, random.u64(..))?;
        }
        if options.end.is_none_or(|end| end == End::Nbd) {
            // Clients that hold others up for a second make these attacks the slowest.
            for _ in 0..TURN / 4 {
                watchdog.set(&format!("NBD client {}", counts.nbd_clients));
                nbd.attack(random.usize(..), &mut random)?;
                counts.verified += nbd.clear(&mut random)?;
                counts.nbd_clients += 1;
            }
        }
        for (its, target) in &mut targets {
            if options.end.is_none_or(|end| end == *its) {
                for _ in 0..TURN / 4 {
                    watchdog.set(&format!("host {} of {its:?}", target.hosts));
                    target.attack(random.usize(..), &mut random)?;
                    counts.verified += target.clear(&mut random)?;
                }
            }
        }
        if options.end.is_none_or(|end| end == End::Clients) {
            for _ in 0..TURN / 4 {
                counts.believed += u64::from(liars.attack(&mut random, watchdog.name())?);
                counts.liars += 1;
            }
        }
        if options.end.is_none_or(|end| end == End::Driver) {
            for _ in 0..TURN {
                watchdog.set(&format!("server {}", counts.servers));
                let session = servers::attack(&mut random, watchdog.name())?;
                counts.driven += u64::from(session.is_driven);
                counts.lost += u64::from(session.is_buffer_lost);
                counts.servers += 1;
            }
        }
        let now = Meter::now()?;
        before.compare_peak(&now)?;
        if Instant::now() >= tell_at {
            tell_at = Instant::now() + TELL_EVERY;
            println!(
                "{} hostile clients, {} of NBD, {}, {} hostile servers, {} of NVMe/TCP and NBD, {} blocks verified; {now}",
                counts.clients,
                counts.nbd_clients,
                hosts(&targets),
                counts.servers,
                counts.liars,
                counts.verified,
            );
        }
    }
    watchdog.set("the end");
    clear(&served, &mut counts, &mut quiet, seed)?;
    hostile.leave();
    served.wait_until_alone()?;
    nbd.leave()?;
    for (_, target) in &mut targets {
        target.leave()?;
    }
    let hosts = hosts(&targets);
    let undelivered = served.undelivered();
    let after = Meter::settled()?;
    let said = format!(
        "{} hostile clients, {} of NBD, {hosts}, {} hostile servers ({} got as far as I/O, {} kept a buffer), and {} of NVMe/TCP and NBD ({} got as far as I/O), {} blocks verified, {undelivered} interrupts not delivered\nbefore: {before}\nafter:  {after}",
        counts.clients,
        counts.nbd_clients,
        counts.servers,
        counts.driven,
        counts.lost,
        counts.liars,
        counts.believed,
        counts.verified
    );
    match before.compare(&after, counts.lost) {
        Ok(()) => Ok(said),
        Err(what) => Err(format!("{what}\n{said}")),
    }
}

/// Says how many hosts have attacked each target.
fn hosts(targets: &[(End, NvmeTcp)]) -> String {
    let said = |(end, target): &(End, NvmeTcp)| match end {
        End::NvmeTls => format!("{} with TLS", target.hosts),
        _ => format!("{} hosts of NVMe/TCP", target.hosts),
    };
    targets.iter().map(said).collect::<Vec<_>>().join(", ")
}

/// Runs the well-behaved driver: on the attacked drive with blocks of this session only, and on the
/// other drive.
fn clear(
    served: &Served,
    counts: &mut Counts,
    quiet: &mut Blocks,
    seed: u64,
) -> Result<(), String> {
    counts.verified += Blocks::new(seed).visit(served.path(0), 64)?;
    counts.verified += quiet.visit(served.path(1), 16)?;
    Ok(())
}
