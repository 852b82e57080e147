//! The topology of the disks: each is attached to a phy of the controller, or behind two levels of
//! expanders.
//!
//! ```text
//!   controller ── phy 0 ── root expander ── phy 0 ── leaf 0 ── phys 0 to 31: disks 0 to 31
//!                                        ── phy 1 ── leaf 1 ── disks 32 to 63
//! ```
//!
//! The last phy of an expander leads up. Handles are given in this order: 1 for the controller, one
//! for each phy of the controller, the root expander, the leaf expanders, and two for each disk. A
//! disk has two handles because its handle changes when it is plugged in again.

/// The number of disks of a leaf expander.
const LEAF_DISKS: u16 = 32;
/// The minimum number of phys of a controller, as on a card.
const PHYS_MIN: u16 = 8;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Topology {
    /// The number of phys of the controller.
    pub(crate) phys: u16,
    disks: u16,
    /// The number of leaf expanders; 0 if disks are at the controller's own phys.
    leaves: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expander {
    pub(crate) handle: u16,
    /// The handle of the expander or controller above; `parent_phy` is the phy used there.
    pub(crate) parent: u16,
    pub(crate) parent_phy: u8,
    /// The number of phys. The last one leads up.
    pub(crate) phys: u8,
    pub(crate) level: u8,
    /// The enclosure of the expander's disks; 0 if it has none.
    pub(crate) enclosure: u16,
    /// The number among the leaf expanders; `None` for the root expander.
    leaf: Option<u16>,
}

/// The location of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The expander that it is behind.
    pub(crate) expander: Option<Expander>,
    pub(crate) phy: u8,
    pub(crate) port: u8,
}

/// The device attached to a phy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    /// The handle of the expander or controller.
    Other(u16),
    Disk(usize),
}

impl Topology {
    pub(crate) fn new(disks: u16, has_expanders: bool) -> Self {
        match has_expanders {
            true => Self { phys: PHYS_MIN, disks, leaves: disks.div_ceil(LEAF_DISKS) },
            false => Self { phys: disks.max(PHYS_MIN), disks: disks.max(PHYS_MIN), leaves: 0 },
        }
    }

    /// Returns the number of places for disks.
    pub(crate) fn places(&self) -> u16 {
        self.disks
    }

    pub(crate) fn has_expanders(&self) -> bool {
        self.leaves > 0
    }

    fn root_handle(&self) -> u16 {
        self.phys + 1
    }

    fn first_disk(&self) -> u16 {
        self.phys + 1 + if self.leaves > 0 { 1 + self.leaves } else { 0 }
    }

    pub(crate) fn handle_max(&self) -> u16 {
        self.first_disk() + 2 * self.disks - 1
    }

    /// Returns the handle of disk `number` when it is plugged in for the n-th time (`times`).
    pub(crate) fn disk_handle(&self, number: u16, times: u32) -> u16 {
        self.first_disk() + number + self.disks * (times as u16 & 1)
    }

    /// Whether a disk has, had or could have this handle.
    pub(crate) fn is_disk(&self, handle: u16) -> bool {
        (self.first_disk()..=self.handle_max()).contains(&handle)
    }

    /// Returns the number of the disk that has, had or could have a handle. Returns `None` for
    /// handles below those of disks.
    #[inline]
    pub(crate) fn disk_of(&self, handle: u16) -> Option<usize> {
        Some(usize::from(handle.checked_sub(self.first_disk())? % self.disks))
    }

    /// Returns all expanders, those nearest to the controller first.
    pub(crate) fn expanders(&self) -> impl Iterator<Item = Expander> {
        let last = self.root_handle() + self.leaves;
        (self.root_handle()..=last).filter_map(|handle| self.expander(handle))
    }

    pub(crate) fn expander(&self, handle: u16) -> Option<Expander> {
        let root = self.root_handle();
        match handle.checked_sub(root)? {
            _ if self.leaves == 0 => None,
            0 => Some(Expander {
                handle,
                parent: super::pages::CONTROLLER_HANDLE,
                parent_phy: 0,
                phys: self.leaves as u8 + 1,
                level: 1,
                enclosure: 0,
                leaf: None,
            }),
            number if number <= self.leaves => Some(Expander {
                handle,
                parent: root,
                parent_phy: number as u8 - 1,
                phys: LEAF_DISKS as u8 + 1,
                level: 2,
                enclosure: number,
                leaf: Some(number - 1),
            }),
            _ => None,
        }
    }

    /// Returns the device attached to a phy of an expander, if there is one.
    pub(crate) fn attached(&self, expander: &Expander, phy: u8) -> Option<Attached> {
        match expander.leaf {
            _ if phy + 1 == expander.phys => Some(Attached::Other(expander.parent)),
            None if u16::from(phy) < self.leaves => {
                Some(Attached::Other(self.root_handle() + 1 + u16::from(phy)))
            }
            Some(leaf) if u16::from(phy) < LEAF_DISKS => {
                let number = leaf * LEAF_DISKS + u16::from(phy);
                (number < self.disks).then_some(Attached::Disk(number.into()))
            }
            _ => None,
        }
    }

    pub(crate) fn place(&self, disk: usize) -> Place {
        let disk = disk as u16;
        if self.leaves == 0 {
            return Place { expander: None, phy: disk as u8, port: disk as u8 };
        }
        let leaf = self.root_handle() + 1 + disk / LEAF_DISKS;
        Place { expander: self.expander(leaf), phy: (disk % LEAF_DISKS) as u8, port: 0 }
    }

    /// Returns the device attached to a phy of the controller, if there is one.
    pub(crate) fn at_phy(&self, phy: u16) -> Option<Attached> {
        match self.leaves {
            0 => (phy < self.disks).then_some(Attached::Disk(phy.into())),
            _ => (phy == 0).then_some(Attached::Other(self.root_handle())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disk_is_where_its_expander_has_it() {
        for (disks, expanders) in [(1, 2), (32, 2), (33, 3), (1024, 33)] {
            let topology = Topology::new(disks, true);
            assert_eq!(topology.expanders().count(), expanders);
            for disk in 0..usize::from(disks) {
                let place = topology.place(disk);
                let leaf = place.expander.unwrap();
                assert_eq!(topology.attached(&leaf, place.phy), Some(Attached::Disk(disk)));
                let root = topology.expander(leaf.parent).unwrap();
                let up = topology.attached(&leaf, leaf.phys - 1);
                assert_eq!(up, Some(Attached::Other(root.handle)));
                let down = topology.attached(&root, leaf.parent_phy);
                assert_eq!(down, Some(Attached::Other(leaf.handle)));
                assert_eq!(root.parent, 1);
                for times in [1, 2] {
                    let handle = topology.disk_handle(disk as u16, times);
                    assert!(topology.is_disk(handle) && topology.expander(handle).is_none());
                    assert_eq!(topology.disk_of(handle), Some(disk));
                }
            }
        }
        let flat = Topology::new(2, false);
        assert_eq!((flat.phys, flat.places(), flat.expanders().count()), (8, 8, 0));
        assert_eq!(flat.disk_handle(1, 0), 10);
    }
}
