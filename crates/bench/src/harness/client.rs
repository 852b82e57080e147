//! A client, its requests, and the attempts at each.

use qpair::{ErrorKind, Result};

/// The number of attempts after which a request fails, since the system must then report false
/// conflicts.
const ATTEMPTS_MAX: u32 = 10_000;

/// A client of a system, which makes one request after the other.
pub(crate) trait Client {
    /// A request with its inputs, which all its attempts share.
    type Request;

    /// Draws the next request; returns `None` if there is nothing left to do.
    fn draw(&mut self) -> Option<Self::Request>;

    /// Makes one attempt at a request.
    async fn attempt(&mut self, request: &Self::Request) -> Result<Done>;

    /// Rolls back an attempt that failed.
    async fn rollback(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A finished request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// The kind of the request, from 0.
    pub(crate) kind: usize,
    /// The amount that the request adds to the throughput: 1, or its rows.
    pub(crate) weight: u32,
    /// Whether the request ended without a commit, as the workload intended.
    pub(crate) rolled_back: bool,
}

impl Done {
    pub(crate) fn new(kind: usize, weight: u32) -> Self {
        Self { kind, weight, rolled_back: false }
    }
}

/// Makes attempts at a request until one does not end with a conflict. Returns also the number of
/// conflicts.
#[inline]
pub(crate) async fn complete<C: Client>(
    client: &mut C,
    request: &C::Request,
) -> Result<(Done, u32)> {
    let mut conflicts = 0;
    loop {
        match client.attempt(request).await {
            Ok(done) => return Ok((done, conflicts)),
            Err(error) if error.kind() == ErrorKind::Conflict && conflicts < ATTEMPTS_MAX => {
                client.rollback().await?;
                conflicts += 1;
                qpair::task::yield_now().await;
            }
            Err(error) => {
                // The first error is the one to report.
                let _ = client.rollback().await;
                return Err(error);
            }
        }
    }
}
