//! S2: the cost of the layers between a program and its drive.

pub(super) mod figure12;
pub(super) mod figure3;
pub(super) mod figure8;
pub(super) mod figure9;
pub(super) mod section5;
