//! The kinds of devices, and the keys of the devices of this crate.

use super::keys::{Keys, Row, always, bytes, key, plain, rate, short_bytes, truth};
use crate::devices::delay::DelayOptions;
use crate::devices::fault::FaultOptions;
use crate::devices::null::NullOptions;
use crate::devices::ram::RamOptions;

/// A kind of device.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The word before the colon.
    pub word: &'static str,
    /// The form of the specifier.
    pub form: &'static str,
    /// A description of the device.
    pub about: &'static str,
    /// Returns the keys. A driver declares its own.
    pub keys: fn() -> Vec<Row>,
}

const fn kind(
    word: &'static str,
    form: &'static str,
    about: &'static str,
    keys: fn() -> Vec<Row>,
) -> Kind {
    Kind { word, form, about, keys }
}

/// The kinds of devices.
pub const KINDS: [Kind; 14] = [
    kind("file", "[file:]PATH", "a file or block device", Vec::new),
    kind("ram", "ram:[KEYS]", "a device in memory", || RAM.rows()),
    kind("null", "null:[KEYS]", "a device without a medium", || NULL.rows()),
    kind("delay", "delay:[KEYS:]DEVICE", "a device with added latency", || DELAY.rows()),
    kind("fault", "fault:[KEYS:]DEVICE", "a device that fails at random", || FAULT.rows()),
    kind("carve", "carve:KEYS:DEVICE", "a slice that qpair carve has made", || CARVE.rows()),
    kind("iothread", "iothread:DEVICE", "a device with one thread for all I/O", Vec::new),
    kind("onelock", "onelock:DEVICE", "a device with one lock for all I/O", Vec::new),
    kind("stripe", "stripe:[KEYS:]DEVICE+DEVICE+...", "devices in stripes", || STRIPE.rows()),
    kind(
        "nvme",
        "nvme:[KEYS:]ADDRESS[/nsN]",
        "a drive of this program's driver; ADDRESS is 0000:3b:00.0 or vfio-user:PATH",
        Vec::new,
    ),
    kind("softnvme", "softnvme:[KEYS]", "a drive made of software", Vec::new),
    kind(
        "scsi",
        "scsi:[KEYS:]HOST/UNIT",
        "a disk behind a SAS controller or virtio-scsi; HOST is 0000:3b:00.0, vfio-user:PATH or soft[:KEYS]",
        Vec::new,
    ),
    kind("vhost-user", "vhost-user:[KEYS:]PATH", "a disk of another process", Vec::new),
    kind(
        "nbd",
        "nbd:[KEYS:]unix:PATH[/EXPORT] or nbd:[KEYS:]tcp:HOST[:PORT][/EXPORT]",
        "a disk that a server exports by NBD",
        Vec::new,
    ),
];

/// The words that name a driver in this program rather than a file.
pub const DRIVERS: [&str; 5] = ["nvme", "softnvme", "scsi", "vhost-user", "nbd"];

pub(super) const RAM: Keys<RamOptions> = Keys {
    of: "ram:",
    repeats: false,
    keys: &[
        always("size", "initial size", |o| bytes(&mut o.size_bytes)),
        key("block", "logical block", |o| short_bytes(&mut o.logical_block_bytes)),
        key("growable", "whether the device can grow", |o| truth(&mut o.growable)),
        key("read_only", "whether writes are refused", |o| truth(&mut o.read_only)),
    ],
};

pub(super) const NULL: Keys<NullOptions> = Keys {
    of: "null:",
    repeats: false,
    keys: &[always("size", "size", |o| bytes(&mut o.size_bytes))],
};

const US: &str = "whole microseconds";

pub(super) const DELAY: Keys<DelayOptions> = Keys {
    of: "delay:",
    repeats: false,
    keys: &[
        always("read_us", "added to reads", |o| plain(&mut o.read_us, US)),
        always("write_us", "added to writes and discards", |o| plain(&mut o.write_us, US)),
        always("flush_us", "added to flushes", |o| plain(&mut o.flush_us, US)),
    ],
};

pub(super) const FAULT: Keys<FaultOptions> = Keys {
    of: "fault:",
    repeats: false,
    keys: &[
        always("seed", "seed of the faults", |o| plain(&mut o.seed, "a whole number")),
        key("read_error_rate", "reads that fail", |o| rate(&mut o.read_error_rate)),
        key("write_error_rate", "writes that fail", |o| rate(&mut o.write_error_rate)),
        key("flush_error_rate", "flushes that fail", |o| rate(&mut o.flush_error_rate)),
        key("corrupt_read_rate", "reads with one flipped bit", |o| rate(&mut o.corrupt_read_rate)),
    ],
};

/// The keys of a slice: its name.
pub(super) const CARVE: Keys<String> = Keys {
    of: "carve:",
    repeats: false,
    keys: &[always("name", "name of the slice; required", |o| plain(o, "the name of a slice"))],
};

#[derive(Clone)]
pub(super) struct StripeUnit(pub(super) u64);

impl Default for StripeUnit {
    fn default() -> Self {
        Self(64 << 10)
    }
}

pub(super) const STRIPE: Keys<StripeUnit> = Keys {
    of: "stripe:",
    repeats: false,
    keys: &[always("unit", "size of a stripe unit", |o| bytes(&mut o.0))],
};
