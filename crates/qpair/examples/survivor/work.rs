//! Transactions whose effects can be judged after a crash.
//!
//! Task `t` makes transactions 1, 2, 3, ... one after the other. Number `n` puts a value that tells
//! `t` and `n` into the tables `left` and `right`, deletes what number `n - KEPT` put there, writes
//! `n` to `latest` and moves money between two accounts, each of which counts how often that was
//! done. So after a crash, whatever was lost:
//!
//! - both tables have the same numbers of each task, without a gap, up to the value in `latest`;
//! - the total of money is unchanged, and the accounts were changed twice for each transaction;
//! - `latest` is not below any acknowledged number.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair::task::{TaskStore, TaskTransaction};
use qpair::{Durability, ErrorKind, Options, Result, Store, Table, TransactionOptions};

/// The number of tasks that run transactions.
const TASKS: u32 = 12;
/// The number of transactions of each task whose values are kept.
const KEPT: u64 = 300;
const ACCOUNTS: u64 = 64;
/// The initial balance of an account.
const MONEY: i64 = 1000;

/// The greatest acknowledged number of each task.
pub(crate) type Acknowledged = BTreeMap<u32, u64>;

#[derive(Clone)]
struct Tables {
    left: Table,
    right: Table,
    latest: Table,
    accounts: Table,
}

impl Tables {
    fn open(store: &Store) -> Result<Self> {
        Ok(Self {
            left: store.table("left")?,
            right: store.table("right")?,
            latest: store.table("latest")?,
            accounts: store.table("accounts")?,
        })
    }
}

fn key(task: u32, number: u64) -> Vec<u8> {
    // The keys are spread over the table, so that each transaction changes different pages.
    let mut key = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes().to_vec();
    key.extend_from_slice(&task.to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// Returns the value of one transaction in one of the tables. Some values are too large for a page.
fn value(task: u32, number: u64, salt: u64) -> Vec<u8> {
    let mut word = number ^ u64::from(task) << 40 ^ salt << 56;
    let mut next = || {
        word = word.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        word ^ word >> 32
    };
    let len = match next() % 20 {
        0 => 5000 + next() % 20_000,
        1..5 => 200 + next() % 800,
        _ => 8 + next() % 100,
    };
    let mut bytes = Vec::with_capacity(len as usize + 8);
    while bytes.len() < len as usize {
        bytes.extend_from_slice(&next().to_le_bytes());
    }
    bytes
}

fn account(balance: i64, touched: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&balance.to_le_bytes());
    bytes[8..].copy_from_slice(&touched.to_le_bytes());
    bytes
}

fn parse_account(bytes: &[u8]) -> Option<(i64, u64)> {
    let balance = i64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let touched = u64::from_le_bytes(bytes.get(8..)?.try_into().ok()?);
    Some((balance, touched))
}

fn parse_number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// The time that the kernel may take to close the files of a killed process: it releases rings in
/// the background.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Opens the store that a killed process had open.
pub(crate) fn open(options: &Options) -> Result<Store> {
    let began = Instant::now();
    loop {
        match options.clone().open() {
            Err(error) if error.kind() == ErrorKind::Busy && began.elapsed() < TIMEOUT => {
                std::thread::sleep(Duration::from_millis(20));
            }
            outcome => return outcome,
        }
    }
}

/// Opens or creates the store, and works until the process ends. `acknowledged` is called on a
/// worker for each commit after it was acknowledged.
pub(crate) fn work(
    options: &Options,
    seed: u64,
    acknowledged: impl Fn(u32, u64) + Send + Sync + 'static,
) -> Result<()> {
    let store = open(options)?;
    let tables = Tables::open(&store)?;
    if tables.accounts.get(&0_u64.to_be_bytes())?.is_none() {
        store.transact(|tx| {
            (0..ACCOUNTS).try_for_each(|number| {
                tx.put(&tables.accounts, &number.to_be_bytes(), &account(MONEY, 0))
            })
        })?;
    }
    let acknowledged: Arc<dyn Fn(u32, u64) + Send + Sync> = Arc::new(acknowledged);
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let task = Task {
                store: store.task(),
                tables: tables.clone(),
                number,
                random: seed ^ u64::from(number) << 32,
            };
            let acknowledged = acknowledged.clone();
            store.spawn(move || task.run(acknowledged))
        })
        .collect();
    let mut moment = seed;
    while tasks.iter().all(|task| !task.is_finished()) {
        moment = moment.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        std::thread::sleep(Duration::from_millis(moment >> 56));
        store.checkpoint()?;
    }
    // A task ends only with an error.
    tasks.into_iter().filter(|task| task.is_finished()).try_for_each(|task| task.join()?)
}

struct Task {
    store: TaskStore,
    tables: Tables,
    number: u32,
    random: u64,
}

impl Task {
    fn random(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        self.random >> 33
    }

    async fn run(mut self, acknowledged: Arc<dyn Fn(u32, u64) + Send + Sync>) -> Result<()> {
        let snapshot = self.store.snapshot()?;
        let latest = snapshot.get(&self.tables.latest, &self.number.to_be_bytes()).await?;
        drop(snapshot);
        let mut number = latest.as_deref().and_then(parse_number).unwrap_or(0);
        loop {
            number += 1;
            let durability = match self.random() % 4 {
                0 => Durability::Group,
                1 => Durability::Async,
                _ => Durability::Sync,
            };
            let (from, to) = (self.random() % ACCOUNTS, self.random() % ACCOUNTS);
            let options = TransactionOptions { durability, ..TransactionOptions::default() };
            loop {
                let mut tx = self.store.begin_with(&options);
                let outcome = match self.change(&mut tx, number, from, to).await {
                    Ok(()) => tx.commit().await,
                    Err(error) => Err(error),
                };
                match outcome {
                    Ok(commit) => {
                        commit.durable().await?;
                        acknowledged(self.number, number);
                        break;
                    }
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    async fn change(
        &self,
        tx: &mut TaskTransaction,
        number: u64,
        from: u64,
        to: u64,
    ) -> Result<()> {
        let Tables { left, right, latest, accounts } = &self.tables;
        let task = self.number;
        for (number, sign) in [(from, -1), (to, 1)] {
            let number = number.to_be_bytes();
            let now = tx.get_for_update(accounts, &number).await?;
            let (balance, touched) = now.as_deref().and_then(parse_account).unwrap_or_default();
            tx.put(accounts, &number, &account(balance + sign, touched + 1)).await?;
        }
        tx.put(left, &key(task, number), &value(task, number, 1)).await?;
        if let Some(old) = number.checked_sub(KEPT) {
            tx.delete(left, &key(task, old)).await?;
            tx.delete(right, &key(task, old)).await?;
        }
        tx.put(right, &key(task, number), &value(task, number, 2)).await?;
        tx.put(latest, &task.to_be_bytes(), &number.to_le_bytes()).await
    }
}

/// Reads the complete lines of a journal.
pub(crate) fn read_journal(bytes: &[u8]) -> Acknowledged {
    let mut acknowledged = Acknowledged::new();
    let end = bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    for line in String::from_utf8_lossy(&bytes[..end]).lines() {
        let mut words = line.split_whitespace();
        let (Some("ack"), Some(task), Some(number), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (Ok(task), Ok(number)) = (task.parse(), number.parse::<u64>()) else { continue };
        let known = acknowledged.entry(task).or_insert(0);
        *known = number.max(*known);
    }
    acknowledged
}

/// The numbers of transactions and records that the check found.
pub(crate) struct State {
    pub(crate) transactions: u64,
    records: u64,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} transactions, {} records, all as it must be", self.transactions, self.records)
    }
}

/// Compares the content of a store with the acknowledged commits.
pub(crate) fn judge(
    store: &Store,
    acknowledged: &Acknowledged,
) -> std::result::Result<State, String> {
    let tables = Tables::open(store).map_err(|error| error.to_string())?;
    let all = |table: &Table| -> Result<Vec<(Vec<u8>, Vec<u8>)>> { table.range(..)?.collect() };
    let all = |table| all(table).map_err(|error| error.to_string());
    let mut latest = BTreeMap::new();
    for (key, value) in all(&tables.latest)? {
        let task = key.as_slice().try_into().map(u32::from_be_bytes);
        let (Ok(task), Some(number)) = (task, parse_number(&value)) else {
            return Err(format!("latest has {key:?}: {value:?}"));
        };
        latest.insert(task, number);
    }
    for (task, number) in acknowledged {
        let found = latest.get(task).copied().unwrap_or(0);
        if found < *number {
            return Err(format!(
                "task {task}: number {number} was acknowledged, and {found} is the latest"
            ));
        }
    }
    let mut records = 0;
    for (table, salt) in [(&tables.left, 1), (&tables.right, 2)] {
        let mut expected = BTreeMap::new();
        for (task, latest) in &latest {
            for number in latest.saturating_sub(KEPT) + 1..=*latest {
                expected.insert(key(*task, number), value(*task, number, salt));
            }
        }
        let found = all(table)?;
        records += found.len() as u64;
        for (key, value) in found {
            match expected.remove(&key) {
                None => return Err(format!("table {salt}: {key:?} should not be there")),
                Some(right) if right != value => {
                    return Err(format!("table {salt}: {key:?} has another value"));
                }
                Some(_) => {}
            }
        }
        if let Some((key, _)) = expected.first_key_value() {
            return Err(format!(
                "table {salt}: {} records are missing, {key:?} first",
                expected.len()
            ));
        }
    }
    let transactions: u64 = latest.values().sum();
    let (mut money, mut touched) = (0, 0);
    let accounts = all(&tables.accounts)?;
    for (key, value) in &accounts {
        let Some((balance, times)) = parse_account(value) else {
            return Err(format!("account {key:?}: {value:?}"));
        };
        (money, touched) = (money + balance, touched + times);
    }
    let right_money = MONEY * accounts.len() as i64;
    if money != right_money || ![0, ACCOUNTS as usize].contains(&accounts.len()) {
        return Err(format!("{money} in {} accounts, not {right_money}", accounts.len()));
    }
    if touched != 2 * transactions {
        return Err(format!("{transactions} transactions have touched {touched} accounts"));
    }
    Ok(State { transactions, records })
}
