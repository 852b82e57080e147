//! Base64 with padding, as keys are written (RFC 4648 §4).

use zeroize::Zeroizing;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn value(symbol: u8) -> Option<u32> {
    match symbol {
        b'A'..=b'Z' => Some(u32::from(symbol - b'A')),
        b'a'..=b'z' => Some(u32::from(symbol - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(symbol - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// Decodes a text; `None` if it is not the only text of its bytes.
pub(crate) fn decode(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let symbols = text.as_bytes();
    if symbols.is_empty() || !symbols.len().is_multiple_of(4) {
        return None;
    }
    let padding = symbols.iter().rev().take_while(|symbol| **symbol == b'=').count();
    let bare = symbols.get(..symbols.len() - padding).filter(|_| padding <= 2)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(bare.len()));
    for group in bare.chunks(4) {
        let mut bits = 0;
        for symbol in group {
            bits = bits << 6 | value(*symbol)?;
        }
        bits <<= 6 * (4 - group.len());
        let count = group.len() * 6 / 8;
        let all = bits.to_be_bytes();
        if all[1 + count..].iter().any(|rest| *rest != 0) {
            return None;
        }
        bytes.extend(&all[1..=count]);
    }
    Some(bytes)
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut all = [0; 4];
        all[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(all);
        for at in 0..4 {
            let symbol = ALPHABET[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= group.len() { symbol.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_written() {
        for (bytes, text) in [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap().as_slice(), bytes.as_bytes());
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(*decode(&encode(&all)).unwrap(), all);
        for wrong in ["", "Z", "Zg", "Zg=", "Zh==", "Zg==Zg==", "Z===", "====", "Zm9*", "Zm8=Zm8="]
        {
            assert!(decode(wrong).is_none(), "{wrong}");
        }
    }
}
