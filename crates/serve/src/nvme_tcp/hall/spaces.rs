//! The namespaces of the hall's subsystems, and the lanes to their disks.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair_block::Result;
use qpair_nvme_device::{Event, NamespaceInfo};
use qpair_nvme_wire::ana::AnaState;

use super::Hall;
use crate::disk::Disk;
use crate::nvmf::{Post, Subsystem, blocks_of, described};
use crate::queue::Lane;
use crate::stream::{OTHER, Pool, Sockets};

/// The most parts of a namespace's commands at its device.
const HEADS: u16 = 512;

/// A lane to a namespace, and the commands whose parts it has.
pub(super) struct SpaceLane {
    pub(super) lane: Lane,
    /// The connections and commands, by head.
    pub(super) parts: Box<[Option<(usize, usize)>]>,
    pub(super) free: Vec<u16>,
}

/// A subsystem, as the hall knows it.
pub(super) struct Space {
    pub(super) subsystem: Arc<Subsystem>,
    pub(super) post: Arc<Post>,
    version: Option<u64>,
    disks: BTreeMap<u32, Arc<Disk>>,
    pub(super) infos: Vec<NamespaceInfo>,
    /// The state of the way by this portal, and the number of its changes.
    pub(super) ana: (AnaState, u64),
    pub(super) lanes: BTreeMap<u32, SpaceLane>,
    /// Whether requests to removed namespaces are under way.
    is_settling: bool,
}

/// Returns the space of a subsystem.
pub(super) fn find<'s>(
    spaces: &'s mut [Space],
    subsystem: Option<&Arc<Subsystem>>,
) -> Option<&'s mut Space> {
    let subsystem = subsystem?;
    spaces.iter_mut().find(|space| Arc::ptr_eq(&space.subsystem, subsystem))
}

impl Space {
    /// Whether a namespace has another size than hosts were told.
    pub(super) fn is_resized(&self) -> bool {
        let namespaces = self.subsystem.namespaces();
        namespaces.iter().any(|it| {
            self.infos.iter().any(|info| info.nsid == it.nsid && info.blocks != blocks_of(it))
        })
    }

    /// Adopts the namespaces of now. Returns those of before.
    fn adopt(&mut self) -> Vec<NamespaceInfo> {
        let namespaces = self.subsystem.namespaces();
        self.disks = namespaces.iter().map(|it| (it.nsid, it.disk.clone())).collect();
        let infos = namespaces.iter().map(|it| described(it, blocks_of(it))).collect();
        std::mem::replace(&mut self.infos, infos)
    }

    /// Closes the lanes to namespaces that were removed, if their requests have ended.
    fn close_lanes(&mut self) {
        let disks = &self.disks;
        let mut is_settling = false;
        self.lanes.retain(|nsid, it| {
            let is_there =
                disks.get(nsid).is_some_and(|disk| std::ptr::eq(&**disk, it.lane.disk()));
            let stays = is_there || it.lane.busy() > 0;
            is_settling |= stays && !is_there;
            stays
        });
        self.is_settling = is_settling;
        if let (false, Some(version)) = (is_settling, self.version) {
            self.post.settle(version);
        }
    }

    /// Returns the lane to a namespace, which is opened if it is not; `None` if there is no such
    /// namespace.
    pub(super) fn lane(
        &mut self,
        nsid: u32,
        pool: &Pool,
        sockets: &Sockets,
    ) -> Option<Result<&mut SpaceLane>> {
        let disk = self.disks.get(&nsid)?;
        if let Some(it) = self.lanes.get(&nsid)
            && !std::ptr::eq(&**disk, it.lane.disk())
        {
            return None;
        }
        let lane = match self.lanes.entry(nsid) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => match open(disk, pool, sockets) {
                Ok(lane) => place.insert(lane),
                Err(error) => return Some(Err(error)),
            },
        };
        Some(Ok(lane))
    }
}

fn open(disk: &Arc<Disk>, pool: &Pool, sockets: &Sockets) -> Result<SpaceLane> {
    let mut lane = Lane::open_with(disk, &pool.arenas(), HEADS)?;
    if let Some(completion) = lane.completion_fd()? {
        sockets.watch_other(completion, OTHER)?;
    }
    let parts = (0..HEADS).map(|_| None).collect();
    Ok(SpaceLane { lane, parts, free: (0..HEADS).rev().collect() })
}

impl Hall {
    /// Adopts what has changed: the portal's subsystems, and their namespaces.
    pub(super) fn renew(&mut self) {
        let version = self.shared.version();
        if self.version != version {
            self.version = version;
            // Hosts of a subsystem that is gone are disconnected before their commands could fail.
            self.cut_connections();
            self.renew_places();
        }
        for at in 0..self.spaces.len() {
            let space = &mut self.spaces[at];
            let version = space.subsystem.version();
            if space.version != Some(version) {
                space.post.hear();
                space.version = Some(version);
                self.renew_namespaces(at);
            } else if space.is_settling {
                space.close_lanes();
            }
        }
    }

    /// Adopts the namespaces of a subsystem, and tells its hosts of the change.
    pub(super) fn renew_namespaces(&mut self, at: usize) {
        let space = &mut self.spaces[at];
        let before = space.adopt();
        space.close_lanes();
        let (subsystem, now) = (space.subsystem.clone(), space.infos.clone());
        for slot in 0..self.connections.all.end() {
            let Some(it) = self.connections.all.get_mut(slot) else { continue };
            let its = it.seat.as_ref().and_then(|seat| seat.controller.subsystem.as_ref());
            let is_its = its.is_some_and(|its| Arc::ptr_eq(its, &subsystem));
            let Some(admin) = it.admin().filter(|_| is_its) else { continue };
            if admin.state.namespaces_changed(&before, &now) {
                self.send_events(slot);
            }
        }
    }

    fn renew_places(&mut self) {
        let places = self.shared.places.all();
        self.spaces.retain(|space| {
            let stays = places.iter().any(|it| Arc::ptr_eq(&it.subsystem, &space.subsystem));
            if !stays {
                // The post may be closed already: then it has left the set.
                self.connections.sockets.forget_other(space.post.as_fd());
            }
            stays
        });
        for place in places {
            if let Some(space) = find(&mut self.spaces, Some(&place.subsystem)) {
                if std::mem::replace(&mut space.ana, place.ana) != place.ana {
                    self.tell_of_ana(&place.subsystem);
                }
                continue;
            }
            let post = place.posts[self.number].clone();
            // Without it, changes of namespaces wait until the hall wakes for another reason.
            let _ = self.connections.sockets.watch_other(post.as_fd(), OTHER);
            self.spaces.push(Space {
                subsystem: place.subsystem,
                post,
                version: None,
                disks: BTreeMap::new(),
                infos: Vec::new(),
                ana: place.ana,
                lanes: BTreeMap::new(),
                is_settling: false,
            });
        }
    }

    /// Tells hosts of a subsystem that their way to its namespaces has another state.
    fn tell_of_ana(&mut self, subsystem: &Arc<Subsystem>) {
        for slot in 0..self.connections.all.end() {
            let Some(it) = self.connections.all.get_mut(slot) else { continue };
            let its = it.seat.as_ref().and_then(|seat| seat.controller.subsystem.as_ref());
            let is_its = its.is_some_and(|its| Arc::ptr_eq(its, subsystem));
            let Some(admin) = it.admin().filter(|_| is_its) else { continue };
            if admin.state.happen(Event::AnaChanged) {
                self.send_events(slot);
            }
        }
    }

    /// Notes whether a subsystem has hosts in this hall.
    pub(super) fn count_hosts(&self, subsystem: Option<&Arc<Subsystem>>) {
        let Some(subsystem) = subsystem else { return };
        let is_its = |its: &Arc<Subsystem>| Arc::ptr_eq(its, subsystem);
        let has_client = self.connections.all.iter().any(|(_, it)| {
            let its = it.seat.as_ref().and_then(|seat| seat.controller.subsystem.as_ref());
            its.is_some_and(is_its)
        });
        if let Some(space) = self.spaces.iter().find(|space| is_its(&space.subsystem)) {
            space.post.has_client.store(has_client, Ordering::Relaxed);
        }
    }
}
