//! A vfio-user server with a soft NVMe controller behind it, and a client that sends anything. The
//! input is a list of messages: a command, a byte that says which descriptors go with it and
//! whether the device is stepped, a length, and the payload. It neither panics nor keeps anything
//! when the client has gone.
#![no_main]

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use qpair_pci::PciDevice;
use qpair_softdev::{SoftNvme, SoftNvmeOptions};
use qpair_vfio_user::codec::{Command, Header};
use qpair_vfio_user::{ServerOptions, Session, Turn};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

fn send(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut control, flags).is_ok()
}

/// Memory to pass: long, short, and of no length.
fn files() -> &'static [OwnedFd; 3] {
    static FILES: OnceLock<[OwnedFd; 3]> = OnceLock::new();
    FILES.get_or_init(|| {
        [1 << 20, 4096, 0].map(|len| {
            let file = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&file, len).unwrap();
            file
        })
    })
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let options = SoftNvmeOptions::parse("size=1MiB,queues=2,entries=16,serial=FUZZ").unwrap();
    let device = SoftNvme::new(options).unwrap();
    let (stream, served) = UnixStream::pair().unwrap();
    stream.set_nonblocking(true).unwrap();
    served.set_nonblocking(true).unwrap();
    let options = ServerOptions { dma_maps_max: 8, ..ServerOptions::default() };
    let mut session = Session::new(served, device.clone(), options);
    send(&stream, &Header::command(0, Command::Version, 4).message(&[0, 0, 1, 0]), &[]);

    let mut rest = input;
    while let [command, how, len, tail @ ..] = rest {
        let (payload, tail) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = tail;
        let mut message = Header::command(1, Command::Reset, payload.len()).message(payload);
        message[2] = command & 0x1F;
        message[8] = command >> 5 & 0x3;
        // Now and then a length that is not the payload's.
        if how & 0x80 != 0 {
            message[4] = *how;
        }
        let fds: Vec<BorrowedFd<'_>> = match how & 0x7 {
            0 => Vec::new(),
            1..=3 => vec![files()[usize::from(how & 0x7) - 1].as_fd()],
            4 => vec![stream.as_fd()],
            5 => files().iter().map(AsFd::as_fd).collect(),
            6 => vec![files()[1].as_fd(); 20],
            _ => vec![files()[0].as_fd(); 16],
        };
        send(&stream, &message, &fds);
        if let Turn::Ended(_) = session.poll() {
            break;
        }
        if how & 0x8 != 0 {
            device.step_all();
        }
        // The client reads, mostly; the rest of the answers stays where it is.
        if how & 0x10 == 0 {
            let mut answer = [0; 4096];
            while std::io::Read::read(&mut (&stream), &mut answer).is_ok_and(|bytes| bytes > 0) {}
        }
    }
    drop(session);
    device.step_all();
});
