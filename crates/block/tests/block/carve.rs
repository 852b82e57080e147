//! Carved disks: the operations that are refused, and the map after a power cut at any moment.

use std::sync::Arc;

use qpair_block::time::SimClock;
use qpair_block::{
    Arena, ArenaOptions, BlockDevice, CARVED_FROM_BYTES, CarveSlot, Carving, ChannelOptions,
    DelayDevice, DelayOptions, DeviceSpec, ErrorKind, FaultDevice, FaultOptions, IoError, Op,
    RamDevice, RamOptions, Request, SerialChannel, SliceDevice, WaitOptions, examine_carving,
};
use qpair_sim_block::{SimDevice, SimOptions, SimPower};

const MIB: u64 = 1 << 20;

fn ram(block: u32) -> Arc<dyn BlockDevice> {
    let options = RamOptions {
        size_bytes: 16 * MIB,
        logical_block_bytes: block,
        growable: false,
        read_only: false,
    };
    Arc::new(RamDevice::new(options).unwrap())
}

/// The name, start and size of each slice.
type Shape = Vec<(String, u64, u64)>;

fn shape(carving: &Carving) -> Shape {
    let slices = carving.map().slices.iter();
    slices.map(|slice| (slice.name.clone(), slice.start_bytes, slice.size_bytes)).collect()
}

fn create(
    carving: &mut Carving,
    name: &str,
    start: Option<u64>,
    size: u64,
) -> qpair_block::Result<()> {
    let slice = carving.plan(name, start, size)?;
    carving.add(slice)
}

#[test]
fn slices_are_where_they_were_asked_for() {
    let device = ram(4096);
    assert!(Carving::open(&device).unwrap().is_none());
    let mut carving = Carving::open_or_begin(&device, false).unwrap();
    create(&mut carving, "b", Some(5 * MIB + 4096), 2 * MIB).unwrap();
    create(&mut carving, "first", None, 4096).unwrap();
    create(&mut carving, "second", None, 3 * MIB).unwrap();
    // No free range of this size begins at a multiple of 1 MiB.
    create(&mut carving, "rest", None, 9 * MIB - 4096).unwrap();
    for (name, start, size, kind) in [
        ("b", None, 4096, ErrorKind::Exists),
        ("x", Some(5 * MIB), 8192, ErrorKind::Invalid),
        ("x", Some(6 * MIB), 4096, ErrorKind::Invalid),
        ("x", Some(7 * MIB), 8192, ErrorKind::Invalid),
        ("x", Some(MIB - 4096), 8192, ErrorKind::Invalid),
        ("x", Some(0), 4096, ErrorKind::Invalid),
        ("x", Some(MIB + 4096 + 512), 4096, ErrorKind::Invalid),
        ("x", Some(MIB + 4096), 1000, ErrorKind::Invalid),
        ("x", Some(MIB + 4096), 0, ErrorKind::Invalid),
        ("x", Some(16 * MIB), 4096, ErrorKind::NoSpace),
        ("x", Some(u64::MAX - 4095), 8192, ErrorKind::Invalid),
        ("x", None, MIB, ErrorKind::NoSpace),
        ("a/b", None, 4096, ErrorKind::Invalid),
        ("", None, 4096, ErrorKind::Invalid),
        (&"n".repeat(65), None, 4096, ErrorKind::Invalid),
    ] {
        let error = create(&mut carving, name, start, size).unwrap_err();
        assert_eq!(error.kind(), kind, "{name} {start:?} {size}: {error}");
    }
    let expected = vec![
        ("first".to_owned(), MIB, 4096),
        ("second".to_owned(), 2 * MIB, 3 * MIB),
        ("b".to_owned(), 5 * MIB + 4096, 2 * MIB),
        ("rest".to_owned(), 7 * MIB + 4096, 9 * MIB - 4096),
    ];
    assert_eq!(shape(&carving), expected);
    let again = Carving::open(&device).unwrap().unwrap();
    assert_eq!(again.map(), carving.map());
    assert_eq!(again.slice("b").unwrap().size_bytes(), 2 * MIB);
    assert_eq!(again.slice("c").unwrap_err().kind(), ErrorKind::NotFound);
    carving.delete("b").unwrap();
    assert_eq!(carving.delete("b").unwrap_err().kind(), ErrorKind::NotFound);
    let free = carving.map().free(device.size_bytes());
    assert_eq!(free, [MIB + 4096..2 * MIB, 5 * MIB..7 * MIB + 4096]);
}

#[test]
fn slices_have_a_name_for_people() {
    let name = "carve:name=root:file:a:b";
    let spec = DeviceSpec::parse(name).unwrap();
    assert_eq!(spec.to_string(), name);
    let device = ram(512);
    let open = |_: &std::path::Path| Ok(device.clone());
    assert_eq!(spec.open(&open).unwrap_err().kind(), ErrorKind::NotFound);
    let mut carving = Carving::open_or_begin(&device, false).unwrap();
    create(&mut carving, "root", None, MIB).unwrap();
    assert_eq!(spec.open(&open).unwrap().size_bytes(), MIB);
}

#[test]
fn what_is_there_is_not_written_over() {
    for at in [0, 64 << 10, 15 * MIB + 512] {
        let device = ram(512);
        SerialChannel::open(device.as_ref()).unwrap().write(at, &[7; 512]).unwrap();
        let error = Carving::open_or_begin(&device, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists, "{at}: {error}");
        let mut carving = Carving::open_or_begin(&device, true).unwrap();
        create(&mut carving, "a", None, MIB).unwrap();
        // Force applies only if the content is not a map.
        let again = Carving::open_or_begin(&device, true).unwrap();
        assert_eq!(shape(&again), [("a".to_owned(), MIB, MIB)]);
    }
}

#[test]
fn a_damaged_slot_leaves_the_other() {
    let device = ram(512);
    let mut carving = Carving::open_or_begin(&device, false).unwrap();
    create(&mut carving, "a", None, MIB).unwrap();
    create(&mut carving, "b", None, MIB).unwrap();
    let (both, only_a) = (shape(&carving), vec![("a".to_owned(), MIB, MIB)]);
    let mut channel = SerialChannel::open(device.as_ref()).unwrap();
    let mut flip = |at: u64| {
        let mut block = [0; 512];
        channel.read(at & !511, &mut block).unwrap();
        block[(at & 511) as usize] ^= 4;
        channel.write(at & !511, &block).unwrap();
    };
    // The second slot has "b", in a map of two slices.
    for at in 0..64 + 2 * 96 {
        flip((512 << 10) + at);
        let slots = examine_carving(device.as_ref()).unwrap();
        assert!(!matches!(slots[1], CarveSlot::Whole(_)), "{at}");
        assert_eq!(shape(&Carving::open(&device).unwrap().unwrap()), only_a, "{at}");
        flip((512 << 10) + at);
    }
    assert_eq!(shape(&Carving::open(&device).unwrap().unwrap()), both);
    flip(20);
    flip((512 << 10) + 20);
    assert_eq!(Carving::open(&device).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(Carving::open_or_begin(&device, false).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(shape(&Carving::open_or_begin(&device, true).unwrap()), []);
}

/// A device whose power is cut, and a process on it that sometimes dies between a write and its
/// flush.
struct Rig {
    seed: u64,
    clock: SimClock,
    power: SimPower,
    sim: SimDevice,
    rng: fastrand::Rng,
}

impl Rig {
    fn new(seed: u64, cut_at: u64, content: Vec<u8>) -> Self {
        let clock = SimClock::new();
        let options = SimOptions::new(seed, &clock);
        let power = options.power.clone();
        let sim = SimDevice::over(options, content).unwrap();
        power.cut_at_change(cut_at);
        Self { seed, clock, power, sim, rng: fastrand::Rng::with_seed(seed) }
    }

    /// Makes up to `changes` random changes of the map, until the power is cut. Returns the two
    /// maps that may be on the device then: those before and after the last change.
    fn run(&mut self, changes: u32) -> [Shape; 2] {
        let mut known = [Shape::new(), Shape::new()];
        let device = Arc::new(
            FaultDevice::new(Arc::new(self.sim.clone()), FaultOptions::default()).unwrap(),
        );
        let control = device.control();
        let device: Arc<dyn BlockDevice> = device;
        let mut carving = None;
        for change in 0..changes {
            if carving.is_none() {
                let opened = Carving::open_or_begin(&device, true);
                if self.power.is_cut() {
                    break;
                }
                let opened = opened.unwrap();
                assert!(known.contains(&shape(&opened)), "seed {}", self.seed);
                // The map that was read is the only possible one from now on.
                known = [shape(&opened), shape(&opened)];
                carving = Some(opened);
            }
            let Some(open) = &mut carving else { continue };
            let before = shape(open);
            let dies = self.rng.u8(0..4) == 0;
            if dies {
                control.fail_nth(Op::Flush, 1);
            }
            let mut after = before.clone();
            let outcome = if before.len() > 40 || (!before.is_empty() && self.rng.u8(0..3) == 0) {
                let (name, ..) = after.remove(self.rng.usize(..before.len()));
                open.delete(&name)
            } else {
                // Long names make the map take many sectors.
                let name = format!("{change:0>60}");
                // Without a requested place, a slice begins at a multiple of 1 MiB, and the device
                // has only two.
                let start = open.map().free(2 * MIB)[0].start;
                let slice = open.plan(&name, Some(start), 8192).unwrap();
                let at = before.partition_point(|(_, start, _)| *start < slice.start_bytes);
                after.insert(at, (name, slice.start_bytes, slice.size_bytes));
                open.add(slice)
            };
            match outcome {
                Ok(()) => known = [after.clone(), after],
                Err(_) => {
                    known = [before, after];
                    assert!(dies || self.power.is_cut());
                    // After a failed change, nothing more is written by this process.
                    assert!(
                        open.plan("z", Some(2 * MIB - 8192), 8192)
                            .and_then(|z| open.add(z))
                            .is_err()
                    );
                    carving = None;
                }
            }
            control.heal();
            if self.power.is_cut() {
                break;
            }
        }
        known
    }
}

#[test]
fn power_cuts_at_every_write_leave_the_map_before_or_after() {
    const CHANGES: u32 = 20;
    let (mut cuts, mut news, mut olds) = (0, 0, 0);
    for seed in 0..10 {
        for cut_at in 1.. {
            let mut rig = Rig::new(seed, cut_at, vec![0; 2 << 20]);
            let known = rig.run(CHANGES);
            if !rig.power.is_cut() {
                break;
            }
            cuts += 1;
            rig.clock.pass_until(rig.clock.now_ns());
            let options = SimOptions::new(seed, &SimClock::new());
            let survived: Arc<dyn BlockDevice> =
                Arc::new(SimDevice::over(options, rig.sim.content()).unwrap());
            let found = Carving::open(&survived);
            let found = match found {
                // The very first write was torn, so nothing was acknowledged.
                Err(_) if known[0].is_empty() && known[1].len() < 2 => continue,
                found => found.unwrap().map(|carving| shape(&carving)).unwrap_or_default(),
            };
            assert!(known.contains(&found), "seed {seed}, cut {cut_at}: {found:?} of {known:?}");
            if known[0] != known[1] {
                *(if found == known[0] { &mut olds } else { &mut news }) += 1;
            }
        }
    }
    // The cuts lost or tore some writes, and kept others.
    assert!(cuts > 250 && olds > 30 && news > 30, "{cuts} {olds} {news}");
}

#[test]
fn what_is_wrong_with_a_slice_is_its_own() {
    let delay = DelayOptions { read_us: 0, write_us: 2000, flush_us: 0 };
    let slow = Arc::new(DelayDevice::new(ram(512), delay).unwrap());
    let bad = Arc::new(FaultDevice::new(slow, FaultOptions::default()).unwrap());
    bad.control().fail_range(Op::Write, CARVED_FROM_BYTES..2 * MIB);
    let device: Arc<dyn BlockDevice> = bad;
    let mut carving = Carving::open_or_begin(&device, false).unwrap();
    create(&mut carving, "bad", Some(MIB), MIB).unwrap();
    create(&mut carving, "good", Some(2 * MIB), MIB).unwrap();
    let arena = Arena::new(512, 32, ArenaOptions::ordinary_pages()).unwrap();
    let slices = ["bad", "good"].map(|name| carving.slice(name).unwrap());
    let mut channels =
        slices.each_ref().map(|slice| slice.open_channel(&ChannelOptions::default()).unwrap());
    for channel in &mut channels {
        for tag in 0..16 {
            channel.submit(Request::write(tag * 512, 512, arena.lease().unwrap(), tag)).unwrap();
        }
        channel.kick();
    }
    // A slice has no state of its own to reset, and must not reset the device that it shares with
    // others.
    assert_eq!(SliceDevice::reset(&slices[0]).unwrap_err().kind(), ErrorKind::Unsupported);
    for (channel, expected) in channels.iter_mut().zip([Err(IoError::IO), Ok(())]) {
        let mut ended = Vec::new();
        while channel.in_flight() > 0 {
            let all = WaitOptions { want: 16, linger: std::time::Duration::MAX, timeout: None };
            channel.wait(&mut ended, all);
        }
        assert_eq!(ended.len(), 16);
        assert!(ended.iter().all(|completion| completion.result == expected), "{expected:?}");
    }
}
