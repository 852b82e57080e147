//! The model of a drive: commands pass the interface, the cache and the channels, and reach the
//! dies.
//!
//! A read waits for its die, then for the channel, then for the interface. A write waits for the
//! interface and for room in the cache, and is then done. The cache gives its pages to one die
//! after the other, so that data written in order can be read from many dies at once. The cache is
//! divided among the dies.

use qpair_block::{Error, ErrorKind, Op, Result};

use super::calendar::Calendar;
use super::die::{Die, Times};
use super::map::{Layout, Map};
use super::profile::Profile;

/// The smallest unit that the map places on its own, in bytes.
const UNIT_BYTES: u64 = 4096;
/// The minimum number of blocks of a die, before over-provisioning. Smaller drives get smaller
/// blocks.
const BLOCKS_MIN: u64 = 128;
/// The number of blocks of a die that the host's data can never fill: two open blocks, one that
/// collection may begin, and the difference between dies.
const BLOCKS_SPARE: u64 = 5;
/// The number of dies that are tried for room in the cache before a page waits for the first of
/// them.
const DIES_TRIED: u32 = 4;
/// The maximum number of entries of the tables.
const SLOTS_MAX: u64 = 1 << 31;

/// A page that takes the host's writes until it is full.
#[derive(Clone, Copy, Debug)]
struct OpenPage {
    die: u32,
    first_slot: u32,
    filled: u32,
    /// The time when the cache has room for the page.
    admitted_ns: u64,
}

/// Counts of the work that a drive has done since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashCounts {
    /// Bytes written by commands, rounded up to units of 4 KiB.
    pub host_bytes: u64,
    /// Bytes of programmed pages: those of the host, those of garbage collection, and the space
    /// left empty when a flush did not wait for a page to fill.
    pub programmed_bytes: u64,
    pub erased_blocks: u64,
    /// Bytes in the SLC cache, as of the last time that each die was advanced.
    pub slc_bytes: u64,
}

impl FlashCounts {
    /// Returns the bytes programmed for each byte that the host wrote, between `before` and these
    /// counts.
    #[must_use]
    pub fn write_amplification(&self, before: &Self) -> f64 {
        let host = (self.host_bytes - before.host_bytes) as f64;
        let programmed = (self.programmed_bytes - before.programmed_bytes) as f64;
        if host == 0.0 { 1.0 } else { programmed / host }
    }
}

#[derive(Debug)]
pub(super) struct Model {
    times: Times,
    controller_ns: u64,
    command_ns: u64,
    /// Whether a write is complete only when it is on the medium.
    write_through: bool,
    protected: bool,
    capacity_bytes: u64,
    unit_bytes: u64,
    units_per_page: u32,
    channels: Vec<Calendar>,
    dies: Vec<Die>,
    /// The translation layer; `None` if cells are written in place.
    map: Option<Map>,
    open: Option<OpenPage>,
    next_die: u32,
    /// The number of pages of the cache that each die may use.
    cached_max: u32,
    /// The number of pages of the SLC cache on each die.
    slc_max: u32,
    read_link: Calendar,
    write_link: Calendar,
    write_link_until: u64,
    command_until: u64,
    last_ns: u64,
    rng: fastrand::Rng,
    host_units: u64,
    host_pages: u64,
}

impl Model {
    pub(super) fn new(profile: &Profile, capacity_bytes: u64, seed: u64) -> Result<Self> {
        let die_count = profile.channels * profile.dies;
        let page_bytes = u64::from(profile.page_bytes);
        let mut times = Times {
            read: profile.read_ns,
            program: profile.program_ns,
            slc_program: profile.slc_program_ns,
            erase: profile.erase_ns,
            suspend: profile.suspend_ns,
            slc_idle: profile.slc_idle_ns,
            jitter: profile.jitter,
            page_bytes,
        };
        let per_die = |bytes: u64| (bytes / page_bytes / u64::from(die_count)).min(1 << 20) as u32;
        let mut model = Self {
            times,
            controller_ns: profile.controller_ns,
            command_ns: profile.command_ns,
            write_through: profile.cache_bytes == 0,
            protected: profile.cache_protected,
            capacity_bytes,
            unit_bytes: UNIT_BYTES,
            units_per_page: (page_bytes / UNIT_BYTES) as u32,
            channels: vec![Calendar::new(profile.channel_mb_per_s); profile.channels as usize],
            dies: vec![Die::default(); die_count as usize],
            map: None,
            open: None,
            next_die: 0,
            cached_max: per_die(profile.cache_bytes).max(1),
            // A page with one bit a cell takes several times the room, so the SLC cache is limited
            // to this share of the drive.
            slc_max: per_die(profile.slc_bytes.min(capacity_bytes / 4)),
            read_link: Calendar::new(profile.link_mb_per_s),
            write_link: Calendar::new(profile.link_mb_per_s),
            write_link_until: 0,
            command_until: 0,
            last_ns: 0,
            rng: fastrand::Rng::with_seed(seed),
            host_units: 0,
            host_pages: 0,
        };
        if !profile.in_place {
            while capacity_bytes / model.unit_bytes > SLOTS_MAX / 4
                && page_bytes.is_multiple_of(model.unit_bytes * 2)
            {
                model.unit_bytes *= 2;
            }
            model.units_per_page = (page_bytes / model.unit_bytes) as u32;
            let units = capacity_bytes.div_ceil(model.unit_bytes);
            let pages = units.div_ceil(u64::from(model.units_per_page) * u64::from(die_count));
            let pages_per_block = (pages / BLOCKS_MIN).clamp(1, profile.pages_per_block.into());
            let spread = (pages as f64 * (1.0 + profile.over_provisioning)) as u64;
            let blocks = spread
                .div_ceil(pages_per_block)
                .max(pages.div_ceil(pages_per_block) + BLOCKS_SPARE);
            let slots_per_block = pages_per_block * u64::from(model.units_per_page);
            if blocks * slots_per_block * u64::from(die_count) >= SLOTS_MAX {
                let context = format!("a profile cannot cover {capacity_bytes} bytes");
                return Err(Error::new(ErrorKind::Limit, context)
                    .hint("make pages larger (page=64KiB), or the drive smaller"));
            }
            // A smaller block is erased in less time, so that the cost of an erase for each byte
            // stays the same.
            times.erase = profile.erase_ns * pages_per_block / u64::from(profile.pages_per_block);
            model.times = times;
            model.map = Some(Map::new(Layout {
                units: units as u32,
                dies: die_count,
                blocks_per_die: blocks as u32,
                slots_per_block: slots_per_block as u32,
                slots_per_page: model.units_per_page,
            }));
            model.fill((units as f64 * profile.filled) as u32);
        }
        Ok(model)
    }

    /// Writes the first `units` units in order, before time begins.
    fn fill(&mut self, units: u32) {
        for unit in 0..units {
            if self.open.is_none() {
                self.open = self.open_page(0, false);
            }
            let (Some(open), Some(map)) = (&mut self.open, &mut self.map) else { return };
            map.put(unit, open.first_slot + open.filled);
            open.filled += 1;
            if open.filled == self.units_per_page {
                self.open = None;
            }
        }
        self.open = None;
    }

    pub(super) fn schedule(
        &mut self,
        now_ns: u64,
        op: Op,
        first_byte: u64,
        len_bytes: u64,
        fua: bool,
    ) -> u64 {
        let now = now_ns.max(self.last_ns);
        self.last_ns = now;
        let begin_ns = now.max(self.command_until);
        self.command_until = begin_ns + self.command_ns;
        let done_ns = match op {
            Op::Read => self.read(begin_ns, first_byte, len_bytes),
            Op::Write => {
                let durable = self.write_through || (fua && !self.protected);
                self.write(begin_ns, first_byte, len_bytes, durable)
            }
            Op::Flush if self.protected => begin_ns,
            Op::Flush => self.flush(begin_ns),
            Op::Discard | Op::WriteZeroes => {
                self.unmap(first_byte, len_bytes);
                begin_ns
            }
        };
        done_ns + self.controller_ns
    }

    pub(super) fn counts(&self) -> FlashCounts {
        let (moved, erased_blocks) =
            self.map.as_ref().map_or((0, 0), |map| (map.moved_units, map.erased_blocks));
        let slc_pages: u64 = self.dies.iter().map(|die| u64::from(die.slc_pages_held())).sum();
        FlashCounts {
            host_bytes: self.host_units * self.unit_bytes,
            programmed_bytes: self.host_pages * self.times.page_bytes + moved * self.unit_bytes,
            erased_blocks,
            slc_bytes: slc_pages * self.times.page_bytes,
        }
    }

    /// Returns the units that a range touches.
    fn units(&self, first_byte: u64, len_bytes: u64) -> std::ops::Range<u64> {
        let end_byte = first_byte.saturating_add(len_bytes).min(self.capacity_bytes);
        first_byte / self.unit_bytes..end_byte.div_ceil(self.unit_bytes)
    }

    fn read(&mut self, now: u64, first_byte: u64, len_bytes: u64) -> u64 {
        let units = self.units(first_byte, len_bytes);
        let share_bytes = len_bytes / units.end.saturating_sub(units.start).max(1);
        let mut done_ns = now;
        let (mut group, mut group_bytes) = (None, 0);
        for unit in units {
            let place = self.place_of(unit, now);
            if place != group {
                if group_bytes > 0 {
                    done_ns = done_ns.max(self.read_page(now, group, group_bytes));
                }
                (group, group_bytes) = (place, 0);
            }
            group_bytes += share_bytes;
        }
        done_ns.max(self.read_page(now, group, group_bytes))
    }

    /// Returns the die and the page that hold a unit, or `None` if the unit is in the cache.
    fn place_of(&mut self, unit: u64, now: u64) -> Option<(u32, u64)> {
        let slot = self.map.as_ref().and_then(|map| map.slot(u32::try_from(unit).ok()?));
        let per_page = u64::from(self.units_per_page);
        let Some(slot) = slot else {
            // A unit that was never written is read from the place that it would have if the drive
            // had been written in order.
            let page = unit / per_page;
            return Some(((page % self.dies.len() as u64) as u32, page | 1 << 63));
        };
        let page = u64::from(slot) / per_page;
        if let Some(open) = self.open
            && u64::from(open.first_slot) / per_page == page
        {
            return None;
        }
        let map = self.map.as_ref()?;
        let (die, _) = map.place(slot);
        if let Some(age) = map.pages_after(slot) {
            self.advance(die, now);
            let opened = self.open.is_some_and(|open| open.die == die);
            if age < self.dies[die as usize].pages_cached(now) + u32::from(opened) {
                return None;
            }
        }
        Some((die, page))
    }

    /// Returns when `bytes` of a page have crossed the interface.
    fn read_page(&mut self, now: u64, place: Option<(u32, u64)>, bytes: u64) -> u64 {
        let Some((die, page)) = place else { return self.read_link.reserve(now, bytes) };
        let ready_ns = self.use_die(die, page, now, self.times.read);
        let channel = die as usize % self.channels.len();
        let brought_ns = self.channels[channel].reserve(ready_ns, bytes);
        self.read_link.reserve(brought_ns, bytes)
    }

    /// Reads a page of a die, or writes it in place.
    fn use_die(&mut self, die: u32, page: u64, now: u64, mean_ns: u64) -> u64 {
        self.advance(die, now);
        let channel = die as usize % self.channels.len();
        let (state, bus) = (&mut self.dies[die as usize], &mut self.channels[channel]);
        if state.pages_cached(now) >= self.cached_max {
            state.press(now, &self.times, &mut self.rng, bus);
        }
        state.read(now, page, mean_ns, &self.times, &mut self.rng)
    }

    fn advance(&mut self, die: u32, now: u64) {
        let channel = die as usize % self.channels.len();
        let (state, bus) = (&mut self.dies[die as usize], &mut self.channels[channel]);
        state.advance(now, &self.times, &mut self.rng, bus);
    }

    fn write(&mut self, now: u64, first_byte: u64, len_bytes: u64, durable: bool) -> u64 {
        let start_ns = now.max(self.write_link_until);
        let received_ns = start_ns + self.write_link.transfer_ns(len_bytes);
        self.write_link_until = received_ns;
        let mut done_ns = received_ns;
        let units = self.units(first_byte, len_bytes);
        self.host_units += units.end.saturating_sub(units.start);
        if self.map.is_none() {
            self.host_pages += units.end.saturating_sub(units.start);
            for unit in units {
                let page = unit / u64::from(self.units_per_page);
                let die = (page % self.dies.len() as u64) as u32;
                done_ns =
                    done_ns.max(self.use_die(die, page | 1 << 63, received_ns, self.times.program));
                // After a write the register has nothing that a read could use.
                self.dies[die as usize].forget_register();
            }
            return done_ns;
        }
        let end_byte = first_byte.saturating_add(len_bytes);
        for unit in units {
            let whole =
                unit * self.unit_bytes >= first_byte && (unit + 1) * self.unit_bytes <= end_byte;
            if !whole && let Some((die, page)) = self.place_of(unit, now) {
                // The rest of the unit has to be read before the unit can be written.
                done_ns = done_ns.max(self.use_die(die, page, now, self.times.read));
            }
            if self.open.is_none() {
                self.open = self.open_page(now, true);
            }
            let (Some(open), Some(map)) = (&mut self.open, &mut self.map) else { return done_ns };
            let Some(unit) = u32::try_from(unit).ok().filter(|unit| *unit < map.units()) else {
                return done_ns;
            };
            done_ns = done_ns.max(open.admitted_ns);
            map.put(unit, open.first_slot + open.filled);
            open.filled += 1;
            if open.filled == self.units_per_page {
                let programmed_ns = self.close_page(now);
                if durable {
                    done_ns = done_ns.max(programmed_ns);
                }
            }
        }
        if durable { done_ns.max(self.close_page(now)) } else { done_ns }
    }

    /// Chooses the die for the next page, and takes the page there. With `cached`, the data goes to
    /// the cache, which must have room.
    fn open_page(&mut self, now: u64, cached: bool) -> Option<OpenPage> {
        let count = self.dies.len() as u32;
        let mut chosen = None;
        for step in 0..count {
            let die = (self.next_die + step) % count;
            if !self.map.as_ref()?.has_room(die) {
                continue;
            }
            chosen = chosen.or(Some(die));
            if !cached || step >= DIES_TRIED {
                break;
            }
            self.advance(die, now);
            if self.dies[die as usize].pages_cached(now) < self.cached_max {
                chosen = Some(die);
                break;
            }
        }
        let die = chosen.unwrap_or(self.next_die);
        self.next_die = (die + 1) % count;
        let (first_slot, work) = self.map.as_mut()?.open_page(die);
        let mut admitted_ns = now;
        if cached {
            self.advance(die, now);
            let state = &mut self.dies[die as usize];
            state.add_collection(now, work);
            admitted_ns = state.programmed_ns(now, self.cached_max - 1, &self.times);
        }
        Some(OpenPage { die, first_slot: first_slot?, filled: 0, admitted_ns })
    }

    /// Gives the open page to its die. Returns when the page is programmed, if no reads come
    /// between.
    fn close_page(&mut self, now: u64) -> u64 {
        let Some(open) = self.open.take() else { return now };
        self.host_pages += 1;
        self.advance(open.die, now);
        let die = &mut self.dies[open.die as usize];
        die.add_page(now, self.slc_max);
        die.programmed_ns(now, 0, &self.times)
    }

    fn flush(&mut self, now: u64) -> u64 {
        let mut done_ns = self.close_page(now);
        for die in 0..self.dies.len() as u32 {
            self.advance(die, now);
            done_ns = done_ns.max(self.dies[die as usize].programmed_ns(now, 0, &self.times));
        }
        done_ns
    }

    fn unmap(&mut self, first_byte: u64, len_bytes: u64) {
        let first = first_byte.div_ceil(self.unit_bytes).min(u32::MAX.into()) as u32;
        let end =
            (first_byte.saturating_add(len_bytes) / self.unit_bytes).min(u32::MAX.into()) as u32;
        if let Some(map) = &mut self.map
            && first < end
        {
            map.unmap(first, end);
        }
    }
}
