//! Striping over several devices (RAID-0). The layout is described in docs/design/block-layer.md.
//!
//! A request inside one stripe unit goes straight to its member. A request that crosses units is
//! split at their borders, and its parts run one after the other, because there is one buffer,
//! which is passed by value from part to part. That costs latency for requests larger than a unit
//! (choose a unit that holds them), and keeps the rule that a buffer has one owner at a time. The
//! first error ends a request, and later parts are not started. A part that does not have the
//! members' memory alignment is copied through an aligned block.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::channel::bounces::Bounces;
use crate::devices::stripe_channel::StripeChannel;
use crate::seam::byte_locks::ByteLocks;
use crate::seam::device::{
    BlockDevice, ChannelOptions, DeviceInfo, Extent, IoChannel, atomic_write_bytes_on,
};
use crate::seam::error::{Error, ErrorKind, Result};
use crate::seam::size::format_bytes;

/// One device of a stripe.
#[derive(Clone, Debug)]
pub struct Member {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// The first byte of data on the device, a multiple of the logical block. The bytes before it
    /// (for example a superblock) are not touched.
    pub start_bytes: u64,
}

/// The mapping from addresses of a stripe to its members.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    unit_bytes: u64,
    starts_bytes: Vec<u64>,
}

/// A position on a member, and the number of bytes that are contiguous there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) member: usize,
    pub(crate) offset_bytes: u64,
    pub(crate) contiguous_bytes: u64,
}

impl Layout {
    /// Returns the member and offset of byte `offset_bytes` of the stripe.
    #[inline]
    pub(crate) fn place(&self, offset_bytes: u64) -> Place {
        let members = self.starts_bytes.len() as u64;
        if members == 1 {
            let offset_bytes = self.starts_bytes[0] + offset_bytes;
            return Place { member: 0, offset_bytes, contiguous_bytes: u64::MAX };
        }
        let (unit, in_unit_bytes) =
            (offset_bytes / self.unit_bytes, offset_bytes % self.unit_bytes);
        let (row, member) = (unit / members, (unit % members) as usize);
        Place {
            member,
            offset_bytes: self.starts_bytes[member] + row * self.unit_bytes + in_unit_bytes,
            contiguous_bytes: self.unit_bytes - in_unit_bytes,
        }
    }

    /// Returns the number of rows for `size_bytes`.
    fn rows(&self, size_bytes: u64) -> u64 {
        size_bytes.div_ceil(self.unit_bytes).div_ceil(self.starts_bytes.len() as u64)
    }

    /// Returns the size in bytes of the whole rows that fit on the smallest member.
    fn size_bytes(&self, members: &[Member]) -> u64 {
        let rows = members
            .iter()
            .map(|m| m.device.size_bytes().saturating_sub(m.start_bytes) / self.unit_bytes)
            .min();
        rows.unwrap_or(0).saturating_mul(self.unit_bytes).saturating_mul(members.len() as u64)
    }
}

/// Several devices combined into one.
///
/// The size is the number of whole rows of units that fit on the smallest member. Writes inside one
/// unit keep the members' atomic write unit; a write that crosses units does not. A flush goes to
/// every member.
#[derive(Debug)]
pub struct StripeDevice {
    info: DeviceInfo,
    layout: Layout,
    members: Vec<Member>,
    size_bytes: Arc<AtomicU64>,
}

impl StripeDevice {
    /// Stripes `members` in units of `unit_bytes`. Nothing is written to the members: the caller
    /// must remember their order and the unit.
    ///
    /// # Errors
    /// `Invalid` if there is no member, or the unit or a start is not a multiple of the logical
    /// block; `NoSpace` if a member does not hold one unit.
    pub fn new(unit_bytes: u64, members: Vec<Member>) -> Result<Self> {
        let infos: Vec<_> = members.iter().map(|m| m.device.info()).collect();
        let block = infos.iter().map(|i| i.logical_block_bytes).max();
        let Some(logical_block_bytes) = block else {
            return Err(Error::new(ErrorKind::Invalid, "a stripe needs at least one member"));
        };
        let names: Vec<_> = infos.iter().map(|i| format!("[{}]", i.name)).collect();
        let name = format!("stripe:unit={}:{}", format_bytes(unit_bytes), names.join("+"));
        let on_grid = |bytes: u64| bytes.is_multiple_of(u64::from(logical_block_bytes));
        if unit_bytes == 0 || !on_grid(unit_bytes) {
            return Err(Error::new(ErrorKind::Invalid, name).hint(format!(
                "the unit is a positive multiple of the largest logical block, {logical_block_bytes} bytes"
            )));
        }
        if let Some(member) = members.iter().find(|m| !on_grid(m.start_bytes)) {
            let context =
                format!("{name} cannot start a member's data at byte {}", member.start_bytes);
            return Err(Error::new(ErrorKind::Invalid, context).hint(format!(
                "data starts at a multiple of the largest logical block, {logical_block_bytes} bytes"
            )));
        }
        let layout =
            Layout { unit_bytes, starts_bytes: members.iter().map(|m| m.start_bytes).collect() };
        let size_bytes = layout.size_bytes(&members);
        if size_bytes == 0 {
            return Err(Error::new(ErrorKind::NoSpace, name)
                .hint("every member holds at least one unit after its start"));
        }
        let mut interfaces: Vec<_> = infos.iter().map(|i| i.interface.as_str()).collect();
        interfaces.sort_unstable();
        interfaces.dedup();
        let mut modes: Vec<_> = infos.iter().map(|i| i.mode.as_str()).collect();
        modes.dedup();
        let transfer = infos.iter().map(|i| i.transfer_bytes_max).min().unwrap_or(0);
        let atomic_write_bytes_min =
            infos.iter().map(|i| i.atomic_write_bytes_min).max().unwrap_or(0);
        let atomic_write_bytes = infos.iter().map(|i| i.atomic_write_bytes).min().unwrap_or(0);
        // With one member, requests are moved by its start only.
        let units = if members.len() == 1 { 0 } else { unit_bytes };
        let grid_bytes = members.iter().fold(units, |grid, member| grid | member.start_bytes);
        let info = DeviceInfo {
            interface: format!("stripe+{}", interfaces.join("+")),
            mode: format!(
                "{} members, unit {}; {}",
                members.len(),
                format_bytes(unit_bytes),
                modes.join(" | ")
            ),
            logical_block_bytes,
            memory_alignment_bytes: infos
                .iter()
                .map(|i| i.memory_alignment_bytes)
                .max()
                .unwrap_or(1),
            transfer_bytes_max: transfer / logical_block_bytes * logical_block_bytes,
            atomic_write_bytes_min,
            atomic_write_bytes: atomic_write_bytes_on(
                grid_bytes,
                atomic_write_bytes_min,
                atomic_write_bytes,
            ),
            volatile_write_cache: infos.iter().any(|i| i.volatile_write_cache),
            read_only: infos.iter().any(|i| i.read_only),
            discards: infos.iter().all(|i| i.discards),
            writes_zeroes: infos.iter().all(|i| i.writes_zeroes),
            growable: infos.iter().all(|i| i.growable),
            depth_max: infos.iter().map(|i| i.depth_max).min().unwrap_or(1),
            shared_memory: infos.iter().any(|i| i.shared_memory),
            name,
        };
        let size_bytes = Arc::new(AtomicU64::new(size_bytes));
        Ok(Self { info, layout, members, size_bytes })
    }

    /// Returns the members, in order.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the stripe unit in bytes.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        self.layout.unit_bytes
    }
}

impl BlockDevice for StripeDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    fn byte_locks(&self) -> Option<Arc<dyn ByteLocks>> {
        self.members[0].device.byte_locks()
    }

    fn removed(&self) -> Option<String> {
        self.members.iter().find_map(|member| member.device.removed())
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        if size_bytes <= self.size_bytes() {
            return Ok(());
        }
        let rows = self.layout.rows(size_bytes);
        // If a member grew before another one failed, it is only larger than necessary. The stripe
        // is unchanged.
        for member in &self.members {
            let member_bytes = rows
                .checked_mul(self.layout.unit_bytes)
                .and_then(|bytes| bytes.checked_add(member.start_bytes))
                .ok_or_else(|| {
                    let context = format!("{} cannot grow to {size_bytes} bytes", self.info.name);
                    Error::new(ErrorKind::NoSpace, context)
                })?;
            member.device.grow(member_bytes)?;
        }
        self.size_bytes.fetch_max(self.layout.size_bytes(&self.members), Ordering::AcqRel);
        Ok(())
    }

    /// Asks each member once, whatever the length is.
    fn extent(&self, offset_bytes: u64, len_bytes: u64) -> Extent {
        let first = self.layout.place(offset_bytes);
        let member = &self.members[first.member].device;
        let found = member.extent(first.offset_bytes, len_bytes.min(first.contiguous_bytes));
        if found.len_bytes < first.contiguous_bytes || found.len_bytes >= len_bytes {
            return found;
        }
        // From the next unit on, the extent ends where that of the first member does which ends.
        let next_bytes = offset_bytes + first.contiguous_bytes;
        let mut end_bytes = offset_bytes + len_bytes;
        for turn in 0..self.members.len() as u64 {
            let from_bytes = next_bytes + turn * self.layout.unit_bytes;
            if from_bytes >= end_bytes {
                break;
            }
            let place = self.layout.place(from_bytes);
            let rows = self.layout.rows(end_bytes - from_bytes);
            let asked_bytes = rows * self.layout.unit_bytes;
            let run = self.members[place.member].device.extent(place.offset_bytes, asked_bytes);
            let same_bytes = if run.is_hole == found.is_hole { run.len_bytes } else { 0 };
            if same_bytes < asked_bytes {
                let (row, in_unit_bytes) =
                    (same_bytes / self.layout.unit_bytes, same_bytes % self.layout.unit_bytes);
                let row_bytes = self.layout.unit_bytes * self.members.len() as u64;
                end_bytes = end_bytes.min(from_bytes + row * row_bytes + in_unit_bytes);
            }
        }
        Extent { len_bytes: end_bytes - offset_bytes, is_hole: found.is_hole }
    }

    fn shrinks(&self) -> bool {
        self.members.iter().all(|member| member.device.shrinks())
    }

    fn shrink(&self, size_bytes: u64) -> Result<()> {
        let rows = self.layout.rows(size_bytes);
        let shrunk = self.members.iter().try_for_each(|member| {
            member.device.shrink(member.start_bytes + rows * self.layout.unit_bytes)
        });
        // If a member failed, those before it are smaller nevertheless.
        self.size_bytes.store(self.layout.size_bytes(&self.members), Ordering::Release);
        shrunk
    }

    /// Resets all members, even after one has failed, and returns the first failure. When it
    /// returns, the part in flight of a request over several units has come back. Later parts of
    /// that request may have been sent since.
    fn reset(&self) -> Result<()> {
        let results: Vec<_> = self.members.iter().map(|member| member.device.reset()).collect();
        results.into_iter().collect()
    }

    fn resets(&self) -> u64 {
        self.members.iter().map(|member| member.device.resets()).sum()
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        self.info.check_channel(options)?;
        // With several members, the stripe itself listens to the wake event, and splits requests.
        let (mut below, mut bounces) = (options.clone(), None);
        if self.members.len() > 1 {
            below.wake = None;
            bounces = Bounces::new(&self.info, options)?;
            below.arenas.extend(bounces.as_ref().map(|bounces| bounces.arena().clone()));
        }
        let channels = self
            .members
            .iter()
            .map(|member| member.device.open_channel(&below))
            .collect::<Result<Vec<_>>>()?;
        let size_bytes = self.size_bytes.clone();
        let channel = StripeChannel::new(
            self.info.clone(),
            self.layout.clone(),
            size_bytes,
            (channels, bounces),
            options,
        )?;
        Ok(Box::new(channel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NullDevice, NullOptions};

    fn null(size_bytes: u64) -> Arc<dyn BlockDevice> {
        Arc::new(NullDevice::new(NullOptions { size_bytes }).unwrap())
    }

    #[test]
    fn every_byte_has_a_place_of_its_own() {
        let layout = Layout { unit_bytes: 1536, starts_bytes: vec![0, 512, 1024] };
        let mut seen = std::collections::HashSet::new();
        for offset in (0..3 * 4 * 1536).step_by(512) {
            let place = layout.place(offset);
            assert!(place.offset_bytes >= layout.starts_bytes[place.member]);
            assert!(place.offset_bytes < layout.starts_bytes[place.member] + 4 * 1536);
            assert_eq!(place.contiguous_bytes, 1536 - offset % 1536);
            assert!(seen.insert((place.member, place.offset_bytes)));
        }
    }

    #[test]
    fn size_is_whole_rows_of_the_smallest_member() {
        let members = vec![
            Member { device: null(10 << 10), start_bytes: 0 },
            Member { device: null(12 << 10), start_bytes: 1 << 10 },
            Member { device: null(8 << 20), start_bytes: 512 },
        ];
        let stripe = StripeDevice::new(4096, members).unwrap();
        assert_eq!(stripe.size_bytes(), 3 * 2 * 4096);
    }

    /// A device on which only some ranges have space.
    #[derive(Debug)]
    struct Sparse(NullDevice, Vec<std::ops::Range<u64>>);

    impl BlockDevice for Sparse {
        fn info(&self) -> &DeviceInfo {
            self.0.info()
        }

        fn size_bytes(&self) -> u64 {
            self.0.size_bytes()
        }

        fn grow(&self, size_bytes: u64) -> Result<()> {
            self.0.grow(size_bytes)
        }

        fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
            self.0.open_channel(options)
        }

        fn extent(&self, offset_bytes: u64, len_bytes: u64) -> Extent {
            let is_data = |at: u64| self.1.iter().any(|range| range.contains(&at));
            let is_hole = !is_data(offset_bytes);
            let mut end = offset_bytes;
            while end < offset_bytes + len_bytes && is_data(end) != is_hole {
                end += 512;
            }
            Extent { len_bytes: (end - offset_bytes).min(len_bytes), is_hole }
        }
    }

    #[test]
    fn holes_are_those_of_the_members() {
        let unit = 4096;
        for seed in 1..200u64 {
            // Ranges of whole blocks, from a simple sequence of numbers.
            let mut state = seed;
            let mut next = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % below
            };
            let count = 1 + next(3) as usize;
            let members: Vec<_> = (0..count)
                .map(|_| {
                    let ranges = (0..next(4)).map(|_| {
                        let start = next(64) * 512;
                        start..start + (1 + next(48)) * 512
                    });
                    let device = NullDevice::new(NullOptions { size_bytes: 33 << 10 }).unwrap();
                    let device: Arc<dyn BlockDevice> = Arc::new(Sparse(device, ranges.collect()));
                    Member { device, start_bytes: 512 }
                })
                .collect();
            let stripe = StripeDevice::new(unit, members).unwrap();
            let layout = stripe.layout.clone();
            let is_hole = |at: u64| {
                let place = layout.place(at);
                stripe.members[place.member].device.extent(place.offset_bytes, 512).is_hole
            };
            let (from, end) = (next(8) * 512, stripe.size_bytes());
            let (mut at, mut extents) = (from, 0);
            while at < end {
                let found = stripe.extent(at, end - at);
                assert!(found.len_bytes > 0 && at + found.len_bytes <= end, "seed {seed}");
                for block in (at..at + found.len_bytes).step_by(512) {
                    assert_eq!(is_hole(block), found.is_hole, "seed {seed}, block at {block}");
                }
                at += found.len_bytes;
                // An extent is as long as it can be, so the next one differs.
                assert!(at == end || is_hole(at) != found.is_hole, "seed {seed}, end at {at}");
                extents += 1;
            }
            assert!(extents > 0);
        }
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let member = |size, start_bytes| Member { device: null(size), start_bytes };
        assert!(StripeDevice::new(4096, vec![]).is_err());
        assert!(StripeDevice::new(0, vec![member(1 << 20, 0)]).is_err());
        assert!(StripeDevice::new(1000, vec![member(1 << 20, 0)]).is_err());
        assert!(StripeDevice::new(4096, vec![member(1 << 20, 7)]).is_err());
        assert!(StripeDevice::new(4096, vec![member(1 << 20, 1 << 20)]).is_err());
    }
}
