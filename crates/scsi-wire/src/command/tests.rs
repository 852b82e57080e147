use proptest::prelude::*;

use super::*;

fn range(width: Width, block: u64, blocks: u32) -> Range {
    Range { block, blocks, width }
}

#[test]
fn commands_survive_their_bytes() {
    for width in [Width::Six, Width::Ten, Width::Twelve, Width::Sixteen] {
        let range = range(width, 0x12345, 200);
        let fua = width != Width::Six;
        for command in [
            Command::Read { range, force_unit_access: fua, protect: 0 },
            Command::Write { range, force_unit_access: fua, protect: 0 },
        ] {
            assert_eq!(Command::decode(command.encode().bytes()), Ok(command), "{command:?}");
        }
    }
    let sixteen = range(Width::Sixteen, 1 << 40, 1 << 20);
    for command in [
        Command::TestUnitReady,
        Command::RequestSense { descriptor: true, allocation: 252 },
        Command::Inquiry { page: Some(0x83), allocation: 1024 },
        Command::Inquiry { page: None, allocation: 36 },
        Command::ModeSense {
            width: Width::Ten,
            no_blocks: true,
            control: 2,
            page: 8,
            subpage: 1,
            allocation: 512,
        },
        Command::ModeSelect { width: Width::Six, page_format: true, save: false, len: 24 },
        Command::StartStop { immediate: true, start: true, power: 3 },
        Command::ReadCapacity10,
        Command::ReadCapacity16 { allocation: 32 },
        Command::Verify { range: sixteen, compare: 1, protect: 0 },
        Command::SynchronizeCache { range: sixteen, immediate: true },
        Command::WriteSame {
            range: sixteen,
            unmap: true,
            anchor: false,
            no_data: true,
            protect: 0,
        },
        Command::Unmap { anchor: false, len: 24 },
        Command::ReportLuns { select: 2, allocation: 4096 },
        Command::ReportOperations {
            timeouts: true,
            options: 3,
            opcode: 0x93,
            action: 7,
            allocation: 99,
        },
        Command::ReportTimestamp { allocation: 12 },
        Command::SetTimestamp { len: 12 },
        Command::LogSense {
            save: false,
            control: 1,
            page: 0x2F,
            subpage: 0,
            parameter: 3,
            allocation: 64,
        },
    ] {
        assert_eq!(Command::decode(command.encode().bytes()), Ok(command), "{command:?}");
    }
}

#[test]
fn bytes_are_where_the_standards_have_them() {
    let read = Command::Read {
        range: range(Width::Ten, 0x0102_0304, 0x0506),
        force_unit_access: true,
        protect: 1,
    };
    assert_eq!(read.encode().bytes(), [0x28, 0x28, 1, 2, 3, 4, 0, 5, 6, 0]);
    let (report, set) =
        (Command::ReportTimestamp { allocation: 12 }, Command::SetTimestamp { len: 12 });
    assert_eq!(report.encode().bytes(), [0xA3, 0x0F, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0]);
    assert_eq!(set.encode().bytes(), [0xA4, 0x0F, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0]);
    assert_eq!(
        Cdb::transfer(true, 0x0102_0304_0506_0708, 9, true),
        Command::Write {
            range: range(Width::Sixteen, 0x0102_0304_0506_0708, 9),
            force_unit_access: true,
            protect: 0
        }
        .encode()
    );
    // READ (6) of 256 blocks.
    let six = Command::decode(&[0x08, 0xFF, 0xFF, 0xFF, 0, 0]);
    let range = range(Width::Six, 0x1F_FFFF, 256);
    assert_eq!(six, Ok(Command::Read { range, force_unit_access: false, protect: 0 }));
}

#[test]
fn what_makes_no_sense_says_where() {
    assert_eq!(Command::decode(&[]), Err(Undecodable::Opcode));
    assert_eq!(Command::decode(&[0xFF; 16]), Err(Undecodable::Opcode));
    assert_eq!(Command::decode(&[0x28, 0, 0]), Err(Undecodable::Field(3)));
    assert_eq!(Command::decode(&[0x12, 0, 1, 0, 0, 0]), Err(Undecodable::Field(2)));
    assert_eq!(Command::decode(&[0x9E; 16]), Err(Undecodable::Field(1)));
    assert_eq!(Cdb::of(&[0; 17]), None);
    assert_eq!(Cdb::of(&[]), None);
}

proptest! {
    #[test]
    fn any_bytes_decode_to_what_encodes_alike(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
        if let Ok(command) = Command::decode(&bytes) {
            prop_assert_eq!(Command::decode(command.encode().bytes()), Ok(command));
        }
    }
}
