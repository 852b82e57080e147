//! `qpair top`.

mod prometheus;
mod target;
mod view;

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use qpair_serve::MetricsAddress;
use serde_json::Value;

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::parse::store::published_at;
use crate::show::output::Output;
use view::View;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Show the activity of a running store or target
///
/// A process that has the store open publishes its activity at a socket: `qpair load`, `demo` and
/// `bench` at STORE.top, other programs if they call Options::publish. Rates are those of the last
/// interval. Open transactions are listed, the oldest first: one that waits long may block others,
/// and an old snapshot keeps undo versions alive.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair top bench.qpair
  qpair top /run/app/store.top --interval 0.5
  qpair top bench.qpair --once --json | jq .transactions
  qpair top bench.qpair --once --prometheus > bench.prom
  qpair top --target /run/qpair/metrics.sock")]
pub(crate) struct Top {
    /// The store, or the socket that publishes it
    #[arg(required_unless_present = "target")]
    store: Option<PathBuf>,

    /// Show a target: the address and port, or the path, of its --metrics
    #[arg(long, value_name = "ADDRESS", conflicts_with = "store")]
    target: Option<MetricsAddress>,

    /// Seconds between two samples
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    interval: Duration,

    /// Take one sample, and end
    #[arg(long)]
    once: bool,

    /// Print each sample as a line of JSON
    #[arg(long)]
    json: bool,

    /// Take one sample, and print its metrics in the format of Prometheus
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
}

impl Top {
    pub(crate) fn run(self) -> Result<Exit> {
        if let Some(address) = &self.target {
            let mut before = None;
            return self.watch(|| {
                let (text, look) = target::ask(address)?;
                let shown = match (self.prometheus, self.json) {
                    (true, _) => text,
                    (false, true) => format!("{}\n", look.json()),
                    (false, false) => look.text(before.as_ref()),
                };
                before = Some(look);
                Ok(Some(shown))
            });
        }
        let socket = published_at(&self.store.clone().unwrap_or_default());
        let mut before: Option<View> = None;
        self.watch(|| {
            let line = match (ask(&socket), &before) {
                (Ok(line), _) if !line.is_empty() => line,
                // The socket existed a moment ago, so the store was closed.
                (_, Some(_)) => return Ok(None),
                (Err(error), None) => return Err(self.unreachable(&socket, &error)),
                (Ok(_), None) => {
                    return Err(Failure::new(Exit::Failed, "the store is being closed"));
                }
            };
            if self.prometheus {
                return Ok(Some(prometheus::text(&parse(&line, &socket)?)));
            }
            if self.json {
                // From here on, this is not the first look.
                before.get_or_insert_with(View::default);
                return Ok(Some(line));
            }
            let view = View::read(&parse(&line, &socket)?);
            let text = view.text(before.as_ref());
            before = Some(view);
            Ok(Some(text))
        })
    }

    /// Shows the text of each look, until a look returns none.
    fn watch(&self, mut look: impl FnMut() -> Result<Option<String>>) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let is_once = self.once || self.prometheus;
        let mut is_first = true;
        while let Some(text) = look()? {
            let mut out = Output::new();
            if Output::is_terminal() && !self.json && !is_once {
                // Move the cursor to the upper left corner. Clear the whole screen at first, and
                // later only the rest below.
                let clear: &[u8] = if is_first { b"\x1b[2J\x1b[H" } else { b"\x1b[H\x1b[J" };
                out.write(clear)?;
            }
            out.write(text.as_bytes())?;
            out.finish()?;
            if is_once {
                return Ok(Exit::Done);
            }
            is_first = false;
            let next = Instant::now() + self.interval;
            while Instant::now() < next {
                if interrupt.is_requested() {
                    return Ok(Exit::Done);
                }
                std::thread::sleep(LOOK_EVERY.min(self.interval));
            }
        }
        Ok(Exit::Done)
    }

    fn unreachable(&self, socket: &Path, error: &std::io::Error) -> Failure {
        let name = self.store.as_deref().unwrap_or(socket).display();
        let there = socket.display();
        let (what, hint) = match error.kind() {
            ErrorKind::PermissionDenied => (
                format!("permission to ask {name} at {there} was denied: {error}"),
                "its owner and root may ask",
            ),
            ErrorKind::ConnectionRefused => (
                format!(
                    "no program has {name} open: the one that published it at {there} was killed"
                ),
                "the store is not damaged: the next opening recovers it",
            ),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => (
                format!("the process that has {name} open does not answer at {there}"),
                "it may be stopped, or very busy",
            ),
            _ => (
                format!("{name} is not published at {there}: {error}"),
                "the process that has the store open publishes it: qpair load, demo and bench do, programs by Options::publish",
            ),
        };
        Failure::new(Exit::Failed, what).hint(hint)
    }
}

fn parse(line: &str, socket: &Path) -> Result<Value> {
    serde_json::from_str(line).map_err(|error| {
        Failure::new(Exit::Failed, format!("{} does not answer in JSON: {error}", socket.display()))
    })
}

fn ask(socket: &Path) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(target::TIMEOUT))?;
    let mut line = String::new();
    stream.read_to_string(&mut line)?;
    Ok(line)
}

fn parse_interval(text: &str) -> std::result::Result<Duration, String> {
    let seconds: f64 = text
        .strip_suffix('s')
        .unwrap_or(text)
        .parse()
        .map_err(|_| "the interval must be a number of seconds".to_owned())?;
    if !(0.01..=86_400.0).contains(&seconds) {
        return Err("the interval must be from 0.01 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}
