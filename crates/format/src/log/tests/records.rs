//! Single records: no other bytes than those of a record decode as one.

use super::super::record::RecordBuilder;
use super::*;

fn record() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut builder = RecordBuilder::new(&mut bytes, 77);
    builder.push(Operation::CreateTable { tree: 2, name: "orders" });
    builder.push(Operation::Put { tree: 2, key: b"key", value: b"a value" });
    builder.push(Operation::PutLarge { tree: 2, key: b"large", descriptor: [9; 24] });
    builder.push(Operation::Delete { tree: 2, key: b"gone" });
    builder.push(Operation::DropTable { tree: 1 });
    builder.push(Operation::RenameTable { tree: 2, name: "old orders" });
    let expected = builder.bytes();
    assert_eq!(builder.finish().unwrap(), expected);
    bytes
}

#[test]
fn every_changed_bit_and_every_length_is_seen() {
    let bytes = record();
    let whole = Record::decode(&bytes).unwrap();
    assert_eq!((whole.timestamp, whole.operation_count, whole.bytes()), (77, 6, bytes.len()));
    let encoded: usize = whole.operations().map(|operation| operation.encoded_bytes()).sum();
    assert_eq!(encoded, bytes.len() - 24);
    for len in 0..bytes.len() {
        assert!(Record::decode(&bytes[..len]).is_err());
    }
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(Record::decode(&changed).is_err(), "bit {bit}");
    }
}

/// A record with a right checksum and any content decodes as a whole, or not at all.
#[test]
fn operations_that_make_no_sense_are_refused() {
    let bytes = record();
    let mut refused = 0;
    for at in 8..bytes.len() {
        for value in [0, 1, 2, 5, 6, 0x7f, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            let sum = crc_fast::crc32_iscsi(&changed[8..]);
            changed[4..8].copy_from_slice(&sum.to_le_bytes());
            match Record::decode(&changed) {
                Ok(record) => {
                    assert_eq!(record.operations().count(), record.operation_count as usize);
                    assert!(!describe(&record).is_empty());
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn a_record_that_is_given_up_is_taken_back() {
    let mut bytes = b"before".to_vec();
    let mut builder = RecordBuilder::new(&mut bytes, 1);
    builder.push(Operation::DropTable { tree: 1 });
    drop(builder);
    assert_eq!(bytes, b"before");
}

#[test]
fn positions_that_make_no_sense_are_refused() {
    let mut disk = Disk::new(4096, 1 << 20);
    let good = disk.writer(1, 0).position();
    let refused = |change: &dyn Fn(&mut LogPosition)| {
        let mut position = good;
        change(&mut position);
        LogPosition::decode(&position.encode()).is_err()
    };
    assert!(!refused(&|_| ()));
    assert!(refused(&|p| p.at_bytes = 0));
    assert!(refused(&|p| p.at_bytes = 4097));
    assert!(refused(&|p| p.at_bytes = (1 << 20) + 4096));
    assert!(refused(&|p| p.segment_offset_bytes = 1));
    assert!(refused(&|p| p.segment_offset_bytes = u64::MAX - 4095));
    assert!(refused(&|p| p.geometry.block_bytes = 0));
    assert!(refused(&|p| p.geometry.segment_bytes = u32::MAX));
    assert!(LogPosition::decode(&good.encode()[1..]).is_err());
    assert!(LogPosition::decode(&good.ended_at(7).encode()[1..]).is_err());
    let unflushed = LogPosition { flushed: false, ..good };
    for position in [good, unflushed, good.ended_at(7), good.ended_at(7).ended_at(9)] {
        assert_eq!(LogPosition::decode(&position.encode()).unwrap(), position);
    }
    // The first end counts.
    assert_eq!(good.ended_at(7).ended_at(9).timestamp_max, Some(7));
}
