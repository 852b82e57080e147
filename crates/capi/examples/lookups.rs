//! A fixed run of lookups in memory, for callgrind to count: `lookups get_with|qpair_get
//! COUNT`. The difference of two counts, divided by that of the lookups, is the cost of one.
//! docs/design/capi.md has the figures.

#![allow(clippy::print_stderr, reason = "an example says how it is called")]

use std::process::ExitCode;
use std::ptr::null_mut;

use qpair::Options;
use qpair_capi::{
    qpair_get, qpair_open, qpair_options_new, qpair_options_set, qpair_store, qpair_table,
    qpair_table_open,
};

const RECORDS: u64 = 20_000;
const VALUE: [u8; 120] = [7; 120];
const DEVICE: &std::ffi::CStr = c"ram:size=64MiB";

fn record(key: &mut u64) -> [u8; 8] {
    // Knuth's generator: the same keys everywhere.
    *key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*key >> 33) % RECORDS).to_be_bytes()
}

fn of_rust(count: u64) -> qpair::Result<usize> {
    let device = DEVICE.to_string_lossy();
    let store = Options::new(&*device).memory_bytes(32 << 20).workers(1).log(false).open()?;
    let table = store.table("t")?;
    for key in 0..RECORDS {
        table.put(&key.to_be_bytes(), &VALUE)?;
    }
    let (mut key, mut bytes, mut buffer) = (1, 0, [0; 200]);
    for _ in 0..count {
        let found = table.get_with(&record(&mut key), |value| {
            // As C's call does.
            buffer[..value.len()].copy_from_slice(value);
            value.len()
        });
        bytes += found?.unwrap_or(0);
    }
    store.close()?;
    Ok(bytes)
}

fn of_c(count: u64) -> Option<usize> {
    let (mut options, mut bytes, mut buffer) = (null_mut(), 0, [0_u8; 200]);
    let (mut store, mut table): (*mut qpair_store, *mut qpair_table) = (null_mut(), null_mut());
    let none = null_mut();
    // SAFETY: all pointers lead to variables and constants, with their lengths.
    unsafe {
        let set = [(c"memory", c"32MiB"), (c"workers", c"1"), (c"log", c"false")];
        let mut codes = vec![qpair_options_new(&raw mut options, none)];
        for (name, value) in set {
            codes.push(qpair_options_set(options, name.as_ptr(), value.as_ptr(), none));
        }
        codes.push(qpair_open(DEVICE.as_ptr(), options, &raw mut store, none));
        codes.push(qpair_table_open(store, c"t".as_ptr(), &raw mut table, none));
        for key in 0..RECORDS {
            let key = key.to_be_bytes();
            let (key, value) = (key.as_ptr().cast(), VALUE.as_ptr().cast());
            let put = qpair_capi::qpair_put(table, key, 8, value, VALUE.len(), null_mut(), none);
            codes.push(put);
        }
        let mut key = 1;
        for _ in 0..count {
            let (record, to, mut len) = (record(&mut key), buffer.as_mut_ptr().cast(), 0);
            let key = record.as_ptr().cast();
            codes[0] |= qpair_get(table, key, 8, to, buffer.len(), &raw mut len, none);
            bytes += len;
        }
        codes.push(qpair_capi::qpair_close(store, none));
        codes.iter().all(|code| *code == 0).then_some(bytes)
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let bytes = match &words[..] {
        [what, count] => count.parse().ok().and_then(|count| match what.as_str() {
            "get_with" => of_rust(count).ok(),
            "qpair_get" => of_c(count),
            _ => None,
        }),
        _ => None,
    };
    match bytes {
        Some(_) => ExitCode::SUCCESS,
        None => {
            eprintln!("lookups get_with|qpair_get COUNT");
            ExitCode::from(2)
        }
    }
}
