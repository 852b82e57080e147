//! Reads and writes superblocks on threads that are not workers.

use std::sync::Arc;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, Member, Request, StripeDevice, WaitOptions,
};
use qpair_format::image::Record;
use qpair_format::{Error, ErrorKind, Remedy, Result};

use qpair_format::superblock::{
    KeySlot, SLOT_BYTES, SLOT_OFFSETS, SUPERBLOCK_BYTES, StoreState, Superblock,
};

/// Reads and writes slots on a separate channel, and flushes after writes. Returns the slots' bytes
/// afterwards.
pub(crate) fn transfer(
    device: &dyn BlockDevice,
    requests: Vec<(u64, Option<&[u8]>)>,
) -> Result<Vec<Vec<u8>>> {
    let context = |what: &str| format!("{what} of {}", device.info().name);
    let options = ChannelOptions { depth: 1, ..ChannelOptions::default() };
    let mut channel = device
        .open_channel(&options)
        .map_err(|error| Error::block(error, context("opening a channel")))?;
    let arena = Arena::new(SLOT_BYTES, 1, ArenaOptions::ordinary_pages()).map_err(|error| {
        Error::new(ErrorKind::NoMemory, format!("mapping memory for a superblock: {error}"))
    })?;
    let mut run = |request: Request| -> Result<Option<Vec<u8>>> {
        if channel.submit(request).is_err() {
            return Err(Error::new(ErrorKind::Io, context("submitting a request")));
        }
        let mut completions = Vec::new();
        while completions.is_empty() {
            channel.wait(
                &mut completions,
                WaitOptions { want: 1, linger: std::time::Duration::ZERO, timeout: None },
            );
        }
        let Some(completion) = completions.pop() else { return Ok(None) };
        completion.result.map_err(|error| Error::io(error, context("superblock transfer")))?;
        Ok(completion.buffer.map(|buffer| buffer.as_slice().to_vec()))
    };
    let mut outputs = Vec::new();
    let mut wrote = false;
    for (offset_bytes, content) in requests {
        let mut buffer = arena.lease().ok_or_else(|| {
            Error::new(ErrorKind::NoMemory, "the arena has no free buffer for a superblock")
        })?;
        let request = match content {
            Some(content) => {
                wrote = true;
                buffer.copy_from(0, content);
                Request::write(offset_bytes, SLOT_BYTES as u32, buffer, 0)
            }
            None => Request::read(offset_bytes, SLOT_BYTES as u32, buffer, 0),
        };
        outputs.extend(run(request)?);
    }
    if wrote {
        run(Request::flush(0))?;
    }
    Ok(outputs)
}

pub fn read(device: &dyn BlockDevice) -> Result<Superblock> {
    read_newest(device).map(|(superblock, _)| superblock)
}

/// Returns the newest superblock of a member, and the device's error if the other one, which may be
/// newer, cannot be read.
fn read_newest(device: &dyn BlockDevice) -> Result<(Superblock, Option<Error>)> {
    let name = &device.info().name;
    if device.size_bytes() < SUPERBLOCK_BYTES {
        return Err(Error::with_hint(
            ErrorKind::NotAStore,
            format!("{name} is not a qpair store: it is smaller than a superblock"),
            "check the path; qpair never overwrites what is there",
        ));
    }
    let (slots, unread) = read_slots(device)?;
    Ok((Superblock::choose(&slots, name)?, unread))
}

/// Reads both slots of a member. A slot that the device cannot read is returned empty, like a
/// damaged one, because the other slot may be good. Also returns the device's error for that slot.
///
/// # Errors
/// Returns the device's error if neither slot can be read.
pub fn read_slots(device: &dyn BlockDevice) -> Result<(Vec<Vec<u8>>, Option<Error>)> {
    let read = SLOT_OFFSETS.map(|offset| transfer(device, vec![(offset, None)]));
    let failure = read.iter().find_map(|slot| slot.as_ref().err()).cloned();
    if read.iter().all(Result::is_err) {
        return failure.map_or(Ok((Vec::new(), None)), Err);
    }
    let empty = || vec![vec![0; SLOT_BYTES]];
    Ok((read.into_iter().flat_map(|slot| slot.unwrap_or_else(|_| empty())).collect(), failure))
}

/// Writes the superblocks of all members for the next generation, durably. Member 0 is first when
/// the store is marked open, and last when it is marked clean.
pub fn write_all(members: &[Arc<dyn BlockDevice>], superblock: &Superblock) -> Result<()> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    if superblock.state == StoreState::Clean {
        order.reverse();
    }
    for index in order {
        let superblock = Superblock { member_index: index as u32, ..superblock.clone() };
        transfer(
            members[index].as_ref(),
            vec![(superblock.slot_offset(), Some(superblock.encode().as_slice()))],
        )?;
    }
    Ok(())
}

/// Gives an encrypted store, which was closed and which no process may have open, another key slot.
/// `wrap` makes the new slot of the present one.
///
/// The superblocks are written as for an incarnation that changes nothing, so both of each member
/// have the new slot afterwards, and a crash at any time leaves a store that one of the two keys
/// opens: the newest superblock of member 0 says which.
///
/// # Errors
/// `Invalid` if the store is not encrypted; `Unclean` if it was not closed; the errors of `wrap`
/// and of the devices.
pub fn write_key_slots(
    members: &[Arc<dyn BlockDevice>],
    wrap: &dyn Fn(&KeySlot) -> Result<KeySlot>,
) -> Result<()> {
    let (superblock, _) = read_all(members)?;
    let name = &members[0].info().name;
    let Some(present) = superblock.key_slot else {
        return Err(Error::with_hint(
            ErrorKind::Invalid,
            format!("{name} is not encrypted and has no key"),
            "make an encrypted copy of it",
        ));
    };
    let key_slot = Some(wrap(&present)?);
    if superblock.state != StoreState::Clean {
        return Err(Error::with_hint(
            ErrorKind::Unclean,
            format!("{name} was not closed, and its key cannot be replaced"),
            "open and close the store first",
        ));
    }
    for (state, later) in [(StoreState::Open, 1), (StoreState::Clean, 2)] {
        let generation = superblock.generation + later;
        write_all(members, &Superblock { state, generation, key_slot, ..superblock.clone() })?;
    }
    Ok(())
}

#[derive(Debug, Default)]
pub struct Generations {
    first: u64,
    first_is_clean: bool,
    /// The generation of the oldest superblock, and its member.
    oldest: Option<(u64, String)>,
    /// Whether members other than the first are marked clean already.
    closing: bool,
    /// Members with a superblock that cannot be read, and the reasons.
    unread: Vec<(String, Error)>,
}

impl Generations {
    fn note(&mut self, generation: u64, member: &str) {
        if self.oldest.as_ref().is_none_or(|(oldest, _)| generation < *oldest) {
            self.oldest = Some((generation, member.to_owned()));
        }
    }

    /// Whether a crash left member 0 marked open for a generation that other members have not
    /// reached. The members are then written once more with that generation; a newer one would
    /// overwrite the slot that those members still need.
    pub fn is_ahead(&self) -> bool {
        self.oldest.as_ref().is_some_and(|(oldest, _)| *oldest < self.first)
    }

    /// Checks that the members fit the newest checkpoint. When it was made, all superblocks had at
    /// least its generation. Member 0 is marked clean last: once it is, all members have its
    /// generation. Member 0 is marked open first and stays at that generation until the others
    /// follow.
    ///
    /// # Errors
    /// `Member` if a member is a copy from another time.
    pub fn check(&self, record: &Record) -> Result<()> {
        let least = match self.first_is_clean {
            true => self.first,
            false => record.generation.max(self.first.saturating_sub(1)),
        };
        match &self.oldest {
            Some((generation, member)) if *generation < least => Err(self.restored_alone(
                member,
                *generation,
                &format!("the others of {least} at least"),
            )),
            _ if self.closing && !record.closed => Err(Error::with_hint(
                ErrorKind::Member,
                "some members were closed, and the first was not: one was restored alone",
                "restore the whole store, all members from one moment",
            )),
            _ => Ok(()),
        }
    }

    /// Returns the error for a member whose superblock is too old.
    fn restored_alone(&self, member: &str, generation: u64, other: &str) -> Error {
        if let Some((_, unread)) = self.unread.iter().find(|(of, _)| of == member) {
            return Error::with_remedy(
                unread.kind(),
                format!(
                    "one of the two superblocks of {member} cannot be read, and the other is of generation {generation}, {other}: {}",
                    unread.context()
                ),
                "repair the device, or salvage what can be read by a repair",
                Remedy::Repair,
            );
        }
        Error::with_hint(
            ErrorKind::Member,
            format!("{member} is of generation {generation}, {other}: a member was restored alone"),
            "restore the whole store, all members from one moment",
        )
    }
}

/// Reads all members' superblocks, and checks that they belong together and are in order.
///
/// Superblocks of different generations are not an error yet: a crash between their writes leaves
/// them, even several times. The checkpoint record decides ([`Generations::check`]).
pub fn read_all(members: &[Arc<dyn BlockDevice>]) -> Result<(Superblock, Generations)> {
    let (first, unread) = read_newest(members[0].as_ref())?;
    let mut generations = Generations {
        first: first.generation,
        first_is_clean: first.state == StoreState::Clean,
        ..Generations::default()
    };
    generations.note(first.generation, &members[0].info().name);
    generations.unread.extend(unread.map(|error| (members[0].info().name.clone(), error)));
    let names =
        || members.iter().map(|member| member.info().name.clone()).collect::<Vec<_>>().join(", ");
    if first.member_count as usize != members.len() {
        return Err(Error::with_hint(
            ErrorKind::Member,
            format!(
                "the store has {} members, and the number given is {}: {}",
                first.member_count,
                members.len(),
                names()
            ),
            "give all members, in the order in which they were given when the store was created",
        ));
    }
    for (index, member) in members.iter().enumerate() {
        let name = &member.info().name;
        let superblock = match index {
            0 => first.clone(),
            _ => {
                let (superblock, unread) = read_newest(member.as_ref())?;
                generations.unread.extend(unread.map(|error| (name.clone(), error)));
                superblock
            }
        };
        if superblock.store_id != first.store_id {
            return Err(Error::with_hint(
                ErrorKind::Member,
                format!("{name} belongs to another store than {}", members[0].info().name),
                "give the members of one store, in the order in which it was made",
            ));
        }
        if superblock.member_index as usize != index {
            return Err(Error::with_hint(
                ErrorKind::Member,
                format!(
                    "{name} is member {} of the store, not member {index}",
                    superblock.member_index
                ),
                "give the members in the order in which the store was made",
            ));
        }
        generations.note(superblock.generation, name);
        // A crash during a close: this member's superblock was written, and member 0's was not.
        let closing = first.state == StoreState::Open
            && superblock.state == StoreState::Clean
            && superblock.generation == first.generation + 1;
        if superblock.generation > first.generation && !closing {
            return Err(generations.restored_alone(
                &members[0].info().name,
                first.generation,
                &format!("{name} of {}", superblock.generation),
            ));
        }
        generations.closing |= closing;
    }
    Ok((first, generations))
}

/// Joins the members, without their superblocks, into one device.
pub fn join(
    members: &[Arc<dyn BlockDevice>],
    stripe_unit_bytes: u64,
) -> Result<Arc<dyn BlockDevice>> {
    let stripe = members
        .iter()
        .map(|device| Member { device: device.clone(), start_bytes: SUPERBLOCK_BYTES })
        .collect();
    let device = StripeDevice::new(stripe_unit_bytes, stripe)
        .map_err(|error| Error::block(error, "joining the members"))?;
    Ok(Arc::new(device))
}

/// Makes the members blank, durably: both superblocks of each are zeroes afterwards.
pub fn erase(members: &[Arc<dyn BlockDevice>]) -> Result<()> {
    let zeroes = [0; SLOT_BYTES];
    for member in members {
        let writes = SLOT_OFFSETS.iter().map(|offset| (*offset, Some(&zeroes[..]))).collect();
        transfer(member.as_ref(), writes)?;
    }
    Ok(())
}
