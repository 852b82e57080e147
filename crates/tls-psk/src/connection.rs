//! A connection: the state of s2n-tls, and the bytes before and after it.
//!
//! s2n-tls calls [`receive`] and [`send`] for bytes, with a pointer to an [`Io`]. That is sound:
//! - the `Io` is allocated by `Connection::new`, and freed by `Connection::drop` after s2n-tls has
//!   freed its own state, so the pointer is valid whenever s2n-tls can call;
//! - nothing but the two functions and short borrows in methods that have `&mut Connection`, or
//!   `&Connection` for reading, reach the `Io`; s2n-tls calls only inside such a method, while none
//!   of these borrows lives;
//! - the input is a slice that the caller of [`Connection::open`] lends: [`Lent`] puts its pointer
//!   into the `Io`, and takes it out again before the method returns or unwinds;
//! - s2n-tls has no threads, and its connections may be moved to other threads; the `Io` is moved
//!   with the connection.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::{self, NonNull};
use std::task::Poll;

use errno::{Errno, set_errno};
use s2n_tls::connection::Connection as State;
use s2n_tls::enums::Version;

/// The most bytes of data in a record.
const DATA_BYTES_MAX: usize = 16 << 10;
/// No data is taken while so many bytes of output wait.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// EAGAIN of Linux.
const AGAIN: Errno = Errno(11);

/// The bytes that s2n-tls reads and writes.
#[derive(Debug)]
struct Io {
    input: *const u8,
    input_bytes: usize,
    /// The number of bytes that s2n-tls asked for when there were none.
    wanted_bytes: usize,
    output: Vec<u8>,
}

/// Gives s2n-tls input.
///
/// # Safety
/// `context` is the connection's `Io`; `into` has room for `len` bytes.
unsafe extern "C" fn receive(context: *mut c_void, into: *mut u8, len: u32) -> c_int {
    // SAFETY: the `Io` lives, and nobody else borrows it now (see the head of the file).
    let io = unsafe { &mut *context.cast::<Io>() };
    let count = io.input_bytes.min(len as usize).min(c_int::MAX as usize);
    if count == 0 {
        io.wanted_bytes = len as usize;
        set_errno(AGAIN);
        return -1;
    }
    // SAFETY: `Lent` has put a live slice of `input_bytes` bytes there, and s2n-tls gives room for
    // `len`. They are different allocations: the slice is the caller's, `into` is s2n-tls's.
    unsafe {
        ptr::copy_nonoverlapping(io.input, into, count);
        io.input = io.input.add(count);
    }
    io.input_bytes -= count;
    count as c_int
}

/// Takes output of s2n-tls.
///
/// # Safety
/// `context` is the connection's `Io`; `from` has `len` bytes.
unsafe extern "C" fn send(context: *mut c_void, from: *const u8, len: u32) -> c_int {
    let count = (len as usize).min(c_int::MAX as usize);
    // SAFETY: the `Io` lives, and nobody else borrows it now (see the head of the file); s2n-tls
    // gives `len` bytes that it has written.
    unsafe {
        let bytes = std::slice::from_raw_parts(from, count);
        (*context.cast::<Io>()).output.extend_from_slice(bytes);
    }
    count as c_int
}

/// Input that s2n-tls may read as long as this lives.
struct Lent<'a, 'b> {
    io: NonNull<Io>,
    records: &'a mut &'b [u8],
}

impl<'a, 'b> Lent<'a, 'b> {
    fn new(io: NonNull<Io>, records: &'a mut &'b [u8]) -> Self {
        // SAFETY: only methods of a connection make this, with their own `Io`.
        let it = unsafe { &mut *io.as_ptr() };
        (it.input, it.input_bytes) = (records.as_ptr(), records.len());
        Self { io, records }
    }
}

impl Drop for Lent<'_, '_> {
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        let io = unsafe { &mut *self.io.as_ptr() };
        let taken = self.records.len() - io.input_bytes;
        (io.input, io.input_bytes) = (ptr::null(), 0);
        *self.records = &self.records[taken..];
    }
}

/// The result of [`Connection::open`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The bytes of data.
    pub filled: usize,
    /// Whether the peer has said that it sends no more.
    pub is_end: bool,
}

/// The TLS of a connection. At most 64 KiB of output wait here, and one record of input.
pub struct Connection {
    /// Freed before `io`; `None` only while this is dropped.
    state: Option<Box<State>>,
    io: NonNull<Io>,
    identity: Option<Vec<u8>>,
}

// SAFETY: `State` can be sent, and the `Io` belongs to this connection alone.
unsafe impl Send for Connection {}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

pub(crate) fn broken(error: &s2n_tls::error::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS failed: {}", error.message()))
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "TLS has ended")
}

impl Connection {
    pub(crate) fn new(mut state: State) -> io::Result<Self> {
        let io = Io { input: ptr::null(), input_bytes: 0, wanted_bytes: 0, output: Vec::new() };
        let io = NonNull::from(Box::leak(Box::new(io)));
        let context = io.as_ptr().cast();
        let set = |state: &mut State| -> Result<(), s2n_tls::error::Error> {
            state.set_receive_callback(Some(receive))?;
            state.set_send_callback(Some(send))?;
            // SAFETY: the context lives until after the connection (see the head of the file).
            unsafe {
                state.set_receive_context(context)?;
                state.set_send_context(context)?;
            }
            Ok(())
        };
        let result = set(&mut state);
        let it = Self { state: Some(Box::new(state)), io, identity: None };
        result.map_err(|error| broken(&error))?;
        Ok(it)
    }

    fn state(&mut self) -> io::Result<&mut State> {
        self.state.as_deref_mut().ok_or_else(gone)
    }

    fn io(&self) -> &Io {
        // SAFETY: s2n-tls does not run while this borrow of the connection lives.
        unsafe { self.io.as_ref() }
    }

    /// Whether the handshake has not ended.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.identity.is_none()
    }

    /// Returns the identity of the key that both ends use, after the handshake.
    #[must_use]
    pub fn identity(&self) -> Option<&[u8]> {
        self.identity.as_deref()
    }

    /// Takes records, carries the handshake on, and deciphers data. Records are left over only if
    /// `into` is full.
    ///
    /// # Errors
    /// `InvalidData` if the handshake fails or a record is not genuine. The connection cannot be
    /// used any more.
    pub fn open(&mut self, records: &mut &[u8], into: &mut [u8]) -> io::Result<Opened> {
        let _lent = Lent::new(self.io, records);
        if self.is_handshaking() {
            match self.state()?.poll_negotiate() {
                Poll::Pending => return Ok(Opened::default()),
                Poll::Ready(Err(error)) => return Err(broken(&error)),
                Poll::Ready(Ok(_)) => self.identity = Some(self.negotiated()?),
            }
        }
        let mut opened = Opened::default();
        while opened.filled < into.len() {
            match self.state()?.poll_recv(&mut into[opened.filled..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => {
                    opened.is_end = true;
                    break;
                }
                Poll::Ready(Ok(count)) => opened.filled += count,
                Poll::Ready(Err(error)) => return Err(broken(&error)),
            }
        }
        Ok(opened)
    }

    /// Returns the identity of the key, if the handshake was made with one.
    fn negotiated(&mut self) -> io::Result<Vec<u8>> {
        let state = self.state()?;
        let read = |state: &State| -> Result<_, s2n_tls::error::Error> {
            let mut identity = vec![0; state.negotiated_psk_identity_length()?];
            if !identity.is_empty() {
                state.negotiated_psk_identity(&mut identity)?;
            }
            Ok((identity, state.actual_protocol_version()?))
        };
        match read(state).map_err(|error| broken(&error))? {
            (identity, Version::TLS13) if !identity.is_empty() => Ok(identity),
            _ => {
                let what = "TLS failed: the peer has none of the keys";
                Err(io::Error::new(io::ErrorKind::InvalidData, what))
            }
        }
    }

    /// Enciphers data into output. Returns the number of bytes, which is 0 while much output waits.
    ///
    /// # Errors
    /// `InvalidData` if the connection has failed; `WouldBlock` before the end of the handshake.
    pub fn seal(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.is_handshaking() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut taken = 0;
        while taken < data.len() && self.io().output.len() < OUTPUT_BYTES_MAX {
            let len = (data.len() - taken).min(DATA_BYTES_MAX);
            match self.state()?.poll_send(&data[taken..taken + len]) {
                Poll::Ready(Ok(count)) => taken += count,
                Poll::Ready(Err(error)) => return Err(broken(&error)),
                Poll::Pending => break,
            }
        }
        Ok(taken)
    }

    /// Tells the peer that no more data follows.
    pub fn close(&mut self) {
        if let Ok(state) = self.state() {
            // The connection ends in any case.
            let _ = state.poll_shutdown_send();
        }
    }

    /// Returns the records for the peer.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.io().output
    }

    /// Forgets the first bytes of the output.
    pub fn sent(&mut self, count: usize) {
        // SAFETY: s2n-tls does not run while this borrow of the connection lives.
        let io = unsafe { self.io.as_mut() };
        io.output.drain(..count.min(io.output.len()));
        if io.output.is_empty() && io.output.capacity() > OUTPUT_BYTES_MAX / 4 {
            io.output = Vec::new();
        }
    }

    /// Returns the number of bytes of input that the last call of [`Connection::open`] missed.
    /// Somebody who reads no more than these has no record left over.
    #[must_use]
    pub fn wanted_bytes(&self) -> usize {
        self.io().wanted_bytes
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.state = None;
        // SAFETY: `new` has leaked the box, and s2n-tls, which had the pointer too, is gone.
        drop(unsafe { Box::from_raw(self.io.as_ptr()) });
    }
}
