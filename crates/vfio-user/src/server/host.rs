//! Serves devices on the thread of its caller, which does nothing else.
//!
//! A driver that has mapped the doorbells wakes no thread by ringing them, so a thread has to poll.
//! While there is work, the thread only polls. Then it naps, each time longer, up to a limit. If
//! no driver is connected, or if drivers can only give work by messages, it sleeps until a socket
//! becomes readable. Polling a socket costs a system call, so sockets are polled seldom while there
//! is other work.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_pci::{Listened, PciDevice};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::Server;

/// The number of turns between two checks of the clock.
const TURNS: u32 = 32;
/// The number of rounds of turns between two looks at the sockets, while there is a driver.
const ROUNDS: u32 = 32;
/// The number of turns in which the sockets are polled after one of them had a message: registers
/// are accessed one after the other.
const SOCKET_TURNS: u32 = 256;
/// The time without work before the first nap.
const HOT: Duration = Duration::from_micros(200);
/// The first nap; each is twice the one before.
const NAP_MIN: Duration = Duration::from_micros(20);

/// The behaviour of a host without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    Poll,
    /// Nap, at most for this long while there is a driver: a command may have to wait for that
    /// time.
    Nap(Duration),
}

impl Default for Idle {
    fn default() -> Self {
        Self::Nap(Duration::from_millis(1))
    }
}

#[derive(Debug)]
pub struct Host<D> {
    drives: Vec<(Arc<D>, Server)>,
    idle: Idle,
    /// The number of further turns in which sockets are polled.
    socket_turns: u32,
    rounds: u32,
    nap: Duration,
}

impl<D: PciDevice> Host<D> {
    #[must_use]
    pub fn new(drives: Vec<(Arc<D>, Server)>, idle: Idle) -> Self {
        Self { drives, idle, socket_turns: 0, rounds: 0, nap: NAP_MIN }
    }

    pub fn drives(&mut self) -> &mut [(Arc<D>, Server)] {
        &mut self.drives
    }

    pub fn run_for(&mut self, time: Duration) {
        let mut now = Instant::now();
        let end = now + time;
        let mut busy_at = now;
        while now < end {
            let (progress, due) = self.round();
            now = Instant::now();
            if progress {
                busy_at = now;
                self.nap = NAP_MIN;
            } else if let Idle::Nap(nap_max) = self.idle
                && now - busy_at >= HOT
            {
                now = self.take_nap(now, end, due, nap_max);
                // After the first nap, one poll between two naps is enough.
                busy_at = now.checked_sub(HOT).unwrap_or(busy_at);
            }
        }
    }

    /// Makes some turns. Returns whether any work was done, and the time of the next work that
    /// needs no event.
    fn round(&mut self) -> (bool, Option<Instant>) {
        let mut progress = false;
        let mut due: Option<Instant> = None;
        for turn in 0..TURNS {
            due = None;
            for (device, server) in &mut self.drives {
                let stepped = device.step_all();
                progress |= stepped.progress;
                if stepped.progress || stepped.due.is_some() {
                    server.touch();
                }
                due = match (due, stepped.due) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
            }
            self.rounds += u32::from(turn == 0);
            if self.socket_turns > 0 {
                self.socket_turns -= 1;
            } else if self.rounds < ROUNDS && (progress || turn > 0 || self.has_client()) {
                // Skips the sockets even without work: a driver's next request most likely comes
                // by a doorbell.
                continue;
            }
            self.rounds = 0;
            if self.look_at_sockets() {
                progress = true;
                self.socket_turns = SOCKET_TURNS;
            }
        }
        (progress, due)
    }

    fn has_client(&self) -> bool {
        self.drives.iter().any(|(_, server)| server.has_client())
    }

    fn look_at_sockets(&mut self) -> bool {
        self.drives.iter_mut().fold(false, |any, (_, server)| server.poll() | any)
    }

    fn take_nap(
        &mut self,
        now: Instant,
        end: Instant,
        due: Option<Instant>,
        nap_max: Duration,
    ) -> Instant {
        let mut nap = end - now;
        for (device, _) in self.drives.iter().filter(|(_, server)| server.has_client()) {
            match device.listen() {
                Listened::Busy => return Instant::now(),
                Listened::Signalled => {}
                Listened::Unsignalled => nap = nap.min(self.nap.min(nap_max)),
            }
        }
        self.nap = (2 * nap).min(nap_max).max(NAP_MIN);
        let until = due.map_or(now + nap, |due| due.min(now + nap)).min(end);
        let nap = until.saturating_duration_since(now);
        // A shorter sleep would take longer than requested.
        if nap >= NAP_MIN {
            let sockets: Vec<BorrowedFd<'_>> =
                self.drives.iter().flat_map(|(_, server)| server.sockets()).collect();
            let mut sockets: Vec<_> =
                sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
            let nap = Timespec { tv_sec: nap.as_secs() as _, tv_nsec: nap.subsec_nanos().into() };
            // Whether the wait fails or not, the next turn polls the sockets.
            let _ = rustix::event::poll(&mut sockets, Some(&nap));
            self.look_at_sockets();
        }
        Instant::now()
    }
}
