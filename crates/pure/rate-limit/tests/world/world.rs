//! Nodes, a log, and the network between them, in steps of 10 ms.

use std::collections::VecDeque;

use spillway_rate_limit::{LimitKind, QuotaError, Statement, Units};

use crate::checker::Checker;
use crate::node::Node;
use crate::state::{Entry, Permille, RUN_MS_MAX, SCOPE, State, Whole};

pub(crate) const STEP_MS: u64 = 10;
const LOOK_MS: u64 = 250;
/// Time in which a node notices that a request was refused.
const NOTICE_MS: u64 = 50;

/// Rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    None,
    /// Other nodes report every process as overdue at once.
    Hasty,
    /// A node respects neither statements in transit nor its fair part.
    Unbound,
    /// A restarted node takes its floor for unused.
    Forgetful,
    /// A holder uses its leases forever.
    Endless,
    /// A restarted node does not know what the process before gave up.
    NoFile,
}

pub(crate) struct World {
    pub(crate) now_ms: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) checker: Checker,
    pub(crate) sabotage: Sabotage,
    /// True if nodes write their state to disk now and then.
    pub(crate) saves: bool,
    /// True if statements are lost or late now and then.
    pub(crate) loses: bool,
    pub(crate) dice: fastrand::Rng,
    pub(crate) leader: State,
    /// Number of statements made.
    pub(crate) said: u64,
    log: Vec<(u64, Entry)>,
    arriving: VecDeque<(u64, Statement)>,
    /// Units that may be in use by agreed states that windows still reach back to: the end of that
    /// time in milliseconds, and the units.
    allowed: Vec<(u64, Units)>,
}

impl World {
    pub(crate) fn new(seed: u64, regions: &[usize], limit: Whole) -> Self {
        let mut world = Self {
            now_ms: 0,
            nodes: Vec::new(),
            checker: Checker::default(),
            sabotage: Sabotage::None,
            saves: true,
            loses: true,
            dice: fastrand::Rng::with_seed(seed),
            leader: State::default(),
            said: 0,
            log: Vec::new(),
            arriving: VecDeque::new(),
            allowed: Vec::new(),
        };
        for (place, count) in regions.iter().enumerate() {
            for node in 0..*count {
                let (name, region) = (format!("r{place}-n{node}"), format!("r{place}"));
                let node = Node::new(&name, &region, &mut world.dice);
                world.nodes.push(node);
            }
        }
        world.set_members(world.nodes.len());
        world.set_limit(Some(limit), Permille::new());
        world
    }

    /// Makes the first `count` nodes members.
    pub(crate) fn set_members(&mut self, count: usize) {
        let mut roster = crate::state::Roster::new();
        for node in &self.nodes[..count] {
            roster.entry(node.region.clone()).or_default().push(node.name.clone());
        }
        self.append(Entry::Members(roster));
    }

    pub(crate) fn set_limit(&mut self, limit: Option<Whole>, permille: Permille) {
        self.append(Entry::Limit(limit, permille));
    }

    pub(crate) fn run(&mut self, ms: u64) -> Result<(), String> {
        let end_ms = self.now_ms + ms;
        while self.now_ms < end_ms {
            self.now_ms += STEP_MS;
            self.step().map_err(|fault| format!("at {} ms: {fault}", self.now_ms))?;
        }
        Ok(())
    }

    pub(crate) fn restart(&mut self, place: usize) {
        self.nodes[place].restart(self.now_ms, &mut self.checker, self.sabotage);
    }

    /// Has a client ask a node once.
    pub(crate) fn ask(&mut self, place: usize, tokens: u64) -> Result<(), QuotaError> {
        let (allowed, now_ms) = (self.allowed(), self.now_ms);
        let hold = self.nodes[place].ask(now_ms, tokens)?;
        self.nodes[place].begin(now_ms + RUN_MS_MAX, true, hold);
        let charged = self.checker.charge(now_ms, tokens, allowed);
        assert_eq!(charged, Ok(()), "at {now_ms} ms");
        Ok(())
    }

    /// Returns the units that the nodes of a region may use now.
    pub(crate) fn held(&self, region: &str, kind: LimitKind) -> u64 {
        let nodes = self.nodes.iter().filter(|node| node.region.as_str() == region);
        nodes.map(|node| node.usage(self.now_ms).held[kind]).sum()
    }

    /// Returns the sum of the floors of a region's nodes.
    pub(crate) fn floor(&self, region: &str, kind: LimitKind) -> u64 {
        let Some(pool) = self.leader.shares.pool(&SCOPE) else { return 0 };
        let nodes = self.nodes.iter().filter(|node| node.region.as_str() == region);
        nodes.map(|node| pool.floor(&node.name)[kind]).sum()
    }

    /// Returns the floor of one node.
    pub(crate) fn floor_of(&self, place: usize, kind: LimitKind) -> u64 {
        let pool = self.leader.shares.pool(&SCOPE);
        pool.map_or(0, |pool| pool.floor(&self.nodes[place].name)[kind])
    }

    fn step(&mut self) -> Result<(), String> {
        while self.arriving.front().is_some_and(|(at, _)| *at <= self.now_ms) {
            let Some((_, said)) = self.arriving.pop_front() else { break };
            let before = self.leader.taken();
            self.append(Entry::Said(said));
            let (after, whole) = (self.leader.taken(), self.leader.whole());
            for kind in LimitKind::ALL {
                if after[kind] > whole[kind].max(before[kind]) {
                    return Err(format!("{} of {kind} of {whole:?} are given", after[kind]));
                }
            }
        }
        let allowed = self.allowed();
        let first = self.dice.usize(..self.nodes.len());
        for turn in 0..self.nodes.len() {
            self.turn((turn + first) % self.nodes.len(), allowed)?;
        }
        self.checker.check(self.now_ms, allowed)
    }

    fn turn(&mut self, place: usize, allowed: Units) -> Result<(), String> {
        let (node, now_ms) = (&mut self.nodes[place], self.now_ms);
        if node.way.hears {
            node.receive(&self.log, now_ms);
        }
        node.serve(now_ms, (&mut self.checker, allowed), &mut self.dice)?;
        if self.saves && self.dice.u32(..500) == 0 {
            node.save();
        }
        let is_time = |period_ms: u64| {
            now_ms / STEP_MS % (period_ms / STEP_MS) == place as u64 % (period_ms / STEP_MS)
        };
        let hurries = is_time(NOTICE_MS) && node.hurries(now_ms, LOOK_MS);
        if (is_time(LOOK_MS) || node.has_heard() || hurries)
            && let Some(said) = node.look(now_ms, self.sabotage)
            && node.way.says
            && !(self.loses && self.dice.u8(..30) == 0)
        {
            let delay_ms = node.delay_ms;
            // Some statements are lost, some arrive long after, and some twice.
            let is_double = self.loses && self.dice.u8(..20) == 0;
            for said in std::iter::repeat_n(said, 1 + usize::from(is_double)) {
                let is_late = self.loses && self.dice.u8(..20) == 0;
                let late_ms = if is_late { self.dice.u64(..30_000) } else { 0 };
                let at_ms = now_ms + delay_ms + late_ms;
                let before = self.arriving.partition_point(|(other, _)| *other <= at_ms);
                self.arriving.insert(before, (at_ms, said));
            }
            self.said += 1;
        }
        Ok(())
    }

    fn append(&mut self, entry: Entry) {
        self.leader.apply(&entry);
        self.log.push((self.now_ms, entry));
    }

    /// Returns the limit or, after it became lower, the units that nodes may still have from
    /// before.
    fn allowed(&mut self) -> Units {
        let (whole, taken) = (self.leader.whole(), self.leader.taken());
        let limit = self.leader.limit.unwrap_or_default();
        let now = Units::each(|kind| match limit[kind as usize] {
            Some(_) => whole[kind].max(taken[kind]),
            None => u64::MAX,
        });
        let until_ms = self.now_ms + 62_000;
        self.allowed.retain(|(until, units)| *until > self.now_ms && *units != now);
        self.allowed.push((until_ms, now));
        Units::each(|kind| self.allowed.iter().map(|(_, units)| units[kind]).max().unwrap_or(0))
    }
}
