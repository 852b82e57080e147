//! A store on a file system that cannot reserve space. A regression: no store could be created
//! there.

use std::path::Path;
use std::process::Command;

use crate::harness::Directory;

/// A mounted ext3 file system in a file. This needs root.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn ext3(directory: &Directory, bytes: u64) -> Option<Self> {
        let (image, place) = (directory.path("image"), directory.path("m"));
        std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        std::fs::create_dir(&place).unwrap();
        let make = ["mkfs.ext3", "-q", "-m", "0"];
        (run(&make, &[&image]) && run(&["mount", "-o", "loop"], &[&image, &place]))
            .then_some(Self(place))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Detach lazily: a failed test may have an open file.
        run(&["umount", "-l"], &[&self.0]);
    }
}

fn run(words: &[&str], paths: &[&Path]) -> bool {
    let output = Command::new(words[0]).args(&words[1..]).args(paths).output();
    output.is_ok_and(|output| output.status.success())
}

fn records(keys: std::ops::Range<u32>) -> String {
    keys.map(|key| format!("{key:08}\t{}\n", "x".repeat(1000))).collect()
}

#[test]
fn a_store_where_zeros_are_written() {
    let directory = Directory::new();
    let Some(_mounted) = Mounted::ext3(&directory, 48 << 20) else {
        return eprintln!("skipped: no ext3, or no root");
    };
    directory.run("put m/s a 1").done();
    let small = directory.path("m/s").metadata().unwrap().len();
    // Create the store, grow it and reopen it.
    directory.run_on(records(0..3_000), "load m/s - --format tsv").done();
    assert!(directory.path("m/s").metadata().unwrap().len() > small + (3 << 20));
    assert_eq!(directory.run("get m/s 00002999").done().len(), 1009);
    let stat = directory.run("stat m/s").done();
    assert!(stat.contains("growth       by writing zeros"), "{stat}");
    assert_eq!(directory.json("stat m/s --json")["growth"], "zeroed");
    directory.run("put s a 1").done();
    assert_eq!(directory.json("stat s --json")["growth"], "reserved");
    assert!(!directory.run("stat s").done().contains("growth"));
    directory.run("backup m/s m/b").done();
    directory.run("check m/b").done();
    directory.run("delete m/s --prefix 00001").done();
    directory.run("compact m/s").done();
    std::fs::remove_file(directory.path("m/b")).unwrap();
    // When it is full, it behaves as on any other file system, and the data stays.
    let put = |number: u32| directory.run_on(vec![7; 8 << 20], &format!("put m/s large{number} -"));
    let run = (0..6).map(put).find(|run| run.code != Some(0)).unwrap();
    let delete = "`qpair delete m/s KEY`, or --prefix; `qpair compact m/s`";
    run.failed(3, &["growing", "free space on the file system, or raise the quota; or", delete]);
    directory.run("check m/s").done();
    assert_eq!(directory.run("get m/s a").done(), "1");
    assert_eq!(directory.run("get m/s 00002999").done().len(), 1009);
}
