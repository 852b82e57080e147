//! Bugs that can be planted in a store, to prove that the simulation sees such bugs. Never set outside of it.

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Canary {
    /// Closing does not flush before the labels say that all is there.
    CloseBeforeFlush,
}

impl Canary {
    /// All there are.
    pub const ALL: [Self; 1] = [Self::CloseBeforeFlush];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CloseBeforeFlush => "close-before-flush",
        }
    }
}
