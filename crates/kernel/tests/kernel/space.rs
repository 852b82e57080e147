//! Growth of files on file systems that are nearly full, or that cannot reserve space.
//!
//! The tests mount these file systems, which takes root; without it they are skipped, and say so.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use qpair_block::{BlockDevice, ErrorKind};
use qpair_kernel::{FileOptions, Growth, Interface, KernelDevice, open};

struct Mounted {
    folder: tempfile::TempDir,
    /// The directory of the image, if the file system is in one.
    _image: Option<tempfile::TempDir>,
}

impl Mounted {
    fn tmpfs(bytes: u64) -> Option<Self> {
        Self::mount(None, &["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
    }

    /// Creates a file system in an image with the command `make`, followed by the image's path.
    fn in_image(bytes: u64, make: &[&str]) -> Option<Self> {
        let image = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = image.path().join("image");
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        let mut command = Command::new(make[0]);
        command.args(&make[1..]).arg(&path);
        let path = path.to_str().unwrap().to_owned();
        if !run(&mut command) {
            return None;
        }
        Self::mount(Some(image), &["-o", "loop", &path])
    }

    fn mount(image: Option<tempfile::TempDir>, options: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let is_mounted = run(Command::new("mount").args(options).arg(folder.path()));
        is_mounted.then(|| Self { folder, _image: image })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("file")
    }

    fn free_bytes(&self) -> u64 {
        self.bytes(|space| space.f_bfree)
    }

    fn bytes(&self, blocks: impl Fn(&rustix::fs::StatVfs) -> u64) -> u64 {
        let space = rustix::fs::statvfs(self.folder.path()).unwrap();
        blocks(&space) * space.f_frsize
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Detach lazily: a failed test may have an open file.
        run(Command::new("umount").arg("-l").arg(self.folder.path()));
    }
}

fn run(command: &mut Command) -> bool {
    match command.output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            println!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(error) => {
            println!("{command:?}: {error}");
            false
        }
    }
}

fn file(path: &Path, create: Option<u64>) -> KernelDevice {
    let options = FileOptions { create, direct: false, ..FileOptions::new(path) };
    open(&options, Interface::Posix).unwrap()
}

fn allocated_bytes(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

/// A regression: a reopened file larger than the free space was refused for lack of space, because
/// the space that it had was counted as missing.
fn a_reopened_file_grows(mounted: &Mounted) {
    let path = mounted.path();
    let free = mounted.free_bytes();
    drop(file(&path, Some(free / 4 * 3)));
    let device = file(&path, None);
    let wanted = device.size_bytes() + free / 8 / 4096 * 4096;
    device.grow(device.size_bytes() + (64 << 10)).unwrap();
    device.grow(wanted).unwrap();
    assert_eq!(device.size_bytes(), wanted);
    assert!(allocated_bytes(&path) >= wanted);
    // A request for more space than there is is always refused, even as the first growth after
    // opening, and reserves nothing.
    drop(device);
    let device = file(&path, None);
    let left = mounted.free_bytes();
    let error = device.grow(wanted + left + (1 << 20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert_eq!((device.size_bytes(), path.metadata().unwrap().len()), (wanted, wanted));
    assert_eq!(mounted.free_bytes(), left);
}

/// The first growth fills holes that the file had when it was opened, or fails for lack of space.
fn holes_are_filled(mounted: &Mounted) {
    let path = mounted.path();
    std::fs::remove_file(&path).unwrap();
    rustix::fs::sync();
    let free = mounted.free_bytes() / 8192 * 8192;
    let sparse = std::fs::File::create(&path).unwrap();
    sparse.set_len(free / 2).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[7; 1 << 20], free / 4).unwrap();
    drop(sparse);
    let device = file(&path, None);
    let wanted = device.size_bytes() + (1 << 20);
    device.grow(wanted).unwrap();
    assert!(allocated_bytes(&path) >= wanted, "{} of {wanted}", allocated_bytes(&path));
    let content = std::fs::read(&path).unwrap();
    assert!(content[(free / 4) as usize..][..1 << 20].iter().all(|byte| *byte == 7));
    drop(device);
    let too_much = mounted.bytes(|space| space.f_blocks);
    std::fs::File::create(&path).unwrap().set_len(too_much).unwrap();
    let device = file(&path, None);
    let error = device.grow(too_much + (64 << 10)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
}

#[test]
fn on_a_nearly_full_file_system_in_memory() {
    let Some(mounted) = Mounted::tmpfs(64 << 20) else { return println!("skipped: no root") };
    a_reopened_file_grows(&mounted);
    holes_are_filled(&mounted);
}

#[test]
fn on_a_nearly_full_ext4() {
    let make = ["mkfs.ext4", "-q", "-m", "0"];
    let Some(mounted) = Mounted::in_image(64 << 20, &make) else {
        return println!("skipped: no ext4, or no root");
    };
    a_reopened_file_grows(&mounted);
    holes_are_filled(&mounted);
}

/// xfs requires as much free space as a range is long, even if the file already has some of it.
#[test]
fn on_a_nearly_full_xfs() {
    let make = ["mkfs.xfs", "-q"];
    let Some(mounted) = Mounted::in_image(400 << 20, &make) else {
        return println!("skipped: no xfs, or no root");
    };
    a_reopened_file_grows(&mounted);
    holes_are_filled(&mounted);
}

/// A regression: no store could be created here, because growing failed with "cannot reserve
/// space".
fn grows_by_zeros(mounted: &Mounted, direct: bool) {
    let path = mounted.path();
    let options = |create| FileOptions { create, direct, ..FileOptions::new(&path) };
    let open = |create| match open(&options(create), Interface::Posix) {
        Ok(device) => device,
        Err(error) => panic!("{error}"),
    };
    drop(open(Some(4 << 20)));
    assert_eq!(Growth::of(&path).unwrap(), Growth::Zeroed);
    assert!(allocated_bytes(&path) >= 4 << 20);
    std::fs::write(&path, vec![7; 4 << 20]).unwrap();
    let device = open(None);
    device.grow((9 << 20) + 4096).unwrap();
    assert_eq!(device.size_bytes(), (9 << 20) + 4096);
    drop(device);
    let content = std::fs::read(&path).unwrap();
    assert_eq!(content.len(), (9 << 20) + 4096);
    assert!(content[..4 << 20].iter().all(|byte| *byte == 7));
    assert!(content[4 << 20..].iter().all(|byte| *byte == 0));
    assert!(allocated_bytes(&path) >= content.len() as u64);
    // A request for nearly all free space fails half-way, because the blocks for the file's extents
    // are missing. The file is then unchanged.
    let device = open(None);
    rustix::fs::sync();
    let free = mounted.free_bytes();
    let error = device.grow((9 << 20) + 4096 + free / 4096 * 4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    let len = path.metadata().unwrap().len();
    assert_eq!((device.size_bytes(), len), ((9 << 20) + 4096, (9 << 20) + 4096));
    assert_eq!(mounted.free_bytes(), free);
    device.grow(10 << 20).unwrap();
    drop(device);
    // Holes are not filled: zeros written there could overwrite the data of other writers.
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let device = open(None);
    device.grow(2 << 20).unwrap();
    assert_eq!(device.size_bytes(), 2 << 20);
    drop(device);
    assert!((1 << 20..2 << 20).contains(&allocated_bytes(&path)));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn on_a_file_system_that_cannot_reserve_space() {
    let make = ["mkfs.ext3", "-q", "-m", "0"];
    let Some(mounted) = Mounted::in_image(64 << 20, &make) else {
        return println!("skipped: no ext3, or no root");
    };
    grows_by_zeros(&mounted, true);
    grows_by_zeros(&mounted, false);
    a_reopened_file_grows(&mounted);
}
