//! Big-endian integers in byte strings. Bytes outside read as zero, and are not written.

pub(crate) fn get<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    at.checked_add(N)
        .and_then(|end| data.get(at..end))
        .and_then(|bytes| bytes.try_into().ok())
        .unwrap_or([0; N])
}

pub(crate) fn u8_at(data: &[u8], at: usize) -> u8 {
    data.get(at).copied().unwrap_or(0)
}

pub(crate) fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(get(data, at))
}

pub(crate) fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(get(data, at))
}

pub(crate) fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(get(data, at))
}

pub(crate) fn put(data: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = at.checked_add(bytes.len()).and_then(|end| data.get_mut(at..end)) {
        place.copy_from_slice(bytes);
    }
}

/// Returns the printable characters without surrounding blanks, and '?' for others.
pub(crate) fn text(data: &[u8]) -> String {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let text: String = data[..end]
        .iter()
        .map(|byte| if (0x20..0x7F).contains(byte) { char::from(*byte) } else { '?' })
        .collect();
    text.trim().to_owned()
}

/// Writes `text` in ASCII, padded with blanks.
pub(crate) fn put_text(place: &mut [u8], text: &str) {
    place.fill(b' ');
    let ascii = text.bytes().map(|byte| if (0x20..0x7F).contains(&byte) { byte } else { b'?' });
    for (place, byte) in place.iter_mut().zip(ascii) {
        *place = byte;
    }
}
