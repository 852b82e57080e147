//! Holes of files.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use qpair_block::{BlockDevice, Extent, SliceDevice};
use qpair_kernel::{FileOptions, Interface, open};

#[test]
fn a_file_tells_its_holes() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("file");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(8 << 20).unwrap();
    file.write_all_at(&[1; 65536], 1 << 20).unwrap();
    let options = FileOptions { direct: false, ..FileOptions::new(&path) };
    let device: Arc<dyn BlockDevice> = Arc::new(open(&options, Interface::Posix).unwrap());
    let at = |offset, len| device.extent(offset, len);
    let (hole, data) = (
        |len_bytes| Extent { len_bytes, is_hole: true },
        |len_bytes| Extent { len_bytes, is_hole: false },
    );
    if at(0, 4096) == data(4096) {
        println!("skipped: the file system has no holes");
        return;
    }
    assert_eq!(at(0, 8 << 20), hole(1 << 20));
    assert_eq!(at(0, 4096), hole(4096));
    assert_eq!(at(1 << 20, 7 << 20), data(65536));
    assert_eq!(at((1 << 20) + 65536, 1 << 21), hole(1 << 21));
    assert_eq!(at((8 << 20) - 512, 512), hole(512));
    let slice = SliceDevice::new(device.clone(), 1 << 20, 1 << 20).unwrap();
    assert_eq!(slice.extent(0, 1 << 20), data(65536));
    assert_eq!(slice.extent(65536, 1 << 20), hole(1 << 20));
}
