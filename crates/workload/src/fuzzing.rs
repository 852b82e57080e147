//! Entry points for fuzzing the parsers of text that any program may have written. Not part of the
//! public interface.

use std::io;
use std::path::Path;

use crate::jobfile::{Outside, parse};
use crate::options::{Limits, settle};

/// Parses a log of requests. It must not panic, and the resulting requests must be valid.
pub fn read_iolog(bytes: &[u8]) {
    let Ok(log) = crate::iolog::parse(bytes, Path::new("fuzz.log")) else { return };
    for entry in &log.entries {
        assert!((entry.file as usize) < log.files.len(), "{entry:?}");
        let end = entry.offset_bytes.checked_add(entry.len_bytes.into());
        assert!(end.is_some() && entry.len_bytes <= 1 << 30, "{entry:?}");
    }
}

/// Parses and settles a job file. It must not panic. Included files contain the text itself.
pub fn read_job_file(text: &str) {
    let include = |path: &Path| match path.to_string_lossy().len() % 3 {
        0 => Err(io::Error::from(io::ErrorKind::NotFound)),
        _ => Ok(text
            .lines()
            .filter(|line| !line.trim_start().starts_with('['))
            .collect::<Vec<_>>()
            .join("\n")),
    };
    let environment = |name: &str| (name.len() < 3).then(|| format!("{}k", name.len()));
    let outside = Outside { include: &include, environment: &environment };
    let Ok(sections) = parse(text, Path::new("fuzz.fio"), &[], &[], &outside) else { return };
    let Ok(plan) = settle(&sections, Limits::default()) else { return };
    for (number, job) in plan.jobs.iter().enumerate() {
        assert!(job.depth > 0 && job.loops > 0 && !job.targets.is_empty(), "job {number}: {job:?}");
        assert!(
            job.block_sizes.iter().all(|sizes| sizes.min() > 0 && sizes.min() <= sizes.max()),
            "{job:?}"
        );
        assert!(job.mode.check().is_ok(), "{job:?}");
        assert!(!job.time_based || job.runtime.is_some(), "{job:?}");
    }
}
