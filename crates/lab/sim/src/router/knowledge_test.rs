use std::cell::Cell;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::Instant;

use spillway_engine::{EngineConfig, Profile};
use spillway_journey::Event;
use spillway_route::{Guest, Policy};

use crate::router::{
    Ask, CacheReport, Ended, Forwarded, Knowledge, Replied, Router, RouterVerdict, Sent,
    SpillwayRouter, WorldView, Written,
};
use crate::{Demand, Operator, RegionConfig, Setup, WorkloadKind, World, WorldConfig};

/// Blocks that nodes wrongly believed present or absent at their replicas, and blocks that are
/// there.
type Errors = Rc<Cell<(u64, u64)>>;

/// Node of Spillway whose belief is compared with the truth at each decision.
#[derive(Debug)]
struct Compared {
    node: SpillwayRouter,
    errors: Errors,
}

impl Router for Compared {
    fn decide(
        &mut self,
        ask: &Ask<'_>,
        sight: &WorldView<'_>,
        rng: &mut fastrand::Rng,
    ) -> RouterVerdict {
        let verdict = self.node.decide(ask, sight, rng);
        let (mut wrong, mut all) = self.errors.get();
        for (replica, believed) in self.node.cached.iter().enumerate() {
            let real = sight.truth.cached_blocks(replica);
            wrong += u64::from(believed.abs_diff(real));
            all += u64::from(real);
        }
        self.errors.set((wrong, all));
        verdict
    }

    fn handle(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>, event: Event) {
        self.node.handle(ask, sight, event);
    }

    fn left(&mut self, request: usize) {
        self.node.left(request);
    }

    fn admits(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>) -> Guest {
        self.node.admits(ask, sight)
    }

    fn sent(&mut self, sent: &Sent<'_>) {
        self.node.sent(sent);
    }

    fn replied(&mut self, replied: &Replied<'_>) {
        self.node.replied(replied);
    }

    fn ended(&mut self, ended: &Ended<'_>) {
        self.node.ended(ended);
    }

    fn written(&mut self, written: &Written<'_>) {
        self.node.written(written);
    }

    fn follows_caches(&self) -> bool {
        self.node.follows_caches()
    }

    fn cache_told(&mut self, report: &CacheReport<'_>) {
        self.node.cache_told(report);
    }

    fn forwarded(&mut self, forwarded: &Forwarded<'_>) {
        self.node.forwarded(forwarded);
    }
}

/// Returns the wrong blocks for each block that is there, in a region whose caches are too small for
/// all conversations.
#[expect(clippy::disallowed_methods, reason = "some moment has to stand for time 0")]
fn error(knowledge: Knowledge, nodes: usize) -> f64 {
    let seconds = 120.0;
    let demand = Demand { rates_per_s: vec![4.0], seconds, seed: 5 };
    let mut engine = EngineConfig { waiting_max: 512, ..EngineConfig::from_profile(Profile::L4) };
    engine.kv_blocks = NonZeroU32::new(800).unwrap();
    let world = WorldConfig {
        regions: vec![RegionConfig { nodes, replicas: 3 }],
        rtt_ms: vec![vec![0.0]],
        engine,
        central: None,
        news: crate::News::default(),
        patience_s: 30.0,
        warm_up_s: 0.0,
        end_s: seconds,
        slow: Vec::new(),
        faults: Vec::new(),
        operator: Operator::default(),
        tenants: Vec::new(),
        seed: 1,
        origin: Instant::now(),
    };
    let mut router = Setup::policy(Policy::PredictedLatency).router;
    router.knowledge = knowledge;
    router.speed.kv_tokens = world.kv_tokens();
    let errors = Errors::default();
    let sessions = WorkloadKind::Chats.sessions(&demand);
    let _figures = World::new(world, sessions, &mut |position| {
        let node = SpillwayRouter::new(router, position);
        Box::new(Compared { node, errors: Rc::clone(&errors) })
    })
    .run();
    let (wrong, all) = errors.get();
    assert!(all > 2_000, "{all}");
    wrong as f64 / all as f64
}

#[test]
fn with_events_nodes_know_nearly_all_of_what_engines_hold() {
    for nodes in [1, 2] {
        let (index, events) = (error(Knowledge::Index, nodes), error(Knowledge::Events, nodes));
        assert!(events < 0.02 && events < index / 4.0, "{nodes} nodes: {events} against {index}");
    }
}
