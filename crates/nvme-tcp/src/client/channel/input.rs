//! PDUs of the target: responses, requests for data, and data into the buffers of reads.

use std::time::{Duration, Instant};

use qpair_block::{IoError, Op, Request};
use qpair_nvme_wire::Status;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::{NvmeTcpChannel, STAGING_BYTES};
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

type Taken<T = ()> = std::result::Result<T, &'static str>;

impl NvmeTcpChannel {
    /// Reads PDUs. Returns whether there may be more.
    pub(super) fn receive(&mut self) -> bool {
        if !self.is_up() {
            return false;
        }
        self.statistics.system_calls += 1;
        let mut staging = std::mem::take(&mut self.staging);
        let received = match &mut self.tls {
            Some(session) => session.receive(&self.socket, &mut staging[..]),
            None => match recv(&self.socket, &mut staging[..], RecvFlags::DONTWAIT) {
                Ok((_, count)) => Ok(Some(count)),
                Err(Errno::AGAIN | Errno::INTR) => Ok(None),
                Err(errno) => Err(errno.into()),
            },
        };
        let count = match received {
            Ok(Some(0)) => {
                self.lose("the target has closed it");
                0
            }
            Ok(Some(count)) => count,
            Ok(None) => 0,
            Err(error) => {
                self.lose(&error.to_string());
                0
            }
        };
        if count > 0 {
            let parsed = if self.input.is_empty() {
                self.parse(&staging[..count]).map(|taken| self.input.extend(&staging[taken..count]))
            } else {
                let mut input = std::mem::take(&mut self.input);
                input.extend(&staging[..count]);
                self.parse(&input).map(|taken| self.input.extend(&input[taken..]))
            };
            if let Err(what) = parsed {
                // The next connection may fare better; the jobs' time is limited.
                self.lose(what);
            }
        }
        self.staging = staging;
        // TLS uses half of the buffer for records.
        count == STAGING_BYTES || count > STAGING_BYTES / 4 && self.tls.is_some()
    }

    /// Takes PDUs and their data, and returns how many bytes these have.
    fn parse(&mut self, bytes: &[u8]) -> Taken<usize> {
        let mut rest = bytes;
        loop {
            match self.receiver.next(&mut rest).map_err(|fault| fault.why)? {
                Step::Incomplete => break,
                Step::Pdu(Pdu::C2hData(data)) => self.begin_data(&data)?,
                Step::Pdu(Pdu::R2t(r2t)) => self.answer_r2t(&r2t)?,
                Step::Pdu(Pdu::Response(completion, _)) => {
                    let Some(slot) = self.slot_of(completion.cid) else {
                        return Err("the target answered no request");
                    };
                    self.conclude(slot, completion.status);
                }
                Step::Pdu(_) => return Err("the target has ended the connection"),
                Step::Data(data) => {
                    let Some(following) = &mut self.following else {
                        return Err("the target has sent data for no request");
                    };
                    let (slot, at) = (following.slot, following.at);
                    following.at += data.len() as u32;
                    if let Some(Some(job)) = self.jobs.get_mut(slot) {
                        let from = job.request.buffer_offset_bytes as usize + at as usize;
                        if let Some(buffer) = &mut job.request.buffer {
                            buffer.copy_from(from, data);
                        }
                    }
                }
                Step::DataEnd(is_right) => {
                    let Some(following) = self.following.take() else { continue };
                    if let (false, Some(job)) = (is_right, &mut self.jobs[following.slot]) {
                        job.error = Some(IoError::IO);
                    }
                    if following.is_end {
                        self.conclude(following.slot, Status::SUCCESS);
                    }
                }
            }
        }
        Ok(bytes.len() - rest.len())
    }

    fn begin_data(&mut self, data: &DataPdu) -> Taken {
        let slot = self.slot_of(data.cid).unwrap_or(usize::MAX);
        let job = self.jobs.get_mut(slot).and_then(Option::as_mut);
        let Some(job) = job.filter(|job| job.request.op == Op::Read) else {
            return Err("the target has sent data for no read");
        };
        if data.offset != job.filled || data.len > job.request.len_bytes - job.filled {
            return Err("the target has sent data outside a request");
        }
        job.filled += data.len;
        let is_end = data.is_last && data.is_success;
        self.following = Some(Following { slot, at: data.offset, is_end });
        Ok(())
    }

    fn answer_r2t(&mut self, r2t: &R2t) -> Taken {
        let slot = self.slot_of(r2t.cid).unwrap_or(usize::MAX);
        let job = self.jobs.get_mut(slot).and_then(Option::as_mut);
        let Some(job) = job.filter(|job| job.request.op == Op::Write) else {
            return Err("the target has asked for data of no write");
        };
        let left = job.request.len_bytes - job.asked;
        if r2t.offset != job.asked || r2t.len == 0 || r2t.len > left {
            return Err("the target has asked for data outside a request");
        }
        job.asked += r2t.len;
        self.put_data(slot, r2t);
        Ok(())
    }

    /// Ends the job whose response has come.
    fn conclude(&mut self, slot: usize, status: Status) {
        let Some(mut job) = self.jobs[slot].take() else { return };
        if status.is_of_path() {
            // The target may open the way again.
            let now = Instant::now();
            (job.error, job.filled, job.asked) = (None, 0, 0);
            job.again_at = Some(now + AGAIN_AFTER);
            self.jobs[slot] = Some(job);
            return self.look_by(now + AGAIN_AFTER);
        }
        let Request { op, force_unit_access, len_bytes, .. } = job.request;
        if op == Op::WriteZeroes && status.is_success() {
            let most = u64::from(super::ZEROES_BLOCKS_MAX)
                * u64::from(self.setting.info.logical_block_bytes);
            let step = u64::from(len_bytes - job.done).min(most);
            job.done += step as u32;
            if job.done < len_bytes {
                self.jobs[slot] = Some(job);
                return self.put(slot);
            }
        }
        // A target that has not asked for all data cannot have written it.
        let is_short = match op {
            Op::Read => job.filled != len_bytes,
            Op::Write => job.asked != len_bytes,
            _ => false,
        };
        let result = match job.error {
            _ if !status.is_success() => Err(IoError::from_errno(status.errno())),
            Some(error) => Err(error),
            None if is_short => Err(IoError::IO),
            // Another channel of the device may have lost writes meanwhile.
            None if op == Op::Flush && self.setting.writes.are_lost() => Err(IoError::IO),
            None => Ok(()),
        };
        match op {
            _ if result.is_err() || !self.setting.info.volatile_write_cache => {}
            Op::Write if force_unit_access => {}
            Op::Write | Op::WriteZeroes => self.setting.writes.end(),
            Op::Flush => self.setting.writes.cover(job.covers),
            _ => {}
        }
        self.free.push(slot);
        self.end(job.request, result);
    }
}
