//! Limits of the process, as `ulimit` sets them.

use std::fs::File;
use std::process::Command;

use crate::harness::{Directory, interrupted};

/// Huge pages that are reserved, and that no one has.
fn free_huge_pages() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let free = meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    free.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// A regression: the signal SIGXFSZ ended the process without an error message.
#[test]
fn a_file_that_may_not_grow_is_an_error() {
    let directory = Directory::new();
    let lines: String = (0..100_000).map(|i| format!("{i:06}\t{i:0100}\n")).collect();
    directory.file("in.tsv", lines);
    // 4 MiB, in blocks of 512 bytes.
    for io in ["posix", "libaio", "io_uring"] {
        let load = format!("load {io}.store in.tsv --interface {io} --buffered");
        let run = directory.shell("ulimit -f 8192", &load);
        if run.code == Some(3) && !run.err.contains("File too large") {
            eprintln!("skipped {io}: {}", run.err);
            continue;
        }
        run.failed(3, &["records are in the store"]);
        assert!(directory.run(&format!("check {io}.store")).done().contains("no damage found"));
    }
    let write = "bench io --name=w --filename=f --rw=write --size=8m";
    directory.shell("ulimit -f 8192", write).failed(3, &["File too large"]);
    let scan = directory.shell("ulimit -f 1", "scan posix.store >scanned");
    scan.failed(3, &["writing to standard output: File too large"]);
}

/// Reserved huge pages are used only by a job that requests them, for all of its memory.
#[test]
fn reserved_huge_pages_are_taken_when_asked_for() {
    let directory = Directory::new();
    let free = free_huge_pages();
    let job = "bench io --name=h --filename=null:size=1g --rw=randread --bs=2m --number_ios=9 --ioengine=posix";
    let wanted = (free + 1).max(2);
    let all = directory.run(&format!("{job} --mem=mmaphuge --iodepth={wanted}"));
    all.failed(3, &["huge pages", "vm.nr_hugepages"]);
    directory.run(&format!("{job} --mem=mmap --iodepth={wanted}")).done();
    if free == 0 {
        eprintln!("skipped: no huge pages are reserved");
    } else {
        directory.run(&format!("{job} --mem=mmaphuge --iodepth=1")).done();
    }
}

/// A regression: a store took all of its memory from huge pages that were reserved for other
/// programs, and no option prevented that.
#[test]
fn a_store_takes_reserved_huge_pages_only_when_asked() {
    let directory = Directory::new();
    directory.run("put s k v").done();
    let stat = directory.run("stat s").done();
    assert!(stat.contains("transparent huge pages where the kernel gives them"), "{stat}");
    assert!(
        directory.run("stat s --json").done().contains("\"memory_pages\":\"transparent_huge\"")
    );
    let more = 2 * (free_huge_pages() + 8);
    let asked = directory.run(&format!("stat s --huge-pages --memory {more}MiB"));
    asked.failed(3, &["reserved huge pages", "vm.nr_hugepages"]);
    let doctor = directory.run("doctor");
    assert!(doctor.out.contains("memory of a store"), "{}", doctor.out);
    assert!(!doctor.out.contains("buffers are taken from them first"), "{}", doctor.out);
}

/// A control group for one test, removed on drop. Creating it needs permission.
struct Group(std::path::PathBuf);

impl Group {
    fn of_memory(bytes: u64) -> Option<Self> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let of = |controller: &str| {
            groups.lines().find_map(|line| {
                let (names, path) = line.split_once(':')?.1.split_once(':')?;
                names.split(',').any(|name| name == controller).then(|| path.to_owned())
            })
        };
        let (directory, limit) = match of("memory") {
            Some(path) => (format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"),
            None => (format!("/sys/fs/cgroup{}", of("")?), "memory.max"),
        };
        let group = std::path::Path::new(&directory).join(format!("qpair-{}", std::process::id()));
        std::fs::create_dir(&group).ok()?;
        let group = Self(group);
        std::fs::write(group.0.join(limit), bytes.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A regression: the default was 256 MiB whatever the control group allowed, so larger loads were
/// killed.
#[test]
fn a_load_fits_into_a_small_control_group() {
    let Some(group) = Group::of_memory(64 << 20) else {
        return eprintln!("skipped: no control group for memory can be made here");
    };
    let directory = Directory::new();
    let lines: String =
        (0..300_000).map(|i| format!("{:06}\t{i:0280}\n", i * 7 % 300_000)).collect();
    directory.file("in.tsv", lines);
    let enter = format!("echo $$ >{}", group.0.join("cgroup.procs").display());
    // Do not use the page cache: version 1 control groups kill processes for pages that are not
    // written back yet.
    let load = directory.shell(&enter, "load s in.tsv");
    assert!(!load.err.contains("warning"), "{}", load.err);
    load.done();
    let said = directory.shell(&enter, "get s 000007 --memory 100MiB").err;
    assert!(said.contains("warning") && said.contains("control group"), "{said}");
    let doctor = directory.shell(&enter, "doctor --json").done();
    assert!(doctor.contains(&format!("\"limit_bytes\":{}", 64 << 20)), "{doctor}");
    assert!(directory.run("check s").done().contains("no damage found"));
}

/// A regression: the old backup was erased before it was known that the new one fits, so the target
/// had neither.
#[test]
fn an_old_backup_stays_until_the_new_one_is_whole() {
    let directory = Directory::new();
    directory.run("put s k old").done();
    directory.run("backup s copy").done();
    directory.run("backup s stripe:a+b").done();
    directory.file("v", vec![7; 9 << 20]);
    directory.run("put s large --value-file v").done();
    // 8 MiB, in blocks of 512 bytes.
    for target in ["copy", "stripe:a+b"] {
        let backup = format!("backup s {target} --force");
        let limit = if target == "copy" { "ulimit -f 16384" } else { "ulimit -f 8192" };
        directory.shell(limit, &backup).failed(3, &[]);
        assert_eq!(directory.run(&format!("scan {target} --count")).done(), "1\n");
        assert!(directory.run(&format!("check {target}")).done().contains("no damage found"));
        let names: Vec<_> = std::fs::read_dir(directory.path("")).unwrap().flatten().collect();
        assert!(
            !names.iter().any(|name| name.file_name().to_string_lossy().contains("qpair-backup"))
        );
        directory.run(&backup).done();
        assert_eq!(directory.run(&format!("scan {target} --count")).done(), "2\n");
    }
    // The remains of a killed backup do not prevent another one. A complete backup is not removed.
    directory.file("copy.qpair-backup", "part of a backup");
    directory.run("backup s copy --force").done();
    std::fs::rename(directory.path("copy"), directory.path("copy.qpair-backup")).unwrap();
    directory.run("put copy other store").done();
    directory
        .run("backup s copy --force")
        .failed(3, &["copy.qpair-backup", "rename it, or remove it"]);
    assert_eq!(directory.run("get copy other").done(), "store");
}

/// With a small address space, the defaults leave enough of it for everything else that a store
/// maps.
#[test]
fn defaults_fit_into_few_addresses() {
    let directory = Directory::new();
    directory.file("in.tsv", "a\t1\nb\t2\n");
    directory.shell("ulimit -v 450000", "load s in.tsv").done();
}

/// A file on a loop device, which is detached on drop.
struct Loop(
    String,
    #[expect(dead_code, reason = "the file is removed on drop")] tempfile::TempPath,
);

impl Drop for Loop {
    fn drop(&mut self) {
        // Otherwise the next user of the loop device would find it read-only.
        let _ = Command::new("blockdev").args(["--setrw", &self.0]).status();
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// Creates a writable loop device on a file of zeroes in memory, whose flushes take no time beside
/// other tests. This needs root.
fn loop_device(size_bytes: u64) -> Option<Loop> {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").ok()?;
    file.as_file().set_len(size_bytes).ok()?;
    let path = file.into_temp_path();
    let output = Command::new("losetup").args(["-f", "--show"]).arg(&path).output().ok()?;
    let device = Loop(String::from_utf8_lossy(&output.stdout).trim().to_owned(), path);
    // An earlier test may have left it read-only.
    let writable = Command::new("blockdev").args(["--setrw", &device.0]).status();
    (output.status.success() && writable.is_ok_and(|status| status.success())).then_some(device)
}

/// The advice says to delete records, which needs no space. A regression: the advice was that "a
/// block device has a fixed size".
#[test]
fn a_full_device_tells_how_to_get_room() {
    let directory = Directory::new();
    let Some(device) = loop_device(8 << 20) else {
        return eprintln!("skipped: no loop device");
    };
    let Some(small) = loop_device(1 << 20) else {
        return eprintln!("skipped: no second loop device");
    };
    let (name, small) = (&device.0, &small.0);
    let delete = format!("`qpair delete {name} KEY`, or --prefix");
    let told = ["cannot have", "needs no free space", &delete];
    directory.file("v", vec![7; 3 << 20]);
    directory.run(&format!("put {name} a --value-file v --init")).done();
    let put = format!("put {name} b --value-file v");
    let full = directory.run(&put);
    assert!(!full.err.contains("fixed size"), "{}", full.err);
    full.failed(3, &told);
    let backup = directory.run(&format!("backup {name} {small}"));
    assert!(!backup.err.contains("qpair delete"), "{}", backup.err);
    backup.failed(3, &["cannot have", "hint: give a larger target"]);
    directory.run(&format!("delete {name} a")).done();
    directory.run(&put).done();
    let value = "x".repeat(60);
    let records: String = (0..100_000).map(|key| format!("k{key:08}\t{value}\n")).collect();
    directory.file("in.tsv", records);
    directory.run(&format!("load {name} in.tsv")).failed(3, &told);
    directory.run(&format!("delete {name} --prefix k")).done();
    directory.run(&format!("put {name} k v")).done();
    // A store that could not be created has no records to delete.
    let made = directory.run(&format!("put {small} k v --init"));
    assert!(!made.err.contains("qpair delete"), "{}", made.err);
    made.failed(3, &["reserving space for a new store"]);
}

/// The error says that the old backup on a device is gone once the new one is being written. A
/// regression: nothing said so.
#[test]
fn an_interrupted_backup_on_a_device_says_that_the_old_one_is_gone() {
    use std::os::unix::fs::FileExt;
    let directory = Directory::new();
    let Some(device) = loop_device(64 << 20) else {
        return eprintln!("skipped: no loop device");
    };
    let records: String = (0..150_000).map(|i| format!("key {i}\tvalue {i}\n")).collect();
    directory.file("in.tsv", records);
    directory.run("load s in.tsv --memory 64MiB --quiet").done();
    let backup = format!("backup s {} --force --memory 1MiB", device.0);
    // Some backups end before the signal arrives.
    for _ in 0..50 {
        directory.run(&backup).done();
        let mut child = directory.spawn(&backup);
        let is_erased = || {
            let mut first = [1; 8];
            let file = File::open(&device.0).unwrap();
            file.read_exact_at(&mut first, 0).is_ok() && first == [0; 8]
        };
        while !is_erased() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let run = interrupted(child);
        if run.code == Some(130) {
            let said = ["interrupted", "has no store", "the old backup", "is gone"];
            assert!(run.err.contains("run the backup again"), "{}", run.err);
            run.failed(130, &said);
            directory.run(&backup).done();
            return;
        }
    }
    panic!("no backup was interrupted");
}

/// A regression: the hint was to remove the "file", and a read-only device was noticed only at the
/// first write.
#[test]
fn block_devices_end_and_may_be_read_only() {
    let directory = Directory::new();
    let Some(device) = loop_device(8 << 20) else {
        return eprintln!("skipped: no loop device");
    };
    let name = &device.0;
    let past = directory
        .run(&format!("bench io --name=x --filename={name} --rw=read --offset=4m --size=8m"));
    assert!(!past.err.contains("remove"), "{}", past.err);
    past.failed(2, &["has 8MiB, less than the 12MiB", "ask for less"]);
    let read_only = Command::new("blockdev").args(["--setro", name]).status();
    if !read_only.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: blockdev --setro");
    }
    let write = format!("bench io --name=x --filename={name} --rw=write --size=1m --force");
    directory.run(&write).failed(3, &["cannot be written", "--setrw"]);
}

/// Reads of holes never reach the drive: their figures look like those of a very fast drive.
#[test]
fn files_that_were_never_written_are_told_and_filled_on_request() {
    let directory = Directory::new();
    let file = File::create(directory.path("holes")).unwrap();
    file.set_len(16 << 20).unwrap();
    if qpair_machine::unwritten_note(&directory.path("holes")).is_none() {
        return eprintln!("skipped: the file system does not tell what was never written");
    }
    let io = "bench io --name=a --filename=holes --rw=randread --bs=4k --size=16m --io_size=64k";
    let peak = "bench peak holes --seconds 0.1 --depth 4 --batch 1 --buffered";
    let told = |words: &str| {
        let run = directory.run(words);
        let said = run.out + &run.err;
        said.split_whitespace().collect::<Vec<_>>().join(" ").contains("was never written")
    };
    assert!(told(io) && told(peak));
    assert!(!told("bench io --name=a --filename=holes --rw=randwrite --size=16m --io_size=64k"));
    directory.run(&format!("{peak} --prefill")).done();
    file.sync_all().unwrap();
    assert!(!told(io) && !told(peak));
    // A store has holes, too.
    directory.run("put s k v").done();
    directory.run("bench peak s --seconds 0.1 --prefill").failed(3, &["holds a qpair store"]);
    assert_eq!(directory.run("get s k").done().trim(), "v");
}
