//! REPORT SUPPORTED OPERATION CODES: the commands that a unit supports.

use qpair_wire::be::u16_at;
use qpair_wire::{put, u8_at};

/// An operation code, with its service action if it has them.
pub type Operation = (u8, Option<u16>);

/// Whether the answer for one command says that it is supported as the standard requires; `None` if
/// it does not say.
#[must_use]
pub fn decode_one(data: &[u8]) -> Option<bool> {
    match u8_at(data, 1) & 7 {
        3 | 5 => Some(true),
        1 => Some(false),
        _ => None,
    }
}

/// The descriptor of a command's time-outs: its own length, and no known time.
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Encodes the answer for one command: whether the command is supported, which bits of its
/// descriptor block are evaluated, and its time-outs if they were requested.
#[must_use]
pub fn encode_one(usage: Option<&[u8]>, timeouts: bool) -> Vec<u8> {
    match usage {
        None => vec![0, 1, 0, 0],
        Some(usage) => {
            let mut data = vec![0, 3 | u8::from(timeouts) << 7];
            data.extend((usage.len() as u16).to_be_bytes());
            data.extend(usage);
            data.extend(if timeouts { &TIMEOUTS[..] } else { &[] });
            data
        }
    }
}

/// Encodes the answer for all commands: each with the length of its descriptor block, and its
/// time-outs if they were requested.
#[must_use]
pub fn encode_all(operations: &[(Operation, u16)], timeouts: bool) -> Vec<u8> {
    let more = if timeouts { &TIMEOUTS[..] } else { &[] };
    let each = 8 + more.len() as u32;
    let mut data = (each * operations.len() as u32).to_be_bytes().to_vec();
    for ((opcode, action), len) in operations {
        let mut one = [0; 8];
        one[0] = *opcode;
        put(&mut one, 2, &action.unwrap_or(0).to_be_bytes());
        one[5] = u8::from(action.is_some()) | u8::from(timeouts) << 1;
        put(&mut one, 6, &len.to_be_bytes());
        data.extend(one);
        data.extend(more);
    }
    data
}

/// Decodes the commands in an answer for all commands without time-outs.
pub fn decode_all(data: &[u8]) -> impl Iterator<Item = Operation> {
    let (all, _) = data.get(4..).unwrap_or(&[]).as_chunks::<8>();
    all.iter().map(|one| (one[0], (one[5] & 1 != 0).then(|| u16_at(one, 2))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_its_bytes() {
        assert_eq!(decode_one(&encode_one(Some(&[0x42; 10]), false)), Some(true));
        assert_eq!(decode_one(&encode_one(None, true)), Some(false));
        assert_eq!(decode_one(&[]), None);
        // With time-outs, each answer has the bit that says so, and the descriptor.
        let one = encode_one(Some(&[0x42; 10]), true);
        assert_eq!((decode_one(&one), one[1], one.len()), (Some(true), 0x83, 4 + 10 + 12));
        let all = encode_all(&[((0x42, None), 10), ((0x9E, Some(0x10)), 16)], true);
        assert_eq!((all.len(), all[3], all[4 + 5], all[24 + 5]), (44, 40, 2, 3));
        assert_eq!(all[12..24], TIMEOUTS);
        let all = [((0x42, None), 10), ((0x9E, Some(0x10)), 16)];
        let read: Vec<_> = decode_all(&encode_all(&all, false)).collect();
        assert_eq!(read, [(0x42, None), (0x9E, Some(0x10))]);
    }
}
