//! The options of `qpair.open` and of transactions, from keyword arguments.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use qpair::{
    Compression, Durability, EncryptionKey, Interface, Isolation, Options, TransactionOptions,
};

use crate::errors::raise;

/// Returns the options of a store. Each keyword is the method of `qpair::Options` of its name.
pub(crate) fn of_store(
    path: &Bound<'_, PyAny>,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<Options> {
    let members: Vec<PathBuf> =
        match path.is_instance_of::<PyList>() || path.is_instance_of::<PyTuple>() {
            true => path.extract()?,
            false => vec![path.extract()?],
        };
    let mut options = Options::striped(members);
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        if value.is_none() {
            continue;
        }
        options = set(options, &name, &value).map_err(|error| {
            match error.is_instance_of::<PyTypeError>(value.py()) {
                true => PyTypeError::new_err(format!("open() cannot take {name}={value}: {error}")),
                false => error,
            }
        })?;
    }
    Ok(options)
}

fn set(options: Options, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Options> {
    Ok(match name {
        "memory" => options.memory_bytes(bytes(value)?),
        "memory_up_to" => options.memory_bytes_up_to(bytes(value)?),
        "workers" => options.workers(value.extract()?),
        "io" => options.io(interface(&value.extract::<String>()?)?),
        "durability" => options.durability(durability(&value.extract::<String>()?)?),
        "create" => options.create(value.extract()?),
        "read_only" => options.read_only(value.extract()?),
        "beside_writer" => options.beside_writer(value.extract()?),
        "at_checkpoint" => options.at_checkpoint(value.extract()?),
        "format" => options.format(value.extract()?),
        "force" => options.force(value.extract()?),
        "buffered" => options.buffered(value.extract()?),
        "page_size" => options.page_size(bytes(value)? as usize),
        "stripe_unit" => options.stripe_unit_bytes(bytes(value)?),
        "depth" => options.depth(value.extract()?),
        "reads" => options.reads(value.extract()?),
        "encryption_key" => options.encryption_key(&encryption_key(value)?),
        "key_file" => {
            let key = EncryptionKey::from_file(value.extract::<PathBuf>()?);
            options.encryption_key(&key.map_err(raise)?)
        }
        "log" => options.log(value.extract()?),
        "log_device" => options.log_device(value.extract::<PathBuf>()?),
        "log_flushed" => options.log_flushed(value.extract()?),
        "checkpoint_bytes" => options.checkpoint_bytes(bytes(value)?),
        "checkpoint_every" => options.checkpoint_every(seconds(value)?),
        "readers_bytes_max" => options.readers_bytes_max(bytes(value)?),
        "versions_bytes_max" => options.versions_bytes_max(bytes(value)?),
        "history_bytes_max" => options.history_bytes_max(bytes(value)?),
        "transaction_bytes_max" => options.transaction_bytes_max(bytes(value)? as usize),
        "lock_timeout" => options.lock_timeout(seconds(value)?),
        "huge_pages" => options.huge_pages(value.extract()?),
        "prefault" => options.prefault(value.extract()?),
        "publish" => match value.extract::<bool>() {
            Ok(publish) => options.publish_beside(publish),
            Err(_) => options.publish(value.extract::<PathBuf>()?),
        },
        _ => return Err(PyTypeError::new_err(format!("open() has no option '{name}'"))),
    })
}

/// Returns a size: an integer of bytes, or text such as "64MiB".
fn bytes(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    match value.cast::<PyString>() {
        Ok(text) => qpair::unstable::block::parse_bytes(&text.extract::<String>()?)
            .map_err(|error| PyValueError::new_err(error.to_string())),
        Err(_) => value.extract(),
    }
}

/// Returns a key of 32 bytes. No error shows the value, nor is one of those that do.
fn encryption_key(value: &Bound<'_, PyAny>) -> PyResult<EncryptionKey> {
    let bytes = value.extract::<Vec<u8>>().ok().and_then(|bytes| bytes.try_into().ok());
    let wrong = || PyValueError::new_err("encryption_key is not an object of 32 bytes");
    bytes.map(EncryptionKey::from_bytes).ok_or_else(wrong)
}

pub(crate) fn compression(name: &str) -> PyResult<Compression> {
    name.parse().map_err(|_| {
        PyValueError::new_err(format!("compression is 'none', 'lz4' or 'zstd', not '{name}'"))
    })
}

fn interface(name: &str) -> PyResult<Interface> {
    name.parse()
        .map_err(|error: qpair::unstable::block::Error| PyValueError::new_err(error.to_string()))
}

fn seconds(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds: f64 = value.extract()?;
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{seconds} is not a time in seconds")))
}

fn durability(name: &str) -> PyResult<Durability> {
    Ok(match name {
        "sync" => Durability::Sync,
        "group" => Durability::Group,
        "async" => Durability::Async,
        _ => {
            let text = format!("durability is 'sync', 'group' or 'async', not '{name}'");
            return Err(PyValueError::new_err(text));
        }
    })
}

/// Returns the options of a transaction. Each keyword is the field of `qpair::TransactionOptions`
/// of its name.
pub(crate) fn of_transaction(given: Option<&Bound<'_, PyDict>>) -> PyResult<TransactionOptions> {
    let mut options = TransactionOptions::default();
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        if value.is_none() {
            continue;
        }
        match &*name {
            "isolation" => {
                options.isolation = match &*value.extract::<String>()? {
                    "snapshot" => Isolation::Snapshot,
                    "serializable" => Isolation::Serializable,
                    other => {
                        return Err(PyValueError::new_err(format!(
                            "isolation is 'snapshot' or 'serializable', not '{other}'"
                        )));
                    }
                }
            }
            "durability" => options.durability = durability(&value.extract::<String>()?)?,
            "read_only" => options.read_only = value.extract()?,
            "lock_timeout" => options.lock_timeout = Some(seconds(&value)?),
            "attempts_max" => options.attempts_max = value.extract()?,
            "write_set_bytes_max" => options.write_set_bytes_max = bytes(&value)? as usize,
            "name" => options.name = Some(value.extract()?),
            _ => {
                let text = format!("a transaction has no option '{name}'");
                return Err(PyTypeError::new_err(text));
            }
        }
    }
    Ok(options)
}
