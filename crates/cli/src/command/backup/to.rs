//! `qpair backup --to`: a continuous backup, to a folder or an object store.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use clap::Args;
use qpair::ErrorKind;
use qpair::continuous::{BackupOptions, Follower, Following, ask_to_follow, now_ms, open_place};
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::parse::number::parse_seconds;
use crate::parse::show::ShowArgs;
use crate::parse::store::{Effort, StoreArgs, is_socket, published_at};
use crate::show::text::{counted, size};

/// The interval at which a repeated failure is told where no bar can be shown.
const TOLD_EVERY: Duration = Duration::from_secs(60);
const DAY_S: f64 = 86_400.0;

#[derive(Args, Debug)]
#[command(next_help_heading = "Continuous backup")]
pub(crate) struct ToArgs {
    /// Ship the store to a place that keeps its past, for `qpair restore`: a folder
    /// (file:///backups/app) or an object store (s3://bucket/app)
    #[arg(long, value_name = "URL", conflicts_with = "target")]
    pub(crate) to: Option<String>,

    /// Ship all commits from now on, until Ctrl-C; the process that has the store open does it and
    /// must publish the store
    #[arg(long, requires = "to")]
    follow: bool,

    /// Seconds between two points to which the store can be restored; each costs a request if
    /// something was committed
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds, requires = "to")]
    every: f64,

    /// Days for which points are kept
    #[arg(long, value_name = "DAYS", default_value = "30", value_parser = parse_seconds, requires = "to")]
    keep: f64,

    /// Hours for which all points are kept; of older ones fewer
    #[arg(long, value_name = "HOURS", default_value = "1", value_parser = parse_seconds, requires = "to")]
    keep_all: f64,
}

impl ToArgs {
    fn options(&self) -> BackupOptions {
        let ms = |seconds: f64| (seconds * 1000.0) as u64;
        let mut options = BackupOptions::default();
        options.every_ms = ms(self.every);
        options.keep_ms = ms(self.keep * DAY_S);
        options.keep_all_ms = ms(self.keep_all * 3600.0);
        options
    }

    pub(crate) fn run(&self, store: &StoreArgs, url: &str, show: &ShowArgs) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let published = published_at(&store.store);
        let bar = show.bar();
        let told_at = Cell::new(None::<Instant>);
        let progress = |now: &Following| {
            bar.set_message(message(now));
            bar.tick();
            if let Some(failure) = &now.failure
                && bar.is_hidden()
                && told_at.get().is_none_or(|at| at.elapsed() > TOLD_EVERY)
            {
                told_at.set(Some(Instant::now()));
                tracing::warn!("the backup is behind, and is tried again: {failure}");
            }
            match !self.follow && now.is_restorable {
                true => ControlFlow::Break(()),
                false => interrupt.flow(),
            }
        };
        let asked = ask_to_follow(&published, url, &self.options(), &progress);
        let made = match asked {
            Ok(None) if self.follow || is_socket(&store.store) => {
                Err(Failure::new(Exit::Failed, "no process has published this store")
                    .hint("a store is followed by the process that has it open and publishes it (Options::publish); without --follow it is shipped once"))
            }
            Ok(None) => self.ship_once(store, url, &progress),
            asked => asked.map(Option::unwrap_or_default).map_err(Failure::from),
        };
        bar.finish_and_clear();
        let now = made?;
        let name = store.store.display();
        let object = json!({
            "store": name.to_string(),
            "to": url,
            "timestamp": now.shipped,
            "time_ms": now.time_ms,
            "requests": now.requests,
            "sent_bytes": now.sent_bytes,
            "stored_bytes": now.stored_bytes,
            "breaks": now.breaks,
        });
        show.print(&object, || {
            vec![format!(
                "shipped {name} up to commit {} to {url}: {}, {} sent, {} there",
                now.shipped,
                counted(now.requests, "request"),
                size(now.sent_bytes),
                size(now.stored_bytes),
            )]
        })?;
        Ok(Exit::Done)
    }

    /// Ships a store that no process has open, until `progress` breaks it off.
    fn ship_once(
        &self,
        store: &StoreArgs,
        url: &str,
        progress: &dyn Fn(&Following) -> ControlFlow<()>,
    ) -> Result<Following> {
        let place = open_place(url)?;
        let (open, _) = store.open_to_write(Effort::Large, None, None)?;
        let shipped = || -> Result<Following, qpair::Error> {
            let follower = Follower::begin(&open, place, self.options())?;
            loop {
                let failure = follower.failure();
                let now = Following::of(&follower.status(), failure.as_ref());
                if let Some(ended) = follower.ended() {
                    return Err(ended);
                }
                // Nobody waits here for room or rights.
                if let Some(failure) = failure
                    && matches!(failure.kind(), ErrorKind::NoSpace | ErrorKind::Denied)
                {
                    follower.abandon();
                    return Err(failure);
                }
                if progress(&now).is_break() {
                    return match now.is_restorable {
                        true => Ok(Following::of(&follower.stop()?, None)),
                        false => Err(follower.abandon()),
                    };
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        let shipped = shipped();
        let closed = open.close();
        let now = shipped?;
        closed?;
        Ok(now)
    }
}

fn message(now: &Following) -> String {
    let costs = format!("{}, {} sent", counted(now.requests, "request"), size(now.sent_bytes));
    match &now.failure {
        Some(failure) => format!("tried again: {failure}"),
        None if !now.is_restorable => format!("making a full part: {costs}"),
        None => {
            let age_s = now_ms().saturating_sub(now.time_ms) as f64 / 1000.0;
            format!("up to commit {}, {age_s:.1} s ago: {costs}", now.shipped)
        }
    }
}
