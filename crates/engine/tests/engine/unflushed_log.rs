//! A table is dropped in a store whose log is not flushed: a power cut may restore the table, and
//! must not restore it damaged.

use std::sync::Arc;

use crate::common::{existing, options};
use qpair_block::BlockDevice;
use qpair_block::time::SimClock;
use qpair_engine::{Runtime, Store, StoreOptions};
use qpair_sim_block::{SimDevice, SimOptions};

const PAGE: usize = 512;
const FRAMES: u64 = 98;
const VALUE_BYTES: usize = 20_000;

fn unflushed(options: StoreOptions, seed: u64, clock: &SimClock) -> StoreOptions {
    StoreOptions {
        workers: 1,
        log_flushed: false,
        runtime: Runtime::Stepped { seed, clock: clock.clone() },
        ..options
    }
}

#[test]
fn large_values_of_a_table_that_a_power_cut_brings_back() {
    let (mut broken, mut back) = (Vec::new(), 0);
    for seed in 0..40 {
        let clock = SimClock::new();
        let device_options = SimOptions::new(seed, &clock);
        let power = device_options.power.clone();
        let device = SimDevice::new(device_options).unwrap();
        let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(device.clone())];
        let store = Store::open(members, &unflushed(options(PAGE, FRAMES), seed, &clock)).unwrap();
        let stays = store.table("stays").unwrap();
        let goes = store.table("goes").unwrap();
        store.checkpoint().unwrap();
        // These are in the log only. The next large value's flush makes them durable.
        (0..16u32).for_each(|i| _ = goes.put(&i.to_be_bytes(), &[2; VALUE_BYTES]).unwrap());
        stays.put(b"flushes", &[1; VALUE_BYTES]).unwrap();
        store.drop_table("goes").unwrap();
        while store.tables_being_dropped() > 0 {
            let _ = store.step();
        }
        // This transaction writes to the pages that the value had, and never commits.
        let mut open = store.begin();
        (0..60u32).for_each(|i| open.put(&stays, &i.to_be_bytes(), &[3; VALUE_BYTES]).unwrap());
        power.cut();
        let content = device.content();
        drop((open, stays, goes));
        store.crash();
        let after = SimDevice::over(SimOptions::new(seed, &clock), content).unwrap();
        let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(after)];
        let store = Store::open(members, &unflushed(existing(PAGE, FRAMES), seed, &clock)).unwrap();
        if let Some(goes) = store.existing_table("goes").unwrap() {
            back += 1;
            for i in 0..16u32 {
                match goes.get(&i.to_be_bytes()) {
                    Ok(Some(value)) if value == [2; VALUE_BYTES] => {}
                    Ok(None) => {}
                    other => broken.push((seed, i, other.map(|v| v.map(|v| v.len())))),
                }
            }
        }
        store.crash();
    }
    assert!(back > 0);
    assert!(broken.is_empty(), "{} of {back}: {:?}", broken.len(), broken.first());
}
