//! Measures how fast a log is written and read in memory. These tests assert no speed.

use std::time::Instant;

use super::*;

#[test]
#[ignore = "measures; run by hand: cargo test --release -p qpair-format --lib log::tests::speed -- --ignored --nocapture"]
fn speed() {
    // About the size of a TPC-C new-order: ten rows of 100 bytes and ten of 50.
    let (long, short) = ([5; 100], [6; 50]);
    for (name, rows) in [("1 row", 1u64), ("20 rows", 20), ("200 rows", 200)] {
        let mut disk = Disk::new(4096, 1 << 20);
        disk.bytes = vec![0; 300 << 20];
        let mut writer = disk.writer(1, 0);
        let start = writer.position();
        let mut buffer = vec![0; 256 << 10];
        let (mut timestamp, mut bytes) = (0u64, 0u64);
        let begin = Instant::now();
        let mut copying = std::time::Duration::ZERO;
        while bytes < 256 << 20 {
            timestamp += 1;
            let end = writer
                .append(timestamp, |record| {
                    for row in 0..rows {
                        let key = (timestamp * 31 + row).to_be_bytes();
                        let value = if row % 2 == 0 { &long[..] } else { &short[..] };
                        record.push(Operation::Put { tree: 4, key: &key, value });
                    }
                })
                .unwrap();
            bytes = end;
            if writer.pending_bytes() < 200 << 10 && bytes < 256 << 20 {
                continue;
            }
            while writer.needs_segment() {
                let segment = disk.segment();
                writer.give_segment(segment);
            }
            let Some(planned) = writer.next_write(buffer.as_mut_slice()) else { continue };
            writer.complete(&planned);
            let copy = Instant::now();
            let (at, len) = (planned.offset_bytes as usize, planned.len_bytes as usize);
            disk.bytes[at..at + len].copy_from_slice(&buffer[..len]);
            copying += copy.elapsed();
        }
        let made = (begin.elapsed() - copying).as_secs_f64();
        let begin = Instant::now();
        let mut reader = LogReader::new(identity(1, 0).store, start, 1 << 20);
        let (mut records, mut sum) = (0u64, 0usize);
        loop {
            match reader.advance() {
                LogStep::Read { offset_bytes, len_bytes } => {
                    reader.give(part(&disk.bytes, offset_bytes, len_bytes));
                }
                LogStep::Record => {
                    records += 1;
                    let record = reader.record().unwrap();
                    sum += record
                        .operations()
                        .map(|operation| operation.encoded_bytes())
                        .sum::<usize>();
                }
                LogStep::End => break,
            }
        }
        let read = begin.elapsed().as_secs_f64();
        let mb = bytes as f64 / 1e6;
        println!(
            "{name}: made {:.0} MB/s, {:.2} M records/s, {:.0} ns each; read {:.0} MB/s, {:.2} M records/s ({records}, {sum})",
            mb / made,
            timestamp as f64 / made / 1e6,
            made * 1e9 / timestamp as f64,
            mb / read,
            records as f64 / read / 1e6,
        );
    }
}
