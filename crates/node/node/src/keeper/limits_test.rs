//! Tests of adaptive limits: a limit stays as long as its replica does.

use std::time::Duration;

use spillway_config::{CareDefaults, read_replicas};
use spillway_resolver::Resolver;

use super::*;

const TICK: Duration = Duration::from_millis(100);

struct Kept {
    limits: ReplicaLimits,
    configs: Vec<ReplicaConfig>,
    replicas: BTreeMap<ReplicaName, Arc<Replica>>,
    now: Instant,
}

impl Kept {
    fn new(lines: &str) -> Self {
        let mut kept = Self {
            limits: ReplicaLimits::default(),
            configs: Vec::new(),
            replicas: BTreeMap::new(),
            now: Instant::now(),
        };
        kept.reload(lines);
        kept
    }

    /// Takes over specs as a reload does: replicas with an unchanged spec live on.
    fn reload(&mut self, lines: &str) {
        let section = format!(
            "[[replica]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\nmodels = [\"m\"]\n{lines}\n"
        );
        let defaults = CareDefaults::default();
        self.configs = read_replicas(&section, "test".as_ref(), &defaults).unwrap();
        let gathered =
            crate::world::gather_replicas(&self.configs, &self.replicas, 1, &Resolver::default())
                .unwrap();
        let named = gathered.into_iter().map(|replica| (replica.spec().name.clone(), replica));
        self.replicas = named.collect();
        self.limits.reconcile(&self.configs, &self.replicas);
    }

    fn limit(&self) -> Option<u32> {
        self.replicas[&ReplicaName::from("a")].concurrency_limit()
    }

    /// Reports that the replica's waiting and running requests are all of other nodes of the
    /// region, and lets some time pass.
    fn told(&mut self, queued: f32, running: f32) {
        let requests = (queued + running) as u32;
        self.replicas[&ReplicaName::from("a")].set_elsewhere(requests, Vec::new(), 0);
        let report =
            LoadReport { queued: Some(queued), running: Some(running), ..LoadReport::default() };
        self.limits.reported(&"a".into(), &report, self.now);
        self.pass(10);
    }

    fn pass(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.now += TICK;
            self.limits.look(self.now);
        }
    }
}

#[test]
fn only_a_replica_whose_operator_did_not_say_has_one() {
    assert_eq!(Kept::new("").limit(), Some(64));
    assert_eq!(Kept::new("connections_max = 7").limit(), None);
    assert_eq!(Kept::new("concurrency = \"unlimited\"").limit(), None);
    assert_eq!(Kept::new("concurrency = \"adaptive\"\nconnections_max = 7").limit(), Some(7));
}

#[test]
fn what_was_found_stays_for_a_replica_that_stays() {
    let mut kept = Kept::new("");
    (0..5).for_each(|_| kept.told(20.0, 4.0));
    let found = kept.limit();
    assert!(found < Some(16), "{found:?}");
    kept.reload("metrics.path = \"/m\"");
    assert_eq!(kept.limit(), found, "only its care has changed");
    kept.reload("metrics.path = \"/m\"\nconcurrency = \"unlimited\"");
    assert_eq!(kept.limit(), None, "live, with its connections");
    kept.reload("metrics.path = \"/m\"");
    assert_eq!(kept.limit(), Some(64), "found anew");
    (0..5).for_each(|_| kept.told(20.0, 4.0));
    let found = kept.limit();
    kept.reload("weight = 3");
    assert_eq!(kept.limit(), found, "the same server");
    kept.reload("idle_ms = 3000");
    assert_eq!(kept.limit(), Some(64), "another replica of that name");
}

#[test]
fn what_is_no_load_is_not_taken_for_one() {
    let mut kept = Kept::new("");
    for nonsense in [f32::NAN, f32::INFINITY, -1.0] {
        kept.told(nonsense, 4.0);
    }
    assert_eq!(kept.limit(), Some(64));
    kept.limits.reported(&"b".into(), &LoadReport::default(), kept.now);
}
