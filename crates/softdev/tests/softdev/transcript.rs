//! Replays the accesses of Linux's own mpt3sas driver on a strict soft HBA, to show that strict
//! mode is never stricter than that driver.
//!
//! The HBA recorded the transcript in a guest (`TRANSCRIPT=FILE guest/tests/judges`). Its first
//! line names the kernel.

use std::sync::Arc;

use qpair_memory::{DmaMemory, Mapping};
use qpair_mpi_wire::registers::REQUEST_DESCRIPTOR_POST_LOW;
use qpair_pci::PciDevice;
use qpair_softdev::hba::Violations;
use qpair_softdev::{SoftHba, SoftHbaOptions};

const TRANSCRIPT: &str = include_str!("../data/linux-mpt3sas.transcript");
/// The number of lines after a request that may describe its memory.
const AHEAD: usize = 400;

/// The guest's memory, by its address for the controller.
#[derive(Default)]
struct Guest(Vec<(u64, Arc<Mapping>)>);

impl Guest {
    fn put(&self, at: u64, bytes: &[u8]) {
        let is_in = |(start, mapping): &&(u64, Arc<Mapping>)| {
            (*start..*start + mapping.bytes().len() as u64).contains(&at)
        };
        let (start, mapping) = self.0.iter().find(is_in).unwrap();
        mapping.bytes().copy_from((at - start) as usize, bytes);
    }
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap()
}

fn bytes(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| hex(&text[at..at + 2]) as u8).collect()
}

/// Replays a transcript. Returns the violations that the HBA found, and the number of requests.
fn replay(lines: &[Vec<&str>]) -> (Violations, usize) {
    let text = "disks=2,size=1MiB,cache=on,queues=4,strict=on";
    let card = SoftHba::new(SoftHbaOptions::parse(text).unwrap()).unwrap();
    let mut guest = Guest::default();
    let mut posts = 0;
    for (number, line) in lines.iter().enumerate() {
        match line[..] {
            ["map", iova, len] => {
                let (mapping, _file) = Mapping::new_file(hex(len) as usize).unwrap();
                card.map_dma(hex(iova), DmaMemory::of_mapping(mapping.clone())).unwrap();
                guest.0.push((hex(iova), mapping));
            }
            ["unmap", iova, len] => {
                card.unmap_dma(hex(iova), hex(len)).unwrap();
                guest.0.retain(|(start, _)| *start != hex(iova));
            }
            ["read", offset, _] => {
                assert!(card.read_bar(0, hex(offset), &mut [0; 4]));
            }
            ["write", offset, value] => {
                let value = hex(value) as u32;
                assert!(card.write_bar(0, hex(offset), &value.to_le_bytes()));
                card.step_all();
            }
            ["post", word] => {
                posts += 1;
                let smid = hex(word) >> 16 & 0xFFFF;
                let ahead = &lines[number..lines.len().min(number + AHEAD)];
                let frame = ahead.iter().find(|line| line[0] == "frame" && hex(line[1]) == smid);
                if let Some(frame) = frame {
                    let mut content = frame.get(3).map_or(Vec::new(), |text| bytes(text));
                    content.resize(128, 0);
                    guest.put(hex(frame[2]), &content);
                }
                for free in ahead.iter().filter(|line| line[0] == "free").take(8) {
                    guest.put(hex(free[1]), &(hex(free[2]) as u32).to_le_bytes());
                }
                assert!(card.write_bar(0, REQUEST_DESCRIPTOR_POST_LOW, &hex(word).to_le_bytes()));
                card.step_all();
            }
            ["frame" | "free", ..] => {}
            ["reset"] => card.reset(),
            _ => panic!("line {number}: {line:?}"),
        }
    }
    (card.violations(), posts)
}

fn lines() -> Vec<Vec<&'static str>> {
    let lines = TRANSCRIPT.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(' ').collect()).collect()
}

#[test]
fn linux_keeps_every_rule() {
    let (violations, posts) = replay(&lines());
    assert_eq!(violations.count, 0, "{:#?}", violations.told);
    assert!(posts > 100, "{posts} requests");
}

/// The replay catches a single error in the transcript: otherwise the test above would show
/// nothing.
#[test]
fn a_transcript_that_is_wrong_is_caught() {
    let said = |change: &dyn Fn(&mut Vec<Vec<&'static str>>)| {
        let mut lines = lines();
        change(&mut lines);
        replay(&lines).0.told.join("; ")
    };
    let without_free = said(&|lines| lines.retain(|line| !line.starts_with(&["write", "48"])));
    assert!(without_free.contains("before the free reply frames were told"), "{without_free}");
    let without_keys = said(&|lines| lines.insert(2, vec!["write", "8", "4"]));
    assert!(without_keys.contains("without the keys"), "{without_keys}");
    let posted_twice = said(&|lines| {
        let post = lines.iter().rposition(|line| line[0] == "post").unwrap();
        let mut other = lines[post].clone();
        other[1] = "0";
        lines.insert(post, other);
    });
    assert!(posted_twice.contains("SMID 0 is not one of"), "{posted_twice}");
}
