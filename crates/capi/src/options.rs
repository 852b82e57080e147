//! The options that open a store: one table of all of them, which sets, checks and explains them.

use std::ffi::{CStr, c_char, c_int};
use std::time::Duration;

use qpair::unstable::block::parse_bytes;
use qpair::{Durability, EncryptionKey, Mode, Options};

use crate::call::{call, needed, set, text};
use crate::error::{Failure, qpair_error};
use crate::handle::Handles;

static OPTIONS: Handles<Vec<Given>> = Handles::new(3, "qpair_options");

/// Options that open a store. They belong to one thread at a time.
pub struct qpair_options {
    _opaque: [u8; 0],
}

/// A type of an option: "true" or "false".
pub const QPAIR_OPTION_BOOL: u32 = 1;
/// A type of an option: a whole number.
pub const QPAIR_OPTION_NUMBER: u32 = 2;
/// A type of an option: a number of bytes; in a text with a unit, such as "64MiB".
pub const QPAIR_OPTION_BYTES: u32 = 3;
/// A type of an option: text.
pub const QPAIR_OPTION_TEXT: u32 = 4;

/// An option of `qpair_open`, as `qpair_options_list` describes it. All texts are constant.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qpair_option {
    /// The size of this struct: the distance to the next one.
    pub size: usize,
    /// The name, for `qpair_options_set`.
    pub name: *const c_char,
    /// The type: `QPAIR_OPTION_BOOL` and so on. Each may be set as text too.
    pub option_type: u32,
    /// The value that holds if the option is not set, in words.
    pub default_value: *const c_char,
    /// The meaning, unit and range.
    pub help: *const c_char,
}

// SAFETY: all its pointers lead to constant texts.
unsafe impl Sync for qpair_option {}

/// A value in one of the forms in which C passes it.
#[derive(Clone)]
enum Value {
    Text(String),
    Number(u64),
    Bool(bool),
}

impl Value {
    fn flag(&self) -> Result<bool, Failure> {
        match self {
            Self::Bool(value) => Ok(*value),
            Self::Number(0) => Ok(false),
            Self::Number(1) => Ok(true),
            Self::Text(text) if text == "true" => Ok(true),
            Self::Text(text) if text == "false" => Ok(false),
            _ => Err(Failure::invalid("the value must be true or false")),
        }
    }

    fn number(&self) -> Result<u64, Failure> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => text
                .parse()
                .map_err(|_| Failure::invalid(format!("{text:?} is not a whole number"))),
            Self::Bool(_) => Err(Failure::invalid("the value must be a whole number")),
        }
    }

    fn bytes(&self) -> Result<u64, Failure> {
        match self {
            Self::Text(text) => parse_bytes(text)
                .map_err(|error| Failure::invalid(format!("{text:?} is not a size: {error}"))),
            _ => self.number(),
        }
    }

    fn text(&self) -> Result<&str, Failure> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err(Failure::invalid("the value must be text")),
        }
    }

    fn within<T: TryFrom<u64>>(&self) -> Result<T, Failure> {
        let number = self.number()?;
        T::try_from(number)
            .map_err(|_| Failure::invalid(format!("the number {number} is too large")))
    }
}

type Apply = fn(Options, &Value) -> Result<Options, Failure>;

/// An option that was set, and its value.
#[derive(Clone)]
pub(crate) struct Given {
    apply: Apply,
    value: Value,
}

const fn described(
    name: &'static CStr,
    option_type: u32,
    default_value: &'static CStr,
    help: &'static CStr,
) -> qpair_option {
    qpair_option {
        size: size_of::<qpair_option>(),
        name: name.as_ptr(),
        option_type,
        default_value: default_value.as_ptr(),
        help: help.as_ptr(),
    }
}

macro_rules! options {
    ($($name:literal $kind:ident $default:literal $help:literal => $apply:expr;)*) => {
        /// The options, in the order in which they are listed.
        static LIST: &[qpair_option] = &[$(described($name, $kind, $default, $help),)*];
        const NAMED: &[(&CStr, Apply)] = &[$(($name, $apply),)*];
    };
}

options! {
    c"memory" QPAIR_OPTION_BYTES c"256MiB, or less if the limits of the process leave less"
        c"Memory for pages. A size above the limits of the process is used as given."
        => |options, value| Ok(options.memory_bytes(value.bytes()?));
    c"memory_up_to" QPAIR_OPTION_BYTES c"256MiB"
        c"Memory for pages, or less if the limits of the process leave less."
        => |options, value| Ok(options.memory_bytes_up_to(value.bytes()?));
    c"huge_pages" QPAIR_OPTION_BOOL c"false"
        c"Take the memory for pages from reserved huge pages (vm.nr_hugepages), or fail."
        => |options, value| Ok(options.huge_pages(value.flag()?));
    c"prefault" QPAIR_OPTION_BOOL c"false"
        c"Take all memory for pages when the store is opened, not as it is used."
        => |options, value| Ok(options.prefault(value.flag()?));
    c"workers" QPAIR_OPTION_NUMBER c"0: as many as the cores that the process may use"
        c"Number of worker threads."
        => |options, value| Ok(options.workers(value.within()?));
    c"io" QPAIR_OPTION_TEXT c"auto"
        c"Interface to the kernel and its mode: auto, io_uring, libaio, posix, passthrough, with switches as in io_uring:poll."
        => |options, value| {
            let mode = value.text()?.parse::<Mode>();
            Ok(options.io(mode.map_err(|error| Failure::invalid(error.to_string()))?))
        };
    c"create" QPAIR_OPTION_BOOL c"true"
        c"Create missing files and a missing store."
        => |options, value| Ok(options.create(value.flag()?));
    c"read_only" QPAIR_OPTION_BOOL c"false"
        c"Open for reading only, and share the files with other readers. Beside a process that writes: as of the newest checkpoint."
        => |options, value| Ok(options.read_only(value.flag()?));
    c"beside_writer" QPAIR_OPTION_BOOL c"false"
        c"Open for reading only, as of the newest checkpoint, and keep no process from writing the store meanwhile."
        => |options, value| Ok(options.beside_writer(value.flag()?));
    c"format" QPAIR_OPTION_BOOL c"false"
        c"Create a new store on existing blank files or block devices."
        => |options, value| Ok(options.format(value.flag()?));
    c"force" QPAIR_OPTION_BOOL c"false"
        c"Let format overwrite devices that are not blank. Their content is lost."
        => |options, value| Ok(options.force(value.flag()?));
    c"page_size" QPAIR_OPTION_BYTES c"4096"
        c"Page size of a new store: a power of two from 512 to 65536 bytes."
        => |options, value| {
            let bytes = value.bytes()?;
            let bytes = usize::try_from(bytes);
            Ok(options.page_size(bytes.map_err(|_| Failure::invalid("the page size is too large"))?))
        };
    c"stripe_unit" QPAIR_OPTION_BYTES c"64KiB"
        c"Stripe unit of a new store: a multiple of the page size."
        => |options, value| Ok(options.stripe_unit_bytes(value.bytes()?));
    c"depth" QPAIR_OPTION_NUMBER c"128"
        c"Maximum number of requests that a worker has in flight."
        => |options, value| Ok(options.depth(value.within()?));
    c"reads" QPAIR_OPTION_NUMBER c"0: found by the worker"
        c"Maximum number of page reads that a worker has in flight."
        => |options, value| Ok(options.reads(value.within()?));
    c"encryption_key" QPAIR_OPTION_TEXT c"none"
        c"Key of an encrypted store: 64 hexadecimal digits. With a key a new store is encrypted."
        => |options, value| {
            let key = EncryptionKey::from_hex(value.text()?);
            let wrong = || Failure::invalid("the encryption key does not have 64 hexadecimal digits");
            Ok(options.encryption_key(&key.ok_or_else(wrong)?))
        };
    c"key_file" QPAIR_OPTION_TEXT c"none"
        c"File with the key of an encrypted store: 32 bytes, or 64 hexadecimal digits."
        => |options, value| Ok(options.encryption_key(&EncryptionKey::from_file(value.text()?)?));
    c"log_device" QPAIR_OPTION_TEXT c"where the log was before"
        c"Path or specifier of a device for the write-ahead log alone; none moves the log into the store."
        => |options, value| Ok(options.log_device(value.text()?));
    c"log" QPAIR_OPTION_BOOL c"true"
        c"Keep a write-ahead log. Without it a crash takes the store back to its last checkpoint."
        => |options, value| Ok(options.log(value.flag()?));
    c"durability" QPAIR_OPTION_TEXT c"sync"
        c"When changes outside transactions return: sync (they survive power loss), group (the same, in larger groups), async (at once)."
        => |options, value| Ok(options.durability(durability(value.text()?)?));
    c"log_flushed" QPAIR_OPTION_BOOL c"true"
        c"Flush each write of the log. Without it a power loss may take the last commits."
        => |options, value| Ok(options.log_flushed(value.flag()?));
    c"checkpoint" QPAIR_OPTION_BYTES c"256MiB"
        c"Bytes of log after which a checkpoint begins; bounds the time of a recovery."
        => |options, value| Ok(options.checkpoint_bytes(value.bytes()?));
    c"checkpoint_every_ms" QPAIR_OPTION_NUMBER c"none: checkpoints follow from the size of the log"
        c"Milliseconds after which changes are in a checkpoint, for readers in other processes."
        => |options, value| Ok(options.checkpoint_every(Duration::from_millis(value.number()?)));
    c"readers_max" QPAIR_OPTION_BYTES c"1GiB"
        c"Limit on device space for older checkpoints that other processes read. Beyond it the oldest is lost."
        => |options, value| Ok(options.readers_bytes_max(value.bytes()?));
    c"versions_max" QPAIR_OPTION_BYTES c"256MiB, or less if the limits of the process leave less"
        c"Limit on memory for older values, which snapshots and open transactions need."
        => |options, value| Ok(options.versions_bytes_max(value.bytes()?));
    c"history_max" QPAIR_OPTION_BYTES c"1GiB"
        c"Limit on device space for older values. Beyond both limits the oldest snapshot is lost."
        => |options, value| Ok(options.history_bytes_max(value.bytes()?));
    c"transaction_max" QPAIR_OPTION_BYTES c"64MiB, or less if the limits of the process leave less"
        c"Limit on the writes that a transaction gathers before its commit."
        => |options, value| {
            let bytes = usize::try_from(value.bytes()?);
            let bytes = bytes.map_err(|_| Failure::invalid("the limit is too large"))?;
            Ok(options.transaction_bytes_max(bytes))
        };
    c"lock_timeout_ms" QPAIR_OPTION_NUMBER c"none: a change waits as long as it takes"
        c"Milliseconds that a change waits for a row that a transaction has locked."
        => |options, value| Ok(options.lock_timeout(Duration::from_millis(value.number()?)));
    c"at_checkpoint" QPAIR_OPTION_BOOL c"false"
        c"Open for reading only, as of the last checkpoint."
        => |options, value| Ok(options.at_checkpoint(value.flag()?));
    c"buffered" QPAIR_OPTION_BOOL c"false"
        c"Use the page cache, for file systems without direct I/O (O_DIRECT)."
        => |options, value| Ok(options.buffered(value.flag()?));
    c"publish" QPAIR_OPTION_TEXT c"not published"
        c"Path of a Unix socket at which `qpair top` finds the store's statistics."
        => |options, value| Ok(options.publish(value.text()?));
    c"publish_beside" QPAIR_OPTION_BOOL c"false"
        c"Publish the store at a socket beside its first member."
        => |options, value| Ok(options.publish_beside(value.flag()?));
}

pub(crate) fn durability(name: &str) -> Result<Durability, Failure> {
    match name {
        "sync" => Ok(Durability::Sync),
        "group" => Ok(Durability::Group),
        "async" => Ok(Durability::Async),
        _ => {
            Err(Failure::invalid(format!("{name:?} is no durability: choose sync, group or async")))
        }
    }
}

/// Returns the options of a store on a path or specifier. `options` may be null.
pub(crate) fn of(specifier: &str, options: *const qpair_options) -> Result<Options, Failure> {
    let mut made = Options::new(specifier).drivers(crate::device::drivers());
    if options.is_null() {
        return Ok(made);
    }
    OPTIONS.with(options.cast_mut(), |given| {
        for given in given {
            made = (given.apply)(made, &given.value)?;
        }
        Ok(made)
    })
}

fn give(options: *mut qpair_options, name: &str, value: Value) -> Result<(), Failure> {
    let named = NAMED.iter().find(|(its, _)| its.to_bytes() == name.as_bytes());
    let (_, apply) = named.ok_or_else(|| {
        Failure::invalid(format!("there is no option {name:?}; qpair_options_list has them all"))
    })?;
    OPTIONS.with_mut(options, |given| {
        // A wrong value is refused here, and not when the store is opened.
        let checked = apply(Options::new("none"), &value).map(drop);
        checked.map_err(|failure| match failure {
            Failure::Store(error) => {
                Failure::invalid(format!("the option {name} was not set: {}", error.context()))
            }
            other => other,
        })?;
        given.push(Given { apply: *apply, value });
        Ok(())
    })
}

/// Stores the table of all options of `qpair_open`: `*options` is the first of `*count` structs,
/// which lie `(*options)->size` bytes apart and are constant.
///
/// Errors: `QPAIR_MISUSE` if `options` or `count` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_options_list(
    options: *mut *const qpair_option,
    count: *mut usize,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for all three.
    unsafe {
        call(error, || {
            needed(options, "options")?;
            needed(count, "count")?;
            set(options, LIST.as_ptr());
            set(count, LIST.len());
            Ok(())
        })
    }
}

/// Creates options without any set. Free them with `qpair_options_free`; `qpair_open` copies them.
///
/// Errors: `QPAIR_LIMIT` if there are too many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_options_new(
    options: *mut *mut qpair_options,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for both.
    unsafe {
        call(error, || {
            needed(options, "options")?;
            set(options, OPTIONS.insert(Vec::new())?);
            Ok(())
        })
    }
}

/// Sets an option by its name, from text: "64MiB" for bytes, "true" or "false", a whole number, or
/// text. An option that is set twice has the later value.
///
/// Errors: `QPAIR_INVALID` if there is no such option, or the value is not one of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_options_set(
    options: *mut qpair_options,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the texts, rule 2 for `error`.
    unsafe {
        call(error, || {
            give(options, text(name, "name")?, Value::Text(text(value, "value")?.to_owned()))
        })
    }
}

/// Sets an option that is a number or a number of bytes.
///
/// Errors: as `qpair_options_set`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_options_set_number(
    options: *mut qpair_options,
    name: *const c_char,
    value: u64,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the name, rule 2 for `error`.
    unsafe { call(error, || give(options, text(name, "name")?, Value::Number(value))) }
}

/// Sets an option that is true or false.
///
/// Errors: as `qpair_options_set`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_options_set_bool(
    options: *mut qpair_options,
    name: *const c_char,
    value: bool,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the name, rule 2 for `error`.
    unsafe { call(error, || give(options, text(name, "name")?, Value::Bool(value))) }
}

/// Frees options. Does nothing if `options` is null.
///
/// Errors: `QPAIR_MISUSE` if they were freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_options_free(
    options: *mut qpair_options,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || match options.is_null() {
            true => Ok(()),
            false => OPTIONS.remove(options, |_| Ok(())).map(drop),
        })
    }
}

pub(crate) fn count() -> usize {
    OPTIONS.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each option takes a value of its type, as text and typed, and refuses one of another type.
    #[test]
    fn the_list_and_the_setters_agree() {
        for (option, (name, apply)) in LIST.iter().zip(NAMED) {
            let (typed, as_text, wrong) = match option.option_type {
                QPAIR_OPTION_BOOL => (Value::Bool(true), "false", "maybe"),
                QPAIR_OPTION_NUMBER => (Value::Number(1), "2", "-1"),
                QPAIR_OPTION_BYTES => (Value::Number(4096), "64KiB", "a page"),
                _ => (Value::Text("auto".into()), "auto", "\u{1}"),
            };
            let of = |value: Value| apply(Options::new("x"), &value).map(drop);
            // Those that take no name of an interface.
            if ![c"durability", c"encryption_key", c"key_file"].contains(name) {
                assert!(of(typed).is_ok(), "{name:?}");
                assert!(of(Value::Text(as_text.into())).is_ok(), "{name:?}");
            }
            let takes_any_text = [c"log_device", c"publish"].contains(name);
            assert_eq!(of(Value::Text(wrong.into())).is_ok(), takes_any_text, "{name:?}");
            if option.option_type == QPAIR_OPTION_TEXT {
                assert!(of(Value::Bool(true)).is_err(), "{name:?}");
            }
        }
        assert_eq!(LIST.len(), NAMED.len());
        assert!(durability("group").is_ok() && durability("auto").is_err());
    }
}
