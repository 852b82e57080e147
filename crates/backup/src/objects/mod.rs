//! Where a backup lies: objects of bytes with names, in a folder, an object store or a simulation.
//!
//! - An object is written once, as a whole. A name is never given to other bytes.
//! - An operation that fails may have been done, or may be done later. All operations may be
//!   repeated: a repeated put has the same bytes, and a conditional put that meets its own object
//!   is told apart by its bytes.

mod counted;
mod folder;
#[cfg(feature = "s3")]
mod s3;
mod simulated;

pub(crate) use counted::Counted;
pub use counted::{Costs, Request};
pub use folder::Folder;
#[cfg(feature = "s3")]
pub use s3::S3;
pub use simulated::{Faults, Simulated};

use std::path::PathBuf;
use std::sync::Arc;

use qpair_engine::{Error, ErrorKind, Result};

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The name, with folders separated by slashes.
    pub name: String,
    /// The number of bytes.
    pub bytes: u64,
}

/// A place for objects.
///
/// # Errors
/// All calls return `Io` for failures that may pass, and `Denied` and others for failures that do
/// not.
pub trait Objects: Send + Sync {
    /// Returns a name of the place, for people.
    fn place(&self) -> String;

    /// Writes an object. On return it is durable.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<()>;

    /// Writes an object if no object has this name; returns whether it was written. Of two
    /// concurrent calls one writes. On return the object is durable.
    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<bool>;

    /// Returns the bytes of an object, if there is one of this name.
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// Returns the objects whose names begin with `prefix` and come after `after`, in the order of
    /// their names.
    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Object>>;

    /// Removes an object, if there is one of this name.
    fn delete(&self, name: &str) -> Result<()>;

    /// Removes what puts have left that ended long ago without success, if there may be any.
    fn remove_unfinished(&self) -> Result<()> {
        Ok(())
    }
}

/// Opens the place of a URL: `file:///folder`, a path, or `s3://bucket/prefix`. Access to S3 is
/// configured by the environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`,
/// `AWS_ENDPOINT_URL` and others of the crate `object_store`.
///
/// # Errors
/// `Invalid` for a URL that cannot be understood; `Unsupported` for S3 without the feature `s3`.
pub fn open_place(url: &str) -> Result<Arc<dyn Objects>> {
    if let Some(rest) = url.strip_prefix("s3://") {
        return open_s3(rest);
    }
    let path = match url.strip_prefix("file://") {
        Some(path) if path.starts_with('/') => path,
        None if !url.contains("://") && !url.is_empty() && !is_half_url(url) => url,
        _ => {
            return Err(Error::with_hint(
                ErrorKind::Invalid,
                format!("\"{url}\" does not name a place for backups"),
                "name file:///FOLDER or s3://BUCKET/PREFIX",
            ));
        }
    };
    Ok(Arc::new(Folder::new(PathBuf::from(path))))
}

/// Whether a path looks like a URL that lacks a slash.
fn is_half_url(path: &str) -> bool {
    path.starts_with("s3:") || path.starts_with("file:")
}

#[cfg(feature = "s3")]
fn open_s3(rest: &str) -> Result<Arc<dyn Objects>> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    Ok(Arc::new(S3::from_environment(bucket, prefix)?))
}

#[cfg(not(feature = "s3"))]
fn open_s3(_rest: &str) -> Result<Arc<dyn Objects>> {
    Err(Error::with_hint(
        ErrorKind::Unsupported,
        "this program was built without access to object stores",
        "build it with the feature s3, or name a folder",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_folders_or_buckets() {
        for folder in ["/a/b", "a", "./s3:b", "file:///a"] {
            assert!(open_place(folder).is_ok(), "{folder}");
        }
        for wrong in ["", "file://a", "file:/a", "s3:/a", "gs://a/b", "https://a/b"] {
            let error = open_place(wrong).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong}: {error}");
        }
    }
}
