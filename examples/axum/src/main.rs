//! A key-value server over HTTP: a store of qpair in handlers of axum, on tokio's threads.
//!
//!     cargo run --release -- serve users.qpair 3000
//!     curl -X PUT --data 1815 http://127.0.0.1:3000/kv/ada
//!     curl http://127.0.0.1:3000/kv/ada
//!     cargo run --release -- measure /tmp/measured.qpair
//!
//! Ctrl-C lets requests end, and closes the store.

mod measure;
mod server;

use std::process::ExitCode;

/// What goes wrong beside the store: ports, signals, threads.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["serve", store, port] => match port.parse() {
            Ok(port) => server::serve(store, port),
            Err(error) => Err(format!("{port} is no port: {error}").into()),
        },
        ["measure", store] => measure::measure(store),
        _ => {
            eprintln!("usage: qpair-axum serve STORE PORT | qpair-axum measure STORE");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
