//! Counts of requests and bytes, for what a backup costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qpair_engine::Result;

use super::{Object, Objects};

/// A kind of request, as object stores charge for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Writes an object.
    Put,
    /// Reads an object.
    Get,
    /// Lists up to 1,000 objects.
    List,
    /// Removes an object.
    Delete,
}

/// Requests and bytes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Requests that write, failed ones too.
    pub puts: u64,
    /// Requests that read.
    pub gets: u64,
    /// Requests that list, of 1,000 objects each.
    pub lists: u64,
    /// Requests that remove.
    pub deletes: u64,
    /// Bytes of objects sent.
    pub sent_bytes: u64,
    /// Bytes of objects received.
    pub received_bytes: u64,
}

impl Costs {
    /// The number of requests of all kinds.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.puts + self.gets + self.lists + self.deletes
    }
}

/// A place whose requests are counted.
pub(crate) struct Counted {
    objects: Arc<dyn Objects>,
    requests: [AtomicU64; 4],
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl Counted {
    pub(crate) fn new(objects: Arc<dyn Objects>) -> Self {
        Self {
            objects,
            requests: Default::default(),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
        }
    }

    fn count(&self, request: Request, requests: u64) {
        self.requests[request as usize].fetch_add(requests, Ordering::Relaxed);
    }

    pub(crate) fn costs(&self) -> Costs {
        let [puts, gets, lists, deletes] =
            [0, 1, 2, 3].map(|kind: usize| self.requests[kind].load(Ordering::Relaxed));
        let sent_bytes = self.sent_bytes.load(Ordering::Relaxed);
        let received_bytes = self.received_bytes.load(Ordering::Relaxed);
        Costs { puts, gets, lists, deletes, sent_bytes, received_bytes }
    }
}

impl Objects for Counted {
    fn place(&self) -> String {
        self.objects.place()
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.count(Request::Put, 1);
        self.sent_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.objects.put(name, bytes)
    }

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.count(Request::Put, 1);
        self.sent_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.objects.put_if_absent(name, bytes)
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.count(Request::Get, 1);
        let got = self.objects.get(name)?;
        let bytes = got.as_ref().map_or(0, Vec::len) as u64;
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(got)
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Object>> {
        let listed = self.objects.list(prefix, after);
        let objects = listed.as_ref().map_or(0, Vec::len) as u64;
        self.count(Request::List, objects / 1000 + 1);
        listed
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.count(Request::Delete, 1);
        self.objects.delete(name)
    }

    fn remove_unfinished(&self) -> Result<()> {
        self.objects.remove_unfinished()
    }
}
