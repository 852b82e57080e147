//! The translation layer, as small as it can be: maps logical units to slots of the flash, and
//! finds the blocks worth collecting.
//!
//! Invariants:
//! - A slot is valid if the unit it was written for is still mapped to it; `valid` of a block is
//!   the number of its valid slots.
//! - Each die has a block that the host's pages go to, and one that collection moves to; both are
//!   open, all others closed or free.
//! - The last free block of a die is collection's, so that collection can always begin.
//!
//! The tables are as large as the drive has units, but zeroed memory that was never touched takes
//! no room.

use super::die::Collection;

/// With so few free blocks, a die collects with each page of the host, whatever it gains.
const FREE_LOW: usize = 2;
/// With so few, it collects where little is to be moved.
const FREE_EASY: usize = 4;
/// Units that are looked at together when a range is unmapped.
const CHUNK: usize = 4096;
/// The entry of a table that names nothing. Other entries are one more than the number that they
/// name.
const NONE: u32 = 0;

/// The dimensions of the flash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) units: u32,
    pub(super) dies: u32,
    pub(super) blocks_per_die: u32,
    pub(super) slots_per_block: u32,
    pub(super) slots_per_page: u32,
}

impl Layout {
    fn slots_per_die(&self) -> u32 {
        self.blocks_per_die * self.slots_per_block
    }

    /// The die of a slot, and its block there.
    pub(super) fn place(&self, slot: u32) -> (u32, u32) {
        let die = slot / self.slots_per_die();
        (die, (slot % self.slots_per_die()) / self.slots_per_block)
    }
}

/// The place in a die for the next data of one kind.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    block: u32,
    /// Next slot in the block.
    next: u32,
}

#[derive(Debug)]
struct Victim {
    block: u32,
    next: u32,
    /// Slots to look at for each page of the host, so that the victim is done before it is needed.
    pace: u32,
}

#[derive(Debug)]
struct DieBlocks {
    valid: Vec<u32>,
    closed: Vec<bool>,
    free: Vec<u32>,
    host: Cursor,
    moved: Cursor,
    victim: Option<Victim>,
    /// Valid slots of all blocks.
    valid_total: u32,
}

/// The translation layer.
#[derive(Debug)]
pub(super) struct Map {
    layout: Layout,
    /// By unit: slot + 1.
    slots: Vec<u32>,
    /// By slot: unit + 1.
    units: Vec<u32>,
    /// By chunk of units: how many are mapped.
    mapped: Vec<u32>,
    dies: Vec<DieBlocks>,
    valid_total: u64,
    pub(super) moved_units: u64,
    pub(super) erased_blocks: u64,
}

impl Map {
    pub(super) fn new(layout: Layout) -> Self {
        let blocks = layout.blocks_per_die;
        let die = || DieBlocks {
            valid: vec![0; blocks as usize],
            closed: vec![false; blocks as usize],
            free: (2..blocks).rev().collect(),
            host: Cursor { block: 0, next: 0 },
            moved: Cursor { block: 1, next: 0 },
            victim: None,
            valid_total: 0,
        };
        Self {
            layout,
            slots: vec![NONE; layout.units as usize],
            units: vec![NONE; (layout.dies * layout.slots_per_die()) as usize],
            mapped: vec![0; (layout.units as usize).div_ceil(CHUNK)],
            dies: (0..layout.dies).map(|_| die()).collect(),
            valid_total: 0,
            moved_units: 0,
            erased_blocks: 0,
        }
    }

    /// The slot of a unit, if it was ever written.
    #[inline]
    pub(super) fn slot(&self, unit: u32) -> Option<u32> {
        self.slots.get(unit as usize)?.checked_sub(1)
    }

    /// Whether a die holds no more than its share, so that data does not pile up where it cannot be
    /// collected.
    pub(super) fn has_room(&self, die: u32) -> bool {
        let mean = self.valid_total / u64::from(self.layout.dies);
        u64::from(self.dies[die as usize].valid_total)
            <= mean + u64::from(self.layout.slots_per_block) / 2
    }

    /// Takes the next page of a die for the host: its first slot (none: the die is full), and what
    /// collection had to do for it.
    pub(super) fn open_page(&mut self, die: u32) -> (Option<u32>, Collection) {
        let mut work = Collection::default();
        let free = self.dies[die as usize].free.len();
        if free <= FREE_EASY {
            let few = self.layout.slots_per_block / 8;
            let valid_max = if free <= FREE_LOW { u32::MAX } else { few };
            self.collect(die, None, valid_max, &mut work);
        }
        if self.dies[die as usize].host.next == self.layout.slots_per_block {
            let blocks = &mut self.dies[die as usize];
            blocks.closed[blocks.host.block as usize] = true;
            // Collection gains slots with every victim (a die always has more slots than can be
            // valid), so this ends.
            while self.dies[die as usize].free.len() < 2
                && self.collect(die, Some(u32::MAX), u32::MAX, &mut work)
            {}
            let blocks = &mut self.dies[die as usize];
            if blocks.free.len() < 2 {
                return (None, work);
            }
            let Some(block) = blocks.free.pop() else { return (None, work) };
            blocks.host = Cursor { block, next: 0 };
        }
        let cursor = &mut self.dies[die as usize].host;
        let Cursor { block, next } = *cursor;
        cursor.next += self.layout.slots_per_page;
        (Some(self.first_slot(die, block) + next), work)
    }

    fn first_slot(&self, die: u32, block: u32) -> u32 {
        die * self.layout.slots_per_die() + block * self.layout.slots_per_block
    }

    /// Puts a unit into a slot; where it was before is garbage now.
    #[inline]
    pub(super) fn put(&mut self, unit: u32, slot: u32) {
        let old = std::mem::replace(&mut self.slots[unit as usize], slot + 1);
        match old.checked_sub(1) {
            Some(old) => self.forget(old),
            None => self.mapped[unit as usize / CHUNK] += 1,
        }
        self.units[slot as usize] = unit + 1;
        let (die, block) = self.layout.place(slot);
        let blocks = &mut self.dies[die as usize];
        blocks.valid[block as usize] += 1;
        blocks.valid_total += 1;
        self.valid_total += 1;
    }

    fn forget(&mut self, slot: u32) {
        let (die, block) = self.layout.place(slot);
        let blocks = &mut self.dies[die as usize];
        blocks.valid[block as usize] -= 1;
        blocks.valid_total -= 1;
        self.valid_total -= 1;
    }

    /// How many units there are.
    pub(super) fn units(&self) -> u32 {
        self.layout.units
    }

    /// Unmaps units `first..end`.
    pub(super) fn unmap(&mut self, first: u32, end: u32) {
        let (mut unit, end) = (first as usize, end.min(self.layout.units) as usize);
        while unit < end {
            let chunk = unit / CHUNK;
            let chunk_end = ((chunk + 1) * CHUNK).min(end);
            if self.mapped[chunk] > 0 {
                for unit in unit..chunk_end {
                    let slot = std::mem::replace(&mut self.slots[unit], NONE);
                    if let Some(slot) = slot.checked_sub(1) {
                        self.mapped[chunk] -= 1;
                        self.forget(slot);
                    }
                }
            }
            unit = chunk_end;
        }
    }

    /// Looks at `slots` slots of the die's victim (`None`: as many as its pace says), moves what is
    /// valid, and erases it at its end. False: there is nothing to collect that has at most
    /// `valid_max` valid slots.
    fn collect(
        &mut self,
        die: u32,
        slots: Option<u32>,
        valid_max: u32,
        work: &mut Collection,
    ) -> bool {
        let layout = self.layout;
        if self.dies[die as usize].victim.is_none() && !self.choose(die, valid_max) {
            return false;
        }
        let Some(mut victim) = self.dies[die as usize].victim.take() else { return false };
        let base = self.first_slot(die, victim.block);
        let end =
            victim.next.saturating_add(slots.unwrap_or(victim.pace)).min(layout.slots_per_block);
        let mut page_read = u32::MAX;
        let valid_is_left = self.dies[die as usize].valid[victim.block as usize] > 0;
        while valid_is_left && victim.next < end {
            let slot = base + victim.next;
            if let Some(unit) = self.units[slot as usize].checked_sub(1)
                && self.slots[unit as usize] == slot + 1
            {
                let page = victim.next / layout.slots_per_page;
                work.reads += u32::from(page != page_read);
                page_read = page;
                let Some(to) = self.moved_slot(die, work) else { break };
                self.put(unit, to);
                self.moved_units += 1;
            }
            victim.next += 1;
        }
        let blocks = &mut self.dies[die as usize];
        if blocks.valid[victim.block as usize] == 0 {
            blocks.closed[victim.block as usize] = false;
            blocks.free.push(victim.block);
            work.erases += 1;
            self.erased_blocks += 1;
        } else {
            blocks.victim = Some(victim);
        }
        true
    }

    /// The next slot for what is moved.
    fn moved_slot(&mut self, die: u32, work: &mut Collection) -> Option<u32> {
        let layout = self.layout;
        let blocks = &mut self.dies[die as usize];
        if blocks.moved.next == layout.slots_per_block {
            let block = blocks.free.pop()?;
            blocks.closed[blocks.moved.block as usize] = true;
            blocks.moved = Cursor { block, next: 0 };
        }
        let in_block = blocks.moved.next;
        blocks.moved.next += 1;
        work.programs += u32::from(blocks.moved.next.is_multiple_of(layout.slots_per_page));
        let block = blocks.moved.block;
        Some(self.first_slot(die, block) + in_block)
    }

    /// Chooses the closed block with the least that is valid.
    fn choose(&mut self, die: u32, valid_max: u32) -> bool {
        let layout = self.layout;
        let blocks = &mut self.dies[die as usize];
        let closed = blocks.valid.iter().zip(&blocks.closed).enumerate();
        let fewest =
            closed.filter(|(_, (_, closed))| **closed).min_by_key(|(_, (valid, _))| **valid);
        let Some((block, (&valid, _))) = fewest else { return false };
        let gain = layout.slots_per_block - valid;
        if gain == 0 || valid > valid_max {
            return false;
        }
        let pace = (u64::from(layout.slots_per_page) * u64::from(layout.slots_per_block))
            .div_ceil(gain.into());
        blocks.victim = Some(Victim { block: block as u32, next: 0, pace: pace as u32 });
        true
    }

    /// The die of a slot, and its block there.
    pub(super) fn place(&self, slot: u32) -> (u32, u32) {
        self.layout.place(slot)
    }

    /// How many pages of the host its die took after the page of `slot`; none: that was in another
    /// block, long ago.
    pub(super) fn pages_after(&self, slot: u32) -> Option<u32> {
        let (die, block) = self.layout.place(slot);
        let Cursor { block: open, next } = self.dies[die as usize].host;
        let page = slot % self.layout.slots_per_block / self.layout.slots_per_page;
        (block == open).then(|| (next / self.layout.slots_per_page).saturating_sub(page + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts what is valid, and compares.
    fn check(map: &Map) {
        let layout = map.layout;
        let mut valid = vec![vec![0; layout.blocks_per_die as usize]; layout.dies as usize];
        let mut mapped = vec![0; map.mapped.len()];
        for unit in 0..layout.units {
            if let Some(slot) = map.slot(unit) {
                assert_eq!(map.units[slot as usize], unit + 1, "the slot of unit {unit}");
                let (die, block) = layout.place(slot);
                valid[die as usize][block as usize] += 1;
                mapped[unit as usize / CHUNK] += 1;
            }
        }
        assert_eq!(map.mapped, mapped);
        for (blocks, valid) in map.dies.iter().zip(&valid) {
            assert_eq!(&blocks.valid, valid);
            assert_eq!(blocks.valid_total, valid.iter().sum::<u32>());
            for free in &blocks.free {
                assert_eq!(blocks.valid[*free as usize], 0);
                assert!(!blocks.closed[*free as usize]);
            }
        }
    }

    #[test]
    fn counts_stay_right_whatever_is_written() {
        for (slots_per_page, pages_per_block) in [(1, 1), (4, 1), (4, 8), (16, 4)] {
            let slots_per_block = slots_per_page * pages_per_block;
            let layout = Layout {
                units: 4 * 40 * slots_per_block,
                dies: 4,
                // As little to spare as a drive may have.
                blocks_per_die: 45,
                slots_per_block,
                slots_per_page,
            };
            let mut map = Map::new(layout);
            let mut rng = fastrand::Rng::with_seed(5);
            let mut die = 0;
            for round in 0..20_000 / slots_per_page * 8 {
                let unit = rng.u32(0..layout.units);
                match rng.u32(0..1000) {
                    0 => map.unmap(unit, unit + rng.u32(0..layout.units / 4)),
                    _ => {
                        die = (0..4)
                            .map(|step| (die + 1 + step) % 4)
                            .find(|die| map.has_room(*die))
                            .unwrap();
                        let (first, _) = map.open_page(die);
                        // Some pages stay half empty, as after a flush. In order or not.
                        let count = rng.u32(1..=layout.slots_per_page);
                        for slot in 0..count {
                            let unit =
                                if round % 2 == 0 { unit + slot } else { rng.u32(0..layout.units) };
                            map.put(unit % layout.units, first.unwrap() + slot);
                        }
                    }
                }
                if round % 4096 == 0 {
                    check(&map);
                }
            }
            check(&map);
            assert!(map.erased_blocks > 100);
            assert!(map.moved_units > 0 || slots_per_block == 1);
        }
    }

    #[test]
    fn what_is_written_in_order_is_collected_without_moving() {
        let layout = Layout {
            units: 4096,
            dies: 1,
            blocks_per_die: 70,
            slots_per_block: 64,
            slots_per_page: 16,
        };
        let mut map = Map::new(layout);
        for page in 0..4096 {
            let (first, _) = map.open_page(0);
            for slot in 0..16 {
                map.put((page * 16 + slot) % 4096, first.unwrap() + slot);
            }
        }
        assert_eq!(map.moved_units, 0);
        assert!(map.erased_blocks > 900);
    }
}
