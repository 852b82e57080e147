//! A minimal translation layer: maps logical units to slots of the flash, and finds the blocks
//! worth collecting.
//!
//! Invariants:
//! - A slot is valid if the unit it was written for is still mapped to it. `valid` of a block is
//!   the number of its valid slots.
//! - Each die has an open block for the host's pages and an open block for pages that collection
//!   moves. All other blocks are closed or free.
//! - The last free block of a die is kept for collection, so that collection can always begin.
//!
//! The tables have an entry for each unit of the drive, but zeroed memory that was never touched
//! takes no room.

use super::die::Collection;

/// With this few free blocks, a die collects with each page of the host, whatever the gain.
const FREE_LOW: usize = 2;
/// With this few free blocks, a die collects blocks that have little to move.
const FREE_EASY: usize = 4;
/// The number of units that are checked together when a range is unmapped.
const CHUNK: usize = 4096;
/// The table entry that names nothing. Every other entry is the number that it names, plus one.
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

    /// Returns the die of a slot, and the block within the die.
    pub(super) fn place(&self, slot: u32) -> (u32, u32) {
        let die = slot / self.slots_per_die();
        (die, (slot % self.slots_per_die()) / self.slots_per_block)
    }
}

/// The place in a die for the next data of one kind.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    block: u32,
    /// The next slot in the block.
    next: u32,
}

#[derive(Debug)]
struct Victim {
    block: u32,
    next: u32,
    /// The number of slots to look at for each page of the host, so that the victim is done before
    /// its space is needed.
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
    /// The number of valid slots in all blocks.
    valid_total: u32,
}

/// The translation layer.
#[derive(Debug)]
pub(super) struct Map {
    layout: Layout,
    /// The slot of each unit, plus one.
    slots: Vec<u32>,
    /// The unit of each slot, plus one.
    units: Vec<u32>,
    /// The number of mapped units in each chunk.
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

    /// Returns the slot of a unit, or `None` if the unit was never written.
    #[inline]
    pub(super) fn slot(&self, unit: u32) -> Option<u32> {
        self.slots.get(unit as usize)?.checked_sub(1)
    }

    /// Whether a die holds no more than its share of the data, so that data does not pile up where
    /// it cannot be collected.
    pub(super) fn has_room(&self, die: u32) -> bool {
        let mean = self.valid_total / u64::from(self.layout.dies);
        u64::from(self.dies[die as usize].valid_total)
            <= mean + u64::from(self.layout.slots_per_block) / 2
    }

    /// Takes the next page of a die for the host. Returns the first slot of the page (`None` if the
    /// die is full), and the work that collection had to do for it.
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
            // Each victim frees slots, since a die always has more slots than can be valid. So this
            // loop ends.
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

    /// Puts a unit into a slot. The unit's former slot becomes garbage.
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

    /// Looks at `slots` slots of the die's victim (`None`: as many as its pace says), moves the
    /// valid ones, and erases the victim at its end. Returns false if no block with at most
    /// `valid_max` valid slots can be collected.
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

    /// Returns the next slot for a unit that collection moves.
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

    /// Chooses the closed block with the fewest valid slots.
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

    /// Returns the die of a slot, and the block within the die.
    pub(super) fn place(&self, slot: u32) -> (u32, u32) {
        self.layout.place(slot)
    }

    /// Returns how many pages of the host the die took after the page of `slot`. Returns `None` if
    /// the page is in another block, which was filled long ago.
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

    /// Recounts the valid slots, and compares the result with the counters.
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
                // This is the smallest spare capacity that a drive may have.
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
                        // Some pages stay half empty, as after a flush. Units come in order or at
                        // random.
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
