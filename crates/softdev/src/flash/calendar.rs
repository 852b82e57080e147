//! A bus that carries one transfer at a time, reserved ahead.
//!
//! Transfers are reserved in the order in which commands come. They begin when a die is ready,
//! which is another order. So the bus keeps a calendar of short slots, and notes how full each slot
//! is: a transfer that begins late does not hold up a transfer that could begin now. Invariant: no
//! slot carries more than its length.

/// The number of slots in the calendar, a power of two. With [`SLOT_NS`], the calendar covers 8 ms.
const SLOTS: u64 = 1024;
/// The length of a slot, as a power of two of nanoseconds.
const SLOT_SHIFT: u32 = 13;
const SLOT_NS: u64 = 1 << SLOT_SHIFT;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The number of the slot since time 0. A later slot in the same place of the calendar replaces
    /// it.
    number: u64,
    used_ns: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Calendar {
    slots: Vec<Slot>,
    /// Slots from here to `full_end` are full; searches skip them.
    full_start: u64,
    full_end: u64,
    /// Picoseconds a byte; 0 for no limit.
    byte_ps: u64,
}

impl Calendar {
    /// Creates a bus that carries `mb_per_s` million bytes a second; 0 for no limit.
    pub(super) fn new(mb_per_s: u32) -> Self {
        let byte_ps = if mb_per_s == 0 { 0 } else { 1_000_000 / u64::from(mb_per_s) };
        let slots = if mb_per_s == 0 { 0 } else { SLOTS };
        Self { slots: vec![Slot::default(); slots as usize], full_start: 0, full_end: 0, byte_ps }
    }

    /// Returns the time that the bus needs for a transfer.
    pub(super) fn transfer_ns(&self, bytes: u64) -> u64 {
        bytes * self.byte_ps / 1000
    }

    /// Reserves a transfer that can begin at `from_ns`, and returns when the transfer is over.
    pub(super) fn reserve(&mut self, from_ns: u64, bytes: u64) -> u64 {
        let len_ns = self.transfer_ns(bytes);
        if len_ns == 0 {
            return from_ns;
        }
        let mut left_ns = len_ns;
        let mut number = from_ns >> SLOT_SHIFT;
        loop {
            if (self.full_start..self.full_end).contains(&number) {
                number = self.full_end;
            }
            let slot = &mut self.slots[(number % SLOTS) as usize];
            if slot.number < number {
                *slot = Slot { number, used_ns: 0 };
            } else if slot.number > number {
                // The slot is so old that a later one has replaced it: nobody knows how full the
                // old one was.
                return from_ns.max(number << SLOT_SHIFT) + left_ns;
            }
            let taken_ns = left_ns.min(SLOT_NS - slot.used_ns);
            slot.used_ns += taken_ns;
            left_ns -= taken_ns;
            let used_ns = slot.used_ns;
            if used_ns == SLOT_NS {
                if number == self.full_end {
                    self.full_end += 1;
                } else if taken_ns > 0 {
                    (self.full_start, self.full_end) = (number, number + 1);
                }
            }
            if left_ns == 0 {
                return (from_ns + len_ns).max((number << SLOT_SHIFT) + used_ns);
            }
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carries_what_it_can_and_no_more() {
        let mut bus = Calendar::new(1000);
        assert_eq!(bus.transfer_ns(4096), 4096);
        assert_eq!(bus.reserve(0, 4096), 4096);
        // A transfer far ahead does not delay a transfer that can begin now.
        assert_eq!(bus.reserve(1_000_000, 4096), 1_004_096);
        assert_eq!(bus.reserve(0, 4096), 8192);
        let mut rng = fastrand::Rng::with_seed(3);
        let mut bus = Calendar::new(1000);
        let mut ends: Vec<u64> =
            (0..1000).map(|_| bus.reserve(rng.u64(0..1_000_000), 4096)).collect();
        ends.sort_unstable();
        for (count, end) in ends.iter().enumerate() {
            // By `end` the bus cannot have carried more than fits, except for the slot under way.
            assert!((count as u64 + 1) * 4096 <= end + SLOT_NS, "{count} transfers by {end}");
        }
        // The load is four times what the bus can carry in that time, so the bus was always busy.
        assert!(*ends.last().unwrap() < 1000 * 4096 + 20_000, "{:?}", ends.last());
    }

    #[test]
    fn without_a_limit_it_takes_no_time() {
        assert_eq!(Calendar::new(0).reserve(17, 1 << 30), 17);
    }
}
