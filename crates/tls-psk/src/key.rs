//! Keys, and the place where a server finds them.

use std::fmt;

use zeroize::Zeroizing;

/// The hash function that a key is for, which is that of the cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHash {
    Sha256,
    Sha384,
}

/// A key that both ends have, and the identity by which a client names it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    pub identity: Vec<u8>,
    /// At least 16 bytes.
    pub secret: Zeroizing<Vec<u8>>,
    pub hash: KeyHash,
}

/// No output has the secret.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identity = String::from_utf8_lossy(&self.identity);
        f.debug_struct("Key").field("identity", &identity).finish_non_exhaustive()
    }
}

/// The keys of a server.
pub trait KeySource: Send + Sync {
    /// Returns the key of an identity that a client offers. It must not panic: C code calls it.
    fn find(&self, identity: &[u8]) -> Option<Key>;
}
