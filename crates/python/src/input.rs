//! Keys, values and ranges from Python.

use std::ops::{Bound as KeyBound, Deref};

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString};
use qpair::KeyBounds;

/// The bytes of a key or value: those of a `bytes` object itself, or a copy of what another object
/// gives by the buffer protocol, since its owner may change it meanwhile.
pub(crate) enum Input<'a> {
    Borrowed(&'a [u8]),
    Copied(Vec<u8>),
}

impl Deref for Input<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Input::Borrowed(bytes) => bytes,
            Input::Copied(bytes) => bytes,
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Input<'a> {
    type Error = PyErr;

    #[inline]
    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match <&'a [u8]>::extract(object) {
            Ok(bytes) => Ok(Input::Borrowed(bytes)),
            Err(_) => copied(&object).map(Input::Copied),
        }
    }
}

/// Copies an object that has the buffer protocol. Its calls are not in the limited interface of
/// Python 3.10, and so a `memoryview` makes them.
#[cold]
fn copied(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    static VIEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    let view = VIEW
        .get_or_try_init(py, || py.import("builtins")?.getattr("memoryview").map(Bound::unbind))?;
    let given =
        view.bind(py).call1((object,)).and_then(|view| view.call_method0(intern!(py, "tobytes")));
    match given {
        Ok(bytes) => Ok(bytes.cast::<PyBytes>()?.as_bytes().to_vec()),
        Err(_) => {
            let hint = match object.is_instance_of::<PyString>() {
                true => "; encode the text first: text.encode()",
                false => "",
            };
            let kind = object.get_type();
            Err(PyTypeError::new_err(format!(
                "a key or value must be bytes or have the buffer protocol, not {}{hint}",
                kind.name()?
            )))
        }
    }
}

/// The first and last key of a range.
#[derive(Clone)]
pub(crate) struct Bounds {
    pub(crate) from: KeyBound<Vec<u8>>,
    pub(crate) to: KeyBound<Vec<u8>>,
}

impl Bounds {
    pub(crate) fn all() -> Self {
        Self { from: KeyBound::Unbounded, to: KeyBound::Unbounded }
    }

    pub(crate) fn between(start: Option<Input<'_>>, stop: Option<Input<'_>>) -> Self {
        let own = |key: Input<'_>| key.to_vec();
        Self {
            from: start.map(own).map_or(KeyBound::Unbounded, KeyBound::Included),
            to: stop.map(own).map_or(KeyBound::Unbounded, KeyBound::Excluded),
        }
    }

    pub(crate) fn of_prefix(prefix: &[u8]) -> Self {
        let prefix = qpair::Prefix(prefix);
        let (from, to) = prefix.key_bounds();
        Self { from: from.map(<[u8]>::to_vec), to }
    }

    pub(crate) fn has(&self, key: &[u8]) -> bool {
        let from = match &self.from {
            KeyBound::Included(from) => key >= &from[..],
            KeyBound::Excluded(from) => key > &from[..],
            KeyBound::Unbounded => true,
        };
        let to = match &self.to {
            KeyBound::Included(to) => key <= &to[..],
            KeyBound::Excluded(to) => key < &to[..],
            KeyBound::Unbounded => true,
        };
        from && to
    }

    /// Leaves out the keys up to this one, from the end at which an iteration begins.
    pub(crate) fn go_behind(&mut self, key: &[u8], reversed: bool) {
        let end = if reversed { &mut self.to } else { &mut self.from };
        *end = KeyBound::Excluded(key.to_vec());
    }

    /// Whether no key is in the range. The engine refuses a range that ends before it begins; in
    /// Python, as for `range` and slices, such a range is empty.
    pub(crate) fn is_empty(&self) -> bool {
        match (&self.from, &self.to) {
            (
                KeyBound::Included(from) | KeyBound::Excluded(from),
                KeyBound::Included(to) | KeyBound::Excluded(to),
            ) => from > to,
            _ => false,
        }
    }
}

impl KeyBounds for Bounds {
    fn key_bounds(&self) -> (KeyBound<&[u8]>, KeyBound<Vec<u8>>) {
        (self.from.as_ref().map(Vec::as_slice), self.to.clone())
    }
}
