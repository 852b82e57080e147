//! A namespace: blocks on a medium.

use std::ops::Deref;

use qpair_block::Result;
use qpair_nvme_device::{Names, NamespaceInfo};
use qpair_nvme_wire::{Command, Status};

use super::options::NamespaceOptions;
use crate::digest::digest;
use crate::medium::{Extents, Volume};

#[derive(Debug)]
pub(crate) struct Namespace {
    volume: Volume,
    /// The first byte of the namespace on the drive, behind the namespaces before it.
    pub(crate) first_byte: u64,
    pub(crate) names: Names,
}

impl Deref for Namespace {
    type Target = Volume;

    #[inline(always)]
    fn deref(&self) -> &Volume {
        &self.volume
    }
}

impl Namespace {
    /// Opens a namespace with a volatile write cache of `cache_bytes`; 0 for no cache.
    pub(crate) fn open(
        options: &NamespaceOptions,
        serial: &str,
        nsid: u32,
        first_byte: u64,
        cache_bytes: u64,
    ) -> Result<Self> {
        let volume = Volume::open(
            &options.medium,
            options.size_bytes,
            options.logical_block_bytes,
            cache_bytes,
        )?;
        let (high, low) = (digest(serial, nsid, 1), digest(serial, nsid, 2));
        let mut nguid = [0; 16];
        nguid[..8].copy_from_slice(&high.to_be_bytes());
        nguid[8..].copy_from_slice(&low.to_be_bytes());
        Ok(Self {
            volume,
            first_byte,
            // The second bit of the first byte says that the name is locally assigned and not a
            // vendor's.
            names: Names {
                nguid,
                eui64: (digest(serial, nsid, 3) & !(1 << 56) | 1 << 57).to_be_bytes(),
                ..Names::default()
            },
        })
    }

    /// Returns the range of `blocks` blocks from `first` on.
    #[inline(always)]
    pub(crate) fn range(&self, first: u64, blocks: u32) -> std::result::Result<Extents, Status> {
        self.volume.range(first, blocks.into()).ok_or(Status::LBA_OUT_OF_RANGE)
    }

    /// Returns the range of a read, write, compare or write zeroes.
    #[inline(always)]
    pub(crate) fn range_of(&self, command: &Command) -> std::result::Result<Extents, Status> {
        self.range(command.first_block(), command.blocks())
    }

    pub(crate) fn info(&self, nsid: u32) -> NamespaceInfo {
        NamespaceInfo {
            nsid,
            blocks: self.blocks,
            logical_block_bytes: 1 << self.block_shift,
            read_only: false,
            deallocates: true,
            names: self.names,
        }
    }
}
