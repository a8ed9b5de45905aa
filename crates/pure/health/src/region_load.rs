//! Load of the own region for each model, summed up from its replicas.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use spillway_types::{ModelLoad, ModelName, ReplicaName, ShedState, Signals};

/// Time over which the rate of finished requests is averaged: long enough for requests of seconds,
/// short enough to follow a replica that comes or goes.
const RATE_WINDOW: Duration = Duration::from_secs(5);

/// Shortest time over which finished requests are counted, so that a rate is not made of one
/// coincidence.
const RATE_STEP: Duration = Duration::from_millis(500);

/// State of one replica at this moment.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaNow<'a> {
    /// Name of the replica.
    pub name: &'a ReplicaName,
    /// Models that the replica serves.
    pub models: &'a [ModelName],
    /// True if the replica may be given at least some requests.
    pub is_open: bool,
    /// In-flight requests of this node at the replica.
    pub in_flight: u32,
    /// Requests that this node ever sent to the replica.
    pub started: u64,
    /// In-flight requests of the region's other nodes at the replica, by their reports.
    pub in_flight_elsewhere: u32,
    /// Prompt tokens that the replica still has to read for all nodes of the region, as predicted.
    pub pending_tokens: u32,
    /// Limit of in-flight requests; `u32::MAX` for no limit.
    pub in_flight_max: u32,
    /// Signals about the replica's load.
    pub signals: Signals,
}

/// Use of a KV cache, 0 to 1, from which on it shows how many requests fit. Below, one long prompt
/// may be most of it.
const KV_TELLING: f32 = 0.15;

/// Part of a KV cache that is planned with: running requests grow and must not evict others.
const KV_FILL: f32 = 0.95;

/// Load of the own region, with the memory that it needs from one update to the next.
#[derive(Clone, Debug, Default)]
pub struct RegionLoad {
    seen: BTreeMap<ReplicaName, ReplicaHistory>,
    whole: ModelLoad,
}

/// Memory of one replica.
#[derive(Clone, Debug)]
struct ReplicaHistory {
    at: Instant,
    /// Requests of this node that had ended at that time.
    ended: u64,
    /// Requests of this node that end at the replica each second.
    rate_per_s: Option<f32>,
    /// Requests that the replica works on at once: the most that ran while others waited. `None`
    /// while the KV cache shows this better.
    batch: Option<f32>,
}

/// Part of the load at one replica.
#[derive(Clone, Copy, Debug)]
struct LoadPart {
    queued: f32,
    running: f32,
    capacity: Option<f32>,
    rate_per_s: Option<f32>,
    kv_use: Option<f32>,
    pending_tokens: u32,
}

impl RegionLoad {
    /// Returns the load of each model that open replicas serve.
    ///
    /// Rates count this node's own requests. For a replica without reports, the load is the
    /// requests that the region's nodes have in flight there. A replica of several models counts as
    /// a whole for each of them, because each may use all of it.
    pub fn update(
        &mut self,
        now: Instant,
        replicas: &[ReplicaNow<'_>],
    ) -> BTreeMap<ModelName, ModelLoad> {
        self.seen.retain(|name, _| replicas.iter().any(|replica| replica.name == name));
        let mut parts: BTreeMap<ModelName, Vec<LoadPart>> = BTreeMap::new();
        let mut all = Vec::new();
        for replica in replicas {
            // A closed replica is looked at too, so that its rate and batch are known when it
            // opens.
            let part = self.look(now, replica);
            if replica.is_open {
                all.push(part);
            }
            for model in replica.models.iter().filter(|_| replica.is_open) {
                parts.entry(model.clone()).or_default().push(part);
            }
        }
        self.whole = sum(&all);
        parts.into_iter().map(|(model, parts)| (model, sum(&parts))).collect()
    }

    /// Returns the load of all open replicas together, as of the last update. A replica of several
    /// models counts once.
    #[must_use]
    pub fn whole(&self) -> ModelLoad {
        self.whole
    }

    /// Returns the part of one replica, and remembers its figures for the next update.
    fn look(&mut self, now: Instant, replica: &ReplicaNow<'_>) -> LoadPart {
        let Signals { queued, running, kv_use, .. } = replica.signals;
        let own = replica.in_flight as f32;
        let known = own + replica.in_flight_elsewhere as f32;
        // Requests that were sent since the report, less those that ended.
        let since = known - replica.signals.in_flight_at_report as f32;
        let is_reported = running.is_known();
        // This node's own requests are there for sure, however old the report is.
        let total =
            if is_reported { (queued.or(0.0) + running.value + since).max(own) } else { known };
        let ended = replica.started.saturating_sub(u64::from(replica.in_flight));
        let seen = self.seen.entry(replica.name.clone()).or_insert_with(|| ReplicaHistory {
            at: now,
            ended,
            rate_per_s: None,
            batch: None,
        });
        seen.note_ends(now, ended);
        // If the KV cache shows how many requests fit, the queue is not used: every request waits
        // until the next step of the engine begins, even where there is room.
        if queued.is_known() && queued.value >= 1.0 && !kv_use.is_known() {
            seen.batch = Some(seen.batch.unwrap_or(0.0).max(running.value).max(1.0));
        }
        let limit = (replica.in_flight_max < u32::MAX).then_some(replica.in_flight_max as f32);
        let capacity =
            [seen.batch, limit, by_cache(&replica.signals)].into_iter().flatten().reduce(f32::min);
        let running = capacity.map_or(total, |capacity| total.min(capacity));
        LoadPart {
            queued: total - running,
            running,
            capacity,
            rate_per_s: seen.rate_per_s,
            kv_use: kv_use.is_known().then_some(kv_use.value),
            pending_tokens: replica.pending_tokens,
        }
    }
}

/// Returns the number of requests like the running ones that the replica's KV cache holds; `None`
/// if that is unknown.
fn by_cache(signals: &Signals) -> Option<f32> {
    let Signals { running, kv_use, .. } = *signals;
    let is_telling = kv_use.is_known() && kv_use.value >= KV_TELLING && running.is_known();
    is_telling.then(|| (running.value / kv_use.value * KV_FILL).max(1.0))
}

impl ReplicaHistory {
    /// Records the number of this node's requests that have ended.
    fn note_ends(&mut self, now: Instant, ended: u64) {
        let passed = now.saturating_duration_since(self.at);
        if passed < RATE_STEP {
            return;
        }
        let rate = ended.saturating_sub(self.ended) as f32 / passed.as_secs_f32();
        let weight = (passed.as_secs_f32() / RATE_WINDOW.as_secs_f32()).min(1.0);
        self.rate_per_s = match self.rate_per_s {
            // If no request ended, nothing ran or requests are long: that says nothing about the
            // rate.
            before if rate == 0.0 => before,
            None => Some(rate),
            Some(before) => Some(before + (rate - before) * weight),
        };
        (self.at, self.ended) = (now, ended);
    }
}

fn sum(parts: &[LoadPart]) -> ModelLoad {
    let all = |of: fn(&LoadPart) -> Option<f32>| parts.iter().map(of).sum::<Option<f32>>();
    let queued: f32 = parts.iter().map(|part| part.queued).sum();
    let running: f32 = parts.iter().map(|part| part.running).sum();
    // A single replica of unknown capacity makes the sum unknown.
    let capacity = all(|part| part.capacity);
    // Requests that wait at one replica take nothing from the places that others have left, and the
    // next request goes there: a region is as full as all its replicas together.
    let spare = capacity.map_or(0.0, |capacity| (capacity - running).max(0.0));
    let placed = queued.min(spare);
    let (queued, running) = (queued - placed, running + placed);
    let known_rates: Vec<f32> = parts.iter().filter_map(|part| part.rate_per_s).collect();
    // Replicas of unknown rate count as fast as the mean of the others.
    let rate_per_s = (!known_rates.is_empty())
        .then(|| known_rates.iter().sum::<f32>() / known_rates.len() as f32 * parts.len() as f32);
    // Less than one waiting request is no wait, whatever the rate.
    let wait_ms = if queued < 1.0 { Some(0.0) } else { rate_per_s.map(|rate| queued / rate * 1e3) };
    ModelLoad {
        queued,
        running,
        capacity,
        rate_per_s,
        kv_use: parts.iter().filter_map(|part| part.kv_use).reduce(f32::min),
        wait_ms,
        replicas: u32::try_from(parts.len()).unwrap_or(u32::MAX),
        pending_tokens: parts.iter().map(|part| part.pending_tokens as f32).reduce(f32::min),
        shed: ShedState::Open,
    }
}

/// Adds the other nodes of the region to this node's load of a model. `waiting` is the number of
/// requests that wait in this node; each item of `others` is the number that waits in another node,
/// and the number that the node finishes each second, `None` if unknown.
#[must_use]
pub fn with_nodes(
    load: ModelLoad,
    waiting: u32,
    others: impl Iterator<Item = (u32, Option<f32>)>,
) -> ModelLoad {
    let (waiting, rate_per_s) = others.fold((waiting, load.rate_per_s), |(sum, rate), other| {
        let rate = rate.map_or(other.1, |rate| Some(rate + other.1.unwrap_or(0.0)));
        (sum.saturating_add(other.0), rate)
    });
    let queued = load.queued + waiting as f32;
    let wait_ms = if queued < 1.0 { Some(0.0) } else { rate_per_s.map(|rate| queued / rate * 1e3) };
    ModelLoad { queued, rate_per_s, wait_ms, ..load }
}

#[cfg(test)]
mod tests {
    use spillway_types::Reading;

    use super::*;
    use crate::test_fleet::{ms, start};

    fn fresh(value: f32) -> Reading {
        Reading { value, trust: 1.0 }
    }

    struct Replica {
        name: ReplicaName,
        models: Vec<ModelName>,
    }

    impl Replica {
        fn new(name: &str) -> Self {
            Self { name: name.into(), models: vec!["tiny".into()] }
        }

        fn now(&self, in_flight: u32, started: u64, signals: Signals) -> ReplicaNow<'_> {
            let Self { name, models } = self;
            let in_flight_max = u32::MAX;
            let in_flight_elsewhere = 0;
            ReplicaNow {
                name,
                models,
                is_open: true,
                in_flight,
                started,
                in_flight_elsewhere,
                pending_tokens: 0,
                in_flight_max,
                signals,
            }
        }
    }

    fn reported(queued: f32, running: f32, in_flight_at_report: u32) -> Signals {
        Signals {
            queued: fresh(queued),
            running: fresh(running),
            in_flight_at_report,
            ..Signals::UNKNOWN
        }
    }

    #[test]
    fn what_other_nodes_sent_since_a_report_counts_as_well() {
        let a = Replica::new("a");
        let now = a.now(5, 5, reported(0.0, 8.0, 7));
        let now = ReplicaNow { in_flight_elsewhere: 6, ..now };
        let load = RegionLoad::default().update(start(), &[now])["tiny"];
        // 4 of those 11 were sent after the report.
        assert_eq!((load.queued, load.running), (0.0, 12.0));
    }

    #[test]
    fn reports_of_all_replicas_are_summed_up_with_what_was_sent_since() {
        let (a, b) = (Replica::new("a"), Replica::new("b"));
        let mut region = RegionLoad::default();
        let now = [a.now(5, 5, reported(2.0, 8.0, 4)), b.now(1, 1, reported(0.0, 3.0, 1))];
        let load = region.update(start(), &now)["tiny"];
        assert_eq!(
            (load.queued, load.running),
            (3.0, 11.0),
            "one more than reported, and it waits"
        );
        assert_eq!(load.capacity, None, "nobody knows how many b takes");
        let now = [a.now(4, 5, reported(2.0, 8.0, 4)), b.now(1, 1, reported(1.0, 4.0, 1))];
        assert_eq!(region.update(start() + ms(1), &now)["tiny"].capacity, Some(12.0));
    }

    #[test]
    fn a_replica_of_several_models_is_a_part_of_the_whole_once() {
        let mut region = RegionLoad::default();
        let models: Vec<ModelName> = vec!["tiny".into(), "big".into()];
        let (a, b) = (Replica { models, ..Replica::new("a") }, Replica::new("b"));
        let now = [
            ReplicaNow { in_flight_max: 64, ..a.now(3, 3, Signals::UNKNOWN) },
            ReplicaNow { in_flight_max: 64, ..b.now(2, 2, Signals::UNKNOWN) },
        ];
        let of_models = region.update(start(), &now);
        assert_eq!(
            (of_models["tiny"].capacity, of_models["big"].capacity),
            (Some(128.0), Some(64.0))
        );
        let whole = region.whole();
        assert_eq!((whole.capacity, whole.running, whole.replicas), (Some(128.0), 5.0, 2));
        region.update(start(), &[now[0], ReplicaNow { is_open: false, ..now[1] }]);
        assert_eq!(region.whole().capacity, Some(64.0), "what takes nothing is no capacity");
        region.update(start(), &[]);
        assert_eq!(region.whole().replicas, 0);
    }

    #[test]
    fn a_request_that_waits_for_the_next_step_of_an_engine_makes_no_region_look_full() {
        let a = Replica::new("a");
        let mut region = RegionLoad::default();
        let with = |kv_use, queued, running| Signals {
            kv_use: fresh(kv_use),
            ..reported(queued, running, 0)
        };
        let mut load = |signals| region.update(start(), &[a.now(0, 0, signals)])["tiny"];
        let early = load(with(0.1, 1.0, 2.0));
        assert_eq!((early.capacity, early.queued, early.running), (None, 0.0, 3.0));
        let half = load(with(0.475, 1.0, 10.0));
        assert_eq!((half.capacity, half.queued, half.running), (Some(20.0), 0.0, 11.0));
        assert_eq!(half.wait_ms, Some(0.0));
        // Requests that wait while the cache is full wait for room, and show how many fit.
        let full = load(with(0.95, 4.0, 18.0));
        assert_eq!((full.capacity, full.queued, full.running), (Some(18.0), 4.0, 18.0));
        assert_eq!(load(with(0.05, 0.0, 1.0)).capacity, None, "and other requests are other sizes");
    }

    #[test]
    fn a_region_is_full_when_all_its_replicas_are() {
        let (a, b) = (Replica::new("a"), Replica::new("b"));
        let with = |kv_use, queued, running| Signals {
            kv_use: fresh(kv_use),
            ..reported(queued, running, 0)
        };
        let full = a.now(0, 0, with(0.95, 4.0, 18.0));
        let beside = |signals| {
            let load = RegionLoad::default().update(start(), &[full, b.now(0, 0, signals)])["tiny"];
            (load.queued, load.running, load.capacity)
        };
        assert_eq!(beside(with(0.475, 0.0, 10.0)), (0.0, 32.0, Some(38.0)), "b takes ten more");
        assert_eq!(beside(with(0.95, 0.0, 17.0)), (4.0, 35.0, Some(35.0)), "b takes no more");
        assert_eq!(beside(with(0.855, 0.0, 18.0)), (2.0, 38.0, Some(38.0)), "b takes two more");
    }

    #[test]
    fn the_wait_is_the_queue_over_the_rate() {
        let a = Replica::new("a");
        let mut region = RegionLoad::default();
        region.update(start(), &[a.now(10, 10, reported(10.0, 10.0, 10))]);
        let later = [a.now(10, 20, reported(10.0, 10.0, 10))];
        let load = region.update(start() + ms(1_000), &later)["tiny"];
        assert_eq!(load.rate_per_s, Some(10.0));
        assert_eq!(load.wait_ms, Some(1_000.0));
    }

    #[test]
    fn an_idle_replica_keeps_its_rate_and_makes_nobody_wait() {
        let a = Replica::new("a");
        let mut region = RegionLoad::default();
        region.update(start(), &[a.now(4, 4, reported(0.0, 4.0, 4))]);
        region.update(start() + ms(1_000), &[a.now(0, 4, reported(0.0, 0.0, 0))]);
        let idle = region.update(start() + ms(9_000), &[a.now(0, 4, reported(0.0, 0.0, 0))]);
        assert_eq!((idle["tiny"].rate_per_s, idle["tiny"].wait_ms), (Some(4.0), Some(0.0)));
    }

    #[test]
    fn a_silent_replica_is_known_by_what_the_nodes_have_there() {
        let a = Replica::new("a");
        let now = a.now(1, 1, Signals::UNKNOWN);
        let limited = ReplicaNow { in_flight_max: 4, in_flight_elsewhere: 5, ..now };
        let load = RegionLoad::default().update(start(), &[limited])["tiny"];
        assert_eq!((load.running, load.queued, load.capacity), (4.0, 2.0, Some(4.0)));
        assert_eq!(load.wait_ms, None, "nothing has ended yet");
    }

    #[test]
    fn a_closed_replica_counts_for_nothing() {
        let a = Replica::new("a");
        let closed = ReplicaNow { is_open: false, ..a.now(3, 3, reported(0.0, 3.0, 3)) };
        assert!(RegionLoad::default().update(start(), &[closed]).is_empty());
    }

    #[test]
    fn what_waits_in_all_nodes_takes_as_long_as_all_of_them_need() {
        let load = ModelLoad { queued: 4.0, rate_per_s: Some(2.0), ..ModelLoad::default() };
        let with = |waiting, others: &[(u32, Option<f32>)]| {
            let load = with_nodes(load, waiting, others.iter().copied());
            (load.queued, load.rate_per_s, load.wait_ms)
        };
        assert_eq!(with(0, &[]), (4.0, Some(2.0), Some(2_000.0)));
        assert_eq!(with(5, &[(3, Some(1.0)), (0, None)]), (12.0, Some(3.0), Some(4_000.0)));
        let idle = ModelLoad { queued: 0.0, rate_per_s: None, ..load };
        assert_eq!(with_nodes(idle, 0, [].into_iter()).wait_ms, Some(0.0));
        // The rate is unknown until a first request has ended.
        assert_eq!(with_nodes(idle, 3, [(0, None)].into_iter()).wait_ms, None);
        assert_eq!(with_nodes(idle, 3, [(0, Some(6.0))].into_iter()).wait_ms, Some(500.0));
    }
}
