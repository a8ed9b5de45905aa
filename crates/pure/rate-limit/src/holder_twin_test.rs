//! Twin test: looks that visit what changed do what full looks do.
//!
//! Random operations go to two sides. One tracks changes; the other one forgets before each look
//! what it knows, and so visits all limits, and counts all rows before each statement.

use std::time::Duration;

use super::*;
use crate::{Ground, PoolTerms, QuotaAsk, QuotaError, QuotaHold, RunRow, floors};

const REGIONS: [(&str, &[&str]); 2] = [("r", &["a", "b"]), ("s", &["c"])];

/// One of both sides of a node.
struct Side {
    holder: Holder,
    quotas: Quotas,
}

/// Node with its two sides: that which tracks changes first.
struct Node {
    name: NodeName,
    region: &'static str,
    sides: [Side; 2],
    /// Division that the node knows.
    shares: Shares,
    agreed_limits: Arc<AgreedLimits>,
    holds: Vec<[QuotaHold; 2]>,
    incarnation: u64,
    is_leaving: bool,
}

/// Statement in transit.
struct Said {
    node: usize,
    statement: Statement,
    is_answered: bool,
}

struct Twins {
    dice: fastrand::Rng,
    now: Instant,
    nodes: Vec<Node>,
    members: BTreeSet<NodeName>,
    limits: BTreeMap<Scope, ([Option<u64>; 3], RequestWindow)>,
    own: Vec<LimitTerms>,
    /// The division as all agree; and without anything derived.
    shares: Shares,
    plain: Shares,
    said: Vec<Said>,
    rows_max: usize,
    scopes: usize,
}

impl Twins {
    #[expect(clippy::disallowed_methods, reason = "there is no other way to some instant")]
    fn new(seed: u64, scopes: usize) -> Self {
        let now = Instant::now();
        let names = REGIONS.iter().flat_map(|(region, names)| names.iter().map(|n| (*region, *n)));
        let nodes = names.map(|(region, name)| Node::new(name.into(), region, now));
        let mut twins = Self {
            dice: fastrand::Rng::with_seed(seed),
            now,
            nodes: nodes.collect(),
            members: BTreeSet::new(),
            limits: BTreeMap::new(),
            own: Vec::new(),
            shares: Shares::default(),
            plain: Shares::default(),
            said: Vec::new(),
            rows_max: if seed.is_multiple_of(4) { 40 } else { 100_000 },
            scopes,
        };
        twins.members = twins.nodes.iter().map(|node| node.name.clone()).collect();
        for scope in 0..scopes {
            twins.put_limit(scope);
        }
        twins.publish(false);
        twins
    }

    fn scope(number: usize) -> Scope {
        match number {
            0 => Scope::Global,
            _ if number % 3 == 1 => Scope::Model(format!("m{number:04}").as_str().into()),
            _ => Scope::Tenant(format!("t{number:04}").as_str().into()),
        }
    }

    fn put_limit(&mut self, number: usize) {
        let whole = [30, 2_000, 8].map(|most: u64| self.dice.bool().then(|| self.dice.u64(..most)));
        let requests = if self.dice.bool() { RequestWindow::Second } else { RequestWindow::Minute };
        self.limits.insert(Self::scope(number), (whole, requests));
    }

    /// Gives all nodes the limits and members.
    fn publish(&mut self, is_open: bool) {
        for node in &mut self.nodes {
            let agreed_limits = agreed_limits(&self.limits, &self.members, node.region);
            if agreed_limits != *node.agreed_limits {
                node.agreed_limits = Arc::new(agreed_limits);
            }
            node.set_limits(self.now, is_open);
            node.sides.iter().for_each(|side| side.quotas.set_own(&self.own));
        }
    }

    fn step(&mut self) {
        let at = self.dice.usize(..self.nodes.len());
        match self.dice.u8(..100) {
            0..34 => self.request(at),
            34..44 => self.settle(at),
            44..74 => self.look(at),
            74..86 => self.hear_statement(),
            86..91 => self.pass(),
            91..94 => self.catch_up(at),
            94 => self.change_limits(),
            95 => self.owe(at),
            96 => self.pay_own(at),
            97 => self.change_members(),
            98 if self.dice.u8(..4) == 0 => self.restart(at),
            98 => self.leave(at),
            _ => self.lose(),
        }
    }

    fn request(&mut self, at: usize) {
        let number = |most: usize, dice: &mut fastrand::Rng| dice.usize(..most);
        let tenant = format!("t{:04}", number(self.scopes, &mut self.dice));
        let model = format!("m{:04}", number(self.scopes, &mut self.dice));
        // Few requests come for most limits, so that there is quiet.
        let count = if self.dice.u8(..4) == 0 { 20 } else { 1 };
        for _ in 0..count {
            let tokens = self.dice.u64(..200);
            let node = &mut self.nodes[at];
            let ask = QuotaAsk {
                key: Some("own"),
                tenant: Some(&tenant),
                model: Some(&model),
                tokens,
                said: tokens,
                now: self.now,
            };
            let [one, other] = [0, 1].map(|side: usize| node.sides[side].quotas.admit(&ask));
            match (one, other) {
                (Ok(one), Ok(other)) => node.holds.push([one, other]),
                (one, other) => assert_eq!(refusal(one), refusal(other), "{ask:?}"),
            }
        }
    }

    fn settle(&mut self, at: usize) {
        for _ in 0..self.nodes[at].holds.len().div_ceil(3) {
            let count = self.nodes[at].holds.len();
            let holds = self.nodes[at].holds.swap_remove(self.dice.usize(..count));
            let used = self.dice.bool().then(|| self.dice.u64(..400));
            holds.into_iter().for_each(|hold| hold.settle(used));
        }
    }

    fn look(&mut self, at: usize) {
        self.now += Duration::from_millis(self.dice.u64(..400));
        let node = &mut self.nodes[at];
        if node.is_leaving {
            node.sides.iter_mut().for_each(|side| side.holder.leave());
        }
        if let Some(statement) = node.look(self.now) {
            self.said.push(Said { node: at, statement, is_answered: false });
        }
    }

    /// Applies one statement. Its node may not get the answer.
    fn hear_statement(&mut self) {
        if self.said.is_empty() {
            return;
        }
        let late = self.dice.u8(..8) == 0;
        let place = if late { self.dice.usize(..self.said.len()) } else { 0 };
        let Said { node, statement, is_answered } = self.said.remove(place);
        let agreed_limits = agreed_limits(&self.limits, &self.members, "r");
        let terms = |scope: &Scope| agreed_limits.terms.get(scope).cloned();
        let ground = Ground { members: &self.members, terms: &terms, rows_max: self.rows_max };
        let seen = self.shares.clone();
        self.plain = self.plain.without_derived();
        let results = [&mut self.shares, &mut self.plain].map(|it| it.apply(&statement, &ground));
        assert_eq!(results[0], results[1]);
        assert_eq!(self.shares, self.plain);
        assert_changes_are_known(&seen, &self.shares);
        if !is_answered {
            let fate = if results[0].is_ok() { Fate::TakenIn } else { Fate::Never };
            self.nodes[node].answered(&statement, fate, self.now);
        }
        if self.dice.u8(..3) > 0 {
            self.catch_up(node);
        }
    }

    /// Loses a statement, or its answer.
    fn lose(&mut self) {
        let Some(said) = self.said.last_mut().filter(|said| !said.is_answered) else { return };
        let fate = if self.dice.bool() { Fate::Unknown } else { Fate::Never };
        self.nodes[said.node].answered(&said.statement, fate, self.now);
        said.is_answered = true;
        if fate == Fate::Never {
            self.said.pop();
        }
    }

    fn pass(&mut self) {
        let ms = match self.dice.u8(..20) {
            0 => 70_000,
            1..4 => 12_000,
            _ => 2_000,
        };
        self.now += Duration::from_millis(self.dice.u64(..ms));
    }

    /// Lets a node know the division, now and then from a snapshot.
    fn catch_up(&mut self, at: usize) {
        let is_snapshot = self.dice.u8(..8) == 0;
        self.nodes[at].shares =
            if is_snapshot { self.shares.without_derived() } else { self.shares.clone() };
    }

    fn change_limits(&mut self) {
        let number = self.dice.usize(..self.scopes);
        match self.dice.u8(..4) {
            0 => drop(self.limits.remove(&Self::scope(number))),
            1 => {
                let whole = [Some(5), Some(100), None];
                let scopes = [Scope::Key("own".to_owned()), Self::scope(number)];
                self.own = scopes
                    .map(|scope| LimitTerms { scope, whole, requests: RequestWindow::Second })
                    .to_vec();
            }
            _ => self.put_limit(number),
        }
        let is_open = self.dice.bool();
        self.publish(is_open);
    }

    fn change_members(&mut self) {
        let name = NodeName::from(["b", "c", "gone"][self.dice.usize(..3)]);
        if !self.members.remove(&name) {
            self.members.insert(name);
        }
        self.publish(false);
    }

    fn owe(&mut self, at: usize) {
        let (units, age) = (self.dice.u64(..300), Duration::from_millis(self.dice.u64(..60_000)));
        let scope = Self::scope(self.dice.usize(..self.scopes));
        for side in &self.nodes[at].sides {
            side.quotas.owe(&scope, Units([0, units, 0]));
            side.quotas.assume(&scope, Units([1, units, 0]), age, self.now);
        }
    }

    fn pay_own(&self, at: usize) {
        let [one, other] = &self.nodes[at].sides;
        one.quotas.pay_own(self.now);
        let (table, now_ns) = (other.quotas.table(), other.quotas.clock_ns(self.now));
        table.all().filter(|limiter| limiter.is_own).for_each(|limiter| limiter.pay(now_ns));
        let [one, other] = [one, other].map(|side| side.quotas.own(self.now, 100));
        assert_eq!(one, other);
    }

    fn restart(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let kept = node.sides[0].holder.lowered_floors().clone();
        let before = match self.dice.u8(..3) {
            0 => Before::Nothing,
            1 => Before::Counted(kept),
            _ => Before::Unknown(kept),
        };
        node.incarnation += 1 + self.dice.u64(..2);
        node.begin(&before, self.now);
        node.set_limits(self.now, false);
        node.sides.iter().for_each(|side| side.quotas.set_own(&self.own));
        self.said.iter_mut().filter(|said| said.node == at).for_each(|it| it.is_answered = true);
    }

    fn leave(&mut self, at: usize) {
        let is_rare = self.dice.u8(..8) == 0;
        self.nodes[at].is_leaving |= is_rare;
    }
}

impl Node {
    fn new(name: NodeName, region: &'static str, now: Instant) -> Self {
        let side = || Side {
            holder: Holder::new(name.clone(), 1, Before::Nothing, fastrand::Rng::with_seed(1)),
            quotas: Quotas::new(now),
        };
        Self {
            sides: [side(), side()],
            name,
            region,
            shares: Shares::default(),
            agreed_limits: Arc::default(),
            holds: Vec::new(),
            incarnation: 1,
            is_leaving: false,
        }
    }

    fn begin(&mut self, before: &Before, now: Instant) {
        self.holds.clear();
        self.is_leaving = false;
        for side in &mut self.sides {
            let dice = fastrand::Rng::with_seed(self.incarnation);
            side.holder = Holder::new(self.name.clone(), self.incarnation, before.clone(), dice);
            side.quotas = Quotas::new(now);
        }
    }

    fn set_limits(&self, now: Instant, is_open: bool) {
        let limit = |(scope, terms): (&Scope, &PoolTerms)| LimitTerms {
            scope: scope.clone(),
            whole: terms.whole,
            requests: terms.requests,
        };
        let limits: Vec<LimitTerms> = self.agreed_limits.terms.iter().map(limit).collect();
        for Side { quotas, .. } in &self.sides {
            if is_open { quotas.open_limits(&limits, now) } else { quotas.set_limits(&limits) }
        }
    }

    fn answered(&mut self, statement: &Statement, fate: Fate, now: Instant) {
        for Side { holder, quotas } in &mut self.sides {
            // A process that has ended gets no answer.
            if *holder.run() == statement.run {
                holder.answered(statement.serial, fate, quotas.clock_ns(now));
            }
        }
    }

    fn look(&mut self, now: Instant) -> Option<Statement> {
        let [one, other] = &mut self.sides;
        let said = one.holder.look(now, &self.shares, &self.agreed_limits, &one.quotas);
        other.holder.rows.forget_views();
        let plain = other.holder.look(now, &self.shares, &self.agreed_limits, &other.quotas);
        assert_eq!(said, plain);
        assert_eq!(one.holder.ends_ns, other.holder.ends_ns);
        assert_eq!(one.holder.lowered, other.holder.lowered);
        let all = [one, other].map(|side| side.quotas.standings(now, usize::MAX));
        assert_eq!(all[0], all[1], "what is charged, held and owed");
        let [one, _] = &self.sides;
        let used: BTreeSet<Scope> = one.holder.used().map(|terms| terms.scope).collect();
        for (terms, usage) in &all[0] {
            let is_rate = |kind: LimitKind| kind.window(terms.requests).is_some();
            let charged = LimitKind::ALL.into_iter().any(|it| is_rate(it) && usage.in_use[it] > 0);
            let is_agreed = self.agreed_limits.terms.contains_key(&terms.scope);
            if is_agreed && (charged || !usage.debt.is_none()) {
                assert!(used.contains(&terms.scope), "{terms:?} {usage:?}");
            }
        }
        said
    }
}

fn agreed_limits(
    limits: &BTreeMap<Scope, ([Option<u64>; 3], RequestWindow)>,
    members: &BTreeSet<NodeName>,
    region: &str,
) -> AgreedLimits {
    let of_region = |names: &[&str]| -> Vec<NodeName> {
        members.iter().filter(|name| names.contains(&name.as_str())).cloned().collect()
    };
    let roster: BTreeMap<_, _> =
        REGIONS.iter().map(|(region, names)| ((*region).into(), of_region(names))).collect();
    let terms = limits.iter().map(|(scope, (whole, requests))| {
        let floors = floors(*whole, &BTreeMap::new(), &roster);
        let nodes = members.len();
        (scope.clone(), PoolTerms { whole: *whole, floors, requests: *requests, nodes })
    });
    AgreedLimits {
        terms: terms.collect(),
        members: members.clone(),
        siblings: roster[region].iter().cloned().collect(),
        place_ms: 60_000,
        lease_ms: 30_000,
    }
}

fn refusal(admitted: Result<QuotaHold, QuotaError>) -> Option<QuotaError> {
    admitted.err()
}

/// Asserts that each difference between two divisions is one that the later one names.
fn assert_changes_are_known(seen: &Shares, shares: &Shares) {
    let runs: &BTreeMap<Run, RunRow> = seen.runs();
    let Some(named) = shares.changed_since(runs) else { return };
    let scopes = seen.pools().keys().chain(shares.pools().keys());
    for scope in scopes.filter(|scope| seen.pool(scope) != shares.pool(scope)) {
        assert!(named.contains(&scope), "{scope}");
    }
}

#[test]
fn looks_at_what_changed_do_what_full_looks_do() {
    for seed in 0..16 {
        let mut twins = Twins::new(seed, 12);
        for _ in 0..800 {
            twins.step();
        }
    }
}

#[test]
fn of_very_many_limits_each_look_visits_a_part_as_a_full_look_does() {
    let mut twins = Twins::new(1, 4_200);
    for _ in 0..120 {
        twins.step();
    }
}
