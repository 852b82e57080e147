//! Keys that are too long for a page, through the whole command: loads, scans, copies to pages of
//! other sizes, exports, backups and checks.

use crate::harness::Directory;

/// Lines with keys of up to 5,000 bytes, of which many begin alike.
fn lines() -> String {
    let mut lines: Vec<_> = (0..200)
        .map(|i| {
            let (head, rest) = ("k".repeat(40 * (i % 40)), "-".repeat(25 * (i % 150)));
            format!("{head}{:03}{rest}\tvalue {i}\n", i % 7 * 100 + i)
        })
        .collect();
    lines.sort();
    lines.concat()
}

#[test]
fn copies_have_the_same_records() {
    let directory = Directory::new();
    let lines = lines();
    directory.file("in.tsv", &lines);
    directory.run("load s in.tsv").done();
    let scanned = directory.run("scan s").done();
    assert_eq!(scanned.lines().count(), 200);
    assert!(directory.run("check s").done().contains("no damage found"));
    for page_size in ["512", "2k", "4k", "64k"] {
        let copy = format!("copy{page_size}");
        directory.run(&format!("copy s {copy} --page-size {page_size}")).done();
        assert_eq!(directory.run(&format!("scan {copy}")).done(), scanned, "{page_size}");
        assert!(directory.run(&format!("check {copy}")).done().contains("no damage found"));
        // And back: the heads of the copy's groups are others.
        directory.run(&format!("copy {copy} {copy}-back --page-size 4k")).done();
        assert_eq!(directory.run(&format!("scan {copy}-back")).done(), scanned, "{page_size}");
    }
    directory.file("dump", directory.run("export s").done());
    directory.run("import other dump").done();
    assert_eq!(directory.run("scan other").done(), scanned);
    directory.run("backup s saved").done();
    assert_eq!(directory.run("scan saved").done(), scanned);
}
