//! Large values of an open store: where those are that are in several runs of pages.

mod known;

pub(crate) use known::{KnownLists, Want};
