//! Tests of claims.
//!
//! Invariant: a claim is decided only if the whole interval is on one side of its threshold. One
//! run decides nothing.

use qpair_plots::Interval;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    /// At least the value.
    AtLeast(f64),
    /// At most the value.
    AtMost(f64),
    /// From the first to the second value.
    Between(f64, f64),
}

/// The outcome of testing a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The whole interval meets the claim.
    Holds,
    /// The parts of the claim that could be tested hold, and other parts could not be tested.
    HoldsInPart,
    /// The whole interval contradicts the claim.
    DoesNotHold,
    /// The interval contains the threshold, or there was only one run.
    Undecided,
    /// This machine or these devices cannot test the claim.
    NotTestable,
}

impl Outcome {
    /// Returns the outcome in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::HoldsInPart => "holds in part",
            Self::DoesNotHold => "does not hold",
            Self::Undecided => "undecided",
            Self::NotTestable => "can't be tested here",
        }
    }

    /// Whether one outcome is for the claim and the other against it.
    #[must_use]
    pub fn is_reverse_of(self, other: Self) -> bool {
        let holds = |one| matches!(one, Self::Holds | Self::HoldsInPart);
        (holds(self) && other == Self::DoesNotHold) || (self == Self::DoesNotHold && holds(other))
    }

    /// Returns the outcome of a claim with several parts, all of which must hold.
    #[must_use]
    pub fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::Holds;
        for (at, part) in parts.into_iter().enumerate() {
            all = match (all, part) {
                _ if at == 0 => part,
                (Self::DoesNotHold, _) | (_, Self::DoesNotHold) => Self::DoesNotHold,
                (Self::Undecided, _) | (_, Self::Undecided) => Self::Undecided,
                (one, other) if one == other => one,
                _ => Self::HoldsInPart,
            };
        }
        all
    }
}

impl Threshold {
    /// Compares an interval with the threshold.
    #[must_use]
    pub fn judge(self, interval: &Interval) -> Outcome {
        let Some((low, high)) = interval.bounds else { return Outcome::Undecided };
        let (surely, surely_not) = match self {
            Self::AtLeast(least) => (low >= least, high < least),
            Self::AtMost(most) => (high <= most, low > most),
            Self::Between(least, most) => {
                (low >= least && high <= most, high < least || low > most)
            }
        };
        match (surely, surely_not) {
            (true, _) => Outcome::Holds,
            (_, true) => Outcome::DoesNotHold,
            _ => Outcome::Undecided,
        }
    }

    /// Returns the threshold in words: "at least 1.1".
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::AtLeast(least) => format!("at least {least}"),
            Self::AtMost(most) => format!("at most {most}"),
            Self::Between(least, most) => format!("{least} to {most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds() {
        let of = |low, high| Interval { mid: (low + high) / 2.0, bounds: Some((low, high)) };
        let least = Threshold::AtLeast(1.0);
        assert_eq!(least.judge(&of(1.1, 1.3)), Outcome::Holds);
        assert_eq!(least.judge(&of(0.9, 1.3)), Outcome::Undecided);
        assert_eq!(least.judge(&of(0.7, 0.9)), Outcome::DoesNotHold);
        let most = Threshold::AtMost(1.0);
        assert_eq!(most.judge(&of(1.1, 1.3)), Outcome::DoesNotHold);
        assert_eq!(most.judge(&of(0.9, 1.3)), Outcome::Undecided);
        assert_eq!(most.judge(&of(0.7, 0.9)), Outcome::Holds);
        let between = Threshold::Between(0.9, 1.1);
        assert_eq!(between.judge(&of(0.95, 1.05)), Outcome::Holds);
        assert_eq!(between.judge(&of(1.0, 1.2)), Outcome::Undecided);
        assert_eq!(between.judge(&of(0.5, 0.8)), Outcome::DoesNotHold);
        assert_eq!(between.judge(&of(1.2, 1.3)), Outcome::DoesNotHold);
        assert_eq!(most.judge(&Interval { mid: 0.5, bounds: None }), Outcome::Undecided);
    }

    #[test]
    fn all_parts() {
        use Outcome::{DoesNotHold, Holds, HoldsInPart, NotTestable, Undecided};
        assert_eq!(Outcome::all([Holds, Holds]), Holds);
        assert_eq!(Outcome::all([Holds, Undecided]), Undecided);
        assert_eq!(Outcome::all([Undecided, Undecided]), Undecided);
        assert_eq!(Outcome::all([Undecided, DoesNotHold, Holds]), DoesNotHold);
        assert_eq!(Outcome::all([NotTestable, Holds]), HoldsInPart);
        assert_eq!(Outcome::all([Holds, NotTestable, NotTestable]), HoldsInPart);
        assert_eq!(Outcome::all([NotTestable, NotTestable]), NotTestable);
        assert_eq!(Outcome::all([NotTestable, Undecided]), Undecided);
        assert_eq!(Outcome::all([NotTestable, DoesNotHold]), DoesNotHold);
        assert!(DoesNotHold.is_reverse_of(HoldsInPart) && Holds.is_reverse_of(DoesNotHold));
        assert!(!Undecided.is_reverse_of(Holds) && !Holds.is_reverse_of(HoldsInPart));
    }
}
