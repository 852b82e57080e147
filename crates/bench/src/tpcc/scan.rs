//! Scans of whole tables, a few thousand rows at a time.

use std::ops::ControlFlow;
use std::sync::Arc;

use qpair::{Error, ErrorKind, Result};

use super::schema::TPCC_TABLES;
use crate::harness::Job;
use crate::kv::{Begin, Direction, KeyRange, KvSession, TableId};

/// The number of rows between two checks whether to stop.
const ROWS: usize = 4096;

/// A session with a read-only transaction.
pub(crate) struct Scanner<S> {
    session: S,
    job: Arc<Job>,
}

impl<S: KvSession> Scanner<S> {
    pub(crate) async fn begin(mut session: S, job: Arc<Job>) -> Result<Self> {
        session.begin(Begin::read_only()).await?;
        Ok(Self { session, job })
    }

    pub(crate) async fn finish(&mut self) -> Result<()> {
        self.session.commit().await
    }

    /// Passes the rows of a range to `each`. A row with another number of bytes is an error.
    pub(crate) async fn rows(
        &mut self,
        table: TableId,
        range: KeyRange<'_>,
        bytes: Option<usize>,
        each: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        self.some_rows(table, range, bytes, usize::MAX, each).await
    }

    /// Passes the first `limit` rows of a range to `each`.
    pub(crate) async fn some_rows(
        &mut self,
        table: TableId,
        range: KeyRange<'_>,
        bytes: Option<usize>,
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let mut from = range.from.to_vec();
        let mut left = limit;
        loop {
            let (mut seen, mut wrong) = (0, None);
            let mut last = Vec::new();
            let wanted = left.min(ROWS);
            self.session
                .scan(
                    table,
                    KeyRange { from: &from, to: range.to },
                    Direction::Forward,
                    wanted,
                    |key, row| {
                        seen += 1;
                        if bytes.is_some_and(|bytes| row.len() != bytes) {
                            wrong = Some((key.to_vec(), row.len()));
                            return ControlFlow::Break(());
                        }
                        each(key, row);
                        if seen == wanted {
                            last.extend_from_slice(key);
                        }
                        ControlFlow::Continue(())
                    },
                )
                .await?;
            if let Some((key, len)) = wrong {
                let name = TPCC_TABLES[table.index()];
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("{name}: the row of key {key:02x?} has another width: {len} bytes"),
                ));
            }
            self.job.advance(seen as u64)?;
            left -= seen;
            if seen < wanted || left == 0 {
                return Ok(());
            }
            // The scan continues at the least key beyond the last one.
            from = last;
            from.push(0);
            qpair::task::yield_now().await;
        }
    }
}
