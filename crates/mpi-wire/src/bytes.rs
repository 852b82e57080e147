//! Little-endian integers in byte strings. Bytes outside read as zero, and are not written.

fn get<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    at.checked_add(N)
        .and_then(|end| data.get(at..end))
        .and_then(|bytes| bytes.try_into().ok())
        .unwrap_or([0; N])
}

pub(crate) fn u8_at(data: &[u8], at: usize) -> u8 {
    data.get(at).copied().unwrap_or(0)
}

pub(crate) fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(get(data, at))
}

pub(crate) fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(data, at))
}

pub(crate) fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(data, at))
}

pub(crate) fn put(data: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = at.checked_add(bytes.len()).and_then(|end| data.get_mut(at..end)) {
        place.copy_from_slice(bytes);
    }
}
