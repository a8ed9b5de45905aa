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
    #[expect(clippy::disallowed_methods, reason = "there is no other way to some instant")]
    fn new() -> Self {
        let (node, region) = (NodeName::from("a"), RegionName::from("here"));
        let whole = [None, Some(100), None];
        let roster = BTreeMap::from([(region, vec![node.clone()])]);
        let terms = PoolTerms { whole, floors: floors(whole, &BTreeMap::new(), &roster) };
        let scopes = (0..LIMITS).map(|n| Scope::Tenant(format!("tenant-{n:04}").as_str().into()));
        let book = Book {
            terms: scopes.map(|scope| (scope, terms.clone())).collect(),
            members: [node.clone()].into(),
            siblings: [node.clone()].into(),
            place_ms: 3_600_000,
            lease_ms: 30_000,
        };
        let now = Instant::now();
        let quotas = Quotas::new(now);
        let of = |scope: &Scope| LimitTerms { scope: scope.clone(), whole };
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
