//! The seam to encryption: from the key slot of a store to devices that decrypt.
//!
//! The store above knows that its pages are shorter by a tag, and nothing of keys. The crate that
//! encrypts knows nothing of pages.

use std::fmt;
use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_format::superblock::{KeySlot, Superblock};
use qpair_format::{Error, ErrorKind, Result};

/// The index of the log device among the devices of a store.
pub const LOG_DEVICE: u32 = u32::MAX;

/// A key that opens encrypted stores and makes new ones.
pub trait Encryption: Send + Sync + fmt::Debug {
    /// Makes a key for a new store. Returns it wrapped.
    ///
    /// # Errors
    /// `Unsupported` if the system gives no random bytes.
    fn new_slot(&self) -> Result<KeySlot>;

    /// Returns the devices as the store sees them, decrypted. The first 64 KiB of each stay in
    /// clear. `devices` come with their indexes in the store.
    ///
    /// # Errors
    /// `Denied` if the slot was not made with this key; `Version` if it is of a later version;
    /// `Invalid` if a device cannot transfer pages of this size.
    fn unlock(
        &self,
        slot: &KeySlot,
        page_size: u32,
        devices: Vec<(u32, Arc<dyn BlockDevice>)>,
    ) -> Result<Vec<Arc<dyn BlockDevice>>>;
}

/// Returns the members as the store with this superblock sees them.
///
/// # Errors
/// `Denied` if the store is encrypted and the key is missing or wrong; `Invalid` if there is a key
/// and the store is not encrypted; those of [`Encryption::unlock`].
pub fn unlock(
    members: Vec<Arc<dyn BlockDevice>>,
    superblock: &Superblock,
    encryption: Option<&Arc<dyn Encryption>>,
) -> Result<Vec<Arc<dyn BlockDevice>>> {
    let indexed = (0..).zip(members).collect();
    unlock_devices(indexed, superblock, encryption)
}

/// Returns the log device as the store with this superblock sees it.
///
/// # Errors
/// As [`unlock`].
pub fn unlock_log(
    device: Arc<dyn BlockDevice>,
    superblock: &Superblock,
    encryption: Option<&Arc<dyn Encryption>>,
) -> Result<Arc<dyn BlockDevice>> {
    let unlocked =
        unlock_devices(vec![(LOG_DEVICE, device.clone())], superblock, encryption)?.pop();
    Ok(unlocked.unwrap_or(device))
}

fn unlock_devices(
    devices: Vec<(u32, Arc<dyn BlockDevice>)>,
    superblock: &Superblock,
    encryption: Option<&Arc<dyn Encryption>>,
) -> Result<Vec<Arc<dyn BlockDevice>>> {
    let name = devices.first().map_or(String::new(), |(_, device)| device.info().name.clone());
    match (&superblock.key_slot, encryption) {
        (None, None) => Ok(devices.into_iter().map(|(_, device)| device).collect()),
        (Some(slot), Some(key)) => key.unlock(slot, superblock.page_size, devices),
        (Some(_), None) => Err(Error::with_hint(
            ErrorKind::Denied,
            format!("{name} is encrypted, and no key was given"),
            "give the key of the store",
        )),
        // A store in clear in the place of an encrypted one must not be taken for it.
        (None, Some(_)) => Err(Error::with_hint(
            ErrorKind::Invalid,
            format!("{name} is not encrypted, and a key was given"),
            "leave the key out, or copy the store into an encrypted one",
        )),
    }
}
