//! The controller's end: it challenges a host, and lets it in or not.

use std::sync::Arc;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::group::{Exchange, Group};
use crate::hash::Hash;
use crate::message::{self, Message, reason};
use crate::secret::{Challenge, HostKeys, Names};

/// The hash functions and groups that a controller takes, the preferred ones first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub hashes: Vec<Hash>,
    pub groups: Vec<Group>,
}

/// All hash functions. All groups, the cheapest one with an exchange first.
impl Default for Policy {
    fn default() -> Self {
        use Group::{Ffdhe2048, Ffdhe3072, Ffdhe4096, Ffdhe6144, Ffdhe8192, Null};
        let groups = vec![Ffdhe2048, Ffdhe3072, Ffdhe4096, Ffdhe6144, Ffdhe8192, Null];
        Self { hashes: Hash::ALL.to_vec(), groups }
    }
}

/// A challenge that was sent.
struct Sent {
    hash: Hash,
    value: Zeroizing<Vec<u8>>,
    sequence: u32,
    exchange: Option<Exchange>,
}

/// The next message.
enum Step {
    /// The host's offer.
    Negotiate,
    /// A challenge, for the host to fetch.
    Challenge(Hash, Group),
    /// The host's reply.
    Reply(Box<Sent>),
    /// The success, for the host to fetch, with the controller's response.
    Success1(Hash, Option<Zeroizing<Vec<u8>>>),
    /// The host's success.
    Success2,
    /// A failure, for the host to fetch.
    Failure1(u8),
    /// There is no next message: the connection ends.
    Failed,
}

/// The authentication of one connection. It can be repeated.
pub struct Controller {
    keys: Arc<HostKeys>,
    names: Names,
    policy: Arc<Policy>,
    transaction: u16,
    step: Step,
    is_authenticated: bool,
}

/// No output has keys or responses.
impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Controller {
    #[must_use]
    pub fn new(keys: Arc<HostKeys>, names: Names, policy: Arc<Policy>) -> Self {
        let step = Step::Negotiate;
        Self { keys, names, policy, transaction: 0, step, is_authenticated: false }
    }

    /// Whether the host has proved who it is.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Whether the authentication has failed, and the host was told: the connection is to end.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.step, Step::Failed)
    }

    /// Takes a message of the host (Authentication Send).
    pub fn take(&mut self, bytes: &[u8]) {
        if self.has_failed() {
            return;
        }
        // The step is over with this message, whatever it is.
        let step = std::mem::replace(&mut self.step, Step::Failure1(reason::INCORRECT_MESSAGE));
        if let Err(reason) = self.try_take(step, bytes) {
            self.is_authenticated = false;
            self.step = Step::Failure1(reason);
        }
    }

    fn try_take(&mut self, step: Step, bytes: &[u8]) -> Result<(), u8> {
        match (step, message::parse(bytes)?) {
            // Only a host that has proved who it is may begin anew: an exchange costs time.
            (step, Message::Negotiate { transaction, concatenation, hashes, groups })
                if self.is_authenticated || matches!(step, Step::Negotiate) =>
            {
                self.transaction = transaction;
                if concatenation != 0 {
                    return Err(reason::CONCATENATION);
                }
                let hash = self.policy.hashes.iter().find(|it| hashes.contains(&it.number()));
                let group = self.policy.groups.iter().find(|it| groups.contains(&it.number()));
                self.step = Step::Challenge(
                    *hash.ok_or(reason::HASH_UNUSABLE)?,
                    *group.ok_or(reason::DHGROUP_UNUSABLE)?,
                );
                Ok(())
            }
            (
                Step::Reply(sent),
                Message::Reply { transaction, response, challenge, sequence, public },
            ) if transaction == self.transaction => {
                self.reply(&sent, response, challenge.zip(Some(sequence)), public)
            }
            (Step::Success2, Message::Success2 { transaction })
                if transaction == self.transaction =>
            {
                (self.is_authenticated, self.step) = (true, Step::Negotiate);
                Ok(())
            }
            (_, Message::Failure2 { .. }) => {
                (self.is_authenticated, self.step) = (false, Step::Failed);
                Ok(())
            }
            _ => Err(reason::INCORRECT_MESSAGE),
        }
    }

    fn reply(
        &mut self,
        sent: &Sent,
        response: &[u8],
        challenge: Option<(&[u8], u32)>,
        public: &[u8],
    ) -> Result<(), u8> {
        let Sent { hash, value, sequence, exchange } = sent;
        let shared = match exchange {
            None if public.is_empty() => None,
            None => return Err(reason::INCORRECT_PAYLOAD),
            Some(exchange) => Some(exchange.end(public)?),
        };
        let shared = shared.as_ref().map(|secret| secret.as_slice());
        let (hash, transaction) = (*hash, self.transaction);
        let expected = Challenge { hash, value, sequence: *sequence, transaction, shared }
            .of_host(&self.keys.host, &self.names);
        if !bool::from(expected.as_slice().ct_eq(response)) {
            return Err(reason::FAILED);
        }
        // Without a number, the challenge is not for the controller, but for TLS that follows.
        let own = match challenge.filter(|(_, sequence)| *sequence != 0) {
            None => None,
            // A host that sends a challenge back wants the answer of another.
            Some((other, _)) if other == value.as_slice() => return Err(reason::FAILED),
            Some((other, sequence)) => {
                let key = self.keys.controller.as_ref().ok_or(reason::FAILED)?;
                let challenge = Challenge { hash, value: other, sequence, transaction, shared };
                Some(challenge.of_controller(key, &self.names))
            }
        };
        self.step = Step::Success1(hash, own);
        Ok(())
    }

    /// Returns the message that the host is to fetch (Authentication Receive) with room for
    /// `room_bytes`; `None` without a message, or without enough room.
    pub fn give(&mut self, room_bytes: usize) -> Option<Vec<u8>> {
        let transaction = self.transaction;
        match std::mem::replace(&mut self.step, Step::Failure1(reason::INCORRECT_MESSAGE)) {
            Step::Challenge(hash, group) => match self.challenge(hash, group) {
                Ok(message) if message.len() <= room_bytes => Some(message),
                Ok(_) => None,
                Err(reason) => {
                    self.step = Step::Failure1(reason);
                    self.give(room_bytes)
                }
            },
            Step::Success1(hash, response) => {
                let response = response.as_ref().map(|it| it.as_slice());
                let message = message::success1(transaction, hash, response);
                if message.len() > room_bytes {
                    return None;
                }
                match response {
                    None => (self.is_authenticated, self.step) = (true, Step::Negotiate),
                    Some(_) => self.step = Step::Success2,
                }
                Some(message)
            }
            Step::Failure1(reason) => {
                (self.is_authenticated, self.step) = (false, Step::Failed);
                Some(message::failure1(transaction, reason)).filter(|it| it.len() <= room_bytes)
            }
            Step::Failed => {
                self.step = Step::Failed;
                None
            }
            Step::Negotiate | Step::Reply(_) | Step::Success2 => None,
        }
    }

    fn challenge(&mut self, hash: Hash, group: Group) -> Result<Vec<u8>, u8> {
        let mut value = Zeroizing::new(vec![0; hash.len_bytes()]);
        crate::random(&mut value)?;
        let mut sequence = [0; 4];
        crate::random(&mut sequence)?;
        let sequence = u32::from_le_bytes(sequence).max(1);
        let exchange = Exchange::begin(group)?;
        let public = exchange.as_ref().map_or(&[][..], |it| &it.public);
        let message = message::challenge(self.transaction, (hash, group), sequence, &value, public);
        self.step = Step::Reply(Box::new(Sent { hash, value, sequence, exchange }));
        Ok(message)
    }
}
