//! Units: the data that they report about themselves.

use super::*;

/// A unit does not report commands that its device does not support.
#[test]
fn verbs_are_those_of_the_device() {
    for (discards, writes_zeroes) in [(true, true), (true, false), (false, true), (false, false)] {
        let inner = ram();
        let info = DeviceInfo { discards, writes_zeroes, ..inner.info().clone() };
        let mut host = Host::new(&[Arc::new(Narrow { info, inner })]);
        let mut queue = host.start();
        let inquiry = Scsi::Inquiry { page: Some(0xB2), allocation: 255 };
        let found = Provisioning::decode(&host.ask(&mut queue, inquiry, 255)).unwrap();
        assert_eq!((found.unmap, found.write_same), (discards, writes_zeroes));
        let capacity = host.ask(&mut queue, Scsi::ReadCapacity16 { allocation: 32 }, 32);
        assert_eq!(Capacity::decode16(&capacity).unwrap().provisioned, discards);
        let known = host.known(&mut queue);
        let knows = |code| known.contains(&code);
        let zeroes = (knows(opcode::WRITE_SAME_10), knows(opcode::WRITE_SAME_16));
        assert_eq!((knows(opcode::UNMAP), zeroes), (discards, (writes_zeroes, writes_zeroes)));
        assert!(knows(opcode::WRITE_10) && !knows(opcode::LOG_SENSE) && !knows(opcode::VERIFY_10));
    }
}

#[test]
fn a_unit_says_what_it_is() {
    let mut host = Host::new(&[ram()]);
    let mut queue = host.start();
    let inquiry = Scsi::Inquiry { page: None, allocation: 96 };
    let found = Inquiry::decode(&host.ask(&mut queue, inquiry, 255)).unwrap();
    assert_eq!((found.device_type, found.vendor.as_str(), found.queues), (0, "QPAIR", true));
    let mut page = |host: &mut Host, page| {
        let inquiry = Scsi::Inquiry { page: Some(page), allocation: 255 };
        host.ask(&mut queue, inquiry, 255)
    };
    let supported = page(&mut host, 0);
    let pages = vpd::decode_supported(&supported).unwrap();
    assert_eq!(pages, [0, 0x80, 0x83, 0xB0, 0xB1, 0xB2]);
    assert_eq!(vpd::decode_serial(&page(&mut host, 0x80)).unwrap(), "disk-0");
    let name = vpd::unit_name(&page(&mut host, 0x83)).unwrap();
    assert!(name.to_string().starts_with("naa.3"), "{name}");
    let limits = BlockLimits::decode(&page(&mut host, 0xB0)).unwrap();
    assert_eq!((limits.transfer_blocks_max, limits.unmap_ranges_max), (8192, 256));
    assert_eq!(vpd::Characteristics::decode(&page(&mut host, 0xB1)).unwrap().rotation, 1);
    let provisioning = Provisioning::decode(&page(&mut host, 0xB2)).unwrap();
    assert!(provisioning.unmap && provisioning.write_same && !provisioning.reads_zeroes);

    let ten = host.ask(&mut queue, Scsi::ReadCapacity10, 8);
    let long = host.ask(&mut queue, Scsi::ReadCapacity16 { allocation: 32 }, 32);
    let (ten, long) = (Capacity::decode10(&ten).unwrap(), Capacity::decode16(&long).unwrap());
    assert_eq!((ten.last_block, ten.block_bytes), (2047, 512));
    assert_eq!((long.last_block, long.block_bytes, long.provisioned), (2047, 512, true));
    let listed = host.ask(&mut queue, Scsi::ReportLuns { select: 0, allocation: 64 }, 64);
    assert_eq!(luns::decode(&listed).collect::<Vec<_>>(), [Lun::default()]);
    for width in [Width::Six, Width::Ten] {
        let sense = Scsi::ModeSense {
            width,
            no_blocks: true,
            control: 0,
            page: mode::page::ALL,
            subpage: 0,
            allocation: 255,
        };
        let bytes = host.ask(&mut queue, sense, 255);
        let head = mode::Head::decode(&bytes, width).unwrap();
        assert!(!head.write_protected && head.force_unit_access);
        assert_eq!(mode::decode_caching(&bytes[head.pages_at..]), Some(false));
    }
    let sense = Scsi::RequestSense { descriptor: false, allocation: 18 };
    assert_eq!(Sense::decode(&host.ask(&mut queue, sense, 18)), Some(Sense::default()));
    let known = host.known(&mut queue);
    assert!(known.contains(&opcode::UNMAP) && !known.contains(&opcode::VERIFY_10), "{known:x?}");
    // The answer does not fit: the guest gets the first bytes, and an overrun.
    let ended = host.run_on(&mut queue, 0, inquiry, (DATA_AT, 8), false);
    assert_eq!((ended.response, ended.residual), (response::OVERRUN, 0));
}
