//! The handlers.

use std::net::Ipv4Addr;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use qpair::{ErrorKind, Options, Table};
use tokio::net::TcpListener;

use crate::Outcome;

/// An error of the store as an answer: what a client can do about it decides the status.
pub(crate) struct Failure(qpair::Error);

impl From<qpair::Error> for Failure {
    fn from(error: qpair::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self.0.kind() {
            ErrorKind::Invalid | ErrorKind::KeyTooLong => StatusCode::BAD_REQUEST,
            ErrorKind::ValueTooLong | ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Conflict | ErrorKind::TimedOut | ErrorKind::Closed => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            ErrorKind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, format!("{}\n", self.0)).into_response()
    }
}

/// A value, or 404.
fn found(value: Option<Vec<u8>>) -> Response {
    value.map_or_else(|| StatusCode::NOT_FOUND.into_response(), IntoResponse::into_response)
}

/// The future waits for the drive; no thread of tokio does.
pub(crate) async fn read(
    State(table): State<Table>,
    Path(key): Path<String>,
) -> Result<Response, Failure> {
    Ok(found(table.get_async(key.as_bytes()).await?))
}

/// The same by a task on the store's workers, to be compared: worth it where a request makes many
/// calls.
pub(crate) async fn read_spawned(
    State((store, table)): State<(qpair::Store, Table)>,
    Path(key): Path<String>,
) -> Result<Response, Failure> {
    let task = table.task();
    let read = store.spawn(move || async move { task.get(key.as_bytes()).await });
    Ok(found(read.await??))
}

/// 201 if there was none of this key, 204 if it was replaced. When the answer comes the record
/// survives power loss.
async fn write(
    State(table): State<Table>,
    Path(key): Path<String>,
    value: Bytes,
) -> Result<StatusCode, Failure> {
    let replaced = table.put_async(key.as_bytes(), &value).await?;
    Ok(if replaced { StatusCode::NO_CONTENT } else { StatusCode::CREATED })
}

async fn remove(
    State(table): State<Table>,
    Path(key): Path<String>,
) -> Result<StatusCode, Failure> {
    let removed = table.delete_async(key.as_bytes()).await?;
    Ok(if removed { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND })
}

/// All calls over one table.
pub(crate) fn routes(table: Table) -> Router {
    Router::new().route("/kv/{key}", get(read).put(write).delete(remove)).with_state(table)
}

/// Serves until Ctrl-C.
pub(crate) fn serve(path: &str, port: u16) -> Outcome {
    let store = Options::new(path).open()?;
    let routes = routes(store.table("kv")?);
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        eprintln!("serving {path} at http://{}/kv/KEY", listener.local_addr()?);
        let stop = async {
            // Without the signal it goes on until it is killed; the log has what was answered.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        axum::serve(listener, routes).with_graceful_shutdown(stop).await
    })?;
    // The handlers' tables are gone with the runtime: after this there is nothing to recover.
    store.close()?;
    Ok(())
}
