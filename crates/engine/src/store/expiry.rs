//! Removal of expired records, and the horizon: see docs/design/ttl.md.

mod removal;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use qpair_format::codec::Codec;
use qpair_format::expiry::{
    HORIZON_KEY, INDEX_TABLE, decode_definition, decode_entry, decode_ms, definition_key,
    entries_end, entry_key, span_ms,
};
use qpair_format::{Error, Result};

use super::{Store, StoreInner, Table};
use crate::canary::Canary;
use crate::log::Durability;
use crate::shared::{Definition, Shared};
use crate::task::{current, refuse_on_worker, spawn_to};
use crate::tree::Tree;
use crate::tx::{Prefix, TransactionOptions, Tx, TxState, commit};

/// The time between two removals, which is also how late the horizon is at most.
const PAUSE: Duration = Duration::from_secs(1);

impl Store {
    /// Removes expired records now, instead of a second later in the background; returns their
    /// number. Records that transactions have locked stay until the next removal. No caller sees
    /// them any more.
    ///
    /// # Errors
    /// As [`Table::delete`].
    pub fn remove_expired(&self) -> Result<u64> {
        refuse_on_worker()?;
        let tx = self.inner.tx.clone();
        self.inner.block_on(move || async move { pass(&tx).await })
    }

    /// Returns the time up to which records have expired, in milliseconds since 1970. It never goes
    /// backwards, also when the store is opened again.
    #[doc(hidden)]
    #[must_use]
    pub fn horizon_ms(&self) -> u64 {
        self.inner.shared.expiry.horizon_ms()
    }

    /// Raises the horizon to that of another store, whose records are copied into this one, which
    /// has a table with a time to live.
    ///
    /// # Errors
    /// As [`Table::put`].
    #[doc(hidden)]
    pub fn raise_horizon(&self, to_ms: u64) -> Result<()> {
        refuse_on_worker()?;
        let tx = self.inner.tx.clone();
        self.inner.block_on(move || async move {
            let _alone = tx.shared.expiry.alone.enter().await;
            match tx.shared.expiry.index() {
                Some(index) => advance(&tx, index, to_ms).await,
                None => Ok(()),
            }
        })
    }
}

impl StoreInner {
    /// Makes the index of expiry times, if the store has none, before the first table with a time
    /// to live. The caller keeps other threads from changing tables.
    pub(super) fn begin_expiry(self: &Arc<Self>) -> Result<()> {
        let expiry = &self.shared.expiry;
        if expiry.index().is_some() {
            return Ok(());
        }
        self.incarnation.note_expiring()?;
        let index = match self.open_named(INDEX_TABLE)? {
            Some(index) => index,
            None => self.create(INDEX_TABLE, self.shared.forest.new_tree_id(Codec::PLAIN))?,
        };
        self.tx.names.add(index.id, INDEX_TABLE);
        expiry.set_index(index);
        self.start_removals();
        Ok(())
    }

    /// Writes the definition of a table, then makes the table. If that fails, the next removal
    /// removes the definition.
    pub(super) fn defined(
        &self,
        id: u32,
        ttl_ms: u64,
        make: impl FnOnce() -> Result<Tree>,
    ) -> Result<Tree> {
        let expiry = &self.shared.expiry;
        expiry.define(id, Definition { ttl_ms, making: true });
        let made = self.put_definition(id, ttl_ms).and_then(|()| make());
        expiry.define(id, Definition { ttl_ms, making: false });
        made
    }

    fn put_definition(&self, id: u32, ttl_ms: u64) -> Result<()> {
        let tx = self.tx.clone();
        self.block_on(move || async move {
            let index = tx.shared.expiry.index().ok_or_else(Error::closed)?;
            put(&tx, index, &definition_key(id), ttl_ms).await
        })
    }

    /// Takes up the index when the store is opened. Before the first read the horizon is the time
    /// of the clock, if a record may have expired by then.
    pub(super) fn take_up_expiry(self: &Arc<Self>) -> Result<()> {
        let (expiry, is_read_only) = (&self.shared.expiry, self.shared.lifecycle.read_only);
        if !self.incarnation.superblock.lock().expiring {
            return Ok(());
        }
        if is_read_only {
            expiry.raise(expiry.now_ms());
        }
        match self.read_definitions() {
            // A damaged store can still be opened for reading, so that a check can run.
            Err(_) if is_read_only => return Ok(()),
            outcome => outcome?,
        }
        let tx = self.tx.clone();
        self.block_on(move || async move {
            let _alone = tx.shared.expiry.alone.enter().await;
            // On a full device the horizon stays where it is, and with it what readers see, until
            // the first removal that finds room.
            let _ = begin(&tx).await;
            Ok(())
        })?;
        self.start_removals();
        Ok(())
    }

    fn read_definitions(self: &Arc<Self>) -> Result<()> {
        let Some(index) = self.open_named(INDEX_TABLE)? else { return Ok(()) };
        self.tx.names.add(index.id, INDEX_TABLE);
        let table = Table::new(self.clone(), index);
        if let Some(horizon) = table.get(HORIZON_KEY)? {
            self.shared.expiry.raise(decode_ms(&horizon).unwrap_or(0));
        }
        for record in table.range(Prefix(&definition_key(0)[..1]))? {
            let (key, value) = record?;
            let Some((tree, ttl_ms)) = decode_definition(&key, &value) else { continue };
            // Entries of a table that was dropped must not be taken for those of another.
            self.shared.forest.skip_tree_id(tree);
            self.shared.expiry.define(tree, Definition { ttl_ms, making: false });
        }
        self.shared.expiry.set_index(index);
        Ok(())
    }

    /// Starts the task that removes expired records, once.
    fn start_removals(&self) {
        let expiry = &self.shared.expiry;
        if !expiry.removes || expiry.has_begun.swap(true, Ordering::Relaxed) {
            return;
        }
        // The task holds no handle of the store, so that dropping the last handle closes it.
        let tx = self.tx.clone();
        drop(spawn_to(&self.shared, 0, move || async move {
            while rest(&tx.shared).await {
                // After an error the next removal tries again. A store that has failed reports the
                // error to all that change it.
                let _ = pass(&tx).await;
            }
        }));
    }
}

/// Waits until the next removal. Returns `false` if the store is being closed, or has failed.
async fn rest(shared: &Shared) -> bool {
    let Some(deadline) = current(|worker| worker.deadline(PAUSE)) else { return false };
    poll_fn(|context| {
        if shared.expiry.has_ended(context.waker()) || shared.lifecycle.failure().is_some() {
            return Poll::Ready(false);
        }
        match deadline.poll(context.waker()) {
            true => Poll::Ready(true),
            false => Poll::Pending,
        }
    })
    .await
}

fn options(durability: Durability) -> TransactionOptions {
    let name = Some("expiry".to_owned());
    TransactionOptions { durability, name, ..TransactionOptions::default() }
}

/// Puts a record of the index, durably.
async fn put(tx: &Arc<Tx>, index: Tree, key: &[u8], ms: u64) -> Result<()> {
    let mut core = TxState::begin(tx, &options(Durability::Sync));
    core.put(index, key, &ms.to_le_bytes()).await?;
    commit(core).await.map(|_| ())
}

/// Advances the horizon, which is durable on return. Readers see it only then.
async fn advance(tx: &Arc<Tx>, index: Tree, to_ms: u64) -> Result<()> {
    let expiry = &tx.shared.expiry;
    if to_ms <= expiry.horizon_ms() {
        return Ok(());
    }
    if tx.shared.planted.is(Canary::HorizonBeforeDurable) {
        expiry.raise(to_ms);
    }
    put(tx, index, HORIZON_KEY, to_ms).await?;
    expiry.raise(to_ms);
    Ok(())
}

/// Advances the horizon to the time of the clock, if a record may have expired by then. Returns the
/// index, and the tables that may have due entries.
async fn begin(tx: &Arc<Tx>) -> Result<Option<(Tree, Vec<u32>)>> {
    let (shared, expiry) = (&tx.shared, &tx.shared.expiry);
    let now_ms = expiry.now_ms();
    if shared.lifecycle.read_only {
        expiry.raise(now_ms);
        return Ok(None);
    }
    let Some(index) = expiry.index() else { return Ok(None) };
    let until_ms = now_ms.max(expiry.horizon_ms());
    let (mut begun, mut oldest_ms) = (Vec::new(), u64::MAX);
    for (tree, definition) in expiry.tables() {
        let all = (entry_key(tree, 0, &[]), entries_end(tree, u64::MAX));
        let first = removal::entries(shared, index, all, 1).await?;
        let time_ms =
            first.first().and_then(|entry| decode_entry(entry)).map(|(_, time_ms, _)| time_ms);
        let Some(time_ms) = time_ms else { continue };
        oldest_ms = oldest_ms.min(time_ms);
        // The records of the first entries may have expired before the entries are due.
        if time_ms.saturating_sub(span_ms(definition.ttl_ms)) <= until_ms {
            begun.push(tree);
        }
    }
    let oldest_ms = if oldest_ms <= until_ms { oldest_ms } else { 0 };
    expiry.oldest_due_ms.store(oldest_ms, Ordering::Relaxed);
    if !begun.is_empty() {
        advance(tx, index, now_ms).await?;
    }
    Ok(Some((index, begun)))
}

/// Advances the horizon and removes what has expired; returns the number of removed records.
async fn pass(tx: &Arc<Tx>) -> Result<u64> {
    let expiry = &tx.shared.expiry;
    let _alone = expiry.alone.enter().await;
    let Some((index, begun)) = begin(tx).await? else { return Ok(0) };
    let (mut removed, mut left) = (0, 0);
    for tree in begun {
        let (of_table, of_others) = removal::remove_due(tx, index, tree).await?;
        removed += of_table;
        left += of_others;
    }
    expiry.left.store(left, Ordering::Relaxed);
    if left == 0 {
        expiry.oldest_due_ms.store(0, Ordering::Relaxed);
    }
    removal::remove_dropped(tx, index).await?;
    Ok(removed)
}
