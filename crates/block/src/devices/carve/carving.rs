//! Reads and changes the slice map of a carved device.
//!
//! Invariant: the slot that is not being written holds a complete, durable map, or there never was
//! one.

use std::fmt;
use std::sync::Arc;

use super::map::{CARVED_FROM_BYTES, CarveMap, CarveSlot, SLOT_BYTES, SLOT_OFFSETS, Slice};
use crate::channel::content::find_content;
use crate::channel::serial::SerialChannel;
use crate::devices::slice::SliceDevice;
use crate::seam::device::BlockDevice;
use crate::seam::error::{Error, ErrorKind, Result};

/// A carved device and the map of its slices. Only one `Carving` at a time may change a device.
pub struct Carving {
    device: Arc<dyn BlockDevice>,
    map: CarveMap,
    /// The slot that has the newest map; the next change writes the other slot.
    slot: usize,
    /// Whether a change has failed, so that it is unknown which map is on the device.
    is_unsure: bool,
}

/// Reads both slots of a device's slice map and returns the content of each.
///
/// # Errors
/// Returns the device's error if a slot cannot be read.
pub fn examine_carving(device: &dyn BlockDevice) -> Result<[CarveSlot; 2]> {
    let mut slots = [CarveSlot::Blank, CarveSlot::Blank];
    if device.size_bytes() >= CARVED_FROM_BYTES {
        let mut channel = SerialChannel::open(device)?;
        let mut bytes = vec![0; SLOT_BYTES];
        for (slot, at_bytes) in slots.iter_mut().zip(SLOT_OFFSETS) {
            channel.read(at_bytes, &mut bytes)?;
            *slot = CarveMap::decode(&bytes);
        }
    }
    Ok(slots)
}

impl Carving {
    /// Reads the map of a device. Returns `None` if the device has no map.
    ///
    /// # Errors
    /// `Invalid` if the map is damaged in both slots, or the device's error if a slot cannot be
    /// read.
    pub fn open(device: &Arc<dyn BlockDevice>) -> Result<Option<Self>> {
        let mut newest: Option<(usize, CarveMap)> = None;
        let mut damage = None;
        for (number, slot) in examine_carving(device.as_ref())?.into_iter().enumerate() {
            match slot {
                CarveSlot::Whole(map) => {
                    if newest.as_ref().is_none_or(|(_, newest)| newest.generation < map.generation)
                    {
                        newest = Some((number, map));
                    }
                }
                CarveSlot::Damaged(why) => damage = Some(why),
                CarveSlot::Blank | CarveSlot::Foreign => {}
            }
        }
        let info = device.info();
        match (newest, damage) {
            (Some((slot, map)), _) => {
                // The process that wrote the map may have died before the map was durable. Slices
                // may be handed out, and the other slot may be written, only after a flush.
                if !info.read_only {
                    SerialChannel::open(device.as_ref())?.flush()?;
                }
                Ok(Some(Self { device: device.clone(), map, slot, is_unsure: false }))
            }
            (None, Some(why)) => {
                let context = format!("the map of slices on {} is damaged: {why}", info.name);
                Err(Error::new(ErrorKind::Invalid, context)
                    .hint("force (--force, \"force\": true) begins a new map; slices made again at the same places keep their data"))
            }
            (None, None) => Ok(None),
        }
    }

    /// Reads the map of a device, or begins a new one, which is written together with its first
    /// slice. A new map needs a blank device, unless `by_force` is set.
    ///
    /// # Errors
    /// `Exists` if the device has other content; the errors of [`Carving::open`], except for a
    /// damaged map with `by_force`.
    pub fn open_or_begin(device: &Arc<dyn BlockDevice>, by_force: bool) -> Result<Self> {
        match Self::open(device) {
            Ok(Some(carving)) => return Ok(carving),
            Err(error) if !(by_force && error.kind() == ErrorKind::Invalid) => return Err(error),
            _ => {}
        }
        let info = device.info();
        if !by_force && let Some(at_bytes) = find_content(device.as_ref())? {
            let context = format!("{} holds something: byte {at_bytes} is not zero", info.name);
            return Err(Error::new(ErrorKind::Exists, context)
                .hint("force (--force, \"force\": true) carves it and destroys its content"));
        }
        let map = CarveMap { generation: 0, slices: Vec::new() };
        Ok(Self { device: device.clone(), map, slot: 1, is_unsure: false })
    }

    /// Returns the map of the slices.
    #[must_use]
    pub fn map(&self) -> &CarveMap {
        &self.map
    }

    /// Returns the device that is carved.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Plans a new slice without putting it into the map. The slice begins at `start_bytes`, or
    /// where there is room.
    ///
    /// # Errors
    /// `Invalid` if the slice is not aligned to the device's blocks, overlaps another slice or has
    /// an invalid name; `Exists` if the name is taken; `NoSpace` past the end of the device.
    pub fn plan(&self, name: &str, start_bytes: Option<u64>, size_bytes: u64) -> Result<Slice> {
        let device_bytes = self.device.size_bytes();
        let start_bytes = start_bytes.or_else(|| self.map.place(size_bytes, device_bytes));
        let start_bytes = start_bytes.ok_or_else(|| {
            let context = format!(
                "slice {name} of {size_bytes} bytes does not fit on {}",
                self.device.info().name
            );
            let free = self.map.free(device_bytes).into_iter().map(|gap| gap.end - gap.start).max();
            let most = free.unwrap_or(0);
            Error::new(ErrorKind::NoSpace, context).hint(format!("there is room for {most} bytes"))
        })?;
        let mut id = fastrand::u128(..).to_be_bytes();
        // These bits mark a random UUID.
        (id[6], id[8]) = (id[6] & 0x0F | 0x40, id[8] & 0x3F | 0x80);
        let slice = Slice { name: name.to_owned(), start_bytes, size_bytes, id };
        self.map.clone().add(slice.clone())?;
        self.open_slice(&slice)?;
        Ok(slice)
    }

    /// Puts a planned slice into the map. When this returns, the change is durable.
    ///
    /// # Errors
    /// The errors of [`Carving::plan`], or the device's error. After an error of the device the
    /// slice may be in the map or not; opening the device again shows which.
    pub fn add(&mut self, slice: Slice) -> Result<()> {
        let mut map = self.map.clone();
        map.add(slice)?;
        self.write(map)
    }

    /// Removes a slice from the map. The bytes of the slice are unchanged.
    ///
    /// # Errors
    /// `NotFound`, or the device's error. After an error of the device the slice may be in the map
    /// or not; opening the device again shows which.
    pub fn delete(&mut self, name: &str) -> Result<()> {
        self.find(name)?;
        let mut map = self.map.clone();
        map.slices.retain(|slice| slice.name != name);
        self.write(map)
    }

    fn find(&self, name: &str) -> Result<&Slice> {
        self.map.find(name).ok_or_else(|| {
            let context = format!("no slice of {} is called {name}", self.device.info().name);
            let names: Vec<&str> =
                self.map.slices.iter().map(|slice| slice.name.as_str()).collect();
            Error::new(ErrorKind::NotFound, context)
                .hint(format!("there are: {}", names.join(", ")))
        })
    }

    /// Opens a slice of the map as a device.
    ///
    /// # Errors
    /// `NotFound`; `NoSpace` if the slice lies beyond the end of the device.
    pub fn slice(&self, name: &str) -> Result<SliceDevice> {
        self.open_slice(self.find(name)?)
    }

    /// Opens a slice as a device, like [`Carving::slice`]. The slice need not be in the map yet.
    ///
    /// # Errors
    /// `Invalid` if the slice is not aligned to the device's blocks, `NoSpace` past the end of the
    /// device.
    pub fn open_slice(&self, slice: &Slice) -> Result<SliceDevice> {
        let Slice { name, start_bytes, size_bytes, .. } = slice;
        let device = SliceDevice::new(self.device.clone(), *start_bytes, *size_bytes)?;
        let of = &self.device.info().name;
        Ok(device.called(format!("carve:name={name}:{of}")))
    }

    fn write(&mut self, mut map: CarveMap) -> Result<()> {
        let info = self.device.info();
        if self.is_unsure {
            let context = format!(
                "the map of slices on {} cannot be changed: an earlier change failed",
                info.name
            );
            return Err(Error::new(ErrorKind::Io, context).hint("open the device again"));
        }
        if info.read_only {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                format!("{} is open for reading only", info.name),
            ));
        }
        map.generation = self.map.generation + 1;
        let slot = 1 - self.slot;
        let mut bytes = map.encode();
        bytes.resize(bytes.len().next_multiple_of(info.logical_block_bytes as usize), 0);
        self.is_unsure = true;
        let mut channel = SerialChannel::open(self.device.as_ref())?;
        channel.write(SLOT_OFFSETS[slot], &bytes)?;
        channel.flush()?;
        (self.map, self.slot, self.is_unsure) = (map, slot, false);
        Ok(())
    }
}

impl fmt::Debug for Carving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Carving of {}, {} slices", self.device.info().name, self.map.slices.len())
    }
}
