//! Outcomes of requests as clients saw them, and their statistics.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use spillway_harness::quantile;

use crate::demo::region::DemoRegion;

/// Outcome of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Region of the client.
    pub(crate) home: DemoRegion,
    /// Region that the client connected to: its own, as long as that is up.
    pub(crate) door: DemoRegion,
    /// Time at which the request was due.
    pub(crate) due: Instant,
    /// Delay until it was sent, because the machine was too busy.
    pub(crate) lag: Duration,
    /// Time at which the reply had ended.
    pub(crate) ended: Instant,
    pub(crate) end: SampleEnd,
}

/// Way in which a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleEnd {
    /// A replica of region `by` served the request. `first_token` counts from the due time; replies
    /// without streaming have none.
    Served { by: DemoRegion, first_token: Option<Duration> },
    /// A node asked the client to try again later.
    Shed,
    /// The request was not served, or not to the end.
    Failed,
}

/// Outcomes of all requests of one phase.
#[derive(Debug, Default)]
pub(crate) struct Samples(Mutex<Vec<Sample>>);

impl Samples {
    pub(crate) fn add(&self, sample: Sample) {
        self.lock().push(sample);
    }

    /// Returns the requests that have ended so far, in the order of their ends.
    pub(crate) fn all(&self) -> Vec<Sample> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sample>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Numbers of requests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) shed: u64,
    pub(crate) failed: u64,
    /// Requests that another region served.
    pub(crate) spilled_out: u64,
    /// Requests that were served for another region.
    pub(crate) spilled_in: u64,
}

impl Counts {
    pub(crate) fn of<'a>(samples: impl Iterator<Item = &'a Sample>) -> Self {
        samples.fold(Self::default(), |counts, sample| Self {
            requests: counts.requests + 1,
            shed: counts.shed + u64::from(sample.end == SampleEnd::Shed),
            failed: counts.failed + u64::from(sample.end == SampleEnd::Failed),
            spilled_out: counts.spilled_out + u64::from(sample.guest_of().is_some()),
            spilled_in: 0,
        })
    }
}

/// Times to first token.
#[derive(Debug)]
pub(crate) struct FirstTokens(Vec<Duration>);

impl FirstTokens {
    pub(crate) fn of<'a>(samples: impl Iterator<Item = &'a Sample>) -> Self {
        Self(samples.filter_map(Sample::first_token).collect())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the time in milliseconds that this share does not exceed; `None` if there are no
    /// times.
    pub(crate) fn quantile_ms(&self, share: f64) -> Option<f64> {
        quantile(self.0.iter().map(|time| time.as_secs_f64() * 1e3), share)
    }
}

impl Sample {
    /// Returns the time to first token of a stream that was served.
    pub(crate) fn first_token(&self) -> Option<Duration> {
        match self.end {
            SampleEnd::Served { first_token, .. } => first_token,
            SampleEnd::Shed | SampleEnd::Failed => None,
        }
    }

    /// Returns the region that served the request, if it is not the one that the client connected
    /// to.
    pub(crate) fn guest_of(&self) -> Option<DemoRegion> {
        match self.end {
            SampleEnd::Served { by, .. } => Some(by).filter(|&by| by != self.door),
            SampleEnd::Shed | SampleEnd::Failed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(end: SampleEnd, ended: Instant) -> Sample {
        let (home, door) = (DemoRegion::UsEast, DemoRegion::UsEast);
        Sample { home, door, due: ended, lag: Duration::ZERO, ended, end }
    }

    fn served(milliseconds: u64) -> SampleEnd {
        let first_token = Some(Duration::from_millis(milliseconds));
        SampleEnd::Served { by: DemoRegion::UsEast, first_token }
    }

    #[test]
    fn quantiles_are_times_that_were_met_with() {
        let now = Instant::now();
        let samples: Vec<_> = (1..=100).rev().map(|ms| sample(served(ms), now)).collect();
        let times = FirstTokens::of(samples.iter());
        assert_eq!(times.quantile_ms(0.5), Some(50.0));
        assert_eq!(times.quantile_ms(0.95), Some(95.0));
        assert_eq!(times.quantile_ms(1.0), Some(100.0));
        assert_eq!(FirstTokens::of([].iter()).quantile_ms(0.5), None);
    }

    #[test]
    fn what_was_not_served_counts_but_has_no_first_token() {
        let now = Instant::now();
        let samples =
            [sample(SampleEnd::Shed, now), sample(SampleEnd::Failed, now), sample(served(3), now)];
        assert_eq!(
            Counts::of(samples.iter()),
            Counts { requests: 3, shed: 1, failed: 1, ..Counts::default() }
        );
        assert_eq!(FirstTokens::of(samples.iter()).count(), 1);
    }
}
