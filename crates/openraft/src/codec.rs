//! Values as bytes.

use qpair::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) fn encode<T: Serialize>(what: &str, value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("{what} cannot be serialized: {error}"))
    })
}

pub(crate) fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|error| {
        Error::with_hint(
            ErrorKind::Corrupt,
            format!("{what} cannot be read: {error}"),
            "open the group with the types of requests and nodes that wrote it",
        )
    })
}

/// The key of a log entry; their order is that of the indexes.
pub(crate) fn index_key(index: u64) -> [u8; 8] {
    index.to_be_bytes()
}

pub(crate) fn index_of(key: &[u8]) -> Result<u64> {
    let bytes = key.try_into().map_err(|_| {
        Error::new(
            ErrorKind::Corrupt,
            format!("a log entry's key has {} bytes; expected 8", key.len()),
        )
    })?;
    Ok(u64::from_be_bytes(bytes))
}

/// Reads bytes as each of the position records whose type is this crate's own. For the fuzzer.
#[doc(hidden)]
pub fn try_positions(bytes: &[u8]) -> Result<(u64, Vec<u8>)> {
    let _: Result<u32> = decode("the format", bytes);
    let _: Result<u64> = decode("the generation of the state", bytes);
    let _: Result<u64> = index_of(bytes);
    decode("the purged position", bytes)
}

/// Writes what [`try_positions`] returns.
#[doc(hidden)]
pub fn write_position(position: &(u64, Vec<u8>)) -> Result<Vec<u8>> {
    encode("the purged position", position)
}
