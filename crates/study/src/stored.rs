//! Studies as JSON.

use qpair_block::{Error, ErrorKind, Result};

use crate::judge::judge;
use crate::report::{FORMAT, StudyReport, VERSION};

impl StudyReport {
    /// Reads a stored study and derives its verdicts again. A study of an older version keeps its
    /// verdicts, because it was run by other rules.
    ///
    /// # Errors
    /// `Invalid` if the text is not a study, or has a version that this program does not know.
    pub fn from_json(text: &str) -> Result<Self> {
        let invalid = |why: String| {
            Error::new(ErrorKind::Invalid, format!("the file is not a stored study: {why}"))
                .hint("qpair study writes one beside its report")
        };
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
        if value.get("format").and_then(|format| format.as_str()) != Some(FORMAT) {
            return Err(invalid(format!("it has no \"format\": \"{FORMAT}\"")));
        }
        let version = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if !(1..=u64::from(VERSION)).contains(&version) {
            return Err(invalid(format!(
                "it has version {version}; this program reads up to {VERSION}"
            )));
        }
        let mut report: Self =
            serde_json::from_value(value).map_err(|error| invalid(error.to_string()))?;
        if report.version == VERSION {
            report.judge();
        }
        Ok(report)
    }

    /// Serializes the study as JSON.
    ///
    /// # Errors
    /// `Invalid` if a number is not finite; that would be a bug.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Error::new(ErrorKind::Invalid, "writing JSON").caused_by(error))
    }

    /// Derives the verdicts from the points.
    pub fn judge(&mut self) {
        self.verdicts = judge(self);
    }
}
