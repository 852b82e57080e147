//! Tests interfaces that are really forbidden, as in a container: the kernel's own filters and
//! limits are applied to one thread.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]
#![allow(clippy::print_stdout, reason = "skips are reported")]

use std::path::PathBuf;

use qpair_block::{Arena, ArenaOptions, BlockDevice, ChannelOptions, ErrorKind};
use qpair_kernel::{FileOptions, Interface, Mode, SocketRing, open, probe};

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

/// Makes `calls` fail with `errno` on this thread and on those that it starts.
fn forbid(calls: &[libc::c_long], errno: i32) -> std::io::Result<()> {
    let statement =
        |code: u32, k: u32, jt: u8| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    // The program loads the call's number, returns an error for each forbidden one, and allows all
    // others.
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for &call in calls {
        let mut jump = statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 0);
        jump.jf = 1;
        program.push(jump);
        let answer = libc::SECCOMP_RET_ERRNO | errno as u32;
        program.push(statement(libc::BPF_RET | libc::BPF_K, answer, 0));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0));
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program outlives the call, which copies it.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
    };
    if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

fn without(calls: &'static [libc::c_long], errno: i32, test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || match forbid(calls, errno) {
        Ok(()) => test(),
        Err(cause) => println!("skipped: no seccomp filter here: {cause}"),
    });
    thread.join().unwrap();
}

#[test]
fn auto_goes_around_a_forbidden_io_uring() {
    without(&[libc::SYS_io_uring_setup], libc::EPERM, || {
        let path = scratch("no-io-uring");
        let options = FileOptions { create: Some(4096), ..FileOptions::new(&path) };
        let device = open(&options, Interface::Auto).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(device.choice().interface, Interface::Libaio);
        assert_eq!(device.info().interface, "libaio");
        let [(passed_over, reason)] = &device.choice().reasons[..] else { panic!("one reason") };
        assert_eq!((*passed_over, reason.kind()), (Interface::IoUring, ErrorKind::Denied));
        assert!(reason.way_out().unwrap().contains("libaio"), "{reason}");
        println!("{}", device.choice());
    });
}

#[test]
fn sockets_are_refused_where_it_is_forbidden() {
    for (errno, kind) in [(libc::EPERM, ErrorKind::Denied), (libc::ENOSYS, ErrorKind::Unsupported)]
    {
        without(&[libc::SYS_io_uring_setup], errno, move || {
            let error = SocketRing::open().unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.way_out().unwrap().contains("epoll"), "{error}");
        });
    }
}

#[test]
fn by_name_it_is_refused() {
    without(&[libc::SYS_io_uring_setup], libc::ENOSYS, || {
        let path = scratch("by-name");
        let options = FileOptions { create: Some(4096), ..FileOptions::new(&path) };
        let error = open(&options, Interface::IoUring).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.way_out().is_some());
        assert!(!path.exists(), "the file of a device that was not opened is left behind");
    });
}

#[test]
fn a_ring_that_may_not_be_entered_is_none() {
    // A regression: opening a polled mode read one block, and waited for it without end.
    without(&[libc::SYS_io_uring_enter], libc::EPERM, || {
        let path = scratch("no-enter");
        let options = FileOptions { create: Some(4096), ..FileOptions::new(&path) };
        let device = open(&options, Interface::Auto).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(device.choice().interface, Interface::Libaio);
        let error = open(&options, Interface::IoUring).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    });
}

#[test]
fn the_last_resort() {
    without(&[libc::SYS_io_uring_setup, libc::SYS_io_setup], libc::EPERM, || {
        let path = scratch("posix-only");
        let options = FileOptions { create: Some(4096), ..FileOptions::new(&path) };
        let device = open(&options, Interface::Auto).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(device.choice().interface, Interface::Posix);
        assert_eq!(device.choice().reasons.len(), 2);
        let working: Vec<_> =
            probe().into_iter().filter(|(_, outcome)| outcome.is_ok()).map(|(i, _)| i).collect();
        assert_eq!(working, [Interface::Posix]);
    });
}

#[test]
fn registering_is_refused() {
    without(&[libc::SYS_io_uring_register], libc::EPERM, || {
        let path = scratch("no-register");
        let options = FileOptions { create: Some(4096), ..FileOptions::new(&path) };
        let error = open(&options, Interface::IoUring).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.way_out().unwrap().contains("file=off"), "{error}");
        // Following the error's advice helps.
        let mode: Mode = "io_uring:buffers=off,file=off,ring=off".parse().unwrap();
        let device = open(&options, mode).unwrap();
        assert!(device.info().mode.contains("file by number"), "{}", device.info().mode);
        let arena = Arena::new(4096, 1, ArenaOptions::default()).unwrap();
        let options = ChannelOptions { arenas: vec![arena], ..Default::default() };
        drop(device.open_channel(&options).unwrap());
        std::fs::remove_file(&path).unwrap();
    });
}

fn drop_ipc_lock() -> std::io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_IPC_LOCK: u32 = 14;
    let header = [VERSION_3, 0];
    // Two sets of effective, permitted and inheritable capabilities.
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: both have the layout of this version of the calls.
    unsafe {
        if libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        for set in &mut sets[0] {
            *set &= !(1 << CAP_IPC_LOCK);
        }
        if libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

#[test]
fn too_little_memory_may_be_locked() {
    let thread = std::thread::spawn(|| {
        // SAFETY: the kernel fills the structure, for which all-zero is a valid value.
        let limit = unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            assert_eq!(libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit), 0);
            limit.rlim_cur
        };
        if limit > 64 << 20 {
            println!("skipped: {limit} bytes may be locked");
            return;
        }
        if let Err(cause) = drop_ipc_lock() {
            println!("skipped: cannot give up CAP_IPC_LOCK: {cause}");
            return;
        }
        let path = scratch("memlock");
        let options = FileOptions { create: Some(4096), ..FileOptions::new(&path) };
        let device = open(&options, Interface::IoUring).unwrap();
        std::fs::remove_file(&path).unwrap();
        let blocks = (limit / 4096 + 256) as u32;
        let arena = Arena::new(4096, blocks, ArenaOptions::ordinary_pages()).unwrap();
        let channel =
            device.open_channel(&ChannelOptions { arenas: vec![arena], ..Default::default() });
        let error = channel.err().expect("more memory was locked than may be");
        assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
        let way_out = error.way_out().unwrap();
        assert!(way_out.contains("ulimit -l") && way_out.contains("buffers=off"), "{error}");
        assert!(way_out.contains(&format!("{} KiB now", limit >> 10)), "{way_out}");
        let not_registered: Mode = "io_uring:buffers=off".parse().unwrap();
        let options = FileOptions { create: Some(4096), ..FileOptions::new(&path) };
        let unlimited = open(&options, not_registered).unwrap();
        std::fs::remove_file(&path).unwrap();
        let too_much = Arena::new(4096, blocks, ArenaOptions::ordinary_pages()).unwrap();
        let options = ChannelOptions { arenas: vec![too_much], ..Default::default() };
        drop(unlimited.open_channel(&options).unwrap());
        // Memory within the limit can be registered repeatedly, because it is released with the
        // channel.
        let blocks = (limit / 4096 * 3 / 4) as u32;
        let arena = Arena::new(4096, blocks, ArenaOptions::ordinary_pages()).unwrap();
        for _ in 0..10 {
            let options = ChannelOptions { arenas: vec![arena.clone()], ..Default::default() };
            device.open_channel(&options).unwrap();
        }
    });
    thread.join().unwrap();
}
