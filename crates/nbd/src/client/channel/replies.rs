//! Replies: headers, and data into the buffers of reads.

use qpair_block::{IoError, Op, Request};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::{NbdChannel, STAGING_BYTES};
use crate::wire::{Chunk, Reply, export_flag};

/// The data that follows the header of the last reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Following {
    slot: usize,
    /// The offset in the read; `None` for bytes to skip.
    at: Option<u64>,
    left: u64,
    done: bool,
}

impl NbdChannel {
    /// Reads replies. Returns whether there may be more.
    pub(super) fn receive(&mut self) -> bool {
        if !self.is_up() {
            return false;
        }
        self.statistics.system_calls += 1;
        let mut staging = std::mem::take(&mut self.staging);
        let received = match &mut self.wire.tls {
            Some(session) => session.receive(&self.wire.socket, &mut staging[..]),
            None => match recv(&self.wire.socket, &mut staging[..], RecvFlags::DONTWAIT) {
                Ok((_, count)) => Ok(Some(count)),
                Err(Errno::AGAIN | Errno::INTR) => Ok(None),
                Err(errno) => Err(errno.into()),
            },
        };
        let count = match received {
            Ok(Some(0)) => {
                self.lose("the server has closed it");
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
                self.give_up(what);
            }
        }
        self.staging = staging;
        // TLS uses half of the buffer for records.
        count == STAGING_BYTES || count > STAGING_BYTES / 4 && self.wire.tls.is_some()
    }

    /// Takes whole headers and their data, and returns how many bytes these have.
    pub(super) fn parse(&mut self, bytes: &[u8]) -> std::result::Result<usize, &'static str> {
        let mut rest = bytes;
        loop {
            if let Some(mut following) = self.following.take() {
                let count = rest.len().min(usize::try_from(following.left).unwrap_or(usize::MAX));
                if let Some(at) = &mut following.at {
                    self.fill(following.slot, *at, &rest[..count])?;
                    *at += count as u64;
                }
                rest = &rest[count..];
                following.left -= count as u64;
                if following.left > 0 {
                    self.following = Some(following);
                    break;
                }
                if following.done {
                    self.conclude(following.slot);
                }
                continue;
            }
            let Some((reply, head)) = Reply::decode(rest)? else { break };
            rest = &rest[head..];
            let slot = usize::try_from(reply.cookie).unwrap_or(usize::MAX);
            let job = self.jobs.get_mut(slot).and_then(Option::as_mut);
            let Some(job) = job else { return Err("the server answered no request") };
            let Request { op, offset_bytes, len_bytes, .. } = job.request;
            let inside = |offset: u64, len: u64| {
                let at = offset.checked_sub(offset_bytes);
                at.filter(|at| at.checked_add(len).is_some_and(|end| end <= len_bytes.into()))
            };
            let (mut at, mut left) = (None, 0);
            match reply.chunk {
                Chunk::Simple if op == Op::Read => (at, left) = (Some(0), len_bytes.into()),
                Chunk::Simple | Chunk::None => {}
                Chunk::Error { errno, skip } => {
                    job.error.get_or_insert(errno.io_error());
                    left = skip;
                }
                Chunk::Data { offset, len } if op == Op::Read => {
                    at = inside(offset, len);
                    left = len;
                    if at.is_none() {
                        return Err("the server has sent data outside a request");
                    }
                }
                Chunk::Hole { offset, len } if op == Op::Read => {
                    let at = inside(offset, len)
                        .ok_or("the server has sent a hole outside a request")?;
                    self.fill_zeroes(slot, at, len)?;
                }
                Chunk::Data { .. } | Chunk::Hole { .. } => {
                    return Err("the server has sent data for a request without");
                }
                Chunk::Other { skip } if skip < 1 << 20 => left = skip,
                Chunk::Other { .. } => return Err("the server has sent a chunk that is too long"),
            }
            self.following = Some(Following { slot, at, left, done: reply.done });
        }
        Ok(bytes.len() - rest.len())
    }

    pub(super) fn fill(
        &mut self,
        slot: usize,
        at: u64,
        data: &[u8],
    ) -> std::result::Result<(), &'static str> {
        let Some(job) = &mut self.jobs[slot] else { return Ok(()) };
        job.filled += data.len() as u64;
        if job.filled > u64::from(job.request.len_bytes) {
            return Err("the server has sent data twice");
        }
        if let Some(buffer) = &mut job.request.buffer {
            buffer.copy_from(job.request.buffer_offset_bytes as usize + at as usize, data);
        }
        Ok(())
    }

    pub(super) fn fill_zeroes(
        &mut self,
        slot: usize,
        mut at: u64,
        len: u64,
    ) -> std::result::Result<(), &'static str> {
        const ZEROES: [u8; 4096] = [0; 4096];
        let end = at + len;
        while at < end {
            let part = (end - at).min(ZEROES.len() as u64);
            self.fill(slot, at, &ZEROES[..part as usize])?;
            at += part;
        }
        Ok(())
    }

    /// Ends the job whose reply is complete.
    pub(super) fn conclude(&mut self, slot: usize) {
        let Some(mut job) = self.jobs[slot].take() else { return };
        let Request { op, force_unit_access, len_bytes, .. } = job.request;
        let needs_flush = op == Op::Write
            && force_unit_access
            && self.setting.info.volatile_write_cache
            && self.facts.flags & export_flag::SEND_FUA == 0;
        if job.error.is_none() && needs_flush && !job.is_flushing {
            job.is_flushing = true;
            self.jobs[slot] = Some(job);
            return self.put(slot);
        }
        let is_short = op == Op::Read && job.filled != u64::from(len_bytes);
        let result = match job.error {
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
