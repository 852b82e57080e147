//! The levels of the log: one for all crates, and others for some of them.

use qpair_serve::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

const CRATES: [&str; 10] = [
    "qpair_drivers",
    "qpair_mpt3sas",
    "qpair_nbd",
    "qpair_nvme",
    "qpair_nvme_tcp",
    "qpair_scsi",
    "qpair_serve",
    "qpair_vfio_user",
    "qpair_vhost_user",
    "qpair_virtio_scsi",
];

/// Levels, written as in `info,qpair_nvme=debug`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    pub(crate) all: Level,
    of_crates: Vec<(&'static str, Level)>,
}

impl Default for Levels {
    fn default() -> Self {
        Self { all: Level::Notice, of_crates: Vec::new() }
    }
}

fn level(word: &str) -> Result<Level, String> {
    let word = if word.eq_ignore_ascii_case("warn") { "warning" } else { word };
    Level::named(word).ok_or_else(|| {
        format!("'{word}' is not a level: give error, warning, notice, info or debug")
    })
}

impl Levels {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut levels = Self::default();
        for part in text.split(',') {
            let Some((name, word)) = part.split_once('=') else {
                levels.all = level(part)?;
                continue;
            };
            let known = CRATES.into_iter().find(|known| *known == name);
            let known = known.ok_or_else(|| {
                format!("'{name}' is not a crate that logs: {} do", CRATES.join(", "))
            })?;
            levels.of_crates.push((known, level(word)?));
        }
        Ok(levels)
    }

    pub(super) fn filter(&self) -> Targets {
        let of_crates = self.of_crates.iter().map(|(name, level)| (*name, shown(*level)));
        Targets::new().with_default(shown(self.all)).with_targets(of_crates)
    }
}

/// Returns the filter of a level. NOTICE counts as INFO, because events have no level between INFO
/// and WARN.
fn shown(level: Level) -> LevelFilter {
    match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warning => LevelFilter::WARN,
        Level::Notice | Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_level_for_all_and_others_for_some() {
        let levels = Levels::parse("warn,qpair_nvme=debug,qpair_serve=ERROR").unwrap();
        assert_eq!(levels.all, Level::Warning);
        let filter = levels.filter();
        let shows = |name: &str, level| filter.would_enable(name, &level);
        assert!(shows("qpair_nvme::core", tracing::Level::DEBUG));
        assert!(shows("qpair_scsi::middle", tracing::Level::WARN));
        assert!(!shows("qpair_scsi::middle", tracing::Level::INFO));
        assert!(!shows("qpair_serve::rpc", tracing::Level::WARN));
        let some = Levels::parse("qpair_scsi=debug").unwrap();
        assert_eq!(some.all, Level::Notice);
        for wrong in ["", "loud", "info,", "qpair_nvm=debug", "qpair_nvme=", "qpair_nvme=loud"] {
            assert!(Levels::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// Checks that the list has all crates that log. A missing crate could not be given a level.
    #[test]
    fn all_crates_that_log_are_known() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut found = Vec::new();
        for entry in std::fs::read_dir(crates).unwrap() {
            let path = entry.unwrap().path();
            let Ok(manifest) = std::fs::read_to_string(path.join("Cargo.toml")) else { continue };
            let (_, after) = manifest.split_once("[dependencies]\n").unwrap_or_default();
            let own = after.split("\n[").next().unwrap_or_default();
            let name = path.file_name().unwrap().to_str().unwrap().replace('-', "_");
            if name != "cli" && own.contains("tracing.workspace") {
                found.push(format!("qpair_{name}"));
            }
        }
        found.sort();
        assert_eq!(found, CRATES);
    }
}
