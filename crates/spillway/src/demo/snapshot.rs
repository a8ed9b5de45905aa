//! State of all regions at one moment, as every form of the demo shows it.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::demo::region::DemoRegion;
use crate::demo::sample::{FirstTokens, Sample, SampleEnd, Samples};
use crate::demo::workload::{Loads, PLACES, REPLICAS};
use crate::demo::world::DemoWorld;

/// Age of the oldest requests that count as recent.
pub(crate) const RECENT: Duration = Duration::from_secs(5);

/// State of all regions at one moment of a phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Snapshot {
    /// Seconds since the phase began.
    pub(crate) seconds: f64,
    pub(crate) regions: [RegionNow; 3],
    /// Requests that one region served for another, for each pair of regions that had any.
    pub(crate) flows: Vec<Flow>,
}

/// State of one region at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RegionNow {
    pub(crate) region: &'static str,
    pub(crate) is_up: bool,
    /// Requests of its clients, in percent of what its replicas can serve.
    pub(crate) load_percent: u32,
    /// Requests that its replicas work on, of `in_flight_max`.
    pub(crate) in_flight: u32,
    pub(crate) in_flight_max: u32,
    /// Requests in the node's queue.
    pub(crate) waiting: usize,
    /// Times to first token of the region's clients within the last five seconds.
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p95_ms: Option<f64>,
    /// Requests of the region's clients that ended in this phase, by outcome.
    pub(crate) served: u64,
    pub(crate) shed: u64,
    pub(crate) failed: u64,
}

/// Requests from clients of one region that another region served.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Flow {
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    /// Round-trip time between the two regions.
    pub(crate) rtt_ms: u64,
    /// Requests in this phase.
    pub(crate) requests: u64,
    /// Requests within the last five seconds.
    pub(crate) recent: u64,
}

impl Snapshot {
    /// Looks at all regions. `started` is when the phase began.
    pub(crate) fn of(
        world: &DemoWorld,
        samples: &Samples,
        loads: Loads,
        started: Instant,
        now: Instant,
    ) -> Self {
        let all = samples.all();
        let since = now.checked_sub(RECENT).unwrap_or(now);
        let region = |region: DemoRegion| {
            let figures = world.figures(region);
            let own = || all.iter().filter(move |sample| sample.door == region);
            let times = FirstTokens::of(own().filter(|sample| sample.ended >= since));
            let count =
                |is: fn(&SampleEnd) -> bool| own().filter(|sample| is(&sample.end)).count() as u64;
            RegionNow {
                region: region.name(),
                is_up: world.is_up(region),
                load_percent: loads[region.index()],
                in_flight: figures.in_flight,
                in_flight_max: u32::from(REPLICAS) * PLACES,
                waiting: figures.waiting,
                p50_ms: times.quantile_ms(0.5),
                p95_ms: times.quantile_ms(0.95),
                served: count(|end| matches!(end, SampleEnd::Served { .. })),
                shed: count(|end| *end == SampleEnd::Shed),
                failed: count(|end| *end == SampleEnd::Failed),
            }
        };
        Self {
            seconds: now.saturating_duration_since(started).as_secs_f64(),
            regions: DemoRegion::ALL.map(region),
            flows: flows(&all, since),
        }
    }
}

/// Returns the flows between regions, in the order of [`DemoRegion::ALL`].
fn flows(samples: &[Sample], since: Instant) -> Vec<Flow> {
    let pairs =
        DemoRegion::ALL.into_iter().flat_map(|from| from.others().map(move |to| (from, to)));
    let flow = |(from, to): (DemoRegion, DemoRegion)| {
        let moved = || samples.iter().filter(move |s| s.door == from && s.guest_of() == Some(to));
        Flow {
            from: from.name(),
            to: to.name(),
            rtt_ms: u64::try_from(from.rtt_to(to).as_millis()).unwrap_or(u64::MAX),
            requests: moved().count() as u64,
            recent: moved().filter(|sample| sample.ended >= since).count() as u64,
        }
    };
    pairs.map(flow).filter(|flow| flow.requests > 0).collect()
}

/// Formats a number of milliseconds for people; `-` if there is none.
pub(crate) fn whole(milliseconds: Option<f64>) -> String {
    milliseconds.map_or_else(|| "-".to_owned(), |milliseconds| format!("{milliseconds:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_counts_what_one_region_served_for_another_and_what_of_it_is_recent() {
        let now = Instant::now();
        let sample = |door, by, ended| Sample {
            home: door,
            door,
            due: ended,
            lag: Duration::ZERO,
            ended,
            end: SampleEnd::Served { by, first_token: None },
        };
        let (us, eu) = (DemoRegion::UsEast, DemoRegion::EuCentral);
        let since = now + Duration::from_secs(1);
        let all = [sample(us, eu, now), sample(us, eu, since), sample(us, us, since)];
        let expected = Flow { from: us.name(), to: eu.name(), rtt_ms: 93, requests: 2, recent: 1 };
        assert_eq!(flows(&all, since), [expected]);
    }
}
