use std::time::Duration;

use spillway_types::RegionName;

use super::*;
use crate::{Ground, LimitTerms, PoolTerms, ROWS_MAX, floors};

const LIMITS: usize = 1_000;
const STEP: Duration = Duration::from_secs(3);

/// One node with very many limits of 100 tokens.
struct World {
    holder: Holder,
    shares: Shares,
    book: Book,
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
        let book = Book {
            terms: scopes.map(|scope| (scope, terms.clone())).collect(),
            members: [node.clone()].into(),
            siblings: [node.clone()].into(),
            place_ms: 3_600_000,
            lease_ms: 30_000,
            has_heirs: true,
        };
        let now = Instant::now();
        let quotas = Quotas::new(now);
        let of = |scope: &Scope| LimitTerms {
            scope: scope.clone(),
            whole,
            requests: RequestWindow::Second,
        };
        quotas.set_limits(&book.terms.keys().map(of).collect::<Vec<_>>());
        let holder = Holder::new(node, 1, Before::Nothing, fastrand::Rng::with_seed(1));
        Self { holder, shares: Shares::default(), book, quotas, now }
    }

    /// One that has leased all it can have.
    fn settled() -> Self {
        let mut world = Self::new();
        for _ in 0..20 {
            world.look(true);
            world.now += STEP;
        }
        world
    }

    /// In how many statements it gives back what it has.
    fn leave(&mut self, is_told: bool) -> usize {
        for statements in 0..100 {
            self.holder.leave();
            if !self.look(is_told) {
                return statements;
            }
        }
        panic!("it goes on for ever");
    }

    /// Looks once; whether something was said. It is taken in at once where `is_told`.
    fn look(&mut self, is_told: bool) -> bool {
        let seen = (&self.shares, &self.book);
        let Some(said) = self.holder.look(self.now, seen, &self.quotas) else { return false };
        if is_told {
            let terms = |scope: &Scope| self.book.terms.get(scope).cloned();
            let ground = Ground {
                members: &self.book.members,
                terms: &terms,
                rows_max: ROWS_MAX,
                ended_make_room: true,
                has_heirs: true,
            };
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

/// What the whole limit of one tenant is.
const WHOLE: [Option<u64>; 3] = [Some(10), Some(100), Some(5)];

impl World {
    fn scope(&self) -> Scope {
        self.book.terms.keys().next().unwrap().clone()
    }

    /// What may be used, after a look.
    fn held(&self) -> [u64; 3] {
        self.quotas.usage(&self.scope(), self.now).unwrap().held.0
    }

    /// Another process begins, and the one before said nothing.
    fn restart(&mut self, before: Before) {
        let incarnation = self.holder.run().incarnation + 1;
        let dice = fastrand::Rng::with_seed(incarnation);
        self.holder = Holder::new("a".into(), incarnation, before, dice);
        self.quotas = Quotas::new(self.now);
        let terms = self.book.terms.iter().map(|(scope, terms)| LimitTerms {
            scope: scope.clone(),
            whole: terms.whole,
            requests: terms.requests,
        });
        self.quotas.set_limits(&terms.collect::<Vec<_>>());
    }

    /// Looks four times a second; after how many milliseconds it holds its shares.
    fn ready_ms(&mut self) -> u64 {
        for ms in (0..120_000).step_by(250) {
            self.look(true);
            let now_ns = self.quotas.clock_ns(self.now);
            if self.holder.holds_shares(now_ns, &self.shares, &self.book) {
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
    // Of the last second nothing is written down.
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

#[test]
fn under_older_nodes_what_a_process_held_is_waited_for() {
    let mut world = World::of(1, WHOLE);
    world.ready_ms();
    world.book.has_heirs = false;
    world.restart(Before::Counted(BTreeMap::new()));
    for _ in 0..20 {
        world.look(true);
        world.now += Duration::from_millis(250);
    }
    assert!(world.held()[1] < 100, "{:?}", world.held());
}
