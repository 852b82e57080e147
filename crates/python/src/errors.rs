//! Errors of the engine as exceptions: a class for each kind, made in `qpair/_errors.py`.

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use qpair::{Error, ErrorKind};

/// `qpair._errors.make(kind, message, context, hint, remedy)`.
static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static CONFLICT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn of_module<'py>(
    py: Python<'py>,
    cell: &PyOnceLock<Py<PyAny>>,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let found =
        cell.get_or_try_init(py, || py.import("qpair._errors")?.getattr(name).map(Bound::unbind));
    Ok(found?.bind(py).clone())
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let kind = format!("{:?}", error.kind());
    let remedy = error.remedy().map(|remedy| format!("{remedy:?}"));
    let parts = (kind, error.to_string(), error.context(), error.way_out(), remedy);
    Ok(PyErr::from_value(of_module(py, &MAKE, "make")?.call1(parts)?))
}

/// Returns an error as an exception of the class of its kind.
#[cold]
pub(crate) fn raise(error: Error) -> PyErr {
    Python::attach(|py| {
        let made = exception(py, &error);
        made.unwrap_or_else(|_| PyRuntimeError::new_err(error.to_string()))
    })
}

/// Returns the error that an engine's closure ends with after an exception: a conflict stays a
/// conflict, so that the transaction runs again.
pub(crate) fn as_error(py: Python<'_>, exception: &PyErr) -> Error {
    let conflict = of_module(py, &CONFLICT, "Conflict");
    if conflict.is_ok_and(|conflict| exception.matches(py, conflict).unwrap_or(false)) {
        let context = exception.value(py).getattr(intern!(py, "context"));
        let context = context.and_then(|context| context.extract::<String>());
        return Error::new(ErrorKind::Conflict, context.unwrap_or_default());
    }
    Error::new(ErrorKind::Interrupted, "a Python function failed")
}
