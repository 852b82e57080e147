//! Notifications to systemd (sd_notify(3)): datagrams to the socket that the environment names.
//! Without a socket, nothing is sent.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

pub(super) struct Systemd {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// The interval at which systemd is notified, half of its time limit; and the time of the last
    /// notification.
    watchdog: Option<(Duration, Instant)>,
}

impl Systemd {
    pub(super) fn of_environment() -> Self {
        let socket = std::env::var("NOTIFY_SOCKET").ok().and_then(|name| {
            let address = match name.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(&name),
            };
            Some((UnixDatagram::unbound().ok()?, address.ok()?))
        });
        let us = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        let watchdog = us.map(|us: u64| (Duration::from_micros(us / 2), Instant::now()));
        Self { socket, watchdog }
    }

    pub(super) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// Reports that the configuration is being read again, until [`Systemd::ready`] is called.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// To be called often.
    pub(super) fn live(&mut self) {
        if let Some((every, last)) = &mut self.watchdog
            && last.elapsed() >= *every
        {
            *last = Instant::now();
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            // A manager that does not listen does not want to know.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}
