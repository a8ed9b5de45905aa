//! Model of an engine, and of nodes whose queues are never empty.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use super::{ConcurrencyLimit, ConcurrencyTuning, LoadSample, QueueSample, Sharer, own_part};
use crate::test_world::NOW;

/// Time between two looks of a node, and between two reports of one node to the others.
const LOOK_EVERY_MS: u64 = 100;
const GOSSIP_EVERY_MS: u64 = 50;

/// Engine, and the nodes that send to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Engine {
    /// Most requests that run at once.
    pub(super) slots: usize,
    /// Milliseconds that a request takes alone, and until its first token.
    pub(super) alone_ms: u64,
    pub(super) first_token_ms: u64,
    /// Running requests at which each takes twice as long.
    pub(super) halving: f64,
    /// Milliseconds between two reports of waiting and running requests; `None` without reports.
    pub(super) report_every_ms: Option<u64>,
    /// First and last second of a slow period, and the factor.
    pub(super) slow: Option<(u64, u64, f64)>,
    /// Fixed limit for each node, instead of the limit that is found.
    pub(super) limit: Option<u32>,
    pub(super) nodes: usize,
    /// Most requests that each node would have in flight, by second.
    pub(super) wanted: fn(node: usize, second: u64) -> usize,
}

#[derive(Debug, Default)]
pub(super) struct Results {
    /// Requests that ended in each second.
    pub(super) ended: Vec<u32>,
    /// Requests that ended in each second, by node.
    pub(super) ended_of: Vec<Vec<u32>>,
    /// Mean number of requests that waited in the engine, in each second.
    pub(super) queued: Vec<f64>,
    /// Limit of the first node at the end of each second.
    pub(super) limits: Vec<u32>,
}

impl Results {
    /// Returns the requests that ended per second.
    pub(super) fn ended(&self, seconds: Range<usize>) -> f64 {
        let count = seconds.len() as f64;
        self.ended[seconds].iter().map(|&ended| f64::from(ended)).sum::<f64>() / count
    }

    pub(super) fn queued(&self, seconds: Range<usize>) -> f64 {
        let count = seconds.len() as f64;
        self.queued[seconds].iter().sum::<f64>() / count
    }

    /// Returns the requests of one node that ended in these seconds.
    pub(super) fn ended_of(&self, node: usize, seconds: Range<usize>) -> u32 {
        self.ended_of[seconds].iter().map(|ended| ended[node]).sum()
    }
}

struct World<'e> {
    engine: &'e Engine,
    rng: fastrand::Rng,
    /// Milliseconds since the start.
    tick: u64,
    running: usize,
    /// Moments at which requests end, and their nodes.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    /// Moments at which waiting requests were sent, and their nodes.
    waiting: VecDeque<(u64, usize)>,
    nodes: Vec<Node>,
    results: Results,
}

struct Node {
    limit: ConcurrencyLimit,
    in_flight: usize,
    /// Requests of the other nodes, by their last report.
    elsewhere: u32,
    others: Vec<Sharer>,
    /// Most requests in flight since the last look.
    most: usize,
    unbegun: u32,
    /// Moments of first tokens, and the time they took.
    first_tokens: Vec<(u64, f32)>,
    reported_at: Option<u64>,
    ended: u32,
}

pub(super) fn run(engine: &Engine, seconds: u64) -> Results {
    let node = |_| Node {
        limit: ConcurrencyLimit::new(ConcurrencyTuning::default()),
        in_flight: 0,
        elsewhere: 0,
        others: Vec::new(),
        most: 0,
        unbegun: 0,
        first_tokens: Vec::new(),
        reported_at: None,
        ended: 0,
    };
    let mut world = World {
        engine,
        rng: fastrand::Rng::with_seed(4),
        tick: 0,
        running: 0,
        ends: BinaryHeap::new(),
        waiting: VecDeque::new(),
        nodes: (0..engine.nodes).map(node).collect(),
        results: Results::default(),
    };
    // The nodes know of each other before all begin at once.
    world.gossip();
    let mut queued = 0.0;
    for tick in 0..seconds * 1_000 {
        world.tick = tick;
        world.end();
        world.begin_waiting();
        world.send();
        queued += world.waiting.len() as f64;
        if tick.is_multiple_of(GOSSIP_EVERY_MS) {
            world.gossip();
        }
        for node in 0..engine.nodes {
            // Nodes don't look in step with each other.
            if (tick + 37 * node as u64).is_multiple_of(LOOK_EVERY_MS) {
                world.look(node);
            }
        }
        if tick % 1_000 == 999 {
            let ended: Vec<u32> =
                world.nodes.iter_mut().map(|node| std::mem::take(&mut node.ended)).collect();
            world.results.ended.push(ended.iter().sum());
            world.results.ended_of.push(ended);
            world.results.queued.push(std::mem::take(&mut queued) / 1_000.0);
            world.results.limits.push(world.nodes[0].limit.limit());
        }
    }
    world.results
}

impl World<'_> {
    fn end(&mut self) {
        while let Some(&Reverse((at, node))) = self.ends.peek()
            && at <= self.tick
        {
            self.ends.pop();
            self.running -= 1;
            self.nodes[node].in_flight -= 1;
            self.nodes[node].ended += 1;
        }
    }

    fn send(&mut self) {
        let first = self.rng.usize(0..self.nodes.len());
        for index in 0..self.nodes.len() {
            let index = (first + index) % self.nodes.len();
            let part = self.nodes[index].part();
            let allowed = self.engine.limit.unwrap_or(part) as usize;
            let wanted = (self.engine.wanted)(index, self.tick / 1_000);
            while self.nodes[index].in_flight < allowed.min(wanted) {
                let node = &mut self.nodes[index];
                node.in_flight += 1;
                node.unbegun += 1;
                node.most = node.most.max(node.in_flight);
                self.waiting.push_back((self.tick, index));
                self.begin_waiting();
            }
        }
    }

    fn begin_waiting(&mut self) {
        while self.running < self.engine.slots
            && let Some((sent, node)) = self.waiting.pop_front()
        {
            self.begin(sent, node);
        }
    }

    fn begin(&mut self, sent: u64, node: usize) {
        self.running += 1;
        let second = self.tick / 1_000;
        let slow = self.engine.slow.filter(|(from, to, _)| (*from..*to).contains(&second));
        let batch = 1.0 + self.running as f64 / self.engine.halving;
        let factor = batch * slow.map_or(1.0, |slow| slow.2) * (0.8 + 0.4 * self.rng.f64());
        let after = |ms: u64| (ms as f64 * factor) as u64;
        self.ends.push(Reverse((self.tick + after(self.engine.alone_ms), node)));
        let first_ms = after(self.engine.first_token_ms);
        let first_token = (self.tick + first_ms, (self.tick - sent + first_ms) as f32);
        self.nodes[node].first_tokens.push(first_token);
    }

    fn gossip(&mut self) {
        let second = self.tick / 1_000;
        let told = self.nodes.iter().enumerate().map(|(index, node)| {
            let wanted = (self.engine.wanted)(index, second).min(100_000);
            (node.in_flight as u32, wanted.max(node.in_flight) as u32)
        });
        let told: Vec<(u32, u32)> = told.collect();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let others = told.iter().enumerate().filter(|(other, _)| *other != index);
            node.elsewhere = others.clone().map(|(_, (in_flight, _))| in_flight).sum();
            let sharer = |(other, &(_, wanted)): (usize, &(u32, u32))| Sharer {
                wanted,
                is_before: other < index,
            };
            node.others = others.map(sharer).collect();
        }
    }

    fn look(&mut self, index: usize) {
        let (tick, waiting, running) = (self.tick, self.waiting.len() as f32, self.running as f32);
        let node = &mut self.nodes[index];
        let is_due = |every: u64| node.reported_at.is_none_or(|at| tick - at >= every);
        let queue = match self.engine.report_every_ms {
            Some(every) if is_due(every) => {
                node.reported_at = Some(tick);
                QueueSample::New { queued: waiting, running: Some(running), kv_use: None }
            }
            Some(_) => QueueSample::Old,
            None => QueueSample::Untold,
        };
        let mut come: Vec<f32> = Vec::new();
        node.first_tokens.retain(|&(at, first)| {
            come.extend((at <= tick).then_some(first));
            at > tick
        });
        node.unbegun -= come.len() as u32;
        let mean = come.iter().sum::<f32>() / come.len() as f32;
        let seen = LoadSample {
            in_flight: node.most as u32,
            elsewhere: node.elsewhere,
            wanted_elsewhere: node.others.iter().map(|other| other.wanted).sum(),
            allowed: node.part(),
            unbegun: node.unbegun,
            guest_lack: None,
            queue,
            began: come.len() as u32,
            first_token: (!come.is_empty()).then_some(mean),
        };
        node.limit.update(&seen, at(tick));
        node.most = node.in_flight;
    }
}

impl Node {
    fn part(&mut self) -> u32 {
        own_part(self.limit.limit(), &mut self.others)
    }
}

pub(super) fn at(ms: u64) -> Instant {
    *NOW + Duration::from_millis(ms)
}

/// Returns an engine whose batches scale: 48 requests at once end eight times as many as one alone.
pub(super) fn chat() -> Engine {
    Engine {
        slots: 48,
        alone_ms: 2_000,
        first_token_ms: 60,
        halving: 10.0,
        report_every_ms: Some(500),
        slow: None,
        limit: None,
        nodes: 1,
        wanted: |_, _| usize::MAX,
    }
}

/// Returns an engine of four slots that gains nothing from batches.
pub(super) fn small() -> Engine {
    Engine { slots: 4, alone_ms: 150, first_token_ms: 150, halving: 4.0, ..chat() }
}

pub(super) fn large() -> Engine {
    Engine { slots: 256, halving: 64.0, ..chat() }
}

/// Returns the requests per second of an engine that is always full, with room for its own queue.
pub(super) fn best(engine: &Engine) -> f64 {
    let full = Engine { limit: Some(2 * engine.slots as u32), nodes: 1, slow: None, ..*engine };
    run(&full, 60).ended(20..60)
}
