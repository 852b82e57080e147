//! `qpair carve`.

use std::fs;

use crate::harness::{Directory, patch};

const MIB: u64 = 1 << 20;

fn blank(directory: &Directory, bytes: u64) {
    fs::File::create(directory.path("disk")).unwrap().set_len(bytes).unwrap();
}

#[test]
fn slices_are_made_listed_and_deleted() {
    let directory = Directory::new();
    blank(&directory, 64 * MIB);
    directory.file("image", [7; 4097]);
    directory.run("carve list disk").failed(1, &["no map of slices", "carve create"]);
    directory.run("carve create disk data --size 16MiB --offset 20MiB").done();
    let made = directory.json("carve create disk root --from image --json");
    assert_eq!((&made["name"], &made["offset_bytes"]), (&"root".into(), &MIB.into()));
    let bytes = directory.read("disk");
    assert!(
        bytes[MIB as usize..][..4097].iter().all(|byte| *byte == 7)
            && bytes[(MIB + 4097) as usize] == 0
    );
    for (words, said) in [
        ("x --size 1MiB --offset 35MiB", "overlaps data"),
        ("x --size 1MiB --offset 3145828", "multiples of its logical block"),
        ("x --size 100MiB --offset 40MiB", "it has 67108864 bytes"),
        ("data --size 1MiB", "called data already"),
        ("x --size 512 --from image", "an image of"),
    ] {
        let run = directory.run(&format!("carve create disk {words}"));
        assert!(run.code != Some(0) && run.err.contains(said), "{words}: {}", run.err);
    }
    let list = directory.json("carve list disk --json");
    assert_eq!(list["slices"].as_array().unwrap().len(), 2, "{list}");
    assert_eq!(list["slices"][1]["offset_bytes"], 20 * MIB);
    assert_eq!(
        list["free"][1],
        serde_json::json!({"offset_bytes": 36 * MIB, "size_bytes": 28 * MIB})
    );
    assert!(directory.run("carve list disk").done().contains("(free)"));
    directory.run("carve check disk").done();
    directory.run("carve delete disk data").done();
    directory.run("carve delete disk data").failed(3, &["no slice", "there are: root"]);
}

#[test]
fn what_is_there_takes_a_word() {
    let directory = Directory::new();
    blank(&directory, 8 * MIB);
    patch(&directory.path("disk"), |bytes| bytes[1080] = 0x53);
    directory
        .run("carve create disk a --size 1MiB")
        .failed(3, &["byte 1080 is not zero", "--force"]);
    assert_eq!(directory.read("disk")[..1080], [0; 1080]);
    directory.run("carve create disk a --size 1MiB --force").done();
    directory.run("carve check disk").done();
}

#[test]
fn damage_is_found() {
    let directory = Directory::new();
    blank(&directory, 8 * MIB);
    directory.run("carve check disk").failed(1, &["no map"]);
    directory.run("carve create disk a --size 1MiB").done();
    directory.run("carve check disk").done();
    directory.run("carve create disk b --size 1MiB --offset 6MiB").done();
    fs::OpenOptions::new()
        .write(true)
        .open(directory.path("disk"))
        .unwrap()
        .set_len(4 * MIB)
        .unwrap();
    directory.run("carve check disk").failed(1, &["b ends at", "the device at"]);
    patch(&directory.path("disk"), |bytes| bytes[(512 << 10) + 70] ^= 1);
    directory.run("carve check disk").failed(1, &["slot 1: damaged", "checksum"]);
    assert!(!directory.run("carve list disk").done().contains("b "));
    directory.run("carve create disk c --size 1MiB").done();
    directory.run("carve check disk").done();
}
