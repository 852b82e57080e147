//! The options of jobs as command-line arguments, generated from the table of options.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command};
use qpair_workload::options::{Definition, Known, OPTIONS, Takes, Topic, UNSUPPORTED, find};

use crate::failure::{Exit, Failure, Result};
use crate::show::output::Output;

/// Options of fio's command that are not supported, and what to use instead.
const OTHERS: &[(&str, &str)] = &[
    ("minimal", "--output-format=csv or json is for programs"),
    ("append-terse", "--output-format=normal,csv"),
    ("terse-version", "--output-format=csv or json is for programs"),
    ("bandwidth-log", "write_bw_log is an option of jobs"),
    (
        "eta-newline",
        "--eta=always prints a line every few seconds; --status-interval prints the report so far",
    ),
    ("eta-interval", "the live line is drawn anew four times a second"),
    ("debug", "--parse-only shows what is understood"),
    ("showcmd", "--parse-only shows what is understood"),
    ("enghelp", "--cmdhelp=ioengine"),
    ("server", ""),
    ("client", ""),
    ("daemonize", ""),
    ("remote-config", ""),
    ("idle-prof", ""),
    ("inflate-log", ""),
    ("trigger-file", ""),
    ("trigger-timeout", ""),
    ("trigger", ""),
    ("trigger-remote", ""),
    ("aux-path", ""),
    ("alloc-size", "memory is taken as it is needed"),
    ("warnings-fatal", "what is not understood is always an error"),
    ("max-jobs", "there is room for 4096 jobs"),
    ("merge-blktrace-only", ""),
    ("crctest", ""),
    ("cpuclock-test", ""),
];

fn id(name: &str) -> String {
    format!("job:{name}")
}

/// Adds every option, by topic, and the options of fio that are refused by name.
pub(super) fn augment(mut command: Command) -> Command {
    for topic in Topic::ALL {
        for option in OPTIONS.iter().filter(|option| option.topic == topic) {
            command = command.arg(argument(option));
        }
    }
    let hidden =
        UNSUPPORTED.iter().map(|option| option.name).chain(OTHERS.iter().map(|other| other.0));
    for name in hidden {
        let arg = Arg::new(id(name)).long(name).hide(true).action(ArgAction::Append);
        command = command.arg(arg.num_args(0..=1).default_missing_value("1"));
    }
    command
}

fn argument(option: &'static Definition) -> Arg {
    let mut arg = Arg::new(id(option.name))
        .long(option.name)
        .visible_aliases(option.aliases.to_vec())
        .value_name(option.takes.value_name())
        .help(option.help)
        .long_help(option.long_help())
        .help_heading(option.topic.heading())
        .action(ArgAction::Append);
    if option.takes.may_be_bare() {
        arg = arg.num_args(0..=1).default_missing_value("1");
        // As in fio, a flag's value needs a =, so that --thread a.fio does not consume the file
        // name.
        arg = arg.require_equals(option.takes == Takes::Flag);
    }
    arg
}

/// Adds the second dash to options that have only one, as fio accepts them: `bench io -rw=read`.
/// This command has no short options to confuse them with.
pub(crate) fn as_fio_takes_them(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if words.get(1).is_none_or(|word| word != "bench")
        || words.get(2).is_none_or(|word| word != "io")
    {
        return words;
    }
    for word in words.iter_mut().skip(3).take_while(|word| *word != "--") {
        if let [b'-', first, _, ..] = word.as_encoded_bytes()
            && first.is_ascii_alphabetic()
        {
            let mut dashed = OsString::from("-");
            dashed.push(&*word);
            *word = dashed;
        }
    }
    words
}

pub(super) fn in_order(matches: &ArgMatches) -> Vec<(&'static str, String)> {
    let mut found: Vec<(usize, &'static str, String)> = Vec::new();
    let names = OPTIONS.iter().map(|option| option.name);
    let names = names.chain(UNSUPPORTED.iter().map(|option| option.name));
    for name in names.chain(OTHERS.iter().map(|other| other.0)) {
        let id = id(name);
        let (Some(places), Some(values)) =
            (matches.indices_of(&id), matches.get_many::<String>(&id))
        else {
            continue;
        };
        found.extend(places.zip(values).map(|(place, value)| (place, name, value.clone())));
    }
    found.sort_by_key(|(place, _, _)| *place);
    found.into_iter().map(|(_, name, value)| (name, value)).collect()
}

pub(super) fn refuse_others(words: &[(&'static str, String)]) -> Result<()> {
    let Some((name, instead)) =
        words.iter().find_map(|(name, _)| OTHERS.iter().find(|other| other.0 == *name))
    else {
        return Ok(());
    };
    let failure = Failure::usage(format!("fio's option --{name} is not supported"));
    Err(if instead.is_empty() { failure } else { failure.hint(*instead) })
}

pub(super) fn explain(name: &str) -> Result<Exit> {
    let mut out = Output::new();
    match find(name) {
        _ if name == "all" => {
            for option in OPTIONS {
                out.line(format!("{:<28} {}", option.name, option.help))?;
            }
        }
        Some(Known::Option(option)) => {
            out.line(format!("{}={}", option.name, option.takes.value_name()))?;
            if !option.aliases.is_empty() {
                out.line(format!("  also called {}", option.aliases.join(", ")))?;
            }
            out.line(format!("  {}", option.long_help()))?;
        }
        Some(Known::Unsupported(option)) => {
            out.line(format!("{}: fio's option, not supported", option.name))?;
            if !option.instead.is_empty() {
                out.line(format!("  {}", option.instead))?;
            }
        }
        None => {
            return Err(Failure::usage(format!("there is no option {name}"))
                .hint("--cmdhelp=all lists them"));
        }
    }
    out.finish()?;
    Ok(Exit::Done)
}
