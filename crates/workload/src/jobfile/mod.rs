//! fio's job files: sections of options in lines.
//!
//! ```text
//! ; a comment, as with #                 at the end of a line too
//! [global]                               for all sections after it
//! bs=4k
//! include shared.fio                     lines of another file, beside this one; no sections in it
//! [reader]                               a job
//! rw=randread
//! size=${SIZE}                           of the environment
//! ```
//!
//! Invariants: every line is parsed or results in an error with its file and number. Parsing
//! accesses no files except included ones.

mod lines;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};

use crate::options::{GLOBAL, Given, Place, Refused, Section};
use lines::{Line, Lines};

const INCLUDES_MAX: usize = 16;

/// The maximum number of lines of a job file, including the files that it includes.
const LINES_MAX: usize = 100_000;

/// The maximum size of a job file, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads a job file; `-` is standard input. `global` has options for all jobs, such as those of the
/// command line. `only` has the names of the sections to read, of which the file need not have any;
/// if it is empty, all sections are read.
///
/// # Errors
/// Returns the file system's error, or `Invalid` with file and line for text that is not a valid
/// job file.
pub fn read(path: &Path, global: &[Given], only: &[String]) -> Result<Vec<Section>> {
    let text = load(path)
        .map_err(|cause| Error::os(cause, format!("reading the job file {}", path.display())))?;
    let include = |path: &Path| load(path);
    let environment = |name: &str| std::env::var(name).ok();
    parse(&text, path, global, only, &Outside { include: &include, environment: &environment })
}

fn load(path: &Path) -> io::Result<String> {
    use io::Read as _;
    let mut bytes = Vec::new();
    let limit = FILE_BYTES_MAX + 1;
    if path == Path::new("-") {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)?;
    } else {
        std::fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a job file has at most 16 MiB"));
    }
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the file is not text (UTF-8)"))
}

pub(crate) struct Outside<'a> {
    pub(crate) include: &'a dyn Fn(&Path) -> io::Result<String>,
    pub(crate) environment: &'a dyn Fn(&str) -> Option<String>,
}

pub(crate) fn parse(
    text: &str,
    path: &Path,
    global: &[Given],
    only: &[String],
    outside: &Outside<'_>,
) -> Result<Vec<Section>> {
    let mut reader = Reader {
        only,
        outside,
        global: global.to_vec(),
        sections: Vec::new(),
        current: Current::None,
        lines: 0,
        refused: Refused::default(),
    };
    let mut files = vec![path.to_owned()];
    reader.file(text, &mut files)?;
    reader.refused.check()?;
    if reader.sections.is_empty() && only.is_empty() {
        let what = format!("{} has no job", path.display());
        return Err(Error::new(ErrorKind::Invalid, what).hint("a job begins with a line [NAME]"));
    }
    Ok(reader.sections)
}

/// The section that receives the options of the current line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Current {
    None,
    Global,
    /// The last section.
    Job,
    /// A section that was not requested.
    Skipped,
}

struct Reader<'a> {
    only: &'a [String],
    outside: &'a Outside<'a>,
    global: Vec<Given>,
    sections: Vec<Section>,
    current: Current,
    lines: usize,
    refused: Refused,
}

impl Reader<'_> {
    /// Reads the text of a file. `files` ends with this file, after those that include it.
    fn file(&mut self, text: &str, files: &mut Vec<PathBuf>) -> Result<()> {
        let path: Arc<Path> = files.last().map(PathBuf::as_path).unwrap_or(Path::new("-")).into();
        for (number, line) in Lines::new(text) {
            let place = Place::line(&path, number);
            let invalid = |what: &str| Error::new(ErrorKind::Invalid, format!("{place}{what}"));
            self.lines += 1;
            if self.lines > LINES_MAX {
                return Err(invalid("the job file has too many lines"));
            }
            match line {
                Line::Section(_) if files.len() > 1 => {
                    return Err(invalid("an included file cannot have sections"));
                }
                Line::Section(name) => self.begin(name, place),
                Line::Open => {
                    return Err(invalid("a section's name is not closed").hint("write [name]"));
                }
                Line::Nameless => {
                    return Err(invalid("a section has no name").hint("write [name]"));
                }
                Line::Rest(rest) => {
                    return Err(invalid(&format!("\"{rest}\" cannot follow a section's name"))
                        .hint("write it on a line of its own"));
                }
                _ if self.current == Current::Skipped => {}
                _ if self.current == Current::None => {
                    return Err(invalid("an option cannot come before the first section")
                        .hint("write [global] before it, or the name of a job"));
                }
                Line::Include(name) => self.include(name, &place, files)?,
                Line::Option(name, value) => self.option(name, value, place)?,
            }
        }
        Ok(())
    }

    fn begin(&mut self, name: &str, place: Place) {
        if name == GLOBAL {
            self.current = Current::Global;
            return;
        }
        if !self.only.is_empty() && !self.only.iter().any(|wanted| wanted == name) {
            self.current = Current::Skipped;
            return;
        }
        self.current = Current::Job;
        self.sections.push(Section {
            name: name.to_owned(),
            place,
            global: self.global.clone(),
            own: Vec::new(),
            wall: false,
        });
    }

    fn option(&mut self, name: &str, value: Option<&str>, place: Place) -> Result<()> {
        let value = match value {
            Some(value) => Some(expand(value, self.outside.environment).map_err(|what| {
                Error::new(ErrorKind::Invalid, format!("{place}{name}={value}: {what}"))
            })?),
            None => None,
        };
        let given = self.refused.take(Given::new(name, value.as_deref(), place));
        let Some(given) = given.flatten() else { return Ok(()) };
        match self.current {
            Current::Global => self.global.push(given),
            _ => {
                if let Some(section) = self.sections.last_mut() {
                    section.own.push(given);
                }
            }
        }
        Ok(())
    }

    fn include(&mut self, name: &str, place: &Place, files: &mut Vec<PathBuf>) -> Result<()> {
        let invalid =
            |what: String| Error::new(ErrorKind::Invalid, format!("{place}include {name}: {what}"));
        if name.is_empty() || name.contains('\0') {
            return Err(invalid("it names no file".to_owned()));
        }
        let folder = files.last().and_then(|file| file.parent()).unwrap_or(Path::new(""));
        let path = folder.join(name);
        if files.contains(&path) {
            return Err(invalid("the file includes itself".to_owned()));
        }
        if files.len() >= INCLUDES_MAX {
            return Err(invalid(format!("more than {INCLUDES_MAX} files include each other")));
        }
        let text = (self.outside.include)(&path)
            .map_err(|cause| Error::os(cause, format!("{place}including {}", path.display())))?;
        files.push(path);
        self.file(&text, files)?;
        files.pop();
        Ok(())
    }
}

/// Replaces each `${NAME}` in a value by the environment variable. As in fio, an unset variable is
/// empty.
fn expand(
    value: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> std::result::Result<String, &'static str> {
    let (mut out, mut rest) = (String::new(), value);
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or("a variable ${NAME} is not closed")?;
        out.push_str(before);
        out.push_str(&environment(name).unwrap_or_default());
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}
