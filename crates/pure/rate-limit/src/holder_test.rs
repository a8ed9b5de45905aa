use std::time::Duration;

use spillway_types::RegionName;

use super::*;
use crate::{Ground, Holding, LimitTerms, PoolTerms, QuotaAsk, QuotaHold, ROWS_MAX, floors};

const LIMITS: usize = 1_000;
const STEP: Duration = Duration::from_secs(3);

/// One node with very many limits of 100 tokens.
struct World {
    holder: Holder,
    shares: Shares,
    agreed_limits: Arc<AgreedLimits>,
    quotas: Quotas,
    now: Instant,
}

impl World {
    fn new() -> Self {
        Self::of(LIMITS, [None, Some(100), None])
    }

    #[expect(clippy::disallowed_methods, reason = "there is no other way to some instant")]
    fn of(limits: usize, whole: [Option<u64>; 3]) -> Self {
        let (node, region) = (NodeName::from("a"), RegionName::from("here"));
        let roster = BTreeMap::from([(region, vec![node.clone()])]);
        let floors = floors(whole, &BTreeMap::new(), &roster);
        let terms = PoolTerms { whole, floors, nodes: 1, ..PoolTerms::default() };
        let scopes = (0..limits).map(|n| Scope::Tenant(format!("tenant-{n:04}").as_str().into()));
        let agreed_limits = Arc::new(AgreedLimits {
            terms: scopes.map(|scope| (scope, terms.clone())).collect(),
            members: [node.clone()].into(),
            siblings: [node.clone()].into(),
            place_ms: 3_600_000,
            lease_ms: 30_000,
        });
        let now = Instant::now();
        let quotas = Quotas::new(now);
        let of = |scope: &Scope| LimitTerms {
            scope: scope.clone(),
            whole,
            requests: RequestWindow::Second,
        };
        quotas.set_limits(&agreed_limits.terms.keys().map(of).collect::<Vec<_>>());
        let holder = Holder::new(node, 1, Before::Nothing, fastrand::Rng::with_seed(1));
        Self { holder, shares: Shares::default(), agreed_limits, quotas, now }
    }

    /// Creates a world whose node has leased all it can have.
    fn settled() -> Self {
        let mut world = Self::new();
        for _ in 0..20 {
            world.look(true);
            world.now += STEP;
        }
        world
    }

    /// Leaves, and returns the number of statements until nothing is left to give back.
    fn leave(&mut self, is_told: bool) -> usize {
        for statements in 0..100 {
            self.holder.leave();
            if !self.look(is_told) {
                return statements;
            }
        }
        panic!("it goes on for ever");
    }

    /// Looks once. Returns true if a statement was made, which is applied at once if `is_told`.
    fn look(&mut self, is_told: bool) -> bool {
        let looked = self.holder.look(self.now, &self.shares, &self.agreed_limits, &self.quotas);
        let Some(said) = looked else { return false };
        if is_told {
            let terms = |scope: &Scope| self.agreed_limits.terms.get(scope).cloned();
            let ground =
                Ground { members: &self.agreed_limits.members, terms: &terms, rows_max: ROWS_MAX };
            self.shares.apply(&said, &ground).unwrap();
        }
        self.holder.answered(said.serial, Fate::TakenIn, self.quotas.clock_ns(self.now));
        true
    }

    fn leased(&self) -> u64 {
        let leases = self.shares.pools().values().flat_map(|pool| pool.leases().values());
        leases.map(|lease| lease.held[LimitKind::TokenRate]).sum()
    }
}

#[test]
fn who_leaves_gives_back_what_it_has_of_very_many_limits() {
    let mut world = World::settled();
    assert_eq!(world.leased(), 90 * LIMITS as u64, "all but the floor");
    assert!((4..10).contains(&world.leave(true)));
    assert_eq!(world.leased(), 0);
}

#[test]
fn who_leaves_says_each_limit_once_also_where_it_has_not_heard_of_it_yet() {
    assert!((4..10).contains(&World::settled().leave(false)));
}

/// The whole limit of one tenant.
const WHOLE: [Option<u64>; 3] = [Some(10), Some(100), Some(5)];

impl World {
    fn scope(&self) -> Scope {
        self.agreed_limits.terms.keys().next().unwrap().clone()
    }

    /// Returns the units that may be used, after a look.
    fn held(&self) -> [u64; 3] {
        self.quotas.usage(&self.scope(), self.now).unwrap().held.0
    }

    /// Starts another process; the one before made no last statement.
    fn restart(&mut self, before: Before) {
        let incarnation = self.holder.run().incarnation + 1;
        let dice = fastrand::Rng::with_seed(incarnation);
        self.holder = Holder::new("a".into(), incarnation, before, dice);
        self.quotas = Quotas::new(self.now);
        let terms = self.agreed_limits.terms.iter().map(|(scope, terms)| LimitTerms {
            scope: scope.clone(),
            whole: terms.whole,
            requests: terms.requests,
        });
        self.quotas.set_limits(&terms.collect::<Vec<_>>());
    }

    /// Looks four times a second. Returns the milliseconds until the process holds its shares.
    fn ready_ms(&mut self) -> u64 {
        for ms in (0..120_000).step_by(250) {
            self.look(true);
            let now_ns = self.quotas.clock_ns(self.now);
            if self.holder.holds_shares(now_ns, &self.shares, &self.agreed_limits) {
                self.look(true);
                return ms;
            }
            self.now += Duration::from_millis(250);
        }
        panic!("it never has its shares");
    }
}

#[test]
fn a_node_that_is_alone_holds_the_whole_limit_as_soon_as_it_has_spoken() {
    let mut world = World::of(1, WHOLE);
    assert_eq!(world.ready_ms(), 250, "at the next look");
    assert_eq!(world.held(), [10, 100, 5]);
}

#[test]
fn a_process_that_knows_what_was_charged_takes_over_what_the_one_before_held() {
    let mut world = World::of(1, WHOLE);
    world.ready_ms();
    let kept = BTreeMap::from([(world.scope(), Units([10, 100, 5]))]);
    world.now += Duration::from_secs(1);
    world.restart(Before::Counted(kept.clone()));
    // Charges of the last second are not written down.
    assert!((1_000..2_000).contains(&world.ready_ms()));
    assert_eq!(world.held(), [10, 100, 5]);
    assert_eq!(world.shares.runs().len(), 1, "the one before is forgotten");
    world.restart(Before::Unknown(kept));
    for _ in 0..8 {
        world.look(true);
        world.now += Duration::from_millis(250);
    }
    world.look(true);
    assert_eq!(world.held(), [10, 0, 5], "what was charged in the last minute is not known");
    assert!((58_000..65_000).contains(&world.ready_ms()));
    assert_eq!(world.held(), [10, 100, 5]);
}

impl World {
    /// Returns true if the process holds its shares, without a look.
    fn holds_shares(&self) -> bool {
        self.holder.holds_shares(self.quotas.clock_ns(self.now), &self.shares, &self.agreed_limits)
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// Adds a limit that no node knows.
    fn add(&mut self, name: &str, requests: RequestWindow) -> Scope {
        let scope = Scope::Tenant(name.into());
        let first = self.agreed_limits.terms.values().next().expect("a limit").clone();
        Arc::make_mut(&mut self.agreed_limits)
            .terms
            .insert(scope.clone(), PoolTerms { requests, ..first });
        let terms = self.agreed_limits.terms.iter().map(|(scope, terms)| LimitTerms {
            scope: scope.clone(),
            whole: terms.whole,
            requests: terms.requests,
        });
        self.quotas.open_limits(&terms.collect::<Vec<_>>(), self.now);
        scope
    }
}

#[test]
fn a_node_does_not_hold_its_shares_before_it_has_spoken_of_every_limit() {
    let mut world = World::of(1, WHOLE);
    world.ready_ms();
    assert!(world.holds_shares());
    world.add("one-more", RequestWindow::Second);
    assert!(!world.holds_shares());
    world.ready_ms();
    assert!(world.holds_shares());
}

#[test]
fn a_process_does_not_hold_its_shares_before_it_has_taken_over_those_of_the_one_before() {
    let mut world = World::of(1, WHOLE);
    world.ready_ms();
    world.restart(Before::Counted(BTreeMap::new()));
    assert!(world.look(true));
    world.pass(1_500);
    // All charges are known, and the process has a lease. The earlier process still has the rest.
    world.look(false);
    assert!(!world.holds_shares());
    assert!(world.ready_ms() < 5_000);
}

#[test]
fn what_counts_by_the_second_is_known_a_moment_after_the_second() {
    let mut world = World::of(1, WHOLE);
    world.ready_ms();
    let kept = BTreeMap::from([(world.scope(), Units([10, 100, 5]))]);
    world.restart(Before::Counted(kept));
    world.look(false);
    world.pass(1_050);
    world.look(false);
    assert_eq!(world.held()[0], 0, "the last charge may have come late");
    world.pass(60);
    world.look(false);
    assert_eq!(world.held()[0], 1, "its floor");
}

#[test]
fn a_process_on_an_empty_disk_takes_over_nothing() {
    let mut world = World::of(1, WHOLE);
    world.ready_ms();
    world.restart(Before::Nothing);
    for _ in 0..40 {
        world.look(true);
        world.pass(250);
    }
    assert_eq!(world.shares.runs().len(), 2, "the one before may have charged what it had");
    assert!(world.held()[1] < 100, "{:?}", world.held());
}

#[test]
fn leases_by_the_second_are_taken_over_later_than_those_by_the_minute() {
    let mut world = World::of(1, WHOLE);
    let minute = world.add("by-the-minute", RequestWindow::Minute);
    world.ready_ms();
    world.restart(Before::Counted(BTreeMap::new()));
    world.look(true);
    let leased = |world: &World, scope: &Scope| {
        let lease = world.shares.pool(scope).and_then(|pool| pool.lease(world.holder.run()));
        lease.map_or([0; 3], |lease| lease.held.0)
    };
    let second = world.scope();
    assert_eq!(leased(&world, &second)[0], 0, "of the last second nothing is written down");
    assert!(leased(&world, &second)[1] > 80, "of the last minute all is");
    world.pass(2_000);
    world.ready_ms();
    assert!(leased(&world, &second)[0] > 5 && leased(&world, &minute)[0] > 5);
}

#[test]
fn a_new_limit_stays_open_while_its_division_is_not_known() {
    let mut world = World::of(1, WHOLE);
    world.ready_ms();
    let scope = world.add("new", RequestWindow::Second);
    // The statements of the node are lost.
    for _ in 0..18 {
        world.look(false);
        assert!(world.quotas.is_open(&scope, world.now));
        world.pass(250);
    }
    assert!(world.ready_ms() < 3_000);
    assert!(
        !world.quotas.is_open(&scope, world.now),
        "it is divided, and three seconds have passed"
    );
}

#[test]
fn debt_is_paid_while_nobody_asks() {
    let mut world = World::of(1, WHOLE);
    world.ready_ms();
    let scope = world.scope();
    world.quotas.owe(&scope, Units([0, 60, 0]));
    world.look(false);
    let usage = world.quotas.usage(&scope, world.now).expect("a limit");
    assert_eq!((usage.in_use.0[1], usage.debt.0[1]), (60, 0));
}

#[test]
fn a_kind_that_is_new_to_a_limit_stays_open_while_its_division_is_not_known() {
    let mut world = World::of(1, [Some(10), None, Some(5)]);
    world.ready_ms();
    let scope = world.scope();
    Arc::make_mut(&mut world.agreed_limits).terms.get_mut(&scope).expect("the limit").whole = WHOLE;
    let terms = |whole| LimitTerms { scope: scope.clone(), whole, requests: RequestWindow::Second };
    world.quotas.open_limits(&[terms(WHOLE)], world.now);
    for _ in 0..18 {
        world.look(false);
        assert!(world.quotas.is_open(&scope, world.now));
        world.pass(250);
    }
}

#[test]
fn a_change_of_a_limit_is_said_sooner_than_what_nobody_waits_for() {
    let mut world = World::of(1, WHOLE);
    world.ready_ms();
    let first = world.scope();
    world.add("new", RequestWindow::Second);
    world.pass(5_000);
    assert!(world.look(true), "it speaks, and would wait for two seconds");
    world.look(true);
    Arc::make_mut(&mut world.agreed_limits).terms.get_mut(&first).expect("the limit").whole[1] =
        Some(900);
    let mut ms = 0;
    while !world.look(true) {
        world.pass(100);
        ms += 100;
        assert!(ms <= 1_000, "nothing is said");
    }
}

impl World {
    /// Looks until a statement was made, which is applied.
    fn speak(&mut self) {
        for _ in 0..100 {
            self.pass(250);
            if self.look(true) {
                return;
            }
        }
        panic!("nothing is said");
    }

    fn admit(&self) -> QuotaHold {
        let scope = self.scope();
        let Scope::Tenant(tenant) = &scope else { panic!("{scope} is no tenant") };
        let tenant = Some(tenant.as_str());
        let ask = QuotaAsk { key: None, tenant, model: None, tokens: 1, said: 1, now: self.now };
        self.quotas.admit(&ask).expect("room")
    }
}

#[test]
fn a_need_that_arose_while_no_statement_could_be_made_is_stated_later() {
    let mut world = World::of(1, [None, None, Some(5)]);
    world.ready_ms();
    world.speak();
    let _slots = [0; 4].map(|_| world.admit());
    // The need is felt by two looks, which come too soon for a statement.
    for _ in 0..2 {
        world.pass(100);
        assert!(!world.look(true));
    }
    world.speak();
    let lease = world.shares.pool(&world.scope()).and_then(|pool| pool.lease(world.holder.run()));
    assert_eq!(lease.map(|lease| lease.need), Some(Units([0, 0, 4])), "all but the floor");
}

#[test]
fn what_another_task_has_set_is_set_right_by_the_next_look() {
    let mut world = World::of(1, WHOLE);
    world.ready_ms();
    world.speak();
    world.look(true);
    world.quotas.hold(&world.scope(), &Holding::default());
    assert_eq!(world.held(), [0; 3]);
    world.look(true);
    assert_eq!(world.held(), [10, 100, 5]);
}

#[test]
fn what_an_earlier_statement_gives_up_is_not_used_when_a_later_one_is_refused() {
    let mut world = World::of(1, WHOLE);
    world.ready_ms();
    let serial = world.holder.serial + 2;
    let says = |serial, lease| Pending {
        serial,
        at_ns: 0,
        lines: [(world.scope(), (Units([1, 10, 0]), lease))].into(),
        has_earlier: false,
    };
    let mut later = says(serial, Units([9, 90, 5]));
    later.take_over(says(serial - 1, Units([2, 20, 1])));
    world.holder.rows.visit(later.lines.keys());
    world.holder.pending.push(later);
    world.look(false);
    assert_eq!(world.held(), [3, 30, 1]);
    world.holder.answered(serial, Fate::Never, world.quotas.clock_ns(world.now));
    world.look(false);
    assert_eq!(world.held(), [3, 30, 1], "the earlier one may still be applied");
}
