//! Settles the files and devices that a clone works on, and how much of them it uses.

use std::path::{Path, PathBuf};

use qpair_block::{DeviceSpec, KINDS, NullOptions, Result};

use super::interface::Way;
use super::reader::Reader;
use crate::job::{Extent, Target, TargetOrder};
use crate::options::value::{Amount, Read};

pub(super) struct Place {
    pub(super) targets: Vec<Target>,
    pub(super) order: TargetOrder,
    pub(super) offset: Extent,
    pub(super) size: Option<Extent>,
    pub(super) io_size: Option<u64>,
}

impl Place {
    pub(super) fn has_files(&self) -> bool {
        self.targets.iter().any(|target| !target.spec.paths().is_empty())
    }
}

/// The maximum number of files of a job, all of which are open at once.
const FILES_MAX: u32 = 4096;

pub(super) fn place(reader: &Reader<'_>, way: &Way, clone: u32, may_make: bool) -> Result<Place> {
    let names = names(reader, clone)?;
    let count = names.len() as u64;
    let offset = offset(reader, clone)?;
    let whole = reader.amount("size")?;
    let each = reader.bytes("filesize")?;
    let size = match (each, whole) {
        (Some(bytes), _) => Some(Extent::Bytes(bytes)),
        (None, Some(Amount::Bytes(bytes))) => Some(Extent::Bytes(bytes / count)),
        (None, Some(Amount::Percent(percent))) => Some(Extent::Percent(percent)),
        (None, None) => None,
    };
    let io_size = reader.bytes("io_size")?;
    let order = match reader.word("file_service_type")? {
        Some("random") => TargetOrder::Random,
        Some("sequential") => TargetOrder::Sequential,
        _ => TargetOrder::RoundRobin,
    };
    // A new file gets the size of the part that will be used.
    let make_bytes = match (size, offset) {
        (Some(Extent::Bytes(bytes)), Extent::Bytes(offset)) => bytes.checked_add(offset),
        _ => None,
    };
    let may_make = may_make && reader.flag("allow_file_create")? != Some(false);
    let sparse = matches!(reader.word("fallocate")?, Some("none" | "0" | "truncate"));
    let on_open = reader.is_set("create_on_open")?;
    if reader.flag("create_fsync")? == Some(false) {
        return Err(reader.contradiction("create_fsync", "create_fsync=0 is not supported"));
    }
    if reader.flag("create_serialize")? == Some(false) {
        reader.note("create_serialize=0 has no effect: files are made one after the other");
    }
    let overwrite = reader.is_set("overwrite")?;
    let mut targets = Vec::new();
    for name in names {
        let spec = match name {
            _ if way.is_null => {
                let Some(size_bytes) = make_bytes else {
                    let what = "ioengine=null needs a size in bytes";
                    return Err(reader.contradiction("ioengine", what).hint("give --size=1g"));
                };
                DeviceSpec::Null(NullOptions { size_bytes })
            }
            Name::Device(spec) => spec,
            Name::File(path) => DeviceSpec::File(path),
        };
        let mut target = Target { spec, create_bytes: None, sparse: sparse || on_open };
        if let DeviceSpec::File(path) = &target.spec
            && (!path.starts_with("/dev") || path.starts_with("/dev/shm"))
            && !path.to_str().is_some_and(|text| is_missing(path) && is_address(text))
            && may_make
        {
            if make_bytes.is_none() && is_missing(path) {
                let what = format!(
                    "{} does not exist, and size does not say how large to make it",
                    path.display()
                );
                return Err(reader
                    .contradiction("filename", what)
                    .hint("give --size=1g, for example"));
            }
            target.create_bytes = make_bytes.filter(|bytes| *bytes > 0);
            if overwrite && is_missing(path) {
                let what = format!(
                    "overwrite=1 needs a file to overwrite, but {} does not exist",
                    path.display()
                );
                return Err(reader
                    .contradiction("overwrite", what)
                    .hint("write it once with rw=write, in a job before or by another run"));
            }
        }
        targets.push(target);
    }
    Ok(Place { targets, order, offset, size, io_size })
}

fn is_missing(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}

fn offset(reader: &Reader<'_>, clone: u32) -> Result<Extent> {
    let offset = reader.amount("offset")?.unwrap_or(Amount::Bytes(0));
    let step = reader.amount("offset_increment")?;
    let mixed = || {
        let what = "offset and offset_increment are not both bytes or both percent";
        reader.contradiction("offset_increment", what)
    };
    match (offset, step) {
        (Amount::Bytes(bytes), None) => Ok(Extent::Bytes(bytes)),
        (Amount::Bytes(bytes), Some(Amount::Bytes(step))) => step
            .checked_mul(clone.into())
            .and_then(|step| bytes.checked_add(step))
            .map(Extent::Bytes)
            .ok_or_else(|| reader.contradiction("offset_increment", "the offset is too large")),
        (Amount::Percent(percent), None) => Ok(Extent::Percent(percent)),
        (Amount::Bytes(1..), Some(Amount::Percent(_))) => Err(mixed()),
        (offset, Some(Amount::Percent(step))) => {
            let begin = if let Amount::Percent(percent) = offset { percent } else { 0 };
            let percent = u32::from(begin) + u32::from(step) * clone;
            u8::try_from(percent)
                .ok()
                .filter(|percent| *percent < 100)
                .map(Extent::Percent)
                .ok_or_else(|| {
                    reader.contradiction(
                        "offset_increment",
                        format!("the offset would be {percent} %"),
                    )
                })
        }
        (Amount::Percent(_), Some(Amount::Bytes(_))) => Err(mixed()),
    }
}

enum Name {
    File(PathBuf),
    Device(DeviceSpec),
}

fn names(reader: &Reader<'_>, clone: u32) -> Result<Vec<Name>> {
    let directories = match reader.text("directory") {
        Some(text) => parts(text),
        None => Vec::new(),
    };
    let under = |directory: Option<&String>, name: &str| match directory {
        // As in fio, the directory precedes the name, even if the name begins with a slash.
        Some(directory) => PathBuf::from(format!("{directory}/{name}")),
        None => PathBuf::from(name),
    };
    if let Some(given) = reader.last(&["filename"]) {
        let text = given.value.as_deref().unwrap_or_default();
        if let Some(spec) = device(text).map_err(|why| reader.wrong(given, &why))? {
            reader.allow(&["directory"]);
            return Ok(vec![Name::Device(spec)]);
        }
        let names = parts(text);
        if names.iter().any(|name| name == "-") {
            return Err(reader.wrong(given, "standard input and output are not devices"));
        }
        if names.iter().any(|name| name.contains('\0')) || names.len() > FILES_MAX as usize {
            return Err(reader.wrong(given, "is not a list of files"));
        }
        if names.is_empty() {
            return Err(reader.wrong(given, "names no file"));
        }
        return Ok(names.iter().map(|name| Name::File(under(directories.first(), name))).collect());
    }
    let count = reader.number("nrfiles", 1, FILES_MAX)?.unwrap_or(1);
    let format = reader.text("filename_format").unwrap_or("$jobname.$jobnum.$filenum");
    if format.contains("$clientuid") {
        let what = "filename_format cannot have $clientuid: there are no clients";
        return Err(reader.contradiction("filename_format", what));
    }
    // A job's name may be any text; a slash in it must not create folders.
    let job = reader.section.name.replace('/', "_");
    let directory = match directories.len() {
        0 => None,
        len => directories.get(clone as usize % len),
    };
    let name = |file: u32| {
        let name = format
            .replace("$jobnum", &clone.to_string())
            .replace("$filenum", &file.to_string())
            .replace("$jobname", &job);
        Name::File(under(directory, &name))
    };
    Ok((0..count).map(name).collect())
}

pub(super) fn device(text: &str) -> Read<Option<DeviceSpec>> {
    let is_kind = |word| text.strip_prefix(word).is_some_and(|rest| rest.starts_with(':'));
    if !KINDS.iter().any(|kind| is_kind(kind.word)) && !is_address(text) {
        return Ok(None);
    }
    DeviceSpec::parse(text).map(Some).map_err(|error| error.to_string())
}

/// Whether text is the address of a PCI function, `0000:3b:00.0` or `0000:3b:00.0/ns1`, and not a
/// list of three files.
fn is_address(text: &str) -> bool {
    let domain = text.split(':').next().unwrap_or_default();
    let is_domain = domain.len() >= 4 && domain.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_long = text.bytes().filter(|byte| *byte == b':').count() == 2;
    is_domain && is_long && matches!(DeviceSpec::parse(text), Ok(DeviceSpec::File(_)))
}

/// Splits names at colons; a backslash before a colon makes it part of the name.
pub(super) fn parts(text: &str) -> Vec<String> {
    let (mut parts, mut part, mut chars) = (Vec::new(), String::new(), text.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '\\' if matches!(chars.peek(), Some(':' | '\\')) => part.extend(chars.next()),
            ':' => parts.push(std::mem::take(&mut part)),
            c => part.push(c),
        }
    }
    parts.push(part);
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colons_separate_names() {
        assert_eq!(parts("/dev/a:/dev/b"), ["/dev/a", "/dev/b"]);
        assert_eq!(parts(r"a\:b:c\\:d\e"), ["a:b", r"c\", r"d\e"]);
        assert_eq!(parts("::"), Vec::<String>::new());
        assert!(device("a:b").unwrap().is_none());
        for address in ["0000:3b:00.0", "0000:3b:00.0/ns1"] {
            assert!(device(address).unwrap().is_some(), "{address}");
        }
        for list in ["0000:a:b", "aaaa:bbbb:cccc", "3b:00.0", "/dev/a:/dev/b:/dev/c"] {
            assert!(device(list).unwrap().is_none(), "{list}");
        }
        assert!(device("ram:size=1MiB").unwrap().is_some());
        assert!(device("ram:size=one").is_err());
    }
}
