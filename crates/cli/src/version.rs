//! The output of `qpair --version`.

/// Returns the version, commit, target and features of this build, one to a line.
pub(crate) fn long() -> String {
    let features = match qpair::unstable::FEATURES {
        [] => "none".to_owned(),
        features => features.join(" "),
    };
    format!(
        "{}\ncommit: {}\ntarget: {}\nfeatures: {features}",
        env!("CARGO_PKG_VERSION"),
        env!("QPAIR_COMMIT"),
        env!("QPAIR_TARGET"),
    )
}
