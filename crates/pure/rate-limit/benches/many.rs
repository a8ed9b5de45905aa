//! Cost of thousands of limits for a node: requests, looks, statements, and the time until demand
//! has found its share. Prints a table; `cargo bench -p spillway-rate-limit --bench many`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_rate_limit::{
    AgreedLimits, Before, Fate, Ground, Holder, LimitTerms, PoolTerms, QuotaAsk, Quotas, ROWS_MAX,
    RequestWindow, Scope, Shares, Statement, Units, floors,
};
use spillway_types::{NodeName, RegionName};

const REGIONS: [&str; 3] = ["a", "b", "c"];
/// Tokens a minute of each tenant.
const WHOLE: u64 = 600_000;
const LOOK: Duration = Duration::from_millis(250);
/// Time from a statement until all nodes know it.
const DELAY: Duration = Duration::from_millis(150);
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(600);

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for tenants in [1_000, 10_000] {
        report(&mut out, tenants)?;
    }
    Ok(())
}

fn report(out: &mut impl Write, tenants: usize) -> io::Result<()> {
    let mut world = QuotaWorld::new(tenants);
    writeln!(out, "\n{tenants} tenants with a limit, {} nodes", world.nodes.len())?;
    let started = world.at;
    let (mut count, mut grown) = (0, world.at);
    // If there are more limits than rows, some limits are not divided.
    while world.at - grown < Duration::from_secs(60) && count < tenants {
        world.run_for(Duration::from_secs(2), 0);
        if world.shares.pools().len() > count {
            (count, grown) = (world.shares.pools().len(), world.at);
        }
    }
    line(out, "all limits are shared out after", &seconds(Some(grown - started)))?;
    line(out, "of them have shares", &world.shares.pools().len().to_string())?;
    world.settle();
    world.said.clear();
    world.run_for(Duration::from_secs(60), 0);
    line(out, "quiet: a look, median and p90", &world.looks())?;
    line(out, "quiet: statements a region", &world.statements(60))?;
    line(out, "admit and settle", &format!("{:.0} ns", world.admit_ns()))?;
    for (what, active) in [("none", 0), ("1 % of them", tenants / 100), ("all of them", tenants)] {
        let looks = world.active_looks(active);
        line(out, &format!("{what} with requests: a look, median and p90"), &looks)?;
    }
    for (what, hot) in [("a tenth of them", tenants / 10), ("all of them", tenants)] {
        world.said.clear();
        let begin = world.at;
        let has_most = |world: &QuotaWorld| world.least_held(hot) > WHOLE * 8 / 10;
        let is_done = world.run_until(has_most, hot);
        let took = is_done.then(|| world.at - begin);
        line(out, &format!("{what} hot at one node: it has 80 % after"), &seconds(took))?;
        line(out, "  a look, median and p90", &world.looks())?;
        line(out, "  to take a statement in, median and p90", &world.applies())?;
        let passed = (world.at - begin).as_secs().max(1);
        line(out, "  statements a region", &world.statements(passed))?;
    }
    Ok(())
}

fn line(out: &mut impl Write, what: &str, value: &str) -> io::Result<()> {
    writeln!(out, "{what:<55} {value}")
}

fn seconds(time: Option<Duration>) -> String {
    time.map_or_else(|| "never".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()))
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn now() -> Instant {
    Instant::now()
}

/// Node in virtual time.
struct BenchNode {
    name: NodeName,
    holder: Holder,
    quotas: Quotas,
    agreed_limits: Arc<AgreedLimits>,
}

/// Statement in transit, and the time at which all nodes know it.
struct Said {
    at: Instant,
    by: usize,
    statement: Statement,
}

/// Two nodes in each of three regions, all of which apply statements at the same time.
struct QuotaWorld {
    at: Instant,
    nodes: Vec<BenchNode>,
    scopes: Vec<Scope>,
    members: BTreeSet<NodeName>,
    terms: BTreeMap<Scope, PoolTerms>,
    shares: Shares,
    coming: Vec<Said>,
    /// Sizes of statements in bytes, by the estimate that bounds them.
    said: Vec<usize>,
    look_us: Vec<f64>,
    /// Of them, looks of the first node.
    first_look_us: Vec<f64>,
    apply_us: Vec<f64>,
}

impl QuotaWorld {
    fn new(tenants: usize) -> Self {
        let at = now();
        let regions = REGIONS.iter().map(|region| {
            let nodes = ["1", "2"].map(|n| NodeName::from(format!("{region}{n}").as_str()));
            (RegionName::from(*region), nodes.to_vec())
        });
        let roster: BTreeMap<RegionName, Vec<NodeName>> = regions.collect();
        let whole = [None, Some(WHOLE), None];
        let pool = PoolTerms {
            whole,
            floors: floors(whole, &BTreeMap::new(), &roster),
            nodes: roster.values().map(Vec::len).sum(),
            ..PoolTerms::default()
        };
        let scopes: Vec<Scope> =
            (0..tenants).map(|n| Scope::Tenant(format!("tenant-{n:05}").as_str().into())).collect();
        let terms: BTreeMap<_, _> = scopes.iter().map(|it| (it.clone(), pool.clone())).collect();
        let members: BTreeSet<NodeName> = roster.values().flatten().cloned().collect();
        let limits: Vec<LimitTerms> = scopes
            .iter()
            .map(|scope| LimitTerms {
                scope: scope.clone(),
                whole,
                requests: RequestWindow::Second,
            })
            .collect();
        let node = |(number, name): (usize, &NodeName)| {
            let dice = fastrand::Rng::with_seed(number as u64);
            let quotas = Quotas::new(at);
            quotas.set_limits(&limits);
            let region = RegionName::from(&name.as_str()[..1]);
            let agreed_limits = AgreedLimits {
                terms: terms.clone(),
                members: members.clone(),
                siblings: roster[&region].iter().cloned().collect(),
                place_ms: 3_600_000,
                lease_ms: 30_000,
            };
            BenchNode {
                name: name.clone(),
                holder: Holder::new(name.clone(), 1, Before::Nothing, dice),
                quotas,
                agreed_limits: Arc::new(agreed_limits),
            }
        };
        let nodes = members.iter().enumerate().map(node).collect();
        Self {
            at,
            nodes,
            scopes,
            members,
            terms,
            shares: Shares::default(),
            coming: Vec::new(),
            said: Vec::new(),
            look_us: Vec::new(),
            first_look_us: Vec::new(),
            apply_us: Vec::new(),
        }
    }

    /// Runs a quarter of a second with all looks. The first `hot` tenants ask the first node for
    /// all that it lets them have.
    fn step(&mut self, hot: usize) {
        self.at += LOOK;
        self.take_in();
        for scope in &self.scopes[..hot] {
            let Scope::Tenant(tenant) = scope else { continue };
            let ask = self.ask(tenant.as_str(), WHOLE / 100);
            while let Ok(hold) = self.nodes[0].quotas.admit(&ask) {
                hold.settle(Some(WHOLE / 100));
            }
        }
        for (by, node) in self.nodes.iter_mut().enumerate() {
            let begin = now();
            let statement =
                node.holder.look(self.at, &self.shares, &node.agreed_limits, &node.quotas);
            let look_us = (now() - begin).as_secs_f64() * 1e6;
            self.look_us.push(look_us);
            if by == 0 {
                self.first_look_us.push(look_us);
            }
            if let Some(statement) = statement {
                self.said.push(statement.bytes_about());
                self.coming.push(Said { at: self.at + DELAY, by, statement });
            }
        }
    }

    fn take_in(&mut self) {
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.coming).into_iter().partition(|said| said.at <= self.at);
        self.coming = later;
        for Said { by, statement, .. } in due {
            let terms = |scope: &Scope| self.terms.get(scope).cloned();
            let ground = Ground { members: &self.members, terms: &terms, rows_max: ROWS_MAX };
            let begin = now();
            let taken = self.shares.apply(&statement, &ground).is_ok();
            self.apply_us.push((now() - begin).as_secs_f64() * 1e6);
            let node = &mut self.nodes[by];
            let fate = if taken { Fate::TakenIn } else { Fate::Never };
            let now_ns = node.quotas.clock_ns(self.at);
            node.holder.answered(statement.serial, fate, now_ns);
        }
    }

    /// Runs until `is_done`, and returns true if that happened in time.
    fn run_until(&mut self, is_done: impl Fn(&Self) -> bool, hot: usize) -> bool {
        let by = self.at + PATIENCE;
        while self.at < by {
            // Checked seldom, since a check costs more than a step.
            for _ in 0..4 {
                self.step(hot);
            }
            if is_done(self) {
                return true;
            }
        }
        false
    }

    fn run_for(&mut self, time: Duration, hot: usize) {
        let by = self.at + time;
        while self.at < by {
            self.step(hot);
        }
    }

    /// Runs until nodes make no statements but renewals.
    fn settle(&mut self) {
        self.run_for(Duration::from_secs(60), 0);
        (self.look_us, self.apply_us) = (Vec::new(), Vec::new());
    }

    /// Returns the fewest units that the first node holds of the limits of the first `hot` tenants
    /// that are divided.
    fn least_held(&self, hot: usize) -> u64 {
        let node = &self.nodes[0];
        let shared = self.scopes[..hot].iter().filter_map(|scope| self.shares.pool(scope));
        let held = shared.map(|pool| {
            let lease = pool.lease(node.holder.run()).map(|lease| lease.held).unwrap_or_default();
            let Units([_, floor, _]) = pool.floor(&node.name);
            let Units([_, lease, _]) = lease;
            floor + lease
        });
        held.min().unwrap_or(0)
    }

    fn admit_ns(&self) -> f64 {
        let node = &self.nodes[0];
        let count = 200_000;
        let tenants: Vec<&str> = self
            .scopes
            .iter()
            .filter_map(|scope| match scope {
                Scope::Tenant(tenant) => Some(tenant.as_str()),
                _ => None,
            })
            .collect();
        let begin = now();
        for number in 0..count {
            // Far apart, as requests of many tenants are.
            let tenant = tenants[number * 7_919 % tenants.len()];
            let ask = self.ask(tenant, 1);
            drop(node.quotas.admit(&ask).map(|hold| hold.settle(Some(1))));
        }
        (now() - begin).as_secs_f64() * 1e9 / count as f64
    }

    /// Lets each of the first `active` tenants make a small request before each look of the first
    /// node. Returns how long these looks take, once needs are as they stay.
    fn active_looks(&mut self, active: usize) -> String {
        self.run_active(Duration::from_secs(120), active);
        self.first_look_us.clear();
        self.run_active(Duration::from_secs(60), active);
        median_and_p90(&std::mem::take(&mut self.first_look_us))
    }

    fn run_active(&mut self, time: Duration, active: usize) {
        let by = self.at + time;
        while self.at < by {
            for scope in &self.scopes[..active] {
                let Scope::Tenant(tenant) = scope else { continue };
                let ask = self.ask(tenant.as_str(), 1);
                drop(self.nodes[0].quotas.admit(&ask).map(|hold| hold.settle(Some(1))));
            }
            self.step(0);
        }
    }

    fn ask<'a>(&self, tenant: &'a str, tokens: u64) -> QuotaAsk<'a> {
        QuotaAsk {
            key: None,
            tenant: Some(tenant),
            model: None,
            tokens,
            said: tokens,
            now: self.at,
        }
    }

    fn looks(&mut self) -> String {
        median_and_p90(&std::mem::take(&mut self.look_us))
    }

    fn applies(&mut self) -> String {
        median_and_p90(&std::mem::take(&mut self.apply_us))
    }

    fn statements(&self, passed_s: u64) -> String {
        let count = self.said.len();
        let bytes: usize = self.said.iter().sum();
        let regions = REGIONS.len() as f64 * passed_s as f64;
        let most = self.said.iter().max().copied().unwrap_or(0);
        format!(
            "{:.2}/s, {:.1} kB/s, largest {:.1} kB",
            count as f64 / regions,
            bytes as f64 / regions / 1e3,
            most as f64 / 1e3
        )
    }
}

fn median_and_p90(us: &[f64]) -> String {
    let mut us = us.to_vec();
    us.sort_by(f64::total_cmp);
    let at = |share: usize| us.get(us.len() * share / 100).copied().unwrap_or(0.0) / 1e3;
    format!("{:.3} ms, {:.3} ms", at(50), at(90))
}
