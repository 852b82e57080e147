//! Access to the options of one section by name.
//!
//! Invariant: [`Reader::finish`] finds every option that was given and never read.

use std::cell::RefCell;
use std::collections::BTreeSet;

use qpair_block::{Error, ErrorKind, Result};

use crate::options::definition::Takes;
use crate::options::section::{Given, Section};
use crate::options::value::{self, KbBase, Read, TimeUnit};

/// Options whose lack of effect is an error, and the option that each of them needs.
const NEEDS: &[(&str, &str)] = &[
    ("rwmixread", "--rw=rw or --rw=randrw"),
    ("rwmixwrite", "--rw=rw or --rw=randrw"),
    ("hipri", "--ioengine=io_uring or io_uring_cmd (in --interface, write io_uring+p)"),
    ("sqthread_poll", "--ioengine=io_uring or io_uring_cmd (in --interface, write io_uring+k)"),
    ("sqthread_poll_cpu", "--sqthread_poll (in --interface, write io_uring+k:cpu=N)"),
    ("fixedbufs", "--ioengine=io_uring or io_uring_cmd"),
    ("registerfiles", "--ioengine=io_uring or io_uring_cmd"),
    ("nonvectored", "--ioengine=io_uring"),
    ("cmd_type", "--ioengine=io_uring_cmd"),
    ("userspace_reap", "--ioengine=libaio"),
    ("mininterval", "--mode=msg"),
    ("producers", "--mode=msg"),
    ("verify_pattern", "--verify=pattern"),
    ("verify_only", "--verify"),
    ("verify_backlog", "--verify"),
    ("verify_backlog_batch", "--verify_backlog"),
    ("verify_dump", "--verify"),
    ("verify_async", "--verify"),
    ("blockalign", "random order (--rw=randread and its kin)"),
    ("rw_sequencer", "--rw=randread:N"),
    ("zonesize", "--zonemode=strided"),
    ("zonerange", "--zonemode=strided"),
    ("zoneskip", "--zonemode=strided"),
    ("latency_window", "--latency_target"),
    ("latency_percentile", "--latency_target"),
    ("latency_run", "--latency_target"),
    ("steadystate", "--steadystate_duration"),
    ("steadystate_ramp_time", "--steadystate_duration"),
    ("steadystate_check_interval", "--steadystate_duration"),
    ("log_hist_msec", "--write_hist_log"),
    ("log_hist_coarseness", "--write_hist_log"),
    ("replay_no_stall", "--read_iolog"),
    ("replay_time_scale", "--read_iolog"),
    ("replay_redirect", "--read_iolog"),
    ("replay_align", "--read_iolog"),
    ("replay_scale", "--read_iolog"),
    ("replay_skip", "--read_iolog"),
    ("buffer_compress_chunk", "--buffer_compress_percentage"),
    ("log_offset", "a log (--write_bw_log and its kin)"),
    ("flow_id", "--flow"),
    ("flow_sleep", "--flow"),
    ("exit_what", "--exitall"),
    ("ignore_error", "--continue_on_error"),
    ("rate_cycle", "--rate_min or --rate_iops_min"),
];

pub(super) struct Reader<'a> {
    pub(super) section: &'a Section,
    base: KbBase,
    asked: RefCell<BTreeSet<&'static str>>,
    notes: RefCell<Vec<String>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(section: &'a Section) -> Result<Self> {
        let mut reader = Self {
            section,
            base: KbBase::Binary,
            asked: RefCell::default(),
            notes: RefCell::default(),
        };
        if reader.word("kb_base")? == Some("1000") {
            reader.base = KbBase::Decimal;
        }
        Ok(reader)
    }

    /// Returns the option that was given last among `names`, which exclude each other. The
    /// section's own options come after those for all jobs.
    pub(super) fn last(&self, names: &[&str]) -> Option<&'a Given> {
        let mut found = None;
        for given in self.section.global.iter().chain(&self.section.own) {
            if names.contains(&given.option.name) {
                self.asked.borrow_mut().insert(given.option.name);
                found = Some(given);
            }
        }
        debug_assert!(names.iter().all(|name| crate::options::find(name).is_some()), "{names:?}");
        found
    }

    /// Returns an option of the section itself.
    pub(super) fn own(&self, name: &str) -> Option<&'a Given> {
        self.section.own.iter().rev().find(|given| given.option.name == name)
    }

    /// Marks options as read although their values are not needed.
    pub(super) fn allow(&self, names: &[&str]) {
        self.last(names);
    }

    fn read<T>(&self, name: &str, read: impl FnOnce(&str) -> Read<T>) -> Result<Option<T>> {
        let Some(given) = self.last(&[name]) else { return Ok(None) };
        read(given.value.as_deref().unwrap_or("1")).map(Some).map_err(|why| self.wrong(given, &why))
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.last(&[name])?.value.as_deref()
    }

    /// Returns the value of an option that takes a word of [`Takes::Word`]; `None` if the option
    /// was not given.
    pub(super) fn word(&self, name: &str) -> Result<Option<&'static str>> {
        let Some(given) = self.last(&[name]) else { return Ok(None) };
        let Takes::Word(words) = given.option.takes else { return Ok(None) };
        let value = given.value.as_deref().unwrap_or_default();
        match words.iter().find(|word| **word == value) {
            Some(word) => Ok(Some(word)),
            None => {
                let what =
                    format!("this value is not supported: choose one of {}", words.join(", "));
                Err(self.wrong(given, &what))
            }
        }
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>> {
        let Some(given) = self.last(&[name]) else { return Ok(None) };
        value::boolean(given.value.as_deref()).map(Some).map_err(|why| self.wrong(given, &why))
    }

    pub(super) fn is_set(&self, name: &str) -> Result<bool> {
        Ok(self.flag(name)?.unwrap_or(false))
    }

    pub(super) fn bytes(&self, name: &str) -> Result<Option<u64>> {
        self.read(name, |text| self.size(text))
    }

    pub(super) fn size(&self, text: &str) -> Read<u64> {
        if value::has_inverted_suffix(text, self.base) {
            self.note(format!(
                "\"{text}\" counts by 1000: fio's rule, where k is 1024 (kb_base=1000 turns it around)"
            ));
        }
        value::bytes(text, self.base)
    }

    pub(super) fn split(&self, text: &str) -> Read<Vec<(u64, u8)>> {
        value::split(text, self.base)
    }

    pub(super) fn amount(&self, name: &str) -> Result<Option<value::Amount>> {
        self.read(name, |text| match text.ends_with('%') {
            true => value::amount(text, self.base),
            false => self.size(text).map(value::Amount::Bytes),
        })
    }

    pub(super) fn number(&self, name: &str, min: u32, max: u32) -> Result<Option<u32>> {
        self.read(name, |text| match value::bytes(text, self.base)? {
            number if number < u64::from(min) => Err(format!("is below {min}")),
            number if number > u64::from(max) => Err(format!("is over {max}")),
            number => Ok(number as u32),
        })
    }

    pub(super) fn time(&self, name: &str, unit: TimeUnit) -> Result<Option<std::time::Duration>> {
        self.read(name, |text| {
            let time = value::time(text, unit)?;
            if !text.starts_with('(')
                && let Some((whole, _)) = text.split_once('.')
            {
                self.note(format!(
                    "{name}={text} is read as written; fio 3.33 reads {whole} of it"
                ));
            }
            Ok(time)
        })
    }

    pub(super) fn each<T>(
        &self,
        name: &str,
        read: impl Fn(&str) -> Read<T>,
    ) -> Result<[Option<T>; 3]> {
        let all = self.read(name, |text| {
            let [r, w, t] = value::directions(text)?;
            Ok([r.map(&read).transpose()?, w.map(&read).transpose()?, t.map(&read).transpose()?])
        })?;
        Ok(all.unwrap_or([const { None }; 3]))
    }

    pub(super) fn with<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Read<T>,
    ) -> Result<Option<T>> {
        self.read(name, read)
    }

    pub(super) fn wrong(&self, given: &Given, why: &str) -> Error {
        let value = given.value.as_deref().map(|value| format!("={value}")).unwrap_or_default();
        let Given { option, place, .. } = given;
        let what = format!("{place}job {}: {}{value}: {why}", self.section.name, option.name);
        let error = Error::new(ErrorKind::Invalid, what);
        match option.takes {
            Takes::Word(_) | Takes::Flag | Takes::Yes => error,
            _ => error.hint(format!("write for example {}={}", option.name, option.example)),
        }
    }

    /// Returns the error for options that contradict each other. Its position is that of `name`.
    pub(super) fn contradiction(&self, name: &str, what: impl std::fmt::Display) -> Error {
        let place = self.last(&[name]).map_or(&self.section.place, |given| &given.place);
        Error::new(ErrorKind::Invalid, format!("{place}job {}: {what}", self.section.name))
    }

    pub(super) fn note(&self, text: impl Into<String>) {
        let note = format!("{}: {}", self.section.name, text.into());
        let mut notes = self.notes.borrow_mut();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// Returns all notes, with one for each option that was given but never read. If such an option
    /// would surely have been meant to have an effect, returns an error instead.
    pub(super) fn finish(self) -> Result<Vec<String>> {
        let asked = self.asked.borrow().clone();
        let is_own = |name: &str| self.own(name).is_some();
        let mut told = BTreeSet::new();
        for given in self.section.global.iter().chain(&self.section.own) {
            let name = given.option.name;
            let off = given.option.takes.may_be_bare() && given.value.as_deref() == Some("0");
            if asked.contains(name) || off || !told.insert(name) {
                continue;
            }
            match NEEDS.iter().find(|(strict, _)| *strict == name) {
                Some((_, needs)) if is_own(name) => {
                    return Err(self
                        .contradiction(name, format!("{name} has no effect here"))
                        .hint(format!("it needs {needs}")));
                }
                Some((_, needs)) => self.note(format!("{name} has no effect: it needs {needs}")),
                None => self.note(format!("{name} has no effect beside the other options")),
            }
        }
        Ok(self.notes.into_inner())
    }
}
