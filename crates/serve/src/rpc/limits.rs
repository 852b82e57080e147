//! The methods that limit the rates of a device.

use qpair_block::Limits;
use serde_json::{Value, json};

use super::manager::Manager;
use super::params::{Failure, Params, Result};

const MB_BYTES: u64 = 1 << 20;
/// SPDK counts limits in thousands of I/Os.
const IOS_UNIT: u64 = 1000;

pub(super) fn in_json(limits: Limits) -> Value {
    json!({
        "rw_ios_per_sec": limits.ios_per_s,
        "rw_mbytes_per_sec": limits.bytes_per_s / MB_BYTES,
        "r_mbytes_per_sec": limits.read_bytes_per_s / MB_BYTES,
        "w_mbytes_per_sec": limits.written_bytes_per_s / MB_BYTES,
    })
}

/// Returns the parameters of a call that removes all limits of a device.
pub(super) fn no_limits(name: &Value) -> Value {
    let mut params = in_json(Limits::default());
    params["name"] = name.clone();
    params
}

pub(super) fn bdev_set_qos_limit(manager: &Manager, mut params: Params) -> Result<Value> {
    let name = params.name("name")?;
    let ios = params.number("rw_ios_per_sec")?;
    let mut mbytes = |verb: &str| params.number(&format!("{verb}_mbytes_per_sec"));
    let (both, read, written) = (mbytes("rw")?, mbytes("r")?, mbytes("w")?);
    params.finish()?;
    let bdevs = manager.bdevs();
    let limit = &bdevs.get(&name)?.limit;
    if [ios, both, read, written] == [None; 4] {
        return Err(Failure::new(-22, "no limit is given"));
    }
    let Limits { ios_per_s, bytes_per_s, read_bytes_per_s, written_bytes_per_s } = limit.limits();
    let bytes =
        |asked: Option<u64>, now: u64| asked.map_or(Some(now), |asked| asked.checked_mul(MB_BYTES));
    let all = (|| {
        Some(Limits {
            ios_per_s: match ios {
                Some(ios) => ios.checked_next_multiple_of(IOS_UNIT)?,
                None => ios_per_s,
            },
            bytes_per_s: bytes(both, bytes_per_s)?,
            read_bytes_per_s: bytes(read, read_bytes_per_s)?,
            written_bytes_per_s: bytes(written, written_bytes_per_s)?,
        })
    })();
    let all = all.ok_or_else(|| Failure::params("the limit is too large"))?;
    limit.set(all);
    let mut params = in_json(all);
    params["name"] = json!(name);
    manager.calls().retain(|call| call.method != "bdev_set_qos_limit" || call.what != name);
    if all != Limits::default() {
        manager.made("bdev", &name, "bdev_set_qos_limit", params);
    }
    Ok(json!(true))
}
