//! PDUs of the target: responses, requests for data, and data into the buffers of reads.

use std::time::Duration;

use qpair_block::{IoError, Op, Request};
use qpair_nvme_wire::Status;
use qpair_socket::client::{Job, Jobs, Parsed, Protocol};

use super::{NvmeTcp, SLOT_BITS, State};
use crate::wire::{DataPdu, Pdu, R2t, Step};

/// The pause before a command is sent again whose way to the namespace was closed.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The data that follows the last header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Following {
    slot: usize,
    /// The offset in the read of the next byte.
    at: u32,
    /// Whether the command ends with its data.
    is_end: bool,
}

/// Returns the job whose command has this identifier, and its slot.
fn find(jobs: &mut Jobs<State>, cid: u16) -> Option<(usize, &mut Job<State>)> {
    let slot = usize::from(cid) % (1 << SLOT_BITS);
    let job = jobs.slots.get_mut(slot)?.as_mut()?;
    (job.state.cid == cid && !job.is_paused()).then_some((slot, job))
}

impl NvmeTcp {
    /// Takes PDUs and their data, and returns how many bytes these have.
    pub(super) fn take_pdus(&mut self, jobs: &mut Jobs<State>, bytes: &[u8]) -> Parsed<usize> {
        let mut rest = bytes;
        loop {
            match self.receiver.next(&mut rest).map_err(|fault| fault.why)? {
                Step::Incomplete => break,
                Step::Pdu(Pdu::C2hData(data)) => self.begin_data(jobs, &data)?,
                Step::Pdu(Pdu::R2t(r2t)) => self.answer_r2t(jobs, &r2t)?,
                Step::Pdu(Pdu::Response(completion, _)) => {
                    let Some((slot, _)) = find(jobs, completion.cid) else {
                        return Err("the target answered no request");
                    };
                    self.conclude(jobs, slot, completion.status);
                }
                Step::Pdu(_) => return Err("the target has ended the connection"),
                Step::Data(data) => {
                    let Some(following) = &mut self.following else {
                        return Err("the target has sent data for no request");
                    };
                    if let Some(Some(job)) = jobs.slots.get_mut(following.slot) {
                        job.fill(following.at, data);
                    }
                    following.at += data.len() as u32;
                }
                Step::DataEnd(is_right) => {
                    let Some(following) = self.following.take() else { continue };
                    if let (false, Some(job)) = (is_right, &mut jobs.slots[following.slot]) {
                        job.error = Some(IoError::IO);
                    }
                    if following.is_end {
                        self.conclude(jobs, following.slot, Status::SUCCESS);
                    }
                }
            }
        }
        Ok(bytes.len() - rest.len())
    }

    fn begin_data(&mut self, jobs: &mut Jobs<State>, data: &DataPdu) -> Parsed {
        let found = find(jobs, data.cid).filter(|(_, job)| job.request.op == Op::Read);
        let Some((slot, job)) = found else {
            return Err("the target has sent data for no read");
        };
        let left = job.request.len_bytes - job.state.filled;
        if data.offset != job.state.filled || data.len > left {
            return Err("the target has sent data outside a request");
        }
        job.state.filled += data.len;
        let is_end = data.is_last && data.is_success;
        self.following = Some(Following { slot, at: data.offset, is_end });
        Ok(())
    }

    fn answer_r2t(&self, jobs: &mut Jobs<State>, r2t: &R2t) -> Parsed {
        let found = find(jobs, r2t.cid).filter(|(_, job)| job.request.op == Op::Write);
        let Some((slot, job)) = found else {
            return Err("the target has asked for data of no write");
        };
        let left = job.request.len_bytes - job.state.asked;
        if r2t.offset != job.state.asked || r2t.len == 0 || r2t.len > left {
            return Err("the target has asked for data outside a request");
        }
        job.state.asked += r2t.len;
        self.put_asked(jobs, slot, r2t);
        Ok(())
    }

    /// Ends the job whose response has come.
    fn conclude(&mut self, jobs: &mut Jobs<State>, slot: usize, status: Status) {
        let Some(job) = &mut jobs.slots[slot] else { return };
        if status.is_of_path() {
            // The target may open the way again.
            return jobs.pause(slot, AGAIN_AFTER);
        }
        let Request { op, len_bytes, .. } = job.request;
        if op == Op::WriteZeroes && status.is_success() {
            let block = u64::from(jobs.setting.info.logical_block_bytes);
            let most = u64::from(super::ZEROES_BLOCKS_MAX) * block;
            let step = u64::from(len_bytes - job.state.done).min(most);
            job.state.done += step as u32;
            if job.state.done < len_bytes {
                return self.begin(jobs, slot);
            }
        }
        // A target that has not asked for all data cannot have written it.
        let is_short = match op {
            Op::Read => job.state.filled != len_bytes,
            Op::Write => job.state.asked != len_bytes,
            _ => false,
        };
        let result = match job.error {
            _ if !status.is_success() => Err(IoError::from_errno(status.errno())),
            Some(error) => Err(error),
            None if is_short => Err(IoError::IO),
            None => Ok(()),
        };
        jobs.conclude(slot, result);
    }
}
