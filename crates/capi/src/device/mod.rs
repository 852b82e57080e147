//! Block devices.
//!
//! A channel of a device belongs to one thread, and C's threads come and go. So each open device
//! has a thread of its own, which submits requests and completes them. Data passes through memory
//! of the library, registered with the device: it is copied in on the thread of the call, and out
//! on the thread that takes the completion.

mod serving;

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use qpair::unstable::block::{BlockDevice, DeviceSpec, Request};
use qpair::{Drivers, Error, Mode};
use qpair_kernel::{FileOptions, Interface};

use crate::call::{
    Versioned, bytes, call, needed, read_sized_or_none, set, size_at, text, write_sized,
};
use crate::completion::{
    QPAIR_OPERATION_DEVICE_DISCARD, QPAIR_OPERATION_DEVICE_FLUSH, QPAIR_OPERATION_DEVICE_READ,
    QPAIR_OPERATION_DEVICE_WRITE, QPAIR_OPERATION_DEVICE_WRITE_ZEROES, Target,
};
use crate::error::{Failure, qpair_error};
use crate::handle::Handles;
use crate::queue::qpair_queue;
use serving::{Device, start};

const DEPTH: u32 = 64;
const TRANSFER_BYTES: u32 = 128 << 10;

static DEVICES: Handles<Device> = Handles::new(11, "qpair_device");

/// An open block device. Any number of threads may use it at once.
pub struct qpair_device {
    _opaque: [u8; 0],
}

/// The options of a device. Set `size` to `sizeof(struct qpair_device_options)` and all other
/// fields to 0, and then what should differ from the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qpair_device_options {
    /// The size of this struct in bytes.
    pub size: usize,
    /// 1 to open the device for reading only. Default: 0.
    pub read_only: u32,
    /// 1 to use the page cache of the kernel. Default: 0, direct I/O.
    pub buffered: u32,
    /// The number of requests that may be in flight at once; 0 for 64, the default.
    pub depth: u32,
    /// The size of the largest request in bytes, a power of two; 0 for 128 KiB, the default. The
    /// device takes up to `depth` times as much memory.
    pub transfer_bytes_max: u32,
    /// The interface to the kernel and its mode, as the option "io" of a store; null for "auto".
    pub io: *const c_char,
}

// SAFETY: `repr(C)`, begins with `size`, and has integers and a pointer only.
unsafe impl Versioned for qpair_device_options {
    const SIZE_MIN: usize = 32;
    const NAME: &'static str = "qpair_device_options";
}

/// The properties of a device. Set `size` to `sizeof(struct qpair_device_info)`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qpair_device_info {
    /// The size of this struct in bytes.
    pub size: usize,
    /// The size of the device in bytes.
    pub size_bytes: u64,
    /// The unit of offsets and lengths in bytes.
    pub logical_block_bytes: u32,
    /// The size of the largest read or write in bytes.
    pub transfer_bytes_max: u32,
    /// The number of requests that may be in flight at once.
    pub depth: u32,
    /// 1 if the device refuses writes.
    pub read_only: u32,
    /// 1 if completed writes need a flush to survive power loss.
    pub volatile_write_cache: u32,
    /// 1 if the device takes discards.
    pub discards: u32,
    /// 1 if the device takes requests to write zeroes.
    pub writes_zeroes: u32,
    /// 0; for later versions.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with `size`, and has integers only.
unsafe impl Versioned for qpair_device_info {
    const SIZE_MIN: usize = 48;
    const NAME: &'static str = "qpair_device_info";
}

/// A flag of `qpair_device_write`: the data survives power loss when the write completes (FUA).
pub const QPAIR_WRITE_DURABLE: u32 = 1;

/// Returns the drivers that all stores and devices of the process share, so that they can be on one
/// controller.
pub(crate) fn drivers() -> &'static Drivers {
    static DRIVERS: OnceLock<Drivers> = OnceLock::new();
    DRIVERS.get_or_init(Drivers::new)
}

/// Opens a block device. `specifier` is a path or a specifier, as for `qpair_open`. `options` may
/// be null. Close it with `qpair_device_close`.
///
/// Errors: `QPAIR_NOT_FOUND`, `QPAIR_DENIED`, `QPAIR_BUSY`, `QPAIR_INVALID`, `QPAIR_UNSUPPORTED`,
/// `QPAIR_LIMIT`, `QPAIR_NO_MEMORY`, `QPAIR_IO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_device_open(
    specifier: *const c_char,
    options: *const qpair_device_options,
    device: *mut *mut qpair_device,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the text and the options, rule 2 for the results.
    unsafe {
        call(error, || {
            needed(device, "device")?;
            let specifier = text(specifier, "specifier")?;
            let given = read_sized_or_none(options)?;
            let io = match given.map(|given| given.io) {
                Some(io) if !io.is_null() => text(io, "io")?,
                _ => "auto",
            };
            let mode: Mode = io.parse().map_err(|error| Error::block(error, "opening a device"))?;
            let of = |field: fn(&qpair_device_options) -> u32| given.as_ref().map_or(0, field);
            let files = |path: &Path| -> qpair::unstable::block::Result<Arc<dyn BlockDevice>> {
                let options = FileOptions {
                    read_only: of(|given| given.read_only) != 0,
                    direct: of(|given| given.buffered) == 0,
                    ..FileOptions::new(path)
                };
                Ok(Arc::new(qpair_kernel::open(&options, mode)?))
            };
            let lent = |spec: DeviceSpec| match mode.interface {
                Interface::Auto => drivers().find_lent(&spec).map(|(spec, _)| spec),
                _ => Ok(spec),
            };
            let opened = DeviceSpec::parse(specifier)
                .and_then(lent)
                .and_then(|spec| spec.open(&drivers().opening(files)))
                .map_err(|error| Error::block(error, "opening a device"))?;
            let or = |given: u32, usual| if given == 0 { usual } else { given };
            let depth = or(of(|given| given.depth), DEPTH.min(opened.info().depth_max));
            let transfer_bytes = or(of(|given| given.transfer_bytes_max), TRANSFER_BYTES);
            set(device, DEVICES.insert(start(opened, depth, transfer_bytes)?)?);
            Ok(())
        })
    }
}

/// Closes a device, after its requests in flight have completed. Their completions stay in their
/// queues. Does nothing if `device` is null.
///
/// Errors: `QPAIR_MISUSE` if it was closed before; `QPAIR_BUSY` if another thread is in a call with
/// it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_device_close(
    device: *mut qpair_device,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || match device.is_null() {
            true => Ok(()),
            false => DEVICES.remove(device, |_| Ok(())).map(drop),
        })
    }
}

/// Stores the properties of a device. Set the `size` of `*info`.
///
/// Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_device_get_info(
    device: *mut qpair_device,
    info: *mut qpair_device_info,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rules 1 and 2 for the results.
    unsafe {
        call(error, || {
            let size = size_at(info)?;
            DEVICES.with(device, |device| {
                let its = device.device.info();
                let block_size = u32::try_from(device.arena.block_size()).unwrap_or(u32::MAX);
                let told = qpair_device_info {
                    size,
                    size_bytes: device.device.size_bytes(),
                    logical_block_bytes: its.logical_block_bytes,
                    transfer_bytes_max: its.transfer_bytes_max.min(block_size),
                    depth: device.depth,
                    read_only: its.read_only.into(),
                    volatile_write_cache: its.volatile_write_cache.into(),
                    discards: its.discards.into(),
                    writes_zeroes: its.writes_zeroes.into(),
                    reserved: 0,
                };
                write_sized(info, size, &told);
                Ok(())
            })
        })
    }
}

/// Begins to read `len` bytes at `offset` into `buffer`, which is filled when the completion is
/// taken, and must be there until then, or until the queue is closed. Offset and length are
/// multiples of the logical block.
///
/// Errors: `QPAIR_BUSY` if the depth is used up: take completions first; `QPAIR_INVALID` if the
/// request is too long; in the completion `QPAIR_INVALID`, `QPAIR_IO` and the like.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_device_read(
    device: *mut qpair_device,
    queue: *mut qpair_queue,
    offset: u64,
    buffer: *mut c_void,
    len: u32,
    user_data: u64,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`; the buffer is used by rule 4.
    unsafe {
        call(error, || {
            needed(buffer, "buffer")?;
            DEVICES.with(device, |device| {
                let memory = device.buffer(len as usize)?;
                let target = Some(Target { data: buffer, len: len as usize });
                let request = Request::read(offset, len, memory, 0);
                device.post(queue, user_data, QPAIR_OPERATION_DEVICE_READ, request, target)
            })
        })
    }
}

/// Begins to write `len` bytes of `data` at `offset`. The data is copied before the call returns.
/// `flags` is 0 or `QPAIR_WRITE_DURABLE`.
///
/// Errors: as `qpair_device_read`; in the completion also `QPAIR_READ_ONLY` and `QPAIR_NO_SPACE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_device_write(
    device: *mut qpair_device,
    queue: *mut qpair_queue,
    offset: u64,
    data: *const c_void,
    len: u32,
    flags: u32,
    user_data: u64,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the data, rule 2 for `error`.
    unsafe {
        call(error, || {
            let data = bytes(data, len as usize, "data")?;
            if flags & !QPAIR_WRITE_DURABLE != 0 {
                return Err(Failure::invalid(format!("the write has unknown flags: {flags:#x}")));
            }
            DEVICES.with(device, |device| {
                let mut memory = device.buffer(data.len())?;
                memory.copy_from(0, data);
                let mut request = Request::write(offset, len, memory, 0);
                request.force_unit_access = flags & QPAIR_WRITE_DURABLE != 0;
                device.post(queue, user_data, QPAIR_OPERATION_DEVICE_WRITE, request, None)
            })
        })
    }
}

/// Begins to make every write that has completed before this call survive power loss.
///
/// Errors: as `qpair_device_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_device_flush(
    device: *mut qpair_device,
    queue: *mut qpair_queue,
    user_data: u64,
    error: *mut *mut qpair_error,
) -> c_int {
    let request = Request::flush(0);
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || {
            DEVICES.with(device, |device| {
                device.post(queue, user_data, QPAIR_OPERATION_DEVICE_FLUSH, request, None)
            })
        })
    }
}

/// Begins to tell the device that `len` bytes at `offset` are no longer needed. Their content is
/// undefined afterwards.
///
/// Errors: as `qpair_device_write`; in the completion also `QPAIR_UNSUPPORTED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_device_discard(
    device: *mut qpair_device,
    queue: *mut qpair_queue,
    offset: u64,
    len: u32,
    user_data: u64,
    error: *mut *mut qpair_error,
) -> c_int {
    let request = Request::discard(offset, len, 0);
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || {
            DEVICES.with(device, |device| {
                device.post(queue, user_data, QPAIR_OPERATION_DEVICE_DISCARD, request, None)
            })
        })
    }
}

/// Begins to make `len` bytes at `offset` read as zeroes.
///
/// Errors: as `qpair_device_discard`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_device_write_zeroes(
    device: *mut qpair_device,
    queue: *mut qpair_queue,
    offset: u64,
    len: u32,
    user_data: u64,
    error: *mut *mut qpair_error,
) -> c_int {
    let request = Request::write_zeroes(offset, len, 0);
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || {
            DEVICES.with(device, |device| {
                let operation = QPAIR_OPERATION_DEVICE_WRITE_ZEROES;
                device.post(queue, user_data, operation, request, None)
            })
        })
    }
}

pub(crate) fn count() -> usize {
    DEVICES.count()
}
