//! Admin commands (Base §5). They run under the lock of the admin queues. Under it they take locks
//! of I/O queues, whose numbers are higher.

use std::sync::atomic::Ordering;

use qpair_nvme_wire::command::{admin, feature};
use qpair_nvme_wire::{Command, PAGE_BYTES, Status};

use crate::admin_state::{AdminState, Traits};
use crate::backend::{Backend, Counts, Ticket};
use crate::device::NvmeController;
use crate::prp::{Direction, DriverMemory};
use crate::queue::{CompletionQueue, ENTRY_BYTES, Pair, Side, SubmissionQueue};
use crate::ring::Ring;
use crate::shadow::Shadow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The command is done. The value is dword 0 of the completion.
    Done(u32),
    /// The command waits, and is answered later.
    Held,
}

type Answered = Result<Answer, Status>;

/// Dword 0 of the completion of an abort that found no command.
const NOT_ABORTED: u32 = 1;

impl<B: Backend> NvmeController<B> {
    pub(crate) fn execute_admin(&self, command: &Command, memory: &mut DriverMemory) -> Answered {
        if !command.is_single_with_prps() {
            return Err(Status::INVALID_FIELD);
        }
        match command.opcode() {
            admin::IDENTIFY => self.identify(command, memory),
            admin::CREATE_CQ => self.create_cq(command, memory),
            admin::CREATE_SQ => self.create_sq(command, memory),
            admin::DELETE_SQ => self.delete_sq(command),
            admin::DELETE_CQ => self.delete_cq(command),
            admin::GET_LOG_PAGE => self.get_log_page(command, memory),
            admin::ABORT => Ok(Answer::Done(self.abort(command))),
            admin::SET_FEATURES => self.set_features(command),
            admin::GET_FEATURES => self.get_features(command),
            admin::ASYNC_EVENT_REQUEST => {
                self.admin().events.request(command.cid())?;
                Ok(Answer::Held)
            }
            admin::DOORBELL_BUFFER_CONFIG if self.has_shadow_doorbells() => {
                self.set_doorbell_buffers(command, memory)
            }
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// Moves the doorbells of I/O queues to the driver's memory. The memory is taken to have the
    /// values of existing queues already.
    fn set_doorbell_buffers(&self, command: &Command, memory: &DriverMemory) -> Answered {
        let shadow = Shadow::new(command.prp1(), command.prp2(), &memory.table)?;
        for number in 1..self.pairs() {
            let Some(slot) = self.slot(number as u16) else { break };
            slot.lock().side.shadow = Some(shadow.clone());
            slot.set_shadowed(true);
            slot.call_attention();
        }
        Ok(Answer::Done(0))
    }

    fn identify(&self, command: &Command, memory: &mut DriverMemory) -> Answered {
        let data = AdminState::identify(
            command,
            &self.options,
            &self.backend().namespaces(),
            self.traits(),
        )?;
        answer(command, &data, memory)
    }

    fn traits(&self) -> Traits {
        Traits { compares: B::COMPARES, shadow_doorbells: self.has_shadow_doorbells() }
    }

    fn create_cq(&self, command: &Command, memory: &mut DriverMemory) -> Answered {
        let (number, entries) = self.queue_to_create(command)?;
        let (flags, vector) = (command.cdw(11), (command.cdw(11) >> 16) as u16);
        if flags & 1 == 0 {
            return Err(Status::INVALID_FIELD);
        }
        let interrupts = flags & 2 != 0;
        if interrupts && u32::from(vector) >= self.vectors() {
            return Err(Status::INVALID_INTERRUPT_VECTOR);
        }
        let ring = new_ring(command, entries, ENTRY_BYTES.1, memory)?;
        let mut pair = self.lock_pair(number.into()).ok_or(Status::INVALID_QUEUE_ID)?;
        if pair.completion.is_some() {
            return Err(Status::INVALID_QUEUE_ID);
        }
        self.store_doorbell(number, true, 0);
        forget_shadow(&pair.side, number, true);
        pair.completion = Some(CompletionQueue::new(ring, interrupts.then_some(vector)));
        Ok(Answer::Done(0))
    }

    fn create_sq(&self, command: &Command, memory: &mut DriverMemory) -> Answered {
        let (number, entries) = self.queue_to_create(command)?;
        let (flags, cq) = (command.cdw(11), (command.cdw(11) >> 16) as u16);
        if flags & 1 == 0 {
            return Err(Status::INVALID_FIELD);
        }
        if cq == 0 || cq > self.admin().features.queue_max() {
            return Err(Status::INVALID_CQ);
        }
        let ring = new_ring(command, entries, ENTRY_BYTES.0, memory)?;
        // Locking one pair after the other is safe: only this command, under the admin queue's
        // lock, creates or deletes queues.
        if self.lock_pair(number.into()).is_none_or(|pair| pair.side.submission.is_some()) {
            return Err(Status::INVALID_QUEUE_ID);
        }
        let mut of_cq = self.lock_pair(cq.into()).ok_or(Status::INVALID_CQ)?;
        of_cq.completion.as_mut().ok_or(Status::INVALID_CQ)?.users += 1;
        drop(of_cq);
        let mut pair = self.lock_pair(number.into()).ok_or(Status::INVALID_QUEUE_ID)?;
        self.store_doorbell(number, false, 0);
        forget_shadow(&pair.side, number, false);
        pair.side.submission = Some(SubmissionQueue::new(ring, cq));
        self.use_slot(number);
        // The first doorbell may have the same value as the last doorbell of an earlier queue of
        // that number.
        self.call_attention(number.into());
        Ok(Answer::Done(0))
    }

    fn queue_to_create(&self, command: &Command) -> Result<(u16, u32), Status> {
        let number = command.cdw(10) as u16;
        let entries = (command.cdw(10) >> 16) + 1;
        if number == 0 || number > self.admin().features.queue_max() {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if !(2..=self.options.queue_entries_max).contains(&entries) {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        if !self.entry_sizes_are_set() {
            return Err(Status::INVALID_FIELD);
        }
        Ok((number, entries))
    }

    fn delete_sq(&self, command: &Command) -> Answered {
        let number = command.cdw(10) as u16;
        if number == 0 {
            return Err(Status::INVALID_QUEUE_ID);
        }
        let mut signal = None;
        let deleted = self.with_queues(number, |side, completion| {
            let queue = side.submission.take().ok_or(Status::INVALID_QUEUE_ID)?;
            let shadow = side.shadow.as_ref();
            let heads = || self.doorbell_of(shadow, queue.cq, true);
            if let Some(completion) = completion {
                // Fetched commands are answered as far as there is room. The deletion also tells
                // the driver that they have ended.
                for cid in self.backend().withdraw(&mut side.state.own) {
                    if completion.room(1, heads).0 > 0 {
                        let _ =
                            completion.post(number, queue.head, cid, Status::ABORTED_SQ_DELETED, 0);
                    }
                }
                completion.users = completion.users.saturating_sub(1);
                signal = completion.take_signal(heads);
            }
            side.state.in_flight = 0;
            side.state.answered.clear();
            self.store_doorbell(number, false, 0);
            Ok(Answer::Done(0))
        });
        if let Some(vector) = signal {
            self.signal(vector);
        }
        deleted.unwrap_or(Err(Status::INVALID_QUEUE_ID))
    }

    fn delete_cq(&self, command: &Command) -> Answered {
        let number = command.cdw(10) as u16;
        let mut pair = match number {
            0 => return Err(Status::INVALID_QUEUE_ID),
            _ => self.lock_pair(number.into()).ok_or(Status::INVALID_QUEUE_ID)?,
        };
        match &pair.completion {
            None => Err(Status::INVALID_QUEUE_ID),
            Some(queue) if queue.users > 0 => Err(Status::INVALID_QUEUE_DELETION),
            Some(_) => {
                pair.completion = None;
                self.store_doorbell(number, true, 0);
                Ok(Answer::Done(0))
            }
        }
    }

    /// Aborts a command that waits. Returns dword 0 of the completion.
    fn abort(&self, command: &Command) -> u32 {
        let (number, cid) = (command.cdw(10) as u16, (command.cdw(10) >> 16) as u16);
        let found = match number {
            // The request's completion is posted with the others of this step.
            0 => self.admin().events.abort(cid),
            _ => self.lock_pair(number.into()).is_some_and(|mut pair| {
                pair.side.submission.is_some()
                    && self.backend().abort(&mut pair.side.state.own, cid)
            }),
        };
        if found && number != 0 {
            self.call_attention(number.into());
        }
        if found { 0 } else { NOT_ABORTED }
    }

    fn set_features(&self, command: &Command) -> Answered {
        let number = command.cdw(10) as u8;
        if command.cdw(10) >> 31 != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        // Checked before the lock of the admin state is taken, because a queue's lock is never
        // taken under it.
        let any_queues = number == feature::NUMBER_OF_QUEUES && self.has_io_queues();
        let value = command.cdw(11);
        let result = {
            let mut admin = self.admin();
            let result = admin.features.set(number, value, self.vectors(), any_queues)?;
            self.set_write_through(!admin.features.is_cache_on());
            result
        };
        if number == feature::VOLATILE_WRITE_CACHE && value & 1 == 0 {
            // Flush the cache before disabling it.
            match self.backend().flush(Ticket::new(0, command.cid())) {
                None => return Ok(Answer::Held),
                Some(Status::SUCCESS) => {}
                Some(status) => return Err(status),
            }
        }
        Ok(Answer::Done(result))
    }

    fn get_features(&self, command: &Command) -> Answered {
        let first = self.first_features();
        self.admin().get_features(command, &first, self.vectors()).map(Answer::Done)
    }

    fn get_log_page(&self, command: &Command, memory: &mut DriverMemory) -> Answered {
        let counts = self.counts();
        let data =
            self.admin().log_page(command, &self.options, counts, self.traits(), |_| None)?;
        let answered = answer(command, &data, memory)?;
        self.admin().log_was_read(command);
        Ok(answered)
    }

    /// Returns the sum of all queues' counters since the controller was made.
    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        // The admin queue's lock is held, but it has no counters.
        for number in 1..=usize::from(self.options.queues_max) {
            if let Some(pair) = self.lock_pair(number) {
                let counts = pair.side.state.counts;
                sum.reads += counts.reads;
                sum.writes += counts.writes;
                sum.bytes_read += counts.bytes_read;
                sum.bytes_written += counts.bytes_written;
                sum.media_errors += counts.media_errors;
            }
        }
        sum
    }

    fn has_io_queues(&self) -> bool {
        let made =
            |pair: &Pair<B::Queue>| pair.side.submission.is_some() || pair.completion.is_some();
        (1..=usize::from(self.options.queues_max))
            .any(|number| self.lock_pair(number).is_some_and(|pair| made(&pair)))
    }

    fn set_write_through(&self, write_through: bool) {
        self.write_through.store(write_through, Ordering::Relaxed);
    }
}

/// Copies data to the memory that an admin command names.
fn answer(command: &Command, data: &[u8], memory: &mut DriverMemory) -> Answered {
    memory.prps(command, data.len() as u32, Direction::ToDriver)?;
    memory.span().copy_from(data);
    Ok(Answer::Done(0))
}

/// Clears the shadow doorbell of a new queue, because it has the value of an earlier queue.
fn forget_shadow<Q>(side: &Side<Q>, number: u16, is_completion: bool) {
    if let Some(shadow) = &side.shadow {
        shadow.forget(number, is_completion);
    }
}

fn new_ring(
    command: &Command,
    entries: u32,
    entry_bytes: usize,
    memory: &DriverMemory,
) -> Result<Ring, Status> {
    if !command.prp1().is_multiple_of(PAGE_BYTES as u64) {
        return Err(Status::INVALID_PRP_OFFSET);
    }
    let mut ring = Ring::new(command.prp1(), entries, entry_bytes);
    if !ring.resolve(&memory.table) {
        return Err(Status::DATA_TRANSFER_ERROR);
    }
    Ok(ring)
}
