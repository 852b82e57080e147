//! Limits repeated events: a peer that repeats an error, such as a guest, does not fill the log. In
//! each period, the first events of a kind and peer are logged, and then the number of the others.

use qpair_block::locks::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, warn};
use tracing_subscriber::layer::{Context, Filter};

/// The length of a period, which begins with its first event.
const WHILE: Duration = Duration::from_secs(10);
/// The number of events of a kind and peer that are logged in a period.
const LOGGED: u64 = 10;
/// Fields that name a peer. Events without such a field come from peers that cannot cause many of
/// them, or from the operator of the target.
const PEERS: [&str; 4] = ["disk", "device", "socket", "controller"];

/// The number of events of one kind and peer in a period.
struct Span {
    since: Instant,
    events: u64,
}

type About = (&'static str, &'static str, String);

#[derive(Clone, Default)]
pub(super) struct Flood {
    /// The periods, by crate, event and peer. Peers are the target's own disks, devices and
    /// sockets, so their number is bounded.
    spans: Arc<Mutex<BTreeMap<About, Span>>>,
}

impl Flood {
    fn takes(&self, about: &'static Metadata<'static>, peer: String, now: Instant) -> bool {
        let mut spans = self.spans.lock();
        let key = (about.target(), about.name(), peer);
        let span = spans.entry(key).or_insert(Span { since: now, events: 0 });
        span.events += 1;
        span.events <= LOGGED
    }

    /// Logs how many events were left out in each period that is over by `now`, and lets the next
    /// period begin.
    pub(super) fn tell(&self, now: Instant) {
        let mut over = Vec::new();
        self.spans.lock().retain(|key, span| {
            let goes_on = now.saturating_duration_since(span.since) < WHILE;
            if !goes_on {
                over.push((key.clone(), span.events));
            }
            goes_on
        });
        for ((of, kind, peer), events) in over {
            if let more @ 1.. = events.saturating_sub(LOGGED) {
                warn!(name: "left_out", target: "qpair_serve", of, kind, peer, more, "more of the same were left out");
            }
        }
    }
}

impl<S: Subscriber> Filter<S> for Flood {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let about = event.metadata();
        // A user who raises a crate's level to DEBUG wants to see all of its events.
        if *about.level() >= tracing::Level::DEBUG {
            return true;
        }
        let mut peer = Peer(None);
        event.record(&mut peer);
        peer.0.is_none_or(|peer| self.takes(about, peer, Instant::now()))
    }
}

struct Peer(Option<String>);

impl Visit for Peer {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if PEERS.contains(&field.name()) {
            self.0 = Some(format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if PEERS.contains(&field.name()) {
            self.0 = Some(value.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::subscriber::with_default;
    use tracing_subscriber::layer::{Layer, SubscriberExt};
    use tracing_subscriber::registry;

    /// The messages that pass the filter, and those of `left_out`.
    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Heard {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let fields = super::super::json::fields(event);
            let mut text = event.metadata().name().to_owned();
            for field in ["disk", "peer", "more"] {
                text += &fields.get(field).map(ToString::to_string).unwrap_or_default();
            }
            self.0.lock().push(text);
        }
    }

    #[test]
    fn the_first_of_a_kind_and_a_peer_are_logged() {
        let (flood, heard) = (Flood::default(), Heard::default());
        let layer = heard.clone().with_filter(flood.clone());
        with_default(registry().with(layer), || {
            let begin = Instant::now();
            for _ in 0..1000 {
                warn!(name: "broken", disk = "bad", "x");
                warn!(name: "told", "of nobody");
                tracing::debug!(name: "message", disk = "bad", "x");
            }
            warn!(name: "broken", disk = "good", "x");
            warn!(name: "left", disk = "bad", "x");
            flood.tell(begin);
            let take = || std::mem::take(&mut *heard.0.lock());
            let found = take();
            let count = |what: &str| found.iter().filter(|it| *it == what).count();
            assert_eq!(count("broken\"bad\""), 10);
            assert_eq!((count("told"), count("message\"bad\"")), (1000, 1000));
            assert_eq!((count("broken\"good\""), count("left\"bad\"")), (1, 1));
            // The left-out events are reported once, and the next period begins.
            flood.tell(begin + 2 * WHILE);
            flood.tell(begin + 2 * WHILE);
            assert_eq!(take(), ["left_out\"bad\"990"]);
            warn!(name: "broken", disk = "bad", "x");
            assert_eq!(take(), ["broken\"bad\""]);
        });
    }
}
