//! Request queues: the owner of each, and its rings in the device's present life.
//!
//! Invariant: the rings of a queue in the present life are here, or with the channel that has
//! leased the queue, or in `stale`.

use crate::virtqueue::Virtqueue;

pub(crate) struct Lives {
    life: u64,
    free: Vec<u16>,
    rings: Vec<Option<Virtqueue>>,
    /// Queues of channels that were closed with commands in flight: free after the next reset.
    stale: Vec<(u16, Virtqueue)>,
}

impl Lives {
    pub(crate) fn new(queues: u16) -> Self {
        Self { life: 0, free: (0..queues).rev().collect(), rings: Vec::new(), stale: Vec::new() }
    }

    /// Begins a life with these rings. The device must no longer access memory of an earlier life.
    pub(crate) fn begin(&mut self, life: u64, rings: Vec<Virtqueue>) {
        self.life = life;
        self.rings = rings.into_iter().map(Some).collect();
        self.free.extend(self.stale.drain(..).map(|(number, _)| number));
    }

    /// Leases a queue that no channel has.
    pub(crate) fn lease(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// Returns the rings of a queue to the channel that has leased it, if that life is the present
    /// one.
    pub(crate) fn take(&mut self, number: u16, life: u64) -> Option<Virtqueue> {
        if life != self.life {
            return None;
        }
        self.rings.get_mut(usize::from(number))?.take()
    }

    /// Ends a lease, with the rings of a life. `is_idle`: nothing is in flight in them.
    pub(crate) fn give_back(
        &mut self,
        number: u16,
        rings: Option<(u64, Virtqueue)>,
        is_idle: bool,
    ) {
        match rings {
            Some((life, rings)) if life == self.life => {
                if !is_idle {
                    self.stale.push((number, rings));
                    return;
                }
                if let Some(place) = self.rings.get_mut(usize::from(number)) {
                    *place = Some(rings);
                }
            }
            // The rings belong to an earlier life: the device does not access them.
            _ => {}
        }
        self.free.push(number);
    }
}
