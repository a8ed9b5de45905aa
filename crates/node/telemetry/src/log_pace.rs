//! Rate limit of the consensus library's logs: the library reports a fault for each message that
//! the fault concerns, which are a dozen lines a second for as long as it lasts.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Begin of the targets that are paced.
const PACED: &str = "openraft";
/// Lines of one place in the code within a [`PERIOD`].
const LINES_MAX: u32 = 3;
/// Period after which a place may log again.
const PERIOD: Duration = Duration::from_secs(60);

/// A place in the library's code.
type CodePosition = (Option<&'static str>, Option<u32>);

/// Layer that lets each place in the consensus library log three lines a minute.
#[derive(Debug, Default)]
pub(crate) struct LogPace {
    // Locked only when that library logs. As many places as its code has.
    places: Mutex<BTreeMap<CodePosition, (Instant, u32)>>,
}

impl LogPace {
    fn admits(&self, place: CodePosition, now: Instant) -> bool {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, lines) = places.entry(place).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= PERIOD {
            (*since, *lines) = (now, 0);
        }
        *lines += 1;
        *lines <= LINES_MAX
    }
}

impl<S: Subscriber> Layer<S> for LogPace {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let about = event.metadata();
        !about.target().starts_with(PACED)
            || self.admits((about.file(), about.line()), Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};
    use std::sync::Arc;

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn a_place_logs_again_after_a_minute() {
        let (pace, start) = (LogPace::default(), Instant::now());
        let (here, there) = ((Some("a.rs"), Some(1)), (Some("a.rs"), Some(2)));
        let admitted = |place, s: u64| pace.admits(place, start + Duration::from_secs(s));
        assert_eq!([0, 0, 1, 2, 59].map(|s| admitted(here, s)), [true, true, true, false, false]);
        assert!(admitted(there, 59), "another place has lines of its own");
        assert!(admitted(here, 60));
    }

    #[test]
    fn a_minute_begins_with_the_first_line_and_a_clock_that_goes_back_ends_none() {
        let (pace, start) = (LogPace::default(), Instant::now() + Duration::from_secs(600));
        let admitted = |s: i64| {
            let by = Duration::from_secs(s.unsigned_abs());
            pace.admits((None, None), if s < 0 { start - by } else { start + by })
        };
        let admits = |times: &[i64]| times.iter().filter(|s| admitted(**s)).count();
        assert_eq!(admits(&[0, 1, 2, 3]), LINES_MAX as usize);
        assert_eq!(admits(&[-100, -1, 0, 59]), 0);
        // The next minute begins with its first line, however late that comes.
        assert_eq!(admits(&[90, 91, 92, 93, 149]), LINES_MAX as usize);
        assert_eq!(admits(&[150]), 1);
    }

    #[test]
    fn lines_of_an_unknown_position_share_one_pace() {
        let (pace, now) = (LogPace::default(), Instant::now());
        let places = [(None, None), (Some("a.rs"), None), (None, Some(1)), (Some("b.rs"), Some(1))];
        for place in places {
            let admitted = (0..10).filter(|_| pace.admits(place, now)).count();
            assert_eq!(admitted, LINES_MAX as usize, "{place:?}");
        }
    }

    #[test]
    fn a_flood_of_the_consensus_library_is_a_few_lines() {
        let mut file = tempfile::tempfile().unwrap();
        let lines =
            tracing_subscriber::fmt::layer().with_writer(Arc::new(file.try_clone().unwrap()));
        let log = tracing_subscriber::registry().with(LogPace::default()).with(lines);
        tracing::subscriber::with_default(log, || {
            for _ in 0..50 {
                tracing::error!(target: "openraft::core", "to-Raft tx send error");
                tracing::error!(target: "spillway_node", "a line of the node");
            }
        });
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text.matches("tx send error").count(), LINES_MAX as usize, "{text}");
        assert_eq!(text.matches("a line of the node").count(), 50);
    }
}
