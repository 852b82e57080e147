//! The first bytes of a byte string as a number that sorts as the strings do, padded with zeroes.
//!
//! The functions use overlapping loads instead of a copy of variable length: such a copy is a call,
//! and a load of its result must wait for its small stores.

#[inline(always)]
pub fn head_u32(bytes: &[u8]) -> u32 {
    if let Some(head) = bytes.first_chunk() {
        return u32::from_be_bytes(*head);
    }
    let byte = |at: usize| bytes.get(at).map_or(0, |byte| u32::from(*byte) << (24 - 8 * at));
    byte(0) | byte(1) | byte(2)
}

#[inline(always)]
pub fn head_u64(bytes: &[u8]) -> u64 {
    if let Some(head) = bytes.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    match (bytes.first_chunk(), bytes.last_chunk()) {
        // At the positions that both loads cover, they have the same bytes.
        (Some(first), Some(last)) => {
            u64::from(u32::from_be_bytes(*first)) << 32
                | u64::from(u32::from_be_bytes(*last)) << (64 - 8 * bytes.len())
        }
        _ => u64::from(head_u32(bytes)) << 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_all_lengths() {
        for len in 0..20 {
            let bytes: Vec<u8> = (1..=len).map(|byte| byte * 13).collect();
            let filled: Vec<u8> = bytes.iter().copied().chain([0; 8]).take(8).collect();
            assert_eq!(head_u64(&bytes).to_be_bytes()[..], filled);
            assert_eq!(head_u32(&bytes).to_be_bytes()[..], filled[..4]);
        }
    }
}
