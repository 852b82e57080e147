//! Messages of QEMU and SPDK, byte for byte where it matters, and the answers that they expect.

use std::os::fd::AsFd;

use crate::common::{Raw, Served, TestDevice, count_of, event, memory_file, wait_for};
use qpair_vfio_user::ServerOptions;
use qpair_vfio_user::codec::{
    Command, DeviceInfo, DmaMap, DmaUnmap, Header, IrqAction, IrqData, IrqInfo, RegionAccess,
    RegionInfo, SetIrqs, Version,
};
use rustix::io::Errno;

const INVAL: u32 = Errno::INVAL.raw_os_error() as u32;

fn map(iova: u64, len: u64) -> Vec<u8> {
    DmaMap { readable: true, writable: true, file_offset_bytes: 0, iova, len }.payload()
}

fn unmap(iova: u64, len: u64) -> Vec<u8> {
    DmaUnmap { wants_dirty_pages: false, all: false, iova, len }.payload()
}

fn events(start: u32, count: u32) -> Vec<u8> {
    let (data, action) = (IrqData::Events, IrqAction::Trigger);
    SetIrqs { data, action, index: 2, start, count }.payload()
}

#[test]
fn versions() {
    let served = Served::new();
    let mut spdk = Raw::connect(&served.path);
    let answer = spdk.ask(Command::Version, &[0, 0, 0, 0], &[]);
    assert_eq!((answer.errno(), &answer.payload[..4]), (0, &[0, 0, 0, 0][..]));
    drop(spdk);
    served.wait_until_alone();
    let mut qemu = Raw::connect(&served.path);
    let words = b"\0\0\x01\0{\"capabilities\":{\"max_msg_fds\":8,\"max_data_xfer_size\":1048576,\"migration\":{\"pgsize\":4096,\"max_bitmap_size\":268435456}}}\0";
    let answer = qemu.ask(Command::Version, words, &[]);
    let version = Version::parse(&answer.payload).unwrap();
    assert_eq!((version.major, version.minor), (0, 1));
    assert_eq!(qemu.ask(Command::Version, words, &[]).errno(), INVAL, "once");
    assert_eq!(qemu.ask(Command::Reset, &[], &[]).errno(), 0, "goes on");
    drop(qemu);
    served.wait_until_alone();

    for (first, errno) in [
        (&b"\x01\0\0\0"[..], Errno::PROTONOSUPPORT.raw_os_error() as u32),
        (b"\0\0\x01\0{\"capabilities\":3}\0", INVAL),
        (b"\0\0\x01\0{}", INVAL),
        (b"\0", INVAL),
    ] {
        let mut wrong = Raw::connect(&served.path);
        assert_eq!(wrong.ask(Command::Version, first, &[]).errno(), errno);
        assert!(wrong.answer().is_none(), "closed");
        assert!(served.last_end().contains("version"));
    }
    let mut early = Raw::connect(&served.path);
    assert_eq!(early.ask(Command::Reset, &[], &[]).errno(), INVAL, "greeting first");
    assert!(early.answer().is_none());
    assert_eq!(served.device.resets.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn regions_as_spdk_asks() {
    let served = Served::new();
    let mut spdk = Raw::agreed(&served.path);
    let answer = spdk.ask(Command::GetDeviceInfo, &DeviceInfo::request(), &[]);
    let info = DeviceInfo::parse(&answer.payload).unwrap();
    assert_eq!((info.can_reset, info.is_pci, info.regions, info.irqs), (true, true, 9, 5));
    for index in 0..9 {
        // Its whole buffer.
        let mut request = RegionInfo::request(index, 4064);
        request.resize(4064, 0);
        let answer = spdk.ask(Command::GetRegionInfo, &request, &[]);
        let info = RegionInfo::parse(&answer.payload).unwrap();
        let len = [(0, 0x2000), (7, 256)].iter().find(|(at, _)| *at == index).map_or(0, |r| r.1);
        assert_eq!((info.index, info.len), (index, len));
        if index == 0 {
            assert_eq!((answer.fds.len(), info.areas.len()), (1, 1));
            assert_eq!((info.areas[0].offset_bytes, info.areas[0].len), (0x1000, 0x1000));
            assert_eq!(info.file_offset_bytes, 0);
        } else {
            assert!(answer.fds.is_empty() && info.areas.is_empty());
        }
    }
    assert_eq!(spdk.ask(Command::GetRegionInfo, &RegionInfo::request(9, 64), &[]).errno(), INVAL);
    // Short of room: how much it takes, and no file yet, as it would be received twice.
    let answer = spdk.ask(Command::GetRegionInfo, &RegionInfo::request(0, 32), &[]);
    assert_eq!((answer.payload.len(), answer.payload[0], answer.fds.len()), (32, 64, 0));
    assert_eq!(spdk.ask(Command::GetRegionInfo, &RegionInfo::request(0, 31), &[]).errno(), INVAL);
}

#[test]
fn irqs_as_qemu_sets_them() {
    let served = Served::new();
    let mut qemu = Raw::agreed(&served.path);
    for (index, count) in [(0, 0), (1, 0), (2, TestDevice::VECTORS), (3, 0), (4, 0)] {
        let answer = qemu.ask(Command::GetIrqInfo, &IrqInfo { index, count: 0 }.payload(), &[]);
        assert_eq!(IrqInfo::parse(&answer.payload).unwrap().count, count);
    }
    let unknown = IrqInfo { index: 5, count: 0 }.payload();
    assert_eq!(qemu.ask(Command::GetIrqInfo, &unknown, &[]).errno(), INVAL);

    let (first, second) = (event(), event());
    let both = [first.as_fd(), second.as_fd()];
    let is_set = |vector: usize| served.device.irqs.lock().unwrap()[vector].is_some();
    // A vector that is not assigned yet, then it is, then two at once, then one of them not any
    // more.
    assert_eq!(qemu.ask(Command::SetIrqs, &events(0, 1), &[]).errno(), 0);
    assert!(!is_set(0));
    assert_eq!(qemu.ask(Command::SetIrqs, &events(0, 1), &both[..1]).errno(), 0);
    assert!(is_set(0));
    assert_eq!(qemu.ask(Command::SetIrqs, &events(2, 2), &both).errno(), 0);
    assert!(is_set(2) && is_set(3));
    assert_eq!(qemu.ask(Command::SetIrqs, &events(2, 1), &[]).errno(), 0);
    assert!(!is_set(2) && is_set(3));
    qemu.ask(Command::RegionWrite, &doorbell(5), &[]);
    wait_for("the interrupt", || count_of(&first) == 1);

    for (payload, fds) in [
        (events(0, 2), &both[..1]),
        (events(3, 2), &both[..]),
        (events(u32::MAX, 2), &both[..]),
        (
            SetIrqs {
                data: IrqData::Events,
                action: IrqAction::Trigger,
                index: 3,
                start: 0,
                count: 1,
            }
            .payload(),
            &both[..1],
        ),
        (events(0, 1)[..19].to_vec(), &both[..1]),
    ] {
        assert_eq!(qemu.ask(Command::SetIrqs, &payload, fds).errno(), INVAL);
    }
    let (data, action) = (IrqData::None, IrqAction::Mask);
    let mask = SetIrqs { data, action, index: 2, start: 0, count: 1 }.payload();
    let unsupported = Errno::OPNOTSUPP.raw_os_error() as u32;
    assert_eq!(qemu.ask(Command::SetIrqs, &mask, &[]).errno(), unsupported);
    // Bytes for each vector do not put the stream out of step.
    let mut bools = events(0, 4);
    bools[4] = 0x22;
    bools.extend([1; 4]);
    assert_eq!(qemu.ask(Command::SetIrqs, &bools, &[]).errno(), unsupported);

    let (data, action) = (IrqData::None, IrqAction::Trigger);
    let off = SetIrqs { data, action, index: 2, start: 0, count: 0 };
    assert_eq!(qemu.ask(Command::SetIrqs, &off.payload(), &[]).errno(), 0);
    assert!((0..4).all(|vector| !is_set(vector)));
    let errors = SetIrqs { index: 3, ..off };
    assert_eq!(qemu.ask(Command::SetIrqs, &errors.payload(), &[]).errno(), 0);
}

fn doorbell(value: u32) -> Vec<u8> {
    RegionAccess { offset_bytes: 0x1000, region: 0, len: 4 }.payload(&value.to_le_bytes())
}

#[test]
fn memory_as_qemu_opens_it() {
    let served = Served::with(ServerOptions { dma_maps_max: 6, ..ServerOptions::default() });
    let open = || served.device.dma.lock().unwrap().len();
    let mut qemu = Raw::agreed(&served.path);
    let mut ask = |command, payload: &[u8], fds: &[_]| qemu.ask(command, payload, fds).errno();
    let file = memory_file(0x10_0000);
    let fd = [file.as_fd()];
    let exist = Errno::EXIST.raw_os_error() as u32;
    let noent = Errno::NOENT.raw_os_error() as u32;

    assert_eq!(ask(Command::DmaMap, &map(0, 0xA0000), &fd), 0);
    // A ROM comes without a file.
    assert_eq!(ask(Command::DmaMap, &map(0xFFFC_0000, 0x4_0000), &[]), 0);
    assert_eq!((open(), served.counters().dma_maps), (1, 2));
    assert_eq!(served.counters().dma_bytes, 0xE_0000);
    for (iova, len) in [(0, 0x1000), (0x9F000, 0x2000), (0xFFFB_F000, 0x2000), (0, 0x10_0000)] {
        assert_eq!(ask(Command::DmaMap, &map(iova, len), &fd), exist, "{iova:#x}");
    }
    assert_eq!(ask(Command::DmaUnmap, &unmap(0xFFFC_0000, 0x4_0000), &[]), 0);
    assert_eq!(ask(Command::DmaUnmap, &unmap(0xFFFC_0000, 0x4_0000), &[]), noent);
    for (iova, len) in [(0x1000, 0x1000), (0, 0x1000), (0x9F000, 0x2000), (0, 0), (8, u64::MAX)] {
        assert_eq!(ask(Command::DmaUnmap, &unmap(iova, len), &[]), INVAL, "{iova:#x}");
    }
    assert_eq!(open(), 1);
    // Shadowing changes: away, and two others in its place.
    assert_eq!(ask(Command::DmaUnmap, &unmap(0, 0xA0000), &[]), 0);
    assert_eq!(open(), 0);
    assert_eq!(ask(Command::DmaMap, &map(0, 0x8000), &fd), 0);
    assert_eq!(ask(Command::DmaMap, &map(0x8000, 0x8000), &fd), 0);
    // One range over both.
    assert_eq!(ask(Command::DmaUnmap, &unmap(0, 0x20000), &[]), 0);
    assert_eq!(open(), 0);

    for at in 0..6 {
        assert_eq!(ask(Command::DmaMap, &map(at << 20, 0x1000), &fd), 0);
    }
    let nospc = Errno::NOSPC.raw_os_error() as u32;
    assert_eq!(ask(Command::DmaMap, &map(7 << 20, 0x1000), &fd), nospc, "as many as it said");
    let all = DmaUnmap { wants_dirty_pages: false, all: true, iova: 0, len: 0 };
    assert_eq!(ask(Command::DmaUnmap, &DmaUnmap { len: 1, ..all }.payload(), &[]), INVAL);
    assert_eq!(ask(Command::DmaUnmap, &all.payload(), &[]), 0);
    assert_eq!((open(), served.counters().dma_maps), (0, 0));
}

#[test]
fn memory_that_is_none() {
    let served = Served::new();
    let mut raw = Raw::agreed(&served.path);
    let mut ask = |payload: &[u8], fds: &[_]| raw.ask(Command::DmaMap, payload, fds).errno();
    let file = memory_file(0x4000);
    let fd = [file.as_fd()];
    let at = |file_offset_bytes, iova, len| {
        DmaMap { readable: true, writable: true, file_offset_bytes, iova, len }.payload()
    };
    assert_eq!(ask(&at(0, 0, 0x5000), &fd), INVAL, "longer than the file");
    assert_eq!(ask(&at(0x4000, 0, 0x1000), &fd), INVAL, "after its end");
    assert_eq!(ask(&at(u64::MAX - 0xFFF, 0, 0x1000), &fd), INVAL);
    assert_eq!(ask(&at(0, u64::MAX - 0xFFF, 0x2000), &fd), INVAL);
    assert_eq!(ask(&at(0, 0, u64::MAX), &fd), INVAL);
    assert_eq!(ask(&at(0, 0, 0), &fd), INVAL);
    assert_eq!(ask(&at(4, 0, 8), &fd), INVAL, "not aligned");
    assert_eq!(ask(&at(0, 0, 0x1000)[..31], &fd), INVAL);
    let closed = DmaMap { readable: false, writable: false, file_offset_bytes: 0, iova: 0, len: 8 };
    assert_eq!(ask(&closed.payload(), &fd), INVAL);
    let two = [file.as_fd(), file.as_fd()];
    assert_eq!(ask(&at(0, 0, 0x1000), &two), INVAL);
    let event = event();
    assert_eq!(ask(&at(0, 0, 0x1000), &[event.as_fd()]), INVAL, "an event is no memory");
    let folder = std::fs::File::open("/").unwrap();
    assert_eq!(ask(&at(0, 0, 0x1000), &[folder.as_fd()]), INVAL);
    let zero = std::fs::File::open("/dev/zero").unwrap();
    assert_eq!(ask(&at(0, 0, 0x1000), &[zero.as_fd()]), INVAL);
    // One of a file system that is not memory: touching it may wait, for as long as that likes.
    let path = served.path.with_file_name("disk");
    std::fs::write(&path, vec![0; 0x4000]).unwrap();
    let disk = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    // As far as the folder of tests is on one.
    if rustix::fs::fstatfs(&disk).unwrap().f_type != rustix::fs::fstatfs(&file).unwrap().f_type {
        assert_eq!(ask(&at(0, 0, 0x1000), &[disk.as_fd()]), INVAL);
    }
    let read_only = std::fs::File::open(format!("/proc/self/fd/{}", {
        use std::os::fd::AsRawFd;
        file.as_raw_fd()
    }))
    .unwrap();
    let acces = Errno::ACCESS.raw_os_error() as u32;
    assert_eq!(ask(&at(0, 0, 0x1000), &[read_only.as_fd()]), acces);
    let to_read =
        DmaMap { readable: true, writable: false, file_offset_bytes: 0, iova: 0, len: 0x1000 };
    assert_eq!(ask(&to_read.payload(), &[read_only.as_fd()]), 0);
    assert_eq!(served.counters().dma_maps, 1);
}

#[test]
fn reads_and_writes_of_regions() {
    let served = Served::new();
    let mut raw = Raw::agreed(&served.path);
    let access = |region, offset_bytes, len| RegionAccess { offset_bytes, region, len };
    let answer = raw.ask(Command::RegionRead, &access(7, 0, 256).payload(&[]), &[]);
    assert_eq!(RegionAccess::parse(&answer.payload).unwrap().1.len(), 256);
    // One message of 8 bytes is one access; the answer has no data.
    let answer = raw.ask(Command::RegionWrite, &access(0, 0xC0, 8).payload(&[9; 8]), &[]);
    assert_eq!((answer.errno(), answer.payload.len()), (0, 16));
    assert_eq!(served.device.register(0xC7), 9);
    for (region, offset, len) in [
        (0, 0x1FFC, 8),
        (0, u64::MAX, 4),
        (0, 0, 0),
        (0, 0, u32::MAX),
        (1, 0, 4),
        (6, 0, 4),
        (7, 255, 2),
        (7, 1 << 32, 4),
        (8, 0, 1),
        (9, 0, 4),
        (u32::MAX, 0, 4),
    ] {
        let access = access(region, offset, len);
        assert_eq!(raw.ask(Command::RegionRead, &access.payload(&[]), &[]).errno(), INVAL);
        assert_eq!(raw.ask(Command::RegionWrite, &access.payload(&[0; 8]), &[]).errno(), INVAL);
    }
    let short = access(0, 0, 8).payload(&[1; 4]);
    assert_eq!(raw.ask(Command::RegionWrite, &short, &[]).errno(), INVAL, "less data than said");
    assert_eq!(raw.ask(Command::RegionRead, &short[..15], &[]).errno(), INVAL);
    // A posted write: the server does not answer it, not even if it is refused.
    for region in [0, 1] {
        let payload = access(region, 0, 4).payload(&[0x77; 4]);
        let mut posted = Header::command(1, Command::RegionWrite, payload.len()).message(&payload);
        posted[8] = 0x10;
        raw.send(&posted, &[]);
    }
    assert_eq!(raw.ask(Command::Reset, &[], &[]).errno(), 0);
    assert_eq!(served.counters().region_writes, 1 + 11 + 1 + 2);
}

#[test]
fn what_is_not_offered() {
    let served = Served::new();
    let mut raw = Raw::agreed(&served.path);
    let unsupported = Errno::OPNOTSUPP.raw_os_error() as u32;
    use Command as C;
    for command in [
        C::GetRegionIoFds,
        C::DmaRead,
        C::DmaWrite,
        C::RegionWriteMulti,
        C::DeviceFeature,
        C::MigrationRead,
        C::MigrationWrite,
    ] {
        assert_eq!(raw.ask(command, &[0; 64], &[]).errno(), unsupported, "{command:?}");
    }
    let mut unknown = Header::command(7, Command::Reset, 0).message(&[]);
    unknown[2] = 14;
    raw.send(&unknown, &[]);
    let answer = raw.answer().unwrap();
    assert_eq!((answer.errno(), answer.header.command), (38, 14));
}
