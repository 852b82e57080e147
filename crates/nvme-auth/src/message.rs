//! The messages (Base §8.3.4.5.2 to §8.3.4.5.9), little-endian.
//!
//! Invariant: every length in a message is compared with the bytes that came before anything is
//! taken from them.

use qpair_wire::le::{u16_at, u32_at};

use crate::group::Group;
use crate::hash::Hash;

/// Reasons of failures.
pub mod reason {
    pub const FAILED: u8 = 1;
    pub const NOT_USABLE: u8 = 2;
    pub const CONCATENATION: u8 = 3;
    pub const HASH_UNUSABLE: u8 = 4;
    pub const DHGROUP_UNUSABLE: u8 = 5;
    pub const INCORRECT_PAYLOAD: u8 = 6;
    pub const INCORRECT_MESSAGE: u8 = 7;
}

/// Returns a sentence for a reason of a failure.
#[must_use]
pub fn reason_text(number: u8) -> &'static str {
    match number {
        reason::FAILED => "the key is wrong",
        reason::NOT_USABLE => "the other end cannot use DH-HMAC-CHAP",
        reason::CONCATENATION => "the other end refuses TLS that follows from authentication",
        reason::HASH_UNUSABLE => "the ends have no hash function in common",
        reason::DHGROUP_UNUSABLE => "the ends have no DH group in common",
        reason::INCORRECT_PAYLOAD => "a message of authentication is malformed",
        _ => "a message of authentication came out of sequence",
    }
}

const COMMON: u8 = 0;
const DHCHAP: u8 = 1;
const NEGOTIATE: u8 = 0x00;
const CHALLENGE: u8 = 0x01;
const REPLY: u8 = 0x02;
const SUCCESS1: u8 = 0x03;
const SUCCESS2: u8 = 0x04;
const FAILURE2: u8 = 0xF0;
const FAILURE1: u8 = 0xF1;
/// The bytes of a header, and of a descriptor of a protocol.
const HEADER: usize = 16;
const DESCRIPTOR: usize = 64;
/// The most identifiers of a kind in a descriptor.
const IDS_MAX: usize = 30;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The hash functions and groups that a host offers: identifiers, also unknown ones.
    Negotiate {
        transaction: u16,
        /// Whether the host wants TLS to follow.
        concatenation: u8,
        hashes: &'a [u8],
        groups: &'a [u8],
    },
    Challenge {
        transaction: u16,
        hash: u8,
        group: u8,
        sequence: u32,
        challenge: &'a [u8],
        public: &'a [u8],
    },
    Reply {
        transaction: u16,
        response: &'a [u8],
        /// A challenge for the controller, if it is to prove who it is.
        challenge: Option<&'a [u8]>,
        sequence: u32,
        public: &'a [u8],
    },
    Success1 {
        transaction: u16,
        /// The controller's response, if the host has challenged it.
        response: Option<&'a [u8]>,
    },
    Success2 {
        transaction: u16,
    },
    /// A failure that the controller tells of.
    Failure1 {
        transaction: u16,
        reason: u8,
    },
    /// A failure that the host tells of.
    Failure2 {
        transaction: u16,
        reason: u8,
    },
}

/// Reads a message. Bytes behind it are ignored.
///
/// # Errors
/// A reason of failure.
pub fn parse(bytes: &[u8]) -> Result<Message<'_>, u8> {
    const SHORT: u8 = reason::INCORRECT_PAYLOAD;
    let need = |len: usize| if bytes.len() < len { Err(SHORT) } else { Ok(()) };
    let slice = |from: usize, len: usize| bytes.get(from..from + len).ok_or(SHORT);
    need(8)?;
    let transaction = u16_at(bytes, 4);
    match (bytes[0], bytes[1]) {
        (COMMON, NEGOTIATE) => {
            need(8 + DESCRIPTOR)?;
            let (hashes, groups) = (usize::from(bytes[10]), usize::from(bytes[11]));
            // One protocol, DH-HMAC-CHAP.
            if bytes[7] != 1 || bytes[8] != 1 || hashes > IDS_MAX || groups > IDS_MAX {
                return Err(SHORT);
            }
            let (hashes, groups) = (slice(12, hashes)?, slice(12 + IDS_MAX, groups)?);
            Ok(Message::Negotiate { transaction, concatenation: bytes[6], hashes, groups })
        }
        (COMMON, FAILURE1) => Ok(Message::Failure1 { transaction, reason: bytes[7] }),
        (COMMON, FAILURE2) => Ok(Message::Failure2 { transaction, reason: bytes[7] }),
        (DHCHAP, CHALLENGE) => {
            need(HEADER)?;
            let (hash_len, public_len) = (usize::from(bytes[6]), usize::from(u16_at(bytes, 10)));
            Ok(Message::Challenge {
                transaction,
                hash: bytes[8],
                group: bytes[9],
                sequence: u32_at(bytes, 12),
                challenge: slice(HEADER, hash_len)?,
                public: slice(HEADER + hash_len, public_len)?,
            })
        }
        (DHCHAP, REPLY) => {
            need(HEADER)?;
            let (hash_len, public_len) = (usize::from(bytes[6]), usize::from(u16_at(bytes, 10)));
            let challenge = slice(HEADER + hash_len, hash_len)?;
            Ok(Message::Reply {
                transaction,
                response: slice(HEADER, hash_len)?,
                challenge: (bytes[8] & 1 != 0).then_some(challenge),
                sequence: u32_at(bytes, 12),
                public: slice(HEADER + 2 * hash_len, public_len)?,
            })
        }
        (DHCHAP, SUCCESS1) => {
            need(HEADER)?;
            let response = match bytes[8] & 1 {
                0 => None,
                _ => Some(slice(HEADER, bytes[6].into())?),
            };
            Ok(Message::Success1 { transaction, response })
        }
        (DHCHAP, SUCCESS2) => Ok(Message::Success2 { transaction }),
        _ => Err(reason::INCORRECT_MESSAGE),
    }
}

fn header(kind: u8, id: u8, transaction: u16) -> Vec<u8> {
    let [low, high] = transaction.to_le_bytes();
    vec![kind, id, 0, 0, low, high]
}

/// Returns the offer of a host.
#[must_use]
pub fn negotiate(transaction: u16, hashes: &[Hash], groups: &[Group]) -> Vec<u8> {
    let mut message = header(COMMON, NEGOTIATE, transaction);
    let (hashes, groups) = (&hashes[..hashes.len().min(3)], &groups[..groups.len().min(6)]);
    message.extend([0, 1, 1, 0, hashes.len() as u8, groups.len() as u8]);
    message.extend(hashes.iter().map(|hash| hash.number()));
    message.resize(12 + IDS_MAX, 0);
    message.extend(groups.iter().map(|group| group.number()));
    message.resize(8 + DESCRIPTOR, 0);
    message
}

#[must_use]
pub fn challenge(
    transaction: u16,
    (hash, group): (Hash, Group),
    sequence: u32,
    challenge: &[u8],
    public: &[u8],
) -> Vec<u8> {
    let mut message = header(DHCHAP, CHALLENGE, transaction);
    message.extend([hash.len_bytes() as u8, 0, hash.number(), group.number()]);
    message.extend((public.len() as u16).to_le_bytes());
    message.extend(sequence.to_le_bytes());
    message.extend(challenge);
    message.extend(public);
    message
}

/// Returns a host's reply. `challenge` has the length of `response`.
#[must_use]
pub fn reply(
    transaction: u16,
    response: &[u8],
    challenge: Option<(u32, &[u8])>,
    public: &[u8],
) -> Vec<u8> {
    let mut message = header(DHCHAP, REPLY, transaction);
    message.extend([response.len() as u8, 0, challenge.is_some().into(), 0]);
    message.extend((public.len() as u16).to_le_bytes());
    message.extend(challenge.map_or(0, |(sequence, _)| sequence).to_le_bytes());
    message.extend(response);
    match challenge {
        Some((_, value)) => message.extend(value),
        None => message.resize(message.len() + response.len(), 0),
    }
    message.extend(public);
    message
}

#[must_use]
pub fn success1(transaction: u16, hash: Hash, response: Option<&[u8]>) -> Vec<u8> {
    let mut message = header(DHCHAP, SUCCESS1, transaction);
    message.extend([hash.len_bytes() as u8, 0, response.is_some().into()]);
    message.resize(HEADER, 0);
    message.extend(response.unwrap_or_default());
    message
}

#[must_use]
pub fn success2(transaction: u16) -> Vec<u8> {
    let mut message = header(DHCHAP, SUCCESS2, transaction);
    message.resize(HEADER, 0);
    message
}

/// Returns a controller's message that authentication failed.
#[must_use]
pub fn failure1(transaction: u16, reason: u8) -> Vec<u8> {
    let mut message = header(COMMON, FAILURE1, transaction);
    message.extend([1, reason]);
    message
}

/// Returns a host's message that authentication failed.
#[must_use]
pub fn failure2(transaction: u16, reason: u8) -> Vec<u8> {
    let mut message = header(COMMON, FAILURE2, transaction);
    message.extend([1, reason]);
    message
}
