//! Lists of segments in memory of other processes: those that the controller accesses directly, and
//! those that are copied.

use std::os::fd::AsFd;
use std::sync::Arc;

use qpair_block::{BlockDevice, Mapping, Segment};
use qpair_conformance::copied_lists;
use qpair_nvme::WaitMode;
use qpair_softdev::SoftNvmeOptions;

use crate::rig::{Drive, options};

const PAGE: u64 = 4096;

fn segment(offset_bytes: u64, len_bytes: u32) -> Segment {
    Segment { region: 0, offset_bytes, len_bytes }
}

fn pages(numbers: &[u64]) -> Vec<Segment> {
    numbers.iter().map(|page| segment(page * PAGE, 4096)).collect()
}

#[test]
fn lists_that_lie_page_by_page_are_not_copied() {
    let (_, file) = Mapping::new_file(1 << 20).unwrap();
    let region = Mapping::of_lasting_file(file.as_fd(), 0, 1 << 20).unwrap();
    // First as one command, then as several of at most 8 KiB.
    for mdts in [5, 1] {
        let soft = SoftNvmeOptions { mdts, ..options(8 << 20, 512) };
        let drive = Drive::new(soft, 10_000, WaitMode::Poll);
        let device: Arc<dyn BlockDevice> = drive.device.clone();
        let copied = |announced, segments: &[Segment]| {
            copied_lists(&device, &region, segments, announced).unwrap()
        };
        let many: Vec<u64> = (0..60).map(|page| page * 7 % 60).collect();
        for segments in [
            pages(&[3]),
            pages(&[9, 4, 5, 1]),
            pages(&many),
            vec![segment(3 * PAGE + 3584, 512), segment(8 * PAGE, 8192), segment(PAGE, 1536)],
            // The second segment begins where the first one ended.
            vec![segment(PAGE + 512, 512), segment(PAGE + 1024, 4096)],
        ] {
            assert_eq!(copied(true, &segments), 0, "mdts={mdts} {segments:?}");
            assert_eq!(copied(false, &segments), 2, "mdts={mdts} {segments:?}");
        }
        for segments in [
            vec![segment(PAGE, 512), segment(8 * PAGE, 512)],
            vec![segment(PAGE, 4096), segment(8 * PAGE + 512, 4096)],
        ] {
            assert_eq!(copied(true, &segments), 2, "mdts={mdts} {segments:?}");
        }
    }
    assert_eq!(Arc::strong_count(&region), 1, "nothing has it open any more");
}
