//! A relay between a client and a genuine server, which changes what the server says.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fastrand::Rng;
use qpair_nvme_tcp::wire::{Digests, Header, crc32c, flag, kind};

/// The largest PDU that is taken as a whole.
const PDU_BYTES_MAX: usize = 2 << 20;
/// The most bytes of a nonsense server's answer at once.
const NONSENSE_BYTES: usize = 5000;

/// The wrongs of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The connection pauses, ends, or brings bytes one by one.
    Breaks,
    /// Bits change, and bytes are lost, repeated or invented.
    Garbles,
    /// PDUs of NVMe/TCP are lost, repeated, or change places.
    Misorders,
    /// Fields of PDUs change, with digests that are right.
    Lies,
    /// The answers are random from some time on, and no server is there.
    Nonsense,
}

pub(super) struct Relay {
    pub(super) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Listens. Connections lead to the server at `to`; one in `one_in` chunks is changed.
    pub(super) fn start(
        to: SocketAddr,
        wrong: Wrong,
        one_in: u32,
        seed: u64,
    ) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("a relay: {error}");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut streams, mut pumps, mut random) =
                (Vec::new(), Vec::new(), Rng::with_seed(seed));
            for client in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let Ok(client) = client else { break };
                let _ = client.set_nodelay(true);
                let mut liar = Liar { random: random.fork(), wrong, one_in, ..Liar::default() };
                if wrong == Wrong::Nonsense {
                    streams.extend(client.try_clone());
                    pumps.push(std::thread::spawn(move || liar.nonsense(client)));
                    continue;
                }
                let Ok(server) = TcpStream::connect(to) else { continue };
                let _ = server.set_nodelay(true);
                let pairs = (client.try_clone(), server.try_clone());
                let (Ok(client2), Ok(server2)) = pairs else { continue };
                streams.extend([client.try_clone(), server.try_clone()].into_iter().flatten());
                pumps.push(std::thread::spawn(move || {
                    pump(client2, server2, |bytes, output| {
                        output.extend(bytes);
                        true
                    });
                }));
                pumps.push(std::thread::spawn(move || {
                    pump(server, client, |bytes, output| liar.change(bytes, output));
                }));
            }
            for stream in streams {
                let _ = stream.shutdown(Shutdown::Both);
            }
            for pump in pumps {
                let _ = pump.join();
            }
        });
        Ok(Self { address, stop, thread: Some(thread) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Moves bytes until a side ends, or `change` returns false.
fn pump(
    mut from: TcpStream,
    mut to: TcpStream,
    mut change: impl FnMut(&[u8], &mut Vec<u8>) -> bool,
) {
    let (mut bytes, mut output) = (vec![0; 64 << 10], Vec::new());
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 {
            break;
        }
        output.clear();
        let stays = change(&bytes[..count], &mut output);
        if to.write_all(&output).is_err() || !stays {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

struct Liar {
    random: Rng,
    wrong: Wrong,
    one_in: u32,
    /// The bytes of a PDU that has not come as a whole.
    input: Vec<u8>,
    /// A PDU that comes later.
    kept: Vec<u8>,
    digests: Digests,
}

impl Default for Liar {
    fn default() -> Self {
        Self {
            random: Rng::with_seed(0),
            wrong: Wrong::Breaks,
            one_in: 1,
            input: Vec::new(),
            kept: Vec::new(),
            digests: Digests::default(),
        }
    }
}

impl Liar {
    fn is_time(&mut self) -> bool {
        self.random.u32(0..self.one_in) == 0
    }

    /// Appends what the client gets in place of `bytes`. Returns false at the connection's end.
    fn change(&mut self, bytes: &[u8], output: &mut Vec<u8>) -> bool {
        if matches!(self.wrong, Wrong::Misorders | Wrong::Lies) {
            self.input.extend(bytes);
            while let Some(len) = self.next_len() {
                let mut pdu: Vec<u8> = self.input.drain(..len).collect();
                self.change_pdu(&mut pdu, output);
            }
            return true;
        }
        let start = output.len();
        output.extend(bytes);
        if !self.is_time() {
            return true;
        }
        let at = start + self.random.usize(0..bytes.len());
        let len = self.random.usize(1..100);
        if self.wrong == Wrong::Breaks {
            match self.random.u8(0..4) {
                0 => output.truncate(at),
                1 => std::thread::sleep(Duration::from_millis(self.random.u64(1..600))),
                2 => return false,
                _ => {
                    // The rest comes late, or never.
                    std::thread::sleep(Duration::from_millis(5));
                    output.truncate(at);
                }
            }
            return output.len() == start + bytes.len();
        }
        match self.random.u8(0..4) {
            0 => output[at] ^= 1 << self.random.u8(0..8),
            1 => drop(output.drain(at..(at + len).min(start + bytes.len()))),
            2 => output.extend_from_within(at..),
            _ => {
                let more: Vec<u8> = (0..len).map(|_| self.random.u8(..)).collect();
                output.splice(at..at, more);
            }
        }
        true
    }

    /// Returns the length of the next PDU, if it is there.
    fn next_len(&self) -> Option<usize> {
        let header = Header::decode(self.input.get(..Header::BYTES)?);
        let len = (header.len_bytes as usize).clamp(Header::BYTES, PDU_BYTES_MAX);
        (self.input.len() >= len).then_some(len)
    }

    fn change_pdu(&mut self, pdu: &mut Vec<u8>, output: &mut Vec<u8>) {
        let header = Header::decode(pdu);
        if header.kind == kind::INIT_RESP {
            self.digests = Digests::of(pdu.get(11).copied().unwrap_or_default());
        }
        let is_time = self.is_time();
        match (self.wrong, self.random.u8(0..4)) {
            (Wrong::Lies, _) if is_time => {
                self.lie(pdu, &header);
                output.extend(&*pdu);
            }
            (Wrong::Misorders, 0) if is_time => {}
            (Wrong::Misorders, 1) if is_time => output.extend(pdu.repeat(2)),
            (Wrong::Misorders, 2) if is_time => self.kept.clone_from(pdu),
            (Wrong::Misorders, _) if is_time => {
                // A copy comes again later, when its command may have ended.
                output.extend(&*pdu);
                self.kept.clone_from(pdu);
            }
            _ => {
                output.extend(&*pdu);
                if self.random.bool() {
                    output.append(&mut self.kept);
                }
            }
        }
    }

    /// Changes a byte, and makes the digests right again.
    fn lie(&mut self, pdu: &mut [u8], header: &Header) {
        let fields = usize::from(header.header_bytes).clamp(8, pdu.len());
        let is_plain = matches!(header.kind, kind::INIT_RESP | kind::CONTROLLER_TERM);
        let has_sum = self.digests.header && !is_plain && pdu.len() >= fields + 4;
        let start = fields + if has_sum { 4 } else { 0 };
        let data_sum = header.flags & flag::DATA_DIGEST != 0 && pdu.len() > start + 4;
        let end = pdu.len() - if data_sum { 4 } else { 0 };
        let in_data = start < end && self.random.bool();
        let at = if in_data { self.random.usize(start..end) } else { self.random.usize(0..fields) };
        pdu[at] = [0, 1, 2, 0x7F, 0xFF, self.random.u8(..)][self.random.usize(0..6)];
        if has_sum {
            let sum = crc32c(&pdu[..fields]);
            pdu[fields..fields + 4].copy_from_slice(&sum.to_le_bytes());
        }
        if data_sum && start < end {
            let sum = crc32c(&pdu[start..end]);
            pdu[end..].copy_from_slice(&sum.to_le_bytes());
        }
    }

    /// Answers with random bytes, after a greeting that may be right.
    fn nonsense(&mut self, mut stream: TcpStream) {
        use qpair_nvme_tcp::wire::{InitResp, put};
        let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
        let mut output = Vec::new();
        match self.random.u8(0..4) {
            0 => {}
            1 => {
                output.extend(b"NBDMAGICIHAVEOPT");
                output.extend([0, self.random.u8(0..4)]);
            }
            _ => {
                let digests = Digests::of(self.random.u8(0..4));
                let data_bytes_max = [0, 4096, 1 << 18, u32::MAX - 3][self.random.usize(0..4)];
                let answer = InitResp { digests, data_bytes_max, ..InitResp::default() };
                put::init_resp(&mut output, &answer);
            }
        }
        let _ = stream.write_all(&output);
        let mut asked = vec![0; 16 << 10];
        for _ in 0..self.random.u32(1..40) {
            match stream.read(&mut asked) {
                Ok(0) => return,
                Ok(count) if self.random.bool() => {
                    let _ = stream.write_all(&asked[..count]);
                }
                _ => {}
            }
            let len = self.random.usize(0..NONSENSE_BYTES);
            let mut answer: Vec<u8> = (0..len).map(|_| self.random.u8(..)).collect();
            if answer.len() > 24 && self.random.bool() {
                answer[0] =
                    [kind::CAPSULE_RESP, kind::C2H_DATA, kind::R2T][self.random.usize(0..3)];
                answer[1..4].copy_from_slice(&[0, 24, 24]);
                answer[4..8].copy_from_slice(&self.random.u32(24..6000).to_le_bytes());
                answer[8..16].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
            }
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }
}
