//! The arenas and memory regions that are open to a function, their addresses for the device, and
//! which of them each queue of a driver uses.
//!
//! Invariant: each arena or region is open while it has users. It is closed when its last user goes
//! or when the function is cut off, and never twice.

use qpair_memory::locks::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, MutexGuard};

use qpair_block::{Arena, ArenaOptions, Backing, Buffer, Error, ErrorKind, Mapping, Result};
use qpair_memory::Piece;

use crate::function::PciFunction;

const PAGE_BYTES: usize = 4096;

/// The arenas that a driver has opened to its function. Several parts of the driver may use one
/// arena: it is opened once.
pub struct Maps {
    function: Arc<dyn PciFunction>,
    opened: Mutex<Opened>,
}

#[derive(Default)]
struct Opened {
    /// By the arena's number.
    arenas: Users<u32, Arena>,
    /// By the address of the mapping.
    regions: Users<usize, Mapping>,
    /// Whether everything was closed, so that nothing can be opened any more.
    is_cut_off: bool,
}

/// The open memory of one kind, with the number of users of each.
struct Users<K, M>(HashMap<K, Entry<M>>);

struct Entry<M> {
    memory: Arc<M>,
    iova: u64,
    users: u32,
}

impl<K, M> Default for Users<K, M> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, M> Users<K, M> {
    fn begin(&mut self, key: K, memory: &Arc<M>, iova: u64) {
        self.0.insert(key, Entry { memory: memory.clone(), iova, users: 1 });
    }

    /// Adds a user to memory that is open. Returns the memory's address for the device.
    fn join(&mut self, key: K) -> Option<u64> {
        let entry = self.0.get_mut(&key)?;
        entry.users += 1;
        Some(entry.iova)
    }

    /// Removes a user. Returns whether that was the last one.
    fn leave(&mut self, key: K) -> bool {
        let Some(entry) = self.0.get_mut(&key) else { return false };
        entry.users -= 1;
        let is_last = entry.users == 0;
        if is_last {
            self.0.remove(&key);
        }
        is_last
    }

    fn drain(&mut self) -> impl Iterator<Item = Arc<M>> {
        self.0.drain().map(|(_, entry)| entry.memory)
    }
}

impl fmt::Debug for Maps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Maps of {}", self.function.name())
    }
}

impl Maps {
    #[must_use]
    pub fn new(function: Arc<dyn PciFunction>) -> Arc<Self> {
        Arc::new(Self { function, opened: Mutex::default() })
    }

    #[must_use]
    pub fn needs_shared_memory(&self) -> bool {
        self.function.needs_shared_memory()
    }

    /// Returns how memory that is opened to the device must be mapped.
    #[must_use]
    pub fn arena_options(&self) -> ArenaOptions {
        let shared = self.function.needs_shared_memory();
        match self.function.needs_huge_pages() {
            true => ArenaOptions { shared, ..ArenaOptions::shared_huge_pages() },
            false => ArenaOptions { shared, ..ArenaOptions::ordinary_pages() },
        }
    }

    /// Whether the device can access an arena. It cannot access an arena of segment lists, whose
    /// data drivers copy.
    #[must_use]
    pub fn takes(&self, arena: &Arena) -> bool {
        let is_block = arena.segments_max().is_none();
        let is_shared = arena.file().is_some() || !self.function.needs_shared_memory();
        let is_huge = arena.backing() == Backing::HugePages || !self.function.needs_huge_pages();
        is_block && is_shared && is_huge
    }

    /// Returns the open memory, or an error once everything was closed.
    fn opened(&self) -> Result<MutexGuard<'_, Opened>> {
        let opened = self.opened.lock();
        if opened.is_cut_off {
            let context = format!("{}: the device is gone", self.function.name());
            return Err(Error::new(ErrorKind::Gone, context));
        }
        Ok(opened)
    }

    /// Opens an arena for one more user. Returns the address of its first byte for the device.
    ///
    /// # Errors
    /// `Gone` after [`Maps::cut_off`]; the errors of [`PciFunction::map_dma`].
    pub fn open(&self, arena: &Arc<Arena>) -> Result<u64> {
        let mut opened = self.opened()?;
        if let Some(iova) = opened.arenas.join(arena.id()) {
            return Ok(iova);
        }
        let iova = self.function.map_dma(arena)?;
        let end = iova.checked_add(arena.mapped_bytes() as u64);
        if !iova.is_multiple_of(PAGE_BYTES as u64) || end.is_none() {
            // The caller gets the first error; an error of this call would not help it.
            let _ = self.function.unmap_dma(arena);
            let name = self.function.name();
            let context =
                format!("{name}: {arena:?} was opened at {iova:#x}, which is off its pages");
            return Err(Error::new(ErrorKind::Io, context));
        }
        opened.arenas.begin(arena.id(), arena, iova);
        Ok(iova)
    }

    /// Removes one user of an arena.
    pub fn close(&self, arena: &Arena) {
        let mut opened = self.opened.lock();
        if opened.arenas.leave(arena.id()) {
            // A function that is gone has no memory open. A function that cannot close the arena
            // keeps it alive itself.
            let _ = self.function.unmap_dma(arena);
        }
    }

    /// Opens a region of another process's memory for one more user. Returns the address of its
    /// first byte for the device.
    ///
    /// `None` if the transport does not support this, or if this process may not lock so much
    /// memory or may not write to it. Drivers then copy the data.
    ///
    /// # Errors
    /// As [`Maps::open`].
    pub fn open_region(&self, region: &Arc<Mapping>) -> Result<Option<u64>> {
        let mut opened = self.opened()?;
        let key = region.region().0;
        if let Some(iova) = opened.regions.join(key) {
            return Ok(Some(iova));
        }
        if !region.bytes().is_writable() {
            return Ok(None);
        }
        let iova = match self.function.map_region(region) {
            Ok(Some(iova)) => iova,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Limit => return Ok(None),
            Err(error) => return Err(error),
        };
        opened.regions.begin(key, region, iova);
        Ok(Some(iova))
    }

    /// Removes one user of a region.
    pub fn close_region(&self, region: &Mapping) {
        let mut opened = self.opened.lock();
        if opened.regions.leave(region.region().0) {
            // As for arenas.
            let _ = self.function.unmap_region(region);
        }
    }

    /// Closes all memory. Returns false if the device may still access some of it.
    pub fn cut_off(&self) -> bool {
        let mut opened = self.opened.lock();
        opened.is_cut_off = true;
        let is_closed = |closed: Result<()>| match closed {
            Ok(()) => true,
            Err(error) => matches!(error.kind(), ErrorKind::Gone | ErrorKind::NotFound),
        };
        let mut all_closed = true;
        for arena in opened.arenas.drain() {
            all_closed &= is_closed(self.function.unmap_dma(&arena));
        }
        for region in opened.regions.drain() {
            all_closed &= is_closed(self.function.unmap_region(&region));
        }
        all_closed
    }
}

/// The arenas that one queue uses. They are open while this value lives.
#[derive(Debug)]
pub struct OpenArenas {
    arenas: Vec<(Arc<Arena>, u64)>,
    /// The arena that was used last, and its address for the device.
    last: (u32, u64),
    maps: Arc<Maps>,
}

impl OpenArenas {
    /// Opens those of `arenas` that the device can access.
    ///
    /// # Errors
    /// The errors of [`Maps::open`]; in that case no arena is left open.
    pub fn new(maps: &Arc<Maps>, arenas: &[Arc<Arena>]) -> Result<Self> {
        let mut opened = Self { arenas: Vec::new(), last: (u32::MAX, 0), maps: maps.clone() };
        for arena in arenas {
            let is_known = opened.arenas.iter().any(|(known, _)| known.id() == arena.id());
            if !is_known && maps.takes(arena) {
                let iova = maps.open(arena)?;
                opened.arenas.push((arena.clone(), iova));
            }
        }
        Ok(opened)
    }

    /// Returns the address of an arena's first byte for the device, if the arena is open.
    #[inline]
    pub fn iova_of(&mut self, arena_id: u32) -> Option<u64> {
        if self.last.0 == arena_id {
            return Some(self.last.1);
        }
        let (_, iova) = *self.arenas.iter().find(|(arena, _)| arena.id() == arena_id)?;
        self.last = (arena_id, iova);
        Some(iova)
    }

    /// Returns the address of a buffer's first byte for the device.
    #[inline]
    pub fn iova_of_buffer(&mut self, buffer: &Buffer) -> Option<u64> {
        let iova = self.iova_of(buffer.arena().id())?;
        Some(iova + buffer.block().0 as u64 * buffer.len() as u64)
    }
}

impl Drop for OpenArenas {
    fn drop(&mut self) {
        for (arena, _) in &self.arenas {
            self.maps.close(arena);
        }
    }
}

/// The regions behind the segment lists that one queue uses. They are open while this value lives.
#[derive(Debug)]
pub struct OpenRegions {
    /// By the number of the arena with the segment lists.
    places: Vec<(u32, Place)>,
    maps: Arc<Maps>,
}

#[derive(Debug)]
struct Place {
    region: Arc<Mapping>,
    iova: u64,
}

impl OpenRegions {
    /// Opens those regions of `arenas` that the device can access.
    ///
    /// # Errors
    /// The errors of [`Maps::open_region`]; in that case no region is left open.
    pub fn new(maps: &Arc<Maps>, arenas: &[Arc<Arena>]) -> Result<Self> {
        let mut opened = Self { places: Vec::new(), maps: maps.clone() };
        for arena in arenas {
            if opened.has(arena.id()) {
                continue;
            }
            for region in arena.regions() {
                if let Some(iova) = maps.open_region(region)? {
                    opened.places.push((arena.id(), Place { region: region.clone(), iova }));
                }
            }
        }
        Ok(opened)
    }

    /// Whether the device can access any of the memory that an arena's lists name.
    #[must_use]
    pub fn has(&self, arena_id: u32) -> bool {
        self.places.iter().any(|(id, _)| *id == arena_id)
    }

    /// Returns the address of a piece of a buffer for the device, if the device can access it.
    #[must_use]
    pub fn iova_of(&self, arena_id: u32, piece: Piece) -> Option<u64> {
        self.places.iter().filter(|(id, _)| *id == arena_id).find_map(|(_, place)| {
            let at = piece.address.addr().checked_sub(place.region.start())?;
            (at < place.region.bytes().len()).then(|| place.iova + at as u64)
        })
    }
}

impl Drop for OpenRegions {
    fn drop(&mut self) {
        for (_, place) in &self.places {
            self.maps.close_region(&place.region);
        }
    }
}
