//! An ordered key-value service of three members over loopback, on openraft 0.10 and qpair, and a
//! trial of it: `trial` starts three processes, lets clients write and read while members are
//! killed by signal 9 and cut off from the others, and writes the history of all calls, which
//! `crates/openraft/check-history` judges.
//!
//! `kv trial --folder D [--seconds 20] [--clients 8] [--seed 1] [--fault F]`, or one member:
//! `kv member --id 1 --store FILE --listen ADDR --peers 2=ADDR,3=ADDR`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

mod clients;
mod frames;
mod member;
mod network;
mod proxy;
mod service;
mod trial;

use std::collections::HashMap;
use std::error::Error;

/// The errors of this program, which only says them.
type Failure = Box<dyn Error + Send + Sync>;

/// Options of the form `--name value`.
struct Words(HashMap<String, String>);

impl Words {
    fn new(words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut found = HashMap::new();
        let mut words = words;
        while let Some(word) = words.next() {
            let name =
                word.strip_prefix("--").ok_or_else(|| format!("{word:?} is not an option"))?;
            let value = words.next().ok_or_else(|| format!("--{name} has no value"))?;
            found.insert(name.to_owned(), value);
        }
        Ok(Self(found))
    }

    fn get(&self, name: &str) -> Result<&str, Failure> {
        Ok(self.0.get(name).map(String::as_str).ok_or_else(|| format!("--{name} is missing"))?)
    }

    fn number(&self, name: &str, default: u64) -> Result<u64, Failure> {
        Ok(self.0.get(name).map_or(Ok(default), |word| word.parse())?)
    }
}

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let words = Words::new(words)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match command.as_str() {
        "member" => runtime.block_on(member::run(&words)),
        "trial" => runtime.block_on(trial::run(&words)),
        _ => Err("usage: kv trial --folder D, or kv member --id N --store FILE --listen ADDR --peers N=ADDR,N=ADDR".into()),
    }
}
