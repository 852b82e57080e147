//! The large values of an open store: the page lists of those that have several runs of pages.

mod known;

pub(crate) use known::{KnownLists, Want};
