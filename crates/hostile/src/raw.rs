//! A client that sends arbitrary messages.

use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use qpair_vfio_user::codec::{Command, DmaMap, Header, RegionAccess, SetIrqs};
use qpair_vfio_user::codec::{IrqAction, IrqData, irq_index};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

pub(super) struct Raw {
    pub(super) stream: UnixStream,
    /// The descriptors of the last answer.
    pub(super) fds: Vec<OwnedFd>,
}

impl Raw {
    pub(super) fn connect(path: &Path) -> Option<Self> {
        let stream = UnixStream::connect(path).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        stream.set_write_timeout(Some(Duration::from_millis(50))).ok()?;
        Some(Self { stream, fds: Vec::new() })
    }

    /// Connects and negotiates a version, and waits for the previous client to disconnect.
    pub(super) fn agreed(path: &Path) -> Option<Self> {
        for _ in 0..5000 {
            let mut raw = Self::connect(path)?;
            if raw.ask(Command::Version, &[0, 0, 1, 0], &[]) == Some(0) {
                return Some(raw);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    pub(super) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let flags = SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, flags).is_ok()
    }

    /// Sends a message and returns the error number of the answer; `None` if there is no answer.
    pub(super) fn ask(
        &mut self,
        command: Command,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Option<u32> {
        if !self.send(&Header::command(1, command, payload.len()).message(payload), fds) {
            return None;
        }
        let mut head = [0; 16];
        self.receive(&mut head)?;
        let header = Header::parse(&head)?;
        let mut rest = vec![0; header.payload_bytes()?];
        self.stream.read_exact(&mut rest).ok()?;
        Some(header.errno)
    }

    fn receive(&mut self, head: &mut [u8; 16]) -> Option<()> {
        self.fds.clear();
        let mut have = 0;
        while have < head.len() {
            let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
            let mut control = RecvAncillaryBuffer::new(&mut room);
            let mut into = [IoSliceMut::new(&mut head[have..])];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let got = rustix::net::recvmsg(&self.stream, &mut into, &mut control, flags).ok()?;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    self.fds.extend(rights);
                }
            }
            have += got.bytes;
            (got.bytes > 0).then_some(())?;
        }
        Some(())
    }

    pub(super) fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Option<u32> {
        let access = RegionAccess { offset_bytes, region: 0, len: bytes.len() as u32 };
        self.ask(Command::RegionWrite, &access.payload(bytes), &[])
    }

    pub(super) fn map(&mut self, iova: u64, len: u64, file: &OwnedFd) -> Option<u32> {
        let map = DmaMap { readable: true, writable: true, file_offset_bytes: 0, iova, len };
        self.ask(Command::DmaMap, &map.payload(), &[file.as_fd()])
    }

    /// Maps memory without asking for an answer.
    pub(super) fn map_posted(&self, iova: u64, len: u64, file: &OwnedFd) -> bool {
        const NO_REPLY: u8 = 0x10;
        let map = DmaMap { readable: true, writable: true, file_offset_bytes: 0, iova, len };
        let payload = map.payload();
        let mut message = Header::command(1, Command::DmaMap, payload.len()).message(&payload);
        message[8] |= NO_REPLY;
        self.send(&message, &[file.as_fd()])
    }

    pub(super) fn set_irq(&mut self, vector: u32, event: &OwnedFd) -> Option<u32> {
        let (data, action) = (IrqData::Events, IrqAction::Trigger);
        let set = SetIrqs { data, action, index: irq_index::MSIX, start: vector, count: 1 };
        self.ask(Command::SetIrqs, &set.payload(), &[event.as_fd()])
    }
}

/// Makes a file in memory that can be truncated.
pub(super) fn memory(len: u64) -> Result<OwnedFd, String> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let made = rustix::fs::memfd_create("hostile", flags)
        .and_then(|file| rustix::fs::ftruncate(&file, len).map(|()| file));
    made.map_err(|error| format!("a file in memory: {error}"))
}
