//! The reception of PDUs from bytes, as they come.
//!
//! Invariants:
//! - a PDU is returned only after its header was checked as a whole, with its digest;
//! - data is returned only after its PDU, and its bytes are those that the header tells.

use qpair_nvme_wire::{Command, Completion};
use qpair_wire::le::u32_at;

use super::digest::{Digest, crc32c};
use super::header::{Digests, Fault, Header, fes, flag, kind};
use super::pdu::{
    CAPSULE_HEADER_BYTES, DataPdu, INIT_BYTES, InitReq, InitResp, R2t, SHORT_HEADER_BYTES,
    TERM_BYTES_MAX, Term, command_of, completion_of,
};

/// The end that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Host,
    Controller,
}

/// A PDU, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pdu {
    InitReq(InitReq),
    InitResp(InitResp),
    /// A command, with the bytes of data in its capsule.
    Command(Command, u32),
    /// A response, with dword 1 of its entry.
    Response(Completion, u32),
    H2cData(DataPdu),
    C2hData(DataPdu),
    R2t(R2t),
    Term(Term),
}

/// A part of what was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// There are not enough bytes.
    Incomplete,
    Pdu(Pdu),
    /// Data of the last PDU.
    Data(&'a [u8]),
    /// The end of the data, and whether it agrees with its digest.
    DataEnd(bool),
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A header comes next.
    Header,
    /// So many bytes of data.
    Data(u32),
    /// The digest of data, whose bytes have this one.
    DataDigest(u32),
}

/// The reception of one connection.
#[derive(Clone, Debug)]
pub struct Receiver {
    end: End,
    digests: Digests,
    is_initialized: bool,
    /// The most bytes of data of a PDU.
    data_bytes_max: u32,
    state: State,
    /// The digest of the data so far, if there are digests of data.
    digest: Digest,
}

impl Receiver {
    /// Makes the reception of a new connection, which begins without digests. PDUs with more than
    /// `data_bytes_max` bytes of data are faults.
    #[must_use]
    pub fn new(end: End, data_bytes_max: u32) -> Self {
        let digests = Digests::default();
        Self {
            end,
            digests,
            is_initialized: false,
            data_bytes_max,
            state: State::Header,
            digest: Digest::default(),
        }
    }

    /// Sets the digests that were agreed on.
    pub fn initialize(&mut self, digests: Digests) {
        (self.digests, self.is_initialized) = (digests, true);
    }

    pub fn set_data_bytes_max(&mut self, bytes: u32) {
        self.data_bytes_max = bytes;
    }

    #[must_use]
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// Whether part of a PDU was received: its data is missing.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        !matches!(self.state, State::Header)
    }

    /// Takes the next part from the front of `rest`. The end of data may be returned when `rest` is
    /// empty already.
    ///
    /// # Errors
    /// A fault, after which nothing else can be received. `rest` then begins with the wrong header.
    pub fn next<'a>(&mut self, rest: &mut &'a [u8]) -> Result<Step<'a>, Fault> {
        match self.state {
            State::Header => self.header(rest),
            State::Data(0) => {
                self.state = State::Header;
                Ok(Step::DataEnd(true))
            }
            State::Data(left) => {
                let count = rest.len().min(left as usize);
                if count == 0 {
                    return Ok(Step::Incomplete);
                }
                let (data, after) = rest.split_at(count);
                *rest = after;
                let left = left - count as u32;
                self.state = State::Data(left);
                if self.digests.data {
                    self.digest.update(data);
                    if left == 0 {
                        self.state = State::DataDigest(self.digest.finish());
                    }
                }
                Ok(Step::Data(data))
            }
            State::DataDigest(sum) => {
                if rest.len() < 4 {
                    return Ok(Step::Incomplete);
                }
                let is_right = u32_at(rest, 0) == sum;
                *rest = &rest[4..];
                self.state = State::Header;
                Ok(Step::DataEnd(is_right))
            }
        }
    }

    fn header<'a>(&mut self, rest: &mut &'a [u8]) -> Result<Step<'a>, Fault> {
        if rest.len() < Header::BYTES {
            return Ok(Step::Incomplete);
        }
        let header = Header::decode(rest);
        let (at, data_bytes) = self.check(&header)?;
        if rest.len() < at {
            return Ok(Step::Incomplete);
        }
        let bytes = &rest[..usize::from(header.header_bytes)];
        let has_digest = self.digests.header && !is_plain(header.kind);
        if has_digest {
            let found = u32_at(rest, bytes.len());
            if found != crc32c(bytes) {
                let why = "the digest of a header is wrong";
                return Err(Fault::new(fes::HEADER_DIGEST, found, why));
            }
        }
        let pdu = match header.kind {
            kind::INIT_REQ => Pdu::InitReq(InitReq::decode(bytes)),
            kind::INIT_RESP => Pdu::InitResp(InitResp::decode(bytes)),
            kind::CAPSULE_CMD => Pdu::Command(command_of(bytes), data_bytes),
            kind::CAPSULE_RESP => {
                let (completion, high) = completion_of(bytes);
                Pdu::Response(completion, high)
            }
            kind::H2C_DATA => Pdu::H2cData(DataPdu::decode(bytes)),
            kind::C2H_DATA => Pdu::C2hData(DataPdu::decode(bytes)),
            kind::R2T => Pdu::R2t(R2t::decode(bytes)),
            _ => Pdu::Term(Term::decode(bytes)),
        };
        if let Pdu::H2cData(data) | Pdu::C2hData(data) = pdu
            && data.len != data_bytes
        {
            let why = "the length of data differs from that of its PDU";
            return Err(Fault::new(fes::HEADER_FIELD, 16, why));
        }
        *rest = &rest[at..];
        if data_bytes > 0 {
            self.state = State::Data(data_bytes);
            if self.digests.data {
                self.digest = Digest::default();
            }
        }
        Ok(Step::Pdu(pdu))
    }

    /// Checks the common header. Returns the bytes before the data, and those of the data.
    fn check(&self, header: &Header) -> Result<(usize, u32), Fault> {
        let wrong = |at: u32, why| Err(Fault::new(fes::HEADER_FIELD, at, why));
        let header_bytes = usize::from(header.header_bytes);
        let for_controller = matches!(
            header.kind,
            kind::INIT_REQ | kind::HOST_TERM | kind::CAPSULE_CMD | kind::H2C_DATA
        );
        let is_known = header.kind <= kind::C2H_DATA || header.kind == kind::R2T;
        if !is_known || for_controller != (self.end == End::Controller) {
            return wrong(0, "a PDU has a type that this end does not take");
        }
        let is_init = matches!(header.kind, kind::INIT_REQ | kind::INIT_RESP);
        let is_term = matches!(header.kind, kind::HOST_TERM | kind::CONTROLLER_TERM);
        if is_init == self.is_initialized && !is_term {
            let why = "a PDU came out of sequence";
            return Err(Fault::new(fes::SEQUENCE, 0, why));
        }
        let expected = match header.kind {
            _ if is_init => INIT_BYTES,
            kind::CAPSULE_CMD => CAPSULE_HEADER_BYTES,
            _ => SHORT_HEADER_BYTES,
        };
        if header_bytes != expected {
            return wrong(2, "a header has a wrong length");
        }
        let len_bytes = header.len_bytes as usize;
        if is_init {
            let is_right = len_bytes == INIT_BYTES;
            return if is_right {
                Ok((INIT_BYTES, 0))
            } else {
                wrong(4, "a PDU has a wrong length")
            };
        }
        if is_term {
            // The copy of the wrong header is taken with the PDU, as a whole.
            let is_right = (SHORT_HEADER_BYTES..=TERM_BYTES_MAX).contains(&len_bytes);
            return if is_right {
                Ok((len_bytes, 0))
            } else {
                wrong(4, "a PDU has a wrong length")
            };
        }
        if (header.flags & flag::HEADER_DIGEST != 0) != self.digests.header {
            return wrong(1, "the flag of a header's digest is not as it was agreed");
        }
        let first = header_bytes + self.digests.header_bytes();
        if len_bytes == first {
            let needs_data = matches!(header.kind, kind::H2C_DATA | kind::C2H_DATA);
            return if needs_data { wrong(4, "a PDU has no data") } else { Ok((first, 0)) };
        }
        if matches!(header.kind, kind::CAPSULE_RESP | kind::R2T) {
            return wrong(4, "a PDU has a wrong length");
        }
        let at = if header.data_at == 0 { first } else { usize::from(header.data_at) };
        let end = self.digests.data_bytes();
        if at < first || at > first + 128 || len_bytes <= at + end {
            return wrong(3, "the offset of data is outside its PDU");
        }
        if (header.flags & flag::DATA_DIGEST != 0) != self.digests.data {
            return wrong(1, "the flag of data's digest is not as it was agreed");
        }
        let data_bytes = (len_bytes - at - end) as u32;
        if data_bytes > self.data_bytes_max {
            return wrong(4, "a PDU has more data than was agreed");
        }
        Ok((at, data_bytes))
    }
}

/// Whether PDUs of a type never have digests.
fn is_plain(kind: u8) -> bool {
    matches!(kind, kind::INIT_REQ | kind::INIT_RESP | kind::HOST_TERM | kind::CONTROLLER_TERM)
}

#[cfg(test)]
mod tests {
    use super::super::pdu::put;
    use super::*;

    const ALL: [u8; 4] = [0, 1, 2, 3];

    fn receiver(end: End, bits: u8) -> Receiver {
        let mut receiver = Receiver::new(end, 8192);
        receiver.initialize(Digests::of(bits));
        receiver
    }

    /// Returns the PDUs and data of `bytes`, which come in pieces.
    fn received(receiver: &mut Receiver, bytes: &[u8], piece: usize) -> (Vec<Pdu>, Vec<u8>, u32) {
        let (mut pdus, mut data, mut ends, mut kept) = (Vec::new(), Vec::new(), 0, Vec::new());
        for piece in bytes.chunks(piece) {
            kept.extend(piece);
            let mut rest = &kept[..];
            loop {
                match receiver.next(&mut rest).unwrap() {
                    Step::Incomplete => break,
                    Step::Pdu(pdu) => pdus.push(pdu),
                    Step::Data(bytes) => data.extend(bytes),
                    Step::DataEnd(is_right) => ends += u32::from(is_right),
                }
            }
            kept = rest.to_vec();
        }
        assert!(kept.is_empty() && !receiver.is_inside());
        (pdus, data, ends)
    }

    #[test]
    fn pdus_read_as_written() {
        let data: Vec<u8> = (0..200).collect();
        let mut command = Command::new(1, 1);
        command.set_cid(0xF00D);
        let h2c =
            DataPdu { cid: 3, tag: 4, offset: 512, len: 200, is_last: true, is_success: false };
        for bits in ALL {
            let (digests, mut bytes) = (Digests::of(bits), Vec::new());
            let put_data = |bytes: &mut Vec<u8>| {
                bytes.extend(&data);
                if digests.data {
                    bytes.extend(crc32c(&data).to_le_bytes());
                }
            };
            put::command(&mut bytes, digests, &command, 0);
            put::command(&mut bytes, digests, &command, 200);
            put_data(&mut bytes);
            put::h2c_data(&mut bytes, digests, &h2c);
            put_data(&mut bytes);
            put::term(&mut bytes, true, &Fault::new(fes::LIMIT, 9, ""), &[1; 300]);
            for piece in [1, 7, bytes.len()] {
                let (pdus, found, ends) =
                    received(&mut receiver(End::Controller, bits), &bytes, piece);
                let term = Pdu::Term(Term { status: fes::LIMIT, info: 9 });
                let expected =
                    [Pdu::Command(command, 0), Pdu::Command(command, 200), Pdu::H2cData(h2c), term];
                assert_eq!((&pdus[..], ends), (&expected[..], 2));
                assert_eq!(found, [&data[..], &data[..]].concat());
            }
            let (mut bytes, completion) =
                (Vec::new(), Completion { cid: 7, ..Completion::default() });
            let c2h = DataPdu { tag: 0, is_success: true, ..h2c };
            let r2t = R2t { cid: 3, tag: 4, offset: 0, len: 9 };
            put::c2h_data(&mut bytes, digests, &c2h);
            put_data(&mut bytes);
            put::response(&mut bytes, digests, &completion, 5);
            put::r2t(&mut bytes, digests, &r2t);
            let (pdus, _, _) = received(&mut receiver(End::Host, bits), &bytes, 5);
            assert_eq!(pdus, [Pdu::C2hData(c2h), Pdu::Response(completion, 5), Pdu::R2t(r2t)]);
        }
    }

    #[test]
    fn a_connection_begins_with_its_parameters() {
        let request = InitReq { r2ts_more: 3, digests: Digests::of(3), ..InitReq::default() };
        let answer = InitResp { data_bytes_max: 131_072, ..InitResp::default() };
        let (mut to, mut back) = (Vec::new(), Vec::new());
        put::init_req(&mut to, &request);
        put::init_resp(&mut back, &answer);
        let mut receiver = Receiver::new(End::Controller, 0);
        assert_eq!(received(&mut receiver, &to, 9).0, [Pdu::InitReq(request)]);
        receiver.initialize(Digests::default());
        assert_eq!(receiver.next(&mut &to[..]).unwrap_err().status, fes::SEQUENCE);
        let mut receiver = Receiver::new(End::Host, 0);
        assert_eq!(received(&mut receiver, &back, 128).0, [Pdu::InitResp(answer)]);
        let mut early = Vec::new();
        put::command(&mut early, Digests::default(), &Command::default(), 0);
        let fault = Receiver::new(End::Controller, 0).next(&mut &early[..]).unwrap_err();
        assert_eq!(fault.status, fes::SEQUENCE);
    }

    #[test]
    fn lies_are_faults() {
        let mut good = Vec::new();
        put::command(&mut good, Digests::of(1), &Command::default(), 100);
        let fault = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            change(&mut bytes);
            receiver(End::Controller, 1).next(&mut &bytes[..]).map(|_| ()).map_err(|it| it.status)
        };
        assert_eq!(fault(&|_| {}), Ok(()));
        assert_eq!(fault(&|bytes| bytes[20] ^= 1), Err(fes::HEADER_DIGEST));
        for (at, value) in [(0, 5), (0, 8), (0, 99), (1, 0), (2, 24), (3, 9), (4, 1), (7, 1)] {
            assert_eq!(fault(&|bytes| bytes[at] = value), Err(fes::HEADER_FIELD), "{at}");
        }
        let mut wrong = Vec::new();
        put::h2c_data(&mut wrong, Digests::default(), &DataPdu { len: 9, ..DataPdu::default() });
        wrong[16] = 8;
        let fault = receiver(End::Controller, 0).next(&mut &wrong[..]).unwrap_err();
        assert_eq!((fault.status, fault.info), (fes::HEADER_FIELD, 16));
        // Wrong digests of data are told with its end.
        let mut bytes = Vec::new();
        put::command(&mut bytes, Digests::of(2), &Command::default(), 1);
        bytes.extend([5, 0, 0, 0, 0]);
        let (_, data, ends) = received(&mut receiver(End::Controller, 2), &bytes, 99);
        assert_eq!((data, ends), (vec![5], 0));
    }

    #[test]
    fn noise_is_no_trouble() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let end = if random.bool() { End::Host } else { End::Controller };
            let mut receiver = receiver(end, random.u8(..4));
            let mut bytes: Vec<u8> = (0..400).map(|_| random.u8(..)).collect();
            (bytes[0], bytes[2]) = (random.u8(..10), [24, 72, 128][random.usize(..3)]);
            bytes[4..8].copy_from_slice(&random.u32(..600).to_le_bytes());
            let mut rest = &bytes[..];
            while let Ok(step) = receiver.next(&mut rest) {
                if step == Step::Incomplete {
                    break;
                }
            }
        }
    }
}
