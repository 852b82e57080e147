//! The host proves who it is on a new connection, and asks the target for the same.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};

use qpair_block::{Error, ErrorKind, Result};
use qpair_nvme_auth::{Fault, Host, HostKeys, Names, PROTOCOL, Secret};
use qpair_nvme_wire::Command;
use qpair_nvme_wire::fabrics::{AUTHENTICATION_REQUIRED, Sgl, fctype, sgl};

use super::association::with_data;
use super::device::NvmeTcpOptions;
use super::link::{Answer, Link};
use crate::address::Place;

/// The room for a message of the target, bytes.
const ROOM_BYTES: u32 = 4096;

static TRANSACTION: AtomicU16 = AtomicU16::new(1);

/// Reads the keys of this host and of the target from their files.
///
/// # Errors
/// `Invalid` for a file without a key, and for a key of the target without one of this host;
/// `Denied` for a file that others may read; the errors of reading.
pub(super) fn read_keys(options: &NvmeTcpOptions) -> Result<Option<HostKeys>> {
    let read = |path: &str| Secret::read(Path::new(path));
    let is_given = |path: &&str| !path.is_empty();
    let controller = Some(options.dhchap_ctrlr_key.as_str()).filter(is_given);
    match Some(options.dhchap_key.as_str()).filter(is_given) {
        Some(host) => {
            let controller = controller.map(read).transpose()?;
            Ok(Some(HostKeys { host: read(host)?, controller }))
        }
        None if controller.is_some() => {
            let context = "dhchap_ctrlr_key needs dhchap_key: a host proves itself first";
            Err(Error::new(ErrorKind::Invalid, context))
        }
        None => Ok(None),
    }
}

/// Authenticates, if the answer to Connect asks for it.
///
/// # Errors
/// `Denied` if the target wants a key that this host does not have, or does not prove who it is
/// although a key of it is known; the errors of the connection.
pub(super) fn authenticate(
    link: &mut Link,
    place: &Place,
    options: &NvmeTcpOptions,
    keys: Option<&HostKeys>,
    answer: u32,
) -> Result<()> {
    let denied = |why: String| Error::new(ErrorKind::Denied, format!("{place}: {why}"));
    match (answer & AUTHENTICATION_REQUIRED != 0, keys) {
        (false, Some(keys)) if keys.controller.is_some() => {
            Err(denied("the target does not authenticate, and so does not prove who it is".into()))
        }
        (false, _) => Ok(()),
        (true, None) => {
            let error = denied("the target requires authentication of this host".into());
            Err(error.hint("give dhchap_key=FILE"))
        }
        (true, Some(keys)) => {
            let names = Names { host: options.host.clone(), subsystem: place.subsystem.clone() };
            match talk(link, keys, names) {
                Ok(Ok(())) => Ok(()),
                Ok(Err(fault)) if fault.is_told => {
                    Err(denied(format!("the target refuses this host: {fault}")))
                }
                Ok(Err(fault)) => Err(denied(format!("the target was not accepted: {fault}"))),
                Err(cause) => {
                    Err(Error::os(cause, format!("{place}: authenticating at an NVMe/TCP target")))
                }
            }
        }
    }
}

type Talked = std::result::Result<(), Fault>;

fn talk(link: &mut Link, keys: &HostKeys, names: Names) -> io::Result<Talked> {
    let transaction = TRANSACTION.fetch_add(1, Ordering::Relaxed);
    let (mut host, offer) = Host::begin(keys, names, transaction);
    send(link, &offer)?;
    let reply = match host.answer(&receive(link)?) {
        Ok(reply) => reply,
        Err(fault) => return tell(link, &host, fault),
    };
    send(link, &reply)?;
    match host.finish(&receive(link)?) {
        Ok(None) => Ok(Ok(())),
        Ok(Some(last)) => send(link, &last).map(Ok),
        Err(fault) => tell(link, &host, fault),
    }
}

/// Tells the target of a failure that it does not know.
fn tell(link: &mut Link, host: &Host<'_>, fault: Fault) -> io::Result<Talked> {
    if !fault.is_told {
        send(link, &host.failure(fault))?;
    }
    Ok(Err(fault))
}

fn refused(Answer { status, .. }: &Answer) -> io::Error {
    io::Error::other(format!("the target ended a message of authentication with {status:?}"))
}

fn send(link: &mut Link, message: &[u8]) -> io::Result<()> {
    let len_bytes = message.len() as u32;
    let mut command = Command::authentication(fctype::AUTHENTICATION_SEND, PROTOCOL, len_bytes);
    command.set_sgl(Sgl { address: 0, len_bytes, kind: sgl::IN_CAPSULE });
    let answer = link.call(command, Some(message))?;
    if answer.status.is_success() { Ok(()) } else { Err(refused(&answer)) }
}

fn receive(link: &mut Link) -> io::Result<Vec<u8>> {
    let command = Command::authentication(fctype::AUTHENTICATION_RECEIVE, PROTOCOL, ROOM_BYTES);
    let answer = link.call(with_data(command, ROOM_BYTES), None)?;
    if answer.status.is_success() { Ok(answer.data) } else { Err(refused(&answer)) }
}
