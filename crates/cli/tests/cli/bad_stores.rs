//! Stores that cannot be opened as requested: the error is clear, and nothing is lost.

use std::os::unix::fs::PermissionsExt;

use qpair::Options;

use crate::harness::{Directory, LABEL_BYTES, patch, records};

fn store() -> Directory {
    let directory = Directory::new();
    directory.run_on(records(2000), "load s - --format tsv --value 2").done();
    directory
}

#[test]
fn not_there() {
    let directory = Directory::new();
    for command in ["get s k", "scan s", "stat s", "check s", "delete s k", "tables s"] {
        directory.run(command).failed(3, &["no store s", "hint"]);
    }
    assert!(!directory.path("s").exists());
    directory.run("put no/such/place k v").failed(3, &["no/such/place"]);
    directory.run("get . k").failed(2, &["directory"]);
    directory.run("get odd:s k").failed(2, &["unknown kind of device", "file:odd:s"]);
}

#[test]
fn not_a_store() {
    let directory = Directory::new();
    let text = "some text\n".repeat(20_000);
    directory.file("text", &text).file("small", "x").file("zero", vec![0; 1 << 20]);
    for name in ["text", "small", "zero"] {
        directory.run(&format!("get {name} k")).failed(3, &["not a qpair store"]);
        directory.run(&format!("put {name} k v")).failed(3, &["not a qpair store"]);
    }
    directory.run("put zero k v").failed(
        3,
        &["restore it from a backup", "qpair repair`; give --init to make a new one", "--init"],
    );
    let looked = directory.run("check zero");
    assert!(!looked.err.contains("--init"), "{}", looked.err);
    looked.failed(3, &["only zeroes", "restore it from a backup"]);
    directory.run("get small k").failed(3, &["smaller than a superblock"]);
    assert_eq!(directory.text("text"), text);
    directory.run("put text k v --init").failed(3, &["not blank", "--init-force"]);
    // A file smaller than a block is not blank either, nor is one with data after its first block
    // or at its end.
    let with_byte_at = |at: usize| {
        let mut bytes = vec![0; 4 << 20];
        bytes[at] = 1;
        bytes
    };
    directory.file("btrfs", with_byte_at(65_600)).file("raid", with_byte_at((4 << 20) - 70_000));
    for name in ["small", "btrfs", "raid"] {
        let before = directory.read(name);
        directory.run(&format!("put {name} k v --init")).failed(3, &["not blank", "--init-force"]);
        directory.run(&format!("put new k v --log-device {name}")).failed(3, &["not blank"]);
        assert_eq!(directory.read(name), before, "{name}");
    }
    directory.run("put zero k v --init").done();
    assert_eq!(directory.run("get zero k").done(), "v");
    directory.run("put text k v --init-force").done();
    assert_eq!(directory.run("get text k").done(), "v");
}

#[test]
fn another_version() {
    let directory = store();
    patch(&directory.path("s"), |bytes| {
        for slot in [0, 32 << 10] {
            bytes[slot + 8] = 99;
            bytes[slot + 12..slot + 16].fill(0);
            let sum = crc32c(&bytes[slot..slot + 4096]);
            bytes[slot + 12..slot + 16].copy_from_slice(&sum.to_le_bytes());
        }
    });
    directory.run("get s k").failed(3, &["version 99", "hint"]);
}

#[test]
fn features_of_a_newer_version() {
    let directory = store();
    patch(&directory.path("s"), |bytes| {
        for at in [0, 32 << 10] {
            let slot = &mut bytes[at..at + 4096];
            if !slot.starts_with(b"qpair") {
                continue;
            }
            slot[16] |= 0b1100_0001;
            slot[12..16].fill(0);
            let sum = crc32c(slot);
            slot[12..16].copy_from_slice(&sum.to_le_bytes());
        }
    });
    let said = ["feature bit 6, feature bit 7", "does not support", "log-device", "newer version"];
    directory.run("get s k").failed(3, &said);
    directory.run("check s").failed(3, &said);
}

/// Returns the CRC-32C of bytes, computed bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            sum >> 1 ^ (0x82f6_3b78 & (sum & 1).wrapping_neg())
        })
    })
}

#[test]
fn open_elsewhere() {
    let directory = store();
    let held = Options::new(directory.path("s")).memory_bytes(16 << 20).open().unwrap();
    directory.run("put s k v").failed(3, &["already open elsewhere", "hint"]);
    for words in ["scan s --count", "stat s", "check s", "backup s copy"] {
        let read = directory.run(words);
        assert_eq!(read.code, Some(0), "{words}: {}", read.err);
        assert!(read.err.contains("note: another process has the store open"), "{}", read.err);
        assert!(!read.err.contains("qpair top"));
    }
    assert_eq!(directory.run("scan copy --count").done(), "2000\n");
    held.close().unwrap();
    let published = Options::new(directory.path("s")).memory_bytes(16 << 20).publish_beside(true);
    let held = published.open().unwrap();
    assert!(directory.run("stat s").err.contains("qpair top s --prometheus"));
    held.close().unwrap();
    let held =
        Options::new(directory.path("s")).memory_bytes(16 << 20).read_only(true).open().unwrap();
    assert_eq!(directory.run("get s").code, Some(2));
    assert_eq!(directory.run("scan s --count").done(), "2000\n");
    directory.run("put s k v").failed(3, &["already open elsewhere"]);
    held.close().unwrap();
}

#[test]
fn not_writable() {
    let directory = store();
    std::fs::set_permissions(directory.path("s"), std::fs::Permissions::from_mode(0o400)).unwrap();
    if std::fs::OpenOptions::new().write(true).open(directory.path("s")).is_ok() {
        eprintln!("skipped: permissions do not bind this user");
        return;
    }
    let run = directory.run("put s k v");
    assert_eq!(run.err.matches(" s: ").count(), 1, "named once: {}", run.err);
    run.failed(3, &["the store can be read but not changed"]);
    assert_eq!(directory.run("scan s --count").done(), "2000\n");
}

#[test]
fn damaged_pages() {
    let directory = store();
    let mut leaves = Vec::new();
    patch(&directory.path("s"), |bytes| {
        // Leaves of tables, including those that no tree refers to any more.
        for (page, bytes) in bytes[LABEL_BYTES..].chunks_mut(4096).enumerate() {
            if bytes.len() == 4096 && bytes[4] == 2 && bytes[24..28] != [0; 4] {
                bytes[700] ^= 4;
                leaves.push(page);
            }
        }
    });
    let run = directory.run("check s");
    let named = leaves.iter().filter(|page| run.err.contains(&format!("page {page},"))).count();
    assert!(named > 1, "{}", run.err);
    run.failed(1, &[&format!("s is damaged: {named} faults"), "hint"]);
    directory.run("scan s --count").failed(3, &["page"]);
}

#[test]
fn cut_short() {
    let directory = store();
    patch(&directory.path("s"), |bytes| bytes.truncate(LABEL_BYTES + 5 * 4096));
    directory.run("get s k").failed(3, &["cut short", "hint"]);
    patch(&directory.path("s"), |bytes| bytes.truncate(100));
    directory.run("get s k").failed(3, &["not a qpair store"]);
}

#[test]
fn too_long() {
    let directory = store();
    let key = "k".repeat(65_536);
    directory.run(&format!("put s {key} v")).failed(3, &["65536 bytes", "65535"]);
    directory.run_on(vec![b'v'; (16 << 20) + 1], "put s k -").failed(3, &["16777216"]);
    assert_eq!(directory.run("scan s --count").done(), "2000\n");
}
