//! Versions of the kernel.

use std::fmt;

/// A kernel version: the first two numbers, which decide about features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// The major version: 6 of 6.18.
    pub major: u32,
    /// The minor version: 18 of 6.18.
    pub minor: u32,
}

impl Release {
    /// Parses the beginning of a release's name such as "6.1.0-13-amd64".
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.split(|c: char| !c.is_ascii_digit());
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?.parse().ok()?;
        Some(Self { major, minor })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::Release;

    #[test]
    fn parses() {
        let release = |major, minor| Some(Release { major, minor });
        assert_eq!(Release::parse("6.1.0-13-amd64"), release(6, 1));
        assert_eq!(Release::parse("5.15-rc3"), release(5, 15));
        assert_eq!(Release::parse("linux"), None);
        assert!(Release::parse("6.9") < Release::parse("6.10"));
    }
}
