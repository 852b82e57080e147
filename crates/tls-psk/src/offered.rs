//! The identities of keys in a ClientHello.

/// The most identities that are looked at. NVMe's hosts offer one or two.
const IDENTITIES_MAX: usize = 8;
/// The number of the extension with identities (pre_shared_key).
const PRE_SHARED_KEY: u16 = 41;

/// Takes the first `count` bytes.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(first)
}

/// Takes a number of `count` bytes.
fn number(bytes: &mut &[u8], count: usize) -> Option<usize> {
    Some(take(bytes, count)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

/// Takes bytes that follow their length, which has `count` bytes.
fn vector<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let len = number(bytes, count)?;
    take(bytes, len)
}

fn identities(mut hello: &[u8]) -> Option<&[u8]> {
    // The version and random bytes; session, cipher suites and compression.
    take(&mut hello, 2 + 32)?;
    vector(&mut hello, 1)?;
    vector(&mut hello, 2)?;
    vector(&mut hello, 1)?;
    let mut extensions = vector(&mut hello, 2)?;
    while !extensions.is_empty() {
        let kind = number(&mut extensions, 2)?;
        let mut extension = vector(&mut extensions, 2)?;
        if kind == usize::from(PRE_SHARED_KEY) {
            return vector(&mut extension, 2);
        }
    }
    None
}

/// Returns the first identities that a ClientHello offers, which is given without the header of
/// the message. A message that is damaged offers none, or those before the damage.
#[must_use]
pub fn offered(hello: &[u8]) -> Vec<&[u8]> {
    let mut list = identities(hello).unwrap_or_default();
    let mut found = Vec::new();
    while found.len() < IDENTITIES_MAX
        && let Some(identity) = vector(&mut list, 2)
        && take(&mut list, 4).is_some()
    {
        found.push(identity);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_len(count: usize, bytes: &[u8]) -> Vec<u8> {
        let len = (bytes.len() as u32).to_be_bytes();
        [&len[4 - count..], bytes].concat()
    }

    fn hello(identities: &[&[u8]]) -> Vec<u8> {
        let all: Vec<u8> =
            identities.iter().flat_map(|it| [with_len(2, it), vec![0; 4]].concat()).collect();
        let keys = [with_len(2, &all), with_len(2, &[32; 33])].concat();
        let other = [&[0, 43][..], &with_len(2, &[2, 3, 4])].concat();
        let extensions = [&other[..], &[0, 41], &with_len(2, &keys)].concat();
        let head = [&[3, 3][..], &[0; 32], &with_len(1, &[1; 32]), &with_len(2, &[19, 1])].concat();
        [head, with_len(1, &[0]), with_len(2, &extensions)].concat()
    }

    #[test]
    fn identities_are_found() {
        assert_eq!(offered(&hello(&[b"one", b"two"])), [&b"one"[..], b"two"]);
        let many: Vec<&[u8]> = vec![b"x"; 50];
        assert_eq!(offered(&hello(&many)).len(), IDENTITIES_MAX);
        assert!(offered(&[]).is_empty());
    }

    #[test]
    fn a_message_that_ends_early_offers_no_more() {
        let whole = hello(&[b"one", b"two"]);
        for len in 0..whole.len() {
            let found = offered(&whole[..len]);
            assert!(found.iter().all(|it| [&b"one"[..], b"two"].contains(it)));
        }
        // A list that says it is longer than its extension.
        let mut lies = whole;
        let at = lies.windows(2).rposition(|it| it == [0, 41]).unwrap() + 4;
        lies[at] = 255;
        assert!(offered(&lies).is_empty());
    }
}
