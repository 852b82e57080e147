//! Creates and fills files before the measurement, so that all blocks that are read from a drive
//! have been written.

use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, Error, ErrorKind, Request, Result,
    WaitOptions,
};
use qpair_kernel::{FileOptions, Interface};
use rand::RngCore;

use crate::job::{Job, Verbs};
use crate::observer::{Live, Observer};

use super::offsets::generator;

/// Creates a file if it does not exist. Returns whether it was created.
pub(super) fn make(
    path: &Path,
    bytes: u64,
    sparse: bool,
    job: &Job,
    observer: &dyn Observer,
) -> Result<bool> {
    let only_checks = job.verify.as_ref().is_some_and(|verify| verify.only);
    if !matches!(path.try_exists(), Ok(false)) || only_checks {
        return Ok(false);
    }
    if sparse {
        let made = std::fs::File::create_new(path).and_then(|file| file.set_len(bytes));
        return made
            .map(|()| true)
            .map_err(|cause| Error::os(cause, format!("creating {}", path.display())));
    }
    // Use direct I/O if the file system supports it, which leaves the page cache unchanged. Only
    // buffered files end within a block.
    let direct = job.direct || bytes.is_multiple_of(4096);
    let options =
        FileOptions { create: Some(bytes), direct, byte_blocks: true, ..FileOptions::new(path) };
    let device = qpair_kernel::open(&options, Interface::Auto).or_else(|error| {
        if error.kind() != ErrorKind::Unsupported {
            return Err(error);
        }
        let buffered = FileOptions { direct: false, ..options.clone() };
        qpair_kernel::open(&buffered, Interface::Auto)
    })?;
    if matches!(job.verbs, Verbs::Write | Verbs::TrimWrite) {
        return Ok(true);
    }
    let all = 0..device.size_bytes();
    let what = format!("laying out {}", path.display());
    let filled = fill(&device, &[all], job.seed, &what, observer);
    filled.map(|()| true).inspect_err(|_| {
        let _ = std::fs::remove_file(path);
    })
}

/// The number of bytes of a write while a file is filled.
const FILL_BYTES: usize = 1 << 20;
const FILL_DEPTH: u32 = 8;

/// Writes random bytes to the parts of a file that were never written, so that reads of them reach
/// the drive. Returns the number of bytes written.
///
/// # Errors
/// Returns the error of opening or writing the file, such as `Busy` if another process has it open,
/// or an error that says that the observer stopped the work.
pub fn prefill(path: &Path, seed: u64, observer: &dyn Observer) -> Result<u64> {
    let what = format!("filling {}", path.display());
    let parts = qpair_machine::unwritten(path).map_err(|cause| Error::os(cause, what.clone()))?;
    let open = |direct| {
        qpair_kernel::open(&FileOptions { direct, ..FileOptions::new(path) }, Interface::Auto)
    };
    let device = open(true).or_else(|error| match error.kind() {
        ErrorKind::Unsupported => open(false),
        _ => Err(error),
    })?;
    let block = u64::from(device.info().logical_block_bytes);
    let whole = |part: &Range<u64>| part.start.next_multiple_of(block)..part.end / block * block;
    let parts: Vec<_> = parts.iter().map(whole).filter(|part| part.start < part.end).collect();
    fill(&device, &parts, seed, &what, observer)?;
    Ok(parts.iter().map(|part| part.end - part.start).sum())
}

/// Fills parts of a device with random bytes.
fn fill(
    device: &dyn BlockDevice,
    parts: &[Range<u64>],
    seed: u64,
    what: &str,
    observer: &dyn Observer,
) -> Result<()> {
    let arena = Arena::new(FILL_BYTES, FILL_DEPTH, ArenaOptions::ordinary_pages())
        .map_err(|cause| Error::os(cause, "mapping memory to fill a file from"))?;
    let options = ChannelOptions { depth: FILL_DEPTH, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&options)?;
    let mut random = generator(seed, u32::MAX);
    let mut bytes = vec![0; FILL_BYTES];
    let mut free: Vec<_> = std::iter::from_fn(|| arena.lease()).collect();
    let mut completions = Vec::new();
    let all: u64 = parts.iter().map(|part| part.end - part.start).sum();
    let mut pieces = parts.iter().flat_map(|part| {
        let starts = part.clone().step_by(FILL_BYTES);
        starts.map(|at| (at, (part.end - at).min(FILL_BYTES as u64) as u32))
    });
    let mut next = pieces.next();
    let (begin, mut told, mut filled) = (Instant::now(), Instant::now(), 0);
    while next.is_some() || channel.in_flight() > 0 {
        while let Some((at, len)) = next
            && let Some(mut buffer) = free.pop()
        {
            random.fill_bytes(&mut bytes);
            buffer.copy_from(0, &bytes[..len as usize]);
            if let Err(request) = channel.submit(Request::write(at, len, buffer, 0)) {
                free.extend(request.buffer);
                break;
            }
            filled += u64::from(len);
            next = pieces.next();
        }
        let wait = WaitOptions { want: 1, linger: std::time::Duration::ZERO, timeout: None };
        channel.wait(&mut completions, wait);
        for completion in completions.drain(..) {
            completion
                .result
                .map_err(|cause| Error::new(cause.kind, what.to_owned()).caused_by(cause))?;
            free.extend(completion.buffer);
        }
        if told.elapsed().as_millis() > 200 {
            told = Instant::now();
            observer.tick(&Live {
                phase: what.to_owned(),
                elapsed: begin.elapsed(),
                fraction: Some(filled as f64 / all.max(1) as f64),
                ..Live::default()
            });
            if observer.stop() {
                return Err(Error::new(ErrorKind::Io, format!("{what} was interrupted")));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::observer::Unwatched;

    #[test]
    fn what_was_written_stays_and_the_rest_is_filled() {
        let build = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(build.parent().unwrap()).unwrap();
        let path = folder.path().join("d");
        let file = File::create(&path).unwrap();
        file.set_len(6 << 20).unwrap();
        file.write_all_at(&[7; 1 << 20], 2 << 20).unwrap();
        file.sync_all().unwrap();
        let there: u64 =
            qpair_machine::unwritten(&path).unwrap().iter().map(|part| part.end - part.start).sum();
        if there == 0 {
            println!("skipped: the file system of the tests does not tell what was never written");
            return;
        }
        assert_eq!(prefill(&path, 1, &Unwatched).unwrap(), there);
        file.sync_all().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 6 << 20);
        assert!(bytes[2 << 20..3 << 20].iter().all(|byte| *byte == 7));
        let is_filled = |page: &[u8]| page.iter().any(|byte| *byte != page[0]);
        assert!(bytes[..2 << 20].chunks(4096).all(is_filled));
        assert!(bytes[3 << 20..].chunks(4096).all(is_filled));
        assert_eq!(prefill(&path, 1, &Unwatched).unwrap(), 0);
        assert!(prefill(&folder.path().join("none"), 1, &Unwatched).is_err());
    }
}
