//! A cluster in simulated time: many `GossipMachine`s, and a network that delays, loses, doubles and
//! reorders what they send.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::{Duration, Instant};

use spillway_gossip::{GossipConfig, GossipEvent, GossipMachine, GossipMember, OwnLoad};

/// Delay and loss of datagrams.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// Share that is lost, in permille.
    pub(crate) loss_permille: u32,
    /// Share that comes twice, in permille.
    pub(crate) double_permille: u32,
    /// Time in one direction inside a region, microseconds.
    pub(crate) near_us: u64,
    /// Time in one direction between neighbouring regions, microseconds; at most twice that for
    /// regions on the other side of the world.
    pub(crate) far_us: u64,
    /// A datagram takes up to this many microseconds longer, so that later ones overtake it.
    pub(crate) jitter_us: u64,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            loss_permille: 0,
            double_permille: 0,
            near_us: 500,
            far_us: 40_000,
            jitter_us: 2_000,
        }
    }
}

/// A node of the world. Dead while `gossip` is `None`.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) member: GossipMember,
    pub(crate) region: usize,
    pub(crate) gossip: Option<GossipMachine>,
    pub(crate) load: OwnLoad,
    pub(crate) events: Vec<(Duration, GossipEvent)>,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) longest_bytes: usize,
    pub(crate) incarnation: u64,
    pub(crate) timeout: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrival { to: usize, from: usize, bytes: Vec<u8> },
    Timeout { node: usize },
}

/// The cluster.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) start: Instant,
    pub(crate) now: Instant,
    pub(crate) nodes: Vec<Node>,
    pub(crate) network: Network,
    pub(crate) config: GossipConfig,
    /// Directed ways that are cut, from node to node.
    pub(crate) cuts: BTreeSet<(usize, usize)>,
    pub(crate) rng: fastrand::Rng,
    /// Number of times that any node was woken by its timeout.
    pub(crate) timeouts: u64,
    agenda: BinaryHeap<Reverse<(Instant, u64, Happening)>>,
    happenings: u64,
    by_name: BTreeMap<String, usize>,
    region_count: usize,
}

impl World {
    /// `regions` regions with `size` nodes each, which all know of each other.
    pub(crate) fn new(
        regions: usize,
        size: usize,
        network: Network,
        config: GossipConfig,
        seed: u64,
    ) -> Self {
        #[expect(clippy::disallowed_methods, reason = "some moment to count from")]
        let start = Instant::now();
        let mut world = Self {
            start,
            now: start,
            nodes: Vec::new(),
            network,
            config,
            cuts: BTreeSet::new(),
            rng: fastrand::Rng::with_seed(seed),
            timeouts: 0,
            agenda: BinaryHeap::new(),
            happenings: 0,
            by_name: BTreeMap::new(),
            region_count: regions,
        };
        for region in 0..regions {
            for place in 0..size {
                world.add(region, place);
            }
        }
        (0..world.nodes.len()).for_each(|node| world.boot(node));
        world
    }

    fn add(&mut self, region: usize, place: usize) {
        let name = format!("n{region:02}-{place}");
        self.by_name.insert(name.clone(), self.nodes.len());
        self.nodes.push(Node {
            member: GossipMember::new(name.as_str(), format!("r{region:02}")),
            region,
            gossip: None,
            load: OwnLoad::default(),
            events: Vec::new(),
            sent: 0,
            sent_bytes: 0,
            longest_bytes: 0,
            // As long as the time of day is.
            incarnation: 1_800_000_000_000,
            timeout: None,
        });
    }

    /// Starts a node, or starts it again.
    pub(crate) fn boot(&mut self, node: usize) {
        let members: Vec<GossipMember> =
            self.nodes.iter().map(|node| node.member.clone()).collect();
        let rng = fastrand::Rng::with_seed(self.rng.u64(..));
        let it = &mut self.nodes[node];
        it.incarnation += 1;
        let me = it.member.clone();
        let mut gossip = GossipMachine::new(me, it.incarnation, self.config.clone(), rng, self.now);
        gossip.set_members(&members, self.now);
        gossip.set_load(self.now, &it.load);
        it.gossip = Some(gossip);
        self.after_input(node);
    }

    /// Feeds a node its load from [`Node::load`].
    pub(crate) fn feed(&mut self, node: usize) {
        let now = self.now;
        let it = &mut self.nodes[node];
        if let Some(gossip) = &mut it.gossip {
            gossip.set_load(now, &it.load);
            self.after_input(node);
        }
    }

    pub(crate) fn gossip(&self, node: usize) -> &GossipMachine {
        self.nodes[node].gossip.as_ref().unwrap()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Lets time pass; `look` sees the world after every happening.
    pub(crate) fn run_until(&mut self, end: Instant, mut look: impl FnMut(&mut Self)) {
        while let Some(Reverse((at, _, _))) = self.agenda.peek()
            && *at <= end
        {
            let Reverse((at, _, happening)) = self.agenda.pop().unwrap();
            self.now = self.now.max(at);
            self.happen(happening);
            look(self);
        }
        self.now = end;
    }

    fn happen(&mut self, happening: Happening) {
        let now = self.now;
        match happening {
            Happening::Arrival { to, from, bytes } => {
                let sender = self.nodes[from].member.clone();
                if let Some(gossip) = &mut self.nodes[to].gossip {
                    // Late and duplicate datagrams are refused, and counted.
                    drop(gossip.handle_datagram(now, &sender.node, &sender.region, &bytes));
                    self.after_input(to);
                }
            }
            Happening::Timeout { node } => {
                let it = &mut self.nodes[node];
                if it.timeout.is_some_and(|at| at <= now) {
                    it.timeout = None;
                    self.timeouts += 1;
                    it.gossip.as_mut().unwrap().handle_timeout(now);
                    self.after_input(node);
                }
            }
        }
    }

    /// Drains a node's outputs, and notes when it has to be called.
    fn after_input(&mut self, node: usize) {
        let elapsed = self.elapsed();
        let mut out = Vec::new();
        let it = &mut self.nodes[node];
        let gossip = it.gossip.as_mut().unwrap();
        while let Some((to, bytes)) = gossip.poll_transmit() {
            out.push((to, bytes));
        }
        while let Some(event) = gossip.poll_event() {
            it.events.push((elapsed, event));
        }
        let timeout = gossip.poll_timeout();
        if timeout != it.timeout {
            it.timeout = timeout;
            if let Some(at) = timeout {
                // A timeout that is due already must not stop the time.
                assert!(at + Duration::from_secs(1) > self.now, "a timeout long past");
                self.schedule(at, Happening::Timeout { node });
            }
        }
        for (to, bytes) in out {
            let it = &mut self.nodes[node];
            it.sent += 1;
            it.sent_bytes += bytes.len() as u64;
            it.longest_bytes = it.longest_bytes.max(bytes.len());
            let to = self.by_name[to.as_str()];
            self.carry(node, to, &bytes);
        }
    }

    fn carry(&mut self, from: usize, to: usize, bytes: &[u8]) {
        if self.cuts.contains(&(from, to)) {
            return;
        }
        let copies = 1 + u32::from(self.rng.u32(0..1_000) < self.network.double_permille);
        for _ in 0..copies {
            if self.rng.u32(0..1_000) < self.network.loss_permille {
                continue;
            }
            let us = self.way_us(from, to) + self.rng.u64(0..=self.network.jitter_us);
            let at = self.now + Duration::from_micros(us);
            self.schedule(at, Happening::Arrival { to, from, bytes: bytes.to_vec() });
        }
    }

    fn way_us(&self, from: usize, to: usize) -> u64 {
        let (a, b) = (self.nodes[from].region, self.nodes[to].region);
        if a == b {
            return self.network.near_us;
        }
        let around = a.abs_diff(b).min(self.region_count - a.abs_diff(b));
        let half = (self.region_count / 2).max(1);
        self.network.far_us + self.network.far_us * around as u64 / half as u64
    }

    fn schedule(&mut self, at: Instant, happening: Happening) {
        self.happenings += 1;
        self.agenda.push(Reverse((at, self.happenings, happening)));
    }
}
