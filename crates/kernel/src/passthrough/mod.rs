//! NVMe passthrough: sends this crate's own commands through `io_uring(7)` to a namespace's
//! character device (`/dev/ngXnY`).
//!
//! - [`namespace`]: opening, limits, and excluding other users; [`identify`]: the drive's Identify
//!   data.
//! - [`command`]: turns requests into commands, and statuses into errors; [`encode`]: turns
//!   commands into ring entries.
//!
//! The channels are those of [`crate::io_uring`], whose rings use the dialect [`Encoder`] here. No
//! file system, page cache or splitting is involved: a request over a limit is refused before the
//! drive sees it, and this module handles flushes as the kernel's block layer would.

mod command;
mod encode;
mod identify;
mod namespace;

use std::sync::Arc;

use qpair_block::{Arena, ArenaOptions, ChannelOptions, Error, ErrorKind, IoChannel, Result};

use crate::file::FileOptions;
use crate::io_uring;
use crate::mode::Mode;
use encode::Encoder;
use namespace::PAGE_BYTES;
pub(crate) use namespace::{Namespace, is_namespace};

/// Opens a namespace, and reads its first block in `mode`, because only a read shows whether the
/// kernel supports the mode. Returns the namespace, and a description of the mode for reports.
pub(crate) fn open(options: &FileOptions, mode: &Mode) -> Result<(Arc<Namespace>, String)> {
    let mut namespace = Arc::new(Namespace::open(options)?);
    let mut probe = ChannelOptions { depth: 1, ..ChannelOptions::default() };
    if mode.registered_buffers {
        let bytes = (namespace.segments_max + 1) * PAGE_BYTES;
        let arena =
            Arena::new(bytes.next_power_of_two() as usize, 1, ArenaOptions::ordinary_pages());
        probe
            .arenas
            .push(arena.map_err(|cause| Error::os(cause, "allocating memory for a first read"))?);
    }
    let first = io_uring::try_open::<Encoder>(&namespace, mode, &probe);
    match (first, Arc::get_mut(&mut namespace)) {
        (Ok(words), _) => Ok((namespace, words)),
        (Err(error), Some(own))
            if mode.registered_buffers && error.kind() == ErrorKind::Invalid =>
        {
            // Linux 6.1 counts all pages from a transfer's first one to the end of the registered
            // buffer. It refuses the transfer if their number exceeds the drive's segments. Newer
            // kernels (7.3) do not.
            own.piece_shift = (own.segments_max * PAGE_BYTES).ilog2();
            probe.arenas = vec![
                Arena::new(1 << own.piece_shift, 1, ArenaOptions::ordinary_pages())
                    .map_err(|cause| Error::os(cause, "allocating memory for a first read"))?,
            ];
            let words = io_uring::try_open::<Encoder>(&namespace, mode, &probe)?;
            Ok((namespace, words))
        }
        (Err(error), _) => Err(error),
    }
}

pub(crate) fn open_channel(
    namespace: &Arc<Namespace>,
    mode: &Mode,
    options: &ChannelOptions,
) -> Result<Box<dyn IoChannel>> {
    namespace.limits.check_channel(options)?;
    io_uring::open::<Encoder>(namespace.clone(), mode, options)
}
