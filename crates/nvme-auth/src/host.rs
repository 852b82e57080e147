//! The host's end: it offers, answers a challenge, and may challenge the controller.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::group::{Exchange, Group};
use crate::hash::Hash;
use crate::message::{self, Message, reason, reason_text};
use crate::secret::{Challenge, HostKeys, Names};

/// A failure of an authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The number in messages.
    pub reason: u8,
    /// Whether the controller knows, because it told of the failure.
    pub is_told: bool,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(reason_text(self.reason))
    }
}

impl From<u8> for Fault {
    fn from(reason: u8) -> Self {
        Self { reason, is_told: false }
    }
}

/// The state after the reply.
struct Asked {
    hash: Hash,
    /// The response that the controller has to give, if it was challenged.
    expected: Option<Zeroizing<Vec<u8>>>,
}

/// The authentication of one connection.
pub struct Host<'a> {
    keys: &'a HostKeys,
    names: Names,
    transaction: u16,
    asked: Option<Asked>,
}

/// No output has keys or responses.
impl fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("names", &self.names).finish_non_exhaustive()
    }
}

impl<'a> Host<'a> {
    /// Begins with the offer, which is to be sent.
    #[must_use]
    pub fn begin(keys: &'a HostKeys, names: Names, transaction: u16) -> (Self, Vec<u8>) {
        let offer = message::negotiate(transaction, &Hash::ALL, &Group::ALL);
        (Self { keys, names, transaction, asked: None }, offer)
    }

    /// Takes the challenge, and returns the reply.
    ///
    /// # Errors
    /// A fault, of which the controller is told by [`Host::failure`] unless it knows.
    pub fn answer(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Fault> {
        let Message::Challenge { transaction, hash, group, sequence, challenge, public } =
            told(message::parse(bytes)?)?
        else {
            return Err(reason::INCORRECT_MESSAGE.into());
        };
        if transaction != self.transaction {
            return Err(reason::INCORRECT_MESSAGE.into());
        }
        let hash = Hash::of(hash).filter(|hash| hash.len_bytes() == challenge.len());
        let hash = hash.ok_or(reason::HASH_UNUSABLE)?;
        let exchange = Exchange::begin(Group::of(group).ok_or(reason::DHGROUP_UNUSABLE)?)?;
        let shared = match &exchange {
            None if public.is_empty() => None,
            None => return Err(reason::INCORRECT_PAYLOAD.into()),
            Some(exchange) => Some(exchange.end(public)?),
        };
        let shared = shared.as_ref().map(|secret| secret.as_slice());
        let response = Challenge { hash, value: challenge, sequence, transaction, shared }
            .of_host(&self.keys.host, &self.names);
        let mut value = Zeroizing::new(vec![0; hash.len_bytes()]);
        let mut number = [0; 4];
        let (mut own, mut expected) = (None, None);
        if let Some(key) = &self.keys.controller {
            crate::random(&mut value)?;
            crate::random(&mut number)?;
            let sequence = u32::from_le_bytes(number).max(1);
            let challenge = Challenge { hash, value: &value, sequence, transaction, shared };
            expected = Some(challenge.of_controller(key, &self.names));
            own = Some((sequence, value.as_slice()));
        }
        self.asked = Some(Asked { hash, expected });
        let public = exchange.as_ref().map_or(&[][..], |it| &it.public);
        Ok(message::reply(transaction, &response, own, public))
    }

    /// Takes the success. Returns the last message, if the controller expects one.
    ///
    /// # Errors
    /// As [`Host::answer`]: also if the controller was challenged and does not respond.
    pub fn finish(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let Message::Success1 { transaction, response } = told(message::parse(bytes)?)? else {
            return Err(reason::INCORRECT_MESSAGE.into());
        };
        let asked = self.asked.take().ok_or(reason::INCORRECT_MESSAGE)?;
        if transaction != self.transaction || usize::from(bytes[6]) != asked.hash.len_bytes() {
            return Err(reason::INCORRECT_MESSAGE.into());
        }
        let Some(expected) = asked.expected else { return Ok(None) };
        match response {
            Some(response) if bool::from(expected.as_slice().ct_eq(response)) => {
                Ok(Some(message::success2(transaction)))
            }
            _ => Err(reason::FAILED.into()),
        }
    }

    /// Returns the message that tells the controller of a failure.
    #[must_use]
    pub fn failure(&self, fault: Fault) -> Vec<u8> {
        message::failure2(self.transaction, fault.reason)
    }
}

/// Returns the failure that the controller tells of.
fn told(message: Message<'_>) -> Result<Message<'_>, Fault> {
    match message {
        Message::Failure1 { reason, .. } => Err(Fault { reason, is_told: true }),
        other => Ok(other),
    }
}
