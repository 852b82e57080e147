//! Hostile hosts of an NVMe/TCP target with TLS: before the handshake, in it, and with a key that
//! they may have.

use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use fastrand::Rng;
use qpair_nvme_auth::psk::{InterchangeKey, TlsKey, Version};
use qpair_nvme_auth::{Hash, Names};
use qpair_nvme_tcp::wire::{Digests, End, InitReq, Pdu, Receiver, Step, put};
use qpair_nvme_tcp::{HostPort, NvmeTcpOptions};
use qpair_nvme_wire::fabrics::{ANY_CONTROLLER, Connect, ConnectData};
use qpair_nvme_wire::{Command, Status};
use qpair_serve::Target;
use qpair_tls::{Key, KeyHash, PskClient, Session};

use crate::raw_host::{ATTACKED, HOST, Kept, QUIET, RawHost, bytes, moved};
use crate::served::said;

/// The kinds of attacks, beside crowds.
pub(super) const KINDS: usize = 11;
/// The key of the hostile host at the attacked subsystem, and that of the well-behaved host.
const KEY: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const QUIET_KEY: &str =
    "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";

/// The key of the well-behaved host in a file, and the first message of the hostile host.
pub(super) struct Keys {
    folder: PathBuf,
    pub(super) hello: Vec<u8>,
}

impl Keys {
    /// # Errors
    /// Also those of a build without TLS.
    pub(super) fn new(target: &Target) -> Result<Self, String> {
        let host = NvmeTcpOptions::default().host;
        for (subsystem, host, text) in [(ATTACKED, HOST, KEY), (QUIET, &host, QUIET_KEY)] {
            let key = InterchangeKey::parse(text).map_err(said)?;
            target.set_nvme_tcp_tls_key(subsystem, host, Some(key)).map_err(said)?;
        }
        let folder = std::env::temp_dir().join(format!("qpair-hostile-tls-{}", std::process::id()));
        let failed = |error: io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(&folder).map_err(failed)?;
        std::fs::write(folder.join("key"), QUIET_KEY).map_err(failed)?;
        let owner = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(folder.join("key"), owner).map_err(failed)?;
        let mut hello = Vec::new();
        // It ends when there is no answer.
        let _ = session(key(HOST, ATTACKED, KEY)?)?.handshake(&mut Deaf(&mut hello));
        Ok(Self { folder, hello })
    }

    /// Returns the path of the file with the key of the well-behaved host.
    pub(super) fn path(&self) -> String {
        self.folder.join("key").display().to_string()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A stream that keeps what is written, and has nothing to read.
struct Deaf<'a>(&'a mut Vec<u8>);

impl Read for Deaf<'_> {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }
}

impl Write for Deaf<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream that fails after so many written bytes.
struct Cut<'a>(&'a mut RawHost, usize);

impl Read for Cut<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.stream.read(into)
    }
}

impl Write for Cut<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.1);
        if count == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.1 -= count;
        self.0.stream.write(&bytes[..count])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Derives the key of a host for a subsystem.
fn key(host: &str, subsystem: &str, text: &str) -> Result<Key, String> {
    let names = Names { host: host.to_owned(), subsystem: subsystem.to_owned() };
    let key = InterchangeKey::parse(text).map_err(said)?;
    let TlsKey { identity, key, hash } = key.derive(&names, Version::V1).map_err(said)?;
    let hash = if hash == Hash::Sha384 { KeyHash::Sha384 } else { KeyHash::Sha256 };
    Ok(Key { identity: identity.into_bytes(), secret: key, hash })
}

/// Begins the TLS of a host that has this key.
fn session(key: Key) -> Result<Session, String> {
    let client = PskClient::new(&[key]).map_err(said)?;
    client.session().map_err(|error| format!("a session of TLS: {error}"))
}

/// Connects by the hostile host's own key; `None` if the target is not ready for more.
fn own(address: &HostPort) -> Result<Option<(RawHost, Session)>, String> {
    let (mut host, mut session) = (RawHost::open(address)?, session(key(HOST, ATTACKED, KEY)?)?);
    let is_done = session.handshake(&mut host.stream).is_ok();
    Ok(is_done.then_some((host, session)))
}

/// Runs one attack.
pub(super) fn attack(address: &HostPort, keys: &Keys, kind: usize, random: &mut Rng) -> Kept {
    let hello = &keys.hello;
    match kind {
        0 => says(address, &[]),
        1 => says(address, &hello[..random.usize(1..hello.len())]),
        2 => says(address, hello),
        3 => changed_hello(address, hello, random),
        4 => hello_in_pieces(address, hello, random),
        5 => garbage_records(address, random),
        6 => wrong_key(address, random),
        7 => names_another(address),
        8 => cut_handshake(address, hello.len(), random),
        9 => noise_inside(address, random),
        _ => reads_nothing(address, random),
    }
}

/// Sends bytes, and then nothing.
fn says(address: &HostPort, bytes: &[u8]) -> Kept {
    let mut host = RawHost::open(address)?;
    host.send(bytes);
    Ok(vec![host])
}

fn changed_hello(address: &HostPort, hello: &[u8], random: &mut Rng) -> Kept {
    let mut hello = hello.to_vec();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(0..hello.len());
        hello[at] = [0, 255, random.u8(..)][random.usize(0..3)];
    }
    says(address, &hello)
}

fn hello_in_pieces(address: &HostPort, hello: &[u8], random: &mut Rng) -> Kept {
    let mut host = RawHost::open(address)?;
    for byte in &hello[..random.usize(1..=hello.len())] {
        if host.send(&[*byte]).is_none() {
            break;
        }
        std::thread::yield_now();
    }
    Ok(vec![host])
}

/// Sends records of any kind and length, before the handshake or after it.
fn garbage_records(address: &HostPort, random: &mut Rng) -> Kept {
    let mut host = match random.bool() {
        true => RawHost::open(address)?,
        false => match own(address)? {
            Some((host, _)) => host,
            None => return Ok(Vec::new()),
        },
    };
    for _ in 0..random.usize(1..20) {
        let kind = [20, 21, 22, 23, 24, random.u8(..)][random.usize(0..6)];
        let data = bytes(random, 20_000);
        let lens = [0, 1, 1 << 14, (1 << 14) + 256, u16::MAX, data.len() as u16, random.u16(..)];
        let [high, low] = lens[random.usize(0..lens.len())].to_be_bytes();
        if host.send(&[kind, 3, random.u8(0..5), high, low]).and(host.send(&data)).is_none() {
            break;
        }
    }
    Ok(vec![host])
}

/// Connects by an identity that the target does not know, or without the secret of one that it
/// knows.
fn wrong_key(address: &HostPort, random: &mut Rng) -> Kept {
    const STRANGER: &str = "nqn.2026-11.invalid.example:stranger";
    let quiet = NvmeTcpOptions::default().host;
    let (who, subsystem, text, is_known) = [
        (STRANGER, ATTACKED, KEY, false),
        (HOST, QUIET, KEY, false),
        (HOST, ATTACKED, QUIET_KEY, false),
        (HOST, ATTACKED, KEY, true),
        (&quiet, QUIET, QUIET_KEY, true),
    ][random.usize(0..5)];
    let mut key = key(who, subsystem, text)?;
    if is_known {
        key.secret[random.usize(0..32)] ^= 1 << random.u8(0..8);
    }
    let mut host = RawHost::open(address)?;
    match session(key)?.handshake(&mut host.stream) {
        Ok(()) => Err(format!("the target took a wrong key of {who} at {subsystem}")),
        Err(_) => Ok(vec![host]),
    }
}

/// Connects under the name of another host, or to its subsystem.
fn names_another(address: &HostPort) -> Kept {
    let quiet = NvmeTcpOptions::default().host;
    let mut kept = Vec::new();
    for (who, subsystem) in [(quiet.as_str(), QUIET), (HOST, QUIET), (&quiet, ATTACKED)] {
        let Some((mut host, mut session)) = own(address)? else { break };
        let mut stream = session.blocking(&mut host.stream);
        if stream.write_all(&connect(who, subsystem)).is_err() {
            break;
        }
        if status(&mut stream).is_some_and(|status| status.is_success()) {
            return Err(format!("the target took another's key for {who} at {subsystem}"));
        }
        kept.push(host);
    }
    Ok(kept)
}

/// Returns the status of the first response.
fn status(stream: &mut impl Read) -> Option<Status> {
    let (mut receiver, mut room) = (Receiver::new(End::Host, 1 << 16), [0; 4096]);
    loop {
        let count = stream.read(&mut room).ok().filter(|count| *count > 0)?;
        let mut rest = &room[..count];
        // The target puts whole messages into a record.
        while let Step::Pdu(pdu) = receiver.next(&mut rest).ok()? {
            match pdu {
                Pdu::InitResp(_) => receiver.initialize(Digests::default()),
                Pdu::Response(it, _) => return Some(it.status),
                _ => return None,
            }
        }
    }
}

/// Returns the messages by which a host connects its admin queue.
fn connect(host: &str, subsystem: &str) -> Vec<u8> {
    let data = ConnectData {
        host_id: [9; 16],
        controller_id: ANY_CONTROLLER,
        subsystem: subsystem.to_owned(),
        host: host.to_owned(),
    };
    let connect = Connect { last_entry: 31, ..Connect::default() };
    let mut output = Vec::new();
    put::init_req(&mut output, &InitReq::default());
    put::command(&mut output, Digests::default(), &connect.command(), ConnectData::BYTES as u32);
    output.extend(data.encode());
    output
}

/// Ends a handshake somewhere, and leaves or becomes silent.
fn cut_handshake(address: &HostPort, hello_bytes: usize, random: &mut Rng) -> Kept {
    let mut host = RawHost::open(address)?;
    let most = random.usize(1..hello_bytes + 80);
    let _ = session(key(HOST, ATTACKED, KEY)?)?.handshake(&mut Cut(&mut host, most));
    Ok(if random.bool() { vec![host] } else { Vec::new() })
}

/// Sends what is no PDU, or half of one, inside TLS.
fn noise_inside(address: &HostPort, random: &mut Rng) -> Kept {
    let Some((mut host, mut session)) = own(address)? else { return Ok(Vec::new()) };
    let mut output = connect(HOST, ATTACKED);
    match random.bool() {
        true => output.truncate(random.usize(1..output.len())),
        false => output.extend(bytes(random, 60_000)),
    }
    let _ = session.blocking(&mut host.stream).write_all(&output);
    if random.bool() {
        session.close(&host.stream);
    }
    Ok(vec![host])
}

/// Asks for much, and reads none of the answers.
fn reads_nothing(address: &HostPort, random: &mut Rng) -> Kept {
    let Some((mut host, mut session)) = own(address)? else { return Ok(Vec::new()) };
    let mut output = connect(HOST, ATTACKED);
    for _ in 0..random.usize(1..3000) {
        let command = moved(Command::identify(1, 0, 0), 4096);
        put::command(&mut output, Digests::default(), &command, 0);
    }
    let _ = session.blocking(&mut host.stream).write_all(&output);
    Ok(vec![host])
}
