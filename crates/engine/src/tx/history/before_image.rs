//! The encoding of before-images in the pages of a run.

use qpair_format::{Error, ErrorKind, Result};

use crate::tx::versions::{BeforeImage, Version};

/// The size of an encoded image before its key, in bytes.
const HEAD_BYTES: usize = 17;

/// An encoded before-image in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tx) struct BeforeImageRef<'a> {
    pub(in crate::tx) tree: u32,
    pub(super) timestamp: u64,
    pub(in crate::tx) key: &'a [u8],
    kind: Kind,
    value: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Absent = 0,
    Inline = 1,
    Large = 2,
}

impl<'a> BeforeImageRef<'a> {
    pub(super) fn new(tree: u32, key: &'a [u8], timestamp: u64, image: &'a BeforeImage) -> Self {
        Self::of_record(tree, key, timestamp, image.record())
    }

    /// Makes an image of a record: of its value, or of the descriptor of a large one.
    pub(in crate::tx) fn of_record(
        tree: u32,
        key: &'a [u8],
        timestamp: u64,
        record: Option<(&'a [u8], bool)>,
    ) -> Self {
        let (kind, value): (_, &[u8]) = match record {
            None => (Kind::Absent, &[]),
            Some((value, false)) => (Kind::Inline, value),
            Some((descriptor, true)) => (Kind::Large, descriptor),
        };
        Self { tree, timestamp, key, kind, value }
    }

    pub(super) fn version(&self) -> Version {
        let image = match self.kind {
            Kind::Absent => BeforeImage::Absent,
            Kind::Inline => BeforeImage::Inline(self.value.into()),
            Kind::Large => BeforeImage::Large(self.value.into()),
        };
        Version { timestamp: self.timestamp, image }
    }

    /// Returns the image's value if that is the descriptor of a large value.
    pub(super) fn descriptor(&self) -> Option<&'a [u8]> {
        (self.kind == Kind::Large).then_some(self.value)
    }

    /// Returns the size of the image in a page, in bytes.
    pub(in crate::tx) fn size_bytes(&self) -> usize {
        HEAD_BYTES + self.key.len() + self.value.len()
    }

    pub(super) fn encode(&self, page: &mut Vec<u8>) {
        page.extend_from_slice(&self.tree.to_le_bytes());
        page.extend_from_slice(&self.timestamp.to_le_bytes());
        page.push(self.kind as u8);
        page.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        page.extend_from_slice(&(self.value.len() as u16).to_le_bytes());
        page.extend_from_slice(self.key);
        page.extend_from_slice(self.value);
    }

    /// Decodes the image at the start of `bytes`, and returns it with the bytes after it.
    fn decode(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let (tree, head) = head.split_first_chunk::<4>()?;
        let (timestamp, head) = head.split_first_chunk::<8>()?;
        let kind = match head[0] {
            0 => Kind::Absent,
            1 => Kind::Inline,
            2 => Kind::Large,
            _ => return None,
        };
        let len = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let (key, rest) = rest.split_at_checked(len(1))?;
        let (value, rest) = rest.split_at_checked(len(3))?;
        let (tree, timestamp) = (u32::from_le_bytes(*tree), u64::from_le_bytes(*timestamp));
        Some((Self { tree, timestamp, key, kind, value }, rest))
    }
}

/// Returns the images of a page, after its header.
pub(super) fn images(
    mut bytes: &[u8],
    count: u16,
) -> impl Iterator<Item = Result<BeforeImageRef<'_>>> {
    (0..count).map(move |_| {
        let decoded = BeforeImageRef::decode(bytes);
        let (image, rest) = decoded.ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "an older value on the device cannot be decoded")
        })?;
        bytes = rest;
        Ok(image)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_come_back_as_they_were() {
        let all = [
            BeforeImage::Absent,
            BeforeImage::Inline([7; 300][..].into()),
            BeforeImage::Inline([][..].into()),
            BeforeImage::Large([1; 24].into()),
        ];
        let (mut page, mut size_bytes) = (Vec::new(), 0);
        for (index, image) in all.iter().enumerate() {
            let image = BeforeImageRef::new(9, &[3; 40][..index * 10], 100 + index as u64, image);
            image.encode(&mut page);
            size_bytes += image.size_bytes();
        }
        assert_eq!(page.len(), size_bytes);
        let read: Vec<_> = images(&page, 4).collect::<Result<_>>().unwrap();
        for (index, (read, image)) in read.iter().zip(&all).enumerate() {
            assert_eq!((read.tree, read.key.len()), (9, index * 10));
            let version = read.version();
            assert_eq!((version.timestamp, &version.image), (100 + index as u64, image));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut page = Vec::new();
        BeforeImageRef::new(1, b"key", 5, &BeforeImage::Inline([2; 9][..].into()))
            .encode(&mut page);
        for len in 0..page.len() {
            assert!(images(&page[..len], 1).any(|image| image.is_err()), "{len} bytes");
        }
        assert!(images(&page, 2).any(|image| image.is_err()), "there is one only");
        page[12] = 3;
        assert!(images(&page, 1).any(|image| image.is_err()), "no such kind");
    }
}
