//! The definition of an option: its name, value, default and help.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// No value, or 0 or 1.
    Flag,
    /// 0 or 1. No value means 1.
    Yes,
    /// Text, which the help shows under this name.
    Text(&'static str),
    Word(&'static [&'static str]),
    Bytes,
    /// Bytes for reads, writes and trims.
    BytesEach,
    /// Bytes, or a percentage.
    Amount,
    Number,
    /// Whole numbers for reads, writes and trims.
    NumberEach,
    /// A time; in seconds without a unit.
    Seconds,
    /// A time; in milliseconds without a unit.
    Milliseconds,
    /// A time; in microseconds without a unit.
    Microseconds,
}

impl Takes {
    #[must_use]
    pub fn value_name(self) -> String {
        match self {
            Self::Flag | Self::Yes => "0|1".to_owned(),
            Self::Text(name) => name.to_owned(),
            Self::Word(words) => words.join("|"),
            Self::Bytes => "SIZE".to_owned(),
            Self::BytesEach => "SIZE[,SIZE[,SIZE]]".to_owned(),
            Self::Amount => "SIZE|PERCENT%".to_owned(),
            Self::Number => "N".to_owned(),
            Self::NumberEach => "N[,N[,N]]".to_owned(),
            Self::Seconds | Self::Milliseconds | Self::Microseconds => "TIME".to_owned(),
        }
    }

    /// Returns the unit of a value that is given without one.
    #[must_use]
    pub fn unit(self) -> Option<&'static str> {
        Some(match self {
            Self::Bytes | Self::BytesEach | Self::Amount => "bytes",
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
            _ => return None,
        })
    }

    #[must_use]
    pub fn may_be_bare(self) -> bool {
        matches!(self, Self::Flag | Self::Yes)
    }
}

/// The topic of an option: a heading of the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    Jobs,
    Targets,
    Pattern,
    Interface,
    Depth,
    Rate,
    Time,
    Durability,
    Content,
    Verification,
    Machine,
    Reports,
}

impl Topic {
    /// All topics, in the order of the help.
    pub const ALL: [Self; 12] = [
        Self::Jobs,
        Self::Targets,
        Self::Pattern,
        Self::Interface,
        Self::Depth,
        Self::Rate,
        Self::Time,
        Self::Durability,
        Self::Content,
        Self::Verification,
        Self::Machine,
        Self::Reports,
    ];

    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            Self::Jobs => "Jobs",
            Self::Targets => "Files and devices",
            Self::Pattern => "What is read and written",
            Self::Interface => "Interface",
            Self::Depth => "Requests in flight",
            Self::Rate => "Rate",
            Self::Time => "Time",
            Self::Durability => "Durability",
            Self::Content => "What written blocks hold",
            Self::Verification => "Verification",
            Self::Machine => "Processors and memory",
            Self::Reports => "Measuring and reports",
        }
    }
}

#[derive(Debug)]
pub struct Definition {
    /// The option's name: fio's, if fio has the option.
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub topic: Topic,
    pub takes: Takes,
    /// The default, as a user would write it; empty if there is none.
    pub default: &'static str,
    pub example: &'static str,
    pub help: &'static str,
}

impl Definition {
    #[must_use]
    pub fn long_help(&self) -> String {
        let mut out = self.help.to_owned();
        if let Some(unit) = self.takes.unit() {
            out.push_str(&format!(" [unit: {unit}]"));
        }
        if !self.default.is_empty() {
            out.push_str(&format!(" [default: {}]", self.default));
        }
        if !self.example.is_empty()
            && !matches!(self.takes, Takes::Flag | Takes::Yes | Takes::Word(_))
        {
            out.push_str(&format!(" [example: {}]", self.example));
        }
        out
    }
}
