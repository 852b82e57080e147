//! What a table is asked beside single records: its ends, its prefixes, and futures of any runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::common::{existing, options, ram};
use qpair_engine::{ErrorKind, Prefix, Store, Table};

const PAGE: usize = 512;
const RECORDS: u32 = 5000;

fn filled() -> (Store, Table) {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 2048)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..RECORDS {
        table.put(name(i).as_bytes(), &i.to_be_bytes()).unwrap();
    }
    drop(table);
    store.close().unwrap();
    let store = Store::open(vec![device], &existing(PAGE, 128)).unwrap();
    let table = store.table("t").unwrap();
    (store, table)
}

fn name(i: u32) -> String {
    format!("{}/{:05}", if i.is_multiple_of(2) { "even" } else { "odd" }, i)
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Somebody else's runtime: it knows nothing of the store.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn the_ends_of_a_table() {
    let (store, table) = filled();
    let key_of = |record: Option<(Vec<u8>, Vec<u8>)>| String::from_utf8(record.unwrap().0).unwrap();
    assert_eq!(key_of(table.first().unwrap()), "even/00000");
    assert_eq!(key_of(table.last().unwrap()), "odd/04999");
    assert_eq!(table.iter().count(), RECORDS as usize);
    assert!(table.contains_key(b"odd/00001").unwrap());
    assert!(!table.contains_key(b"odd/00002").unwrap());
    let empty = store.table("empty").unwrap();
    assert_eq!(empty.first().unwrap(), None);
    assert_eq!(empty.last().unwrap(), None);
}

#[test]
fn a_prefix_is_a_range_everywhere() {
    let (store, table) = filled();
    let odd = Prefix("odd/");
    let expected = RECORDS as usize / 2;
    assert_eq!(table.range(odd).unwrap().count(), expected);
    assert_eq!(store.snapshot().unwrap().range(&table, odd).unwrap().count(), expected);
    let count = store.transact(|tx| Ok(tx.range(&table, odd)?.count())).unwrap();
    assert_eq!(count, expected);
    assert_eq!(table.range("even/00010"..="even/00020").unwrap().count(), 6);
    assert_eq!(table.delete_range(odd).unwrap(), expected as u64);
    assert_eq!(table.last().unwrap().unwrap().0, name(RECORDS - 2).into_bytes());
    assert_eq!(table.range("b".."a").err().unwrap().kind(), ErrorKind::Invalid);
}

#[test]
fn futures_of_any_runtime() {
    let (store, table) = filled();
    block_on(async {
        for i in (0..RECORDS).step_by(61) {
            let value = table.get_async(name(i).as_bytes()).await.unwrap();
            assert_eq!(value.as_deref(), Some(&i.to_be_bytes()[..]));
        }
        assert!(!table.put_async(b"new", b"value").await.unwrap());
        assert!(table.put_async(b"new", &[7; 3000]).await.unwrap());
        assert_eq!(table.get_async(b"new").await.unwrap(), Some(vec![7; 3000]));
        assert!(table.delete_async(b"new").await.unwrap());
        assert_eq!(table.get_async(b"new").await.unwrap(), None);
        let too_long = table.put_async(&[0; 1 << 16], b"").await.unwrap_err();
        assert_eq!(too_long.kind(), ErrorKind::KeyTooLong);
    });
    // One that is dropped before it is over has been put.
    {
        let mut future = pin!(table.put_async(b"dropped", b"value"));
        let pending = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(pending, Poll::Pending | Poll::Ready(Ok(_))));
    }
    while table.get(b"dropped").unwrap().is_none() {
        std::thread::yield_now();
    }
    let other = table.clone();
    drop(table);
    store.close().unwrap();
    assert_eq!(block_on(other.put_async(b"late", b"")).unwrap_err().kind(), ErrorKind::Closed);
}
