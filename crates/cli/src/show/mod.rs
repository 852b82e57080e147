//! Output for people and programs.

pub(crate) mod adaptation;
pub(crate) mod bar;
pub(crate) mod controllers;
pub(crate) mod live;
pub(crate) mod output;
pub(crate) mod paint;
pub(crate) mod text;
pub(crate) mod toml;
