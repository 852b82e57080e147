//! A client: a disk that a server exports.
