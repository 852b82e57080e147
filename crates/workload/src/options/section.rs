//! Options as they were given, with their sections and positions.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};

use super::definition::Definition;
use super::keyword;
use super::name::{self, Known};

/// The origin of an option or a section: a line of a job file, or the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place(Option<(Arc<Path>, u32)>);

impl Place {
    pub const COMMAND_LINE: Self = Self(None);

    /// Creates the position of a line of a file, from 1.
    #[must_use]
    pub fn line(file: &Arc<Path>, line: u32) -> Self {
        Self(Some((file.clone(), line)))
    }
}

/// Formats the prefix of a message: `a.fio:3: ` for a line of a file, nothing for the command line.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some((file, line)) => write!(f, "{}:{line}: ", file.display()),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Given {
    pub option: &'static Definition,
    /// The value; `None` if the option was given without one.
    pub value: Option<String>,
    pub place: Place,
}

impl Given {
    /// Returns the option of this name with its value; `None` for an unsupported option of fio with
    /// a harmless value.
    ///
    /// # Errors
    /// `Invalid` for an unknown name, an option of fio that is not supported, or an option without
    /// its value.
    pub fn new(name: &str, value: Option<&str>, place: Place) -> Result<Option<Self>> {
        let value = value.map(|value| keyword::replace(value.trim()));
        match name::find(name) {
            None => Err(name::unknown(name, &place.to_string())),
            Some(Known::Unsupported(option)) => {
                let given = value.as_deref().unwrap_or("1");
                if option.harmless.contains(&given) {
                    return Ok(None);
                }
                Err(name::unsupported(option, &place.to_string()))
            }
            Some(Known::Option(option)) => {
                // Logs without a name get a default name.
                let may_be_empty = option.name.starts_with("write_");
                let is_empty = value.as_deref().unwrap_or_default().is_empty();
                if is_empty && !(value.is_none() && option.takes.may_be_bare()) && !may_be_empty {
                    let what = format!("{place}{} has no value", option.name);
                    return Err(Error::new(ErrorKind::Invalid, what)
                        .hint(format!("write {}={}", option.name, option.example)));
                }
                Ok(Some(Self { option, value, place }))
            }
        }
    }
}

/// Collects errors, so that all errors of a job are reported at once.
#[derive(Default)]
pub(crate) struct Refused(Vec<String>, Option<Error>);

impl Refused {
    /// Keeps an error for later.
    pub(crate) fn take<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let text = error.to_string();
                if !self.0.contains(&text) && self.0.len() < REFUSED_MAX {
                    self.0.push(text);
                    self.1.get_or_insert(error);
                }
                None
            }
        }
    }

    /// Returns all errors as one, each on its own line.
    pub(crate) fn check(self) -> Result<()> {
        match (self.0.len(), self.1) {
            (_, None) => Ok(()),
            (1, Some(error)) => Err(error),
            _ => Err(Error::new(ErrorKind::Invalid, self.0.join("\n  "))),
        }
    }
}

/// The maximum number of errors that are reported at once.
const REFUSED_MAX: usize = 64;

#[derive(Clone, Debug)]
pub struct Section {
    pub name: String,
    /// The position of the section's first line.
    pub place: Place,
    /// Options given for all jobs before this section.
    pub global: Vec<Given>,
    pub own: Vec<Given>,
    /// Whether the job waits for all jobs before it, as the first job of a second job file does.
    pub wall: bool,
}

/// The name of the section whose options are for all jobs after it.
pub const GLOBAL: &str = "global";

/// Converts options of the command line, in order, into sections. Each `--name` begins a section;
/// options before the first one are for all jobs.
///
/// Returns the options for all jobs (including those of job files), and the sections.
///
/// # Errors
/// See [`Given::new`].
pub fn command_line<'a>(
    words: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<(Vec<Given>, Vec<Section>)> {
    let (mut global, mut sections): (Vec<Given>, Vec<Section>) = (Vec::new(), Vec::new());
    let mut in_global = true;
    let mut refused = Refused::default();
    for (name, value) in words {
        if name == "name" {
            let value =
                value.map(str::trim).filter(|value| !value.is_empty()).ok_or_else(|| {
                    Error::new(ErrorKind::Invalid, "--name has no value").hint("write --name=JOB")
                })?;
            in_global = value == GLOBAL;
            if !in_global {
                sections.push(Section {
                    name: value.to_owned(),
                    place: Place::COMMAND_LINE,
                    global: global.clone(),
                    own: Vec::new(),
                    wall: false,
                });
            }
            continue;
        }
        let given = refused.take(Given::new(name, value, Place::COMMAND_LINE));
        let Some(given) = given.flatten() else { continue };
        match sections.last_mut() {
            Some(section) if !in_global => section.own.push(given),
            _ => global.push(given),
        }
    }
    refused.check()?;
    Ok((global, sections))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_begin_jobs() {
        let words = [
            ("bs", Some("8k")),
            ("name", Some("a")),
            ("rw", Some("read")),
            ("name", Some("global")),
            ("iodepth", Some("4")),
            ("name", Some("b")),
        ];
        let (global, sections) = command_line(words).unwrap();
        let names = |given: &[Given]| -> Vec<_> { given.iter().map(|g| g.option.name).collect() };
        assert_eq!(names(&global), ["bs", "iodepth"]);
        assert_eq!(sections.len(), 2);
        assert_eq!((names(&sections[0].global), names(&sections[0].own)), (vec!["bs"], vec!["rw"]));
        assert_eq!(names(&sections[1].global), ["bs", "iodepth"]);
        assert!(sections[1].own.is_empty());
    }

    #[test]
    fn unknown_is_an_error_that_names_it() {
        let error =
            |name, value| Given::new(name, value, Place::COMMAND_LINE).unwrap_err().to_string();
        assert_eq!(
            error("iodpeth", Some("1")),
            "there is no option \"iodpeth\" (did you mean iodepth?)"
        );
        assert!(
            error("max_open_zones", Some("4"))
                .starts_with("fio's option max_open_zones is not supported")
        );
        assert!(error("softrandommap", None).contains("only softrandommap=0"));
        assert!(error("bs", None).contains("has no value"));
        assert!(error("filename", Some(" ")).contains("has no value"));
        assert!(Given::new("max_open_zones", Some("0"), Place::COMMAND_LINE).unwrap().is_none());
        let all = command_line([("nice", Some("4")), ("name", Some("a")), ("prio", Some("2"))]);
        let all = all.unwrap_err().to_string();
        assert!(all.contains("option nice is") && all.contains("option prio is"), "{all}");
        assert!(Given::new("write_bw_log", None, Place::COMMAND_LINE).unwrap().is_some());
        assert!(Given::new("thread", None, Place::COMMAND_LINE).unwrap().is_some());
    }
}
