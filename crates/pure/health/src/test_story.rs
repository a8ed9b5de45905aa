//! Region under load in virtual time: requests are spread by the standings, as a router would do.

use std::collections::BTreeMap;
use std::time::Instant;

use spillway_types::{Admission, ReplicaName, SignFault, SignKind, TokenCounts};

use crate::test_fleet::{TestFleet, answered, ms, spec};
use crate::{Check, CheckError, Live};

/// Behaviour of a replica in a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// The replica answers after so many milliseconds, and a tenth of its prompts is cached.
    Works { after_ms: u64 },
    /// No process listens there any more.
    Dead,
    /// The replica accepts connections and health checks and never answers a request.
    Hung { since: Instant },
    /// The replica answers with 500.
    Broken,
}

/// Region of servers under even load, in steps of 20 ms.
pub(crate) struct Story {
    pub(crate) test: TestFleet,
    servers: BTreeMap<ReplicaName, Server>,
    requests_per_s: u64,
    pub(crate) rng: fastrand::Rng,
    pub(crate) sent: BTreeMap<ReplicaName, u32>,
    pub(crate) failed: u32,
    started: Instant,
    /// Thousandths of a request that are due.
    due: u64,
}

pub(crate) const WORKS: Server = Server::Works { after_ms: 50 };

impl Story {
    pub(crate) fn of(test: TestFleet, requests_per_s: u64) -> Self {
        let names = test.fleet.members(test.now).into_iter().map(|report| report.name);
        Self {
            servers: names.map(|name| (name, WORKS)).collect(),
            started: test.now,
            test,
            requests_per_s,
            rng: fastrand::Rng::with_seed(11),
            sent: BTreeMap::new(),
            failed: 0,
            due: 0,
        }
    }

    pub(crate) fn serving(count: usize, requests_per_s: u64) -> Self {
        let specs = (0..count).map(|n| spec(&format!("r{n}"))).collect();
        let mut story = Self::of(TestFleet::of(specs), requests_per_s);
        story.run(5_000);
        story.forget();
        story
    }

    pub(crate) fn set(&mut self, name: &str, server: Server) {
        self.servers.insert(name.into(), server);
    }

    pub(crate) fn run(&mut self, for_ms: u64) {
        self.run_until(for_ms, |_| false);
    }

    /// Runs until a condition holds; returns the milliseconds that this took.
    pub(crate) fn run_until(
        &mut self,
        at_most_ms: u64,
        holds: impl Fn(&TestFleet) -> bool,
    ) -> Option<u64> {
        let began = self.test.now;
        for _ in 0..at_most_ms / 20 {
            self.step();
            if holds(&self.test) {
                return u64::try_from((self.test.now - began).as_millis()).ok();
            }
        }
        None
    }

    pub(crate) fn step(&mut self) {
        self.test.now += ms(20);
        let elapsed = (self.test.now - self.started).as_millis();
        if elapsed.is_multiple_of(1000) {
            self.check_all();
        }
        if elapsed.is_multiple_of(100) {
            self.tick();
        }
        self.due += self.requests_per_s * 20;
        while self.due >= 1000 {
            self.due -= 1000;
            self.request();
        }
    }

    fn check_all(&mut self) {
        for (name, server) in self.servers.clone() {
            let result = match server {
                Server::Dead => Err(CheckError::Unreachable),
                Server::Works { .. } | Server::Hung { .. } | Server::Broken => Ok(()),
            };
            self.test.check_as(name.as_str(), Check::Active, 1, result);
            let result = if matches!(server, Server::Works { .. }) {
                Ok(())
            } else {
                Err(CheckError::Timeout)
            };
            self.test.check_as(name.as_str(), Check::Deep, 1, result);
        }
    }

    fn tick(&mut self) {
        for (name, server) in self.servers.clone() {
            let live = match server {
                Server::Hung { since } => Live {
                    in_flight: 3,
                    elsewhere: 0,
                    started: 0,
                    silent_for: Some(self.test.now.saturating_duration_since(since)),
                },
                _ => Live::default(),
            };
            self.test.live.insert(name, live);
        }
        self.test.tick();
    }

    fn request(&mut self) {
        let Some(name) = self.draw() else { return };
        *self.sent.entry(name.clone()).or_default() += 1;
        let replica = name.as_str();
        match self.servers[&name] {
            Server::Works { after_ms } => {
                let tokens = TokenCounts { prompt: 100, cached: 10, completion: 10 };
                self.test.sign(replica, answered(ms(after_ms)));
                self.test.sign(replica, SignKind::Finished { tokens, worked: None });
            }
            Server::Dead => self.fail(replica, SignFault::Connect),
            Server::Broken => self.fail(replica, SignFault::ServerError),
            Server::Hung { .. } => {}
        }
    }

    fn fail(&mut self, replica: &str, fault: SignFault) {
        self.failed += 1;
        self.test.fail(replica, 1, fault);
    }

    /// Draws a replica from the best tier, by ramp.
    fn draw(&mut self) -> Option<ReplicaName> {
        let standing = |name: &ReplicaName| self.test.fleet.standing(name);
        let may_serve =
            |admission: Admission| admission == Admission::Open || admission.is_last_resort();
        let tiers = self.servers.keys().map(|name| standing(name).admission);
        let best = tiers.filter(|tier| may_serve(*tier)).min()?;
        let weighed: Vec<(ReplicaName, u32)> = self
            .servers
            .keys()
            .filter(|name| standing(name).admission == best)
            .map(|name| (name.clone(), u32::from(standing(name).ramp_permille)))
            .collect();
        let mut drawn = self.rng.u32(0..weighed.iter().map(|(_, weight)| weight).sum());
        weighed.into_iter().find_map(|(name, weight)| {
            let is_it = drawn < weight;
            drawn = drawn.saturating_sub(weight);
            is_it.then_some(name)
        })
    }

    pub(crate) fn sent_to(&self, name: &str) -> u32 {
        self.sent.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn forget(&mut self) {
        self.sent.clear();
        self.failed = 0;
        self.test.actions.clear();
    }
}
