//! State that the log makes, which is equal on every node at one index.

use std::collections::BTreeMap;

use spillway_rate_limit::{
    AgreedLimits, Ground, PoolTerms, ROWS_MAX, Scope, Shares, Statement, Units, floors,
};
use spillway_types::{NodeName, RegionName};

/// Longest run time of requests. It represents the longest time-out in the rules.
pub(crate) const RUN_MS_MAX: u64 = 20_000;
/// The one limit of the world.
pub(crate) const SCOPE: Scope = Scope::Global;

pub(crate) type Whole = [Option<u64>; 3];
pub(crate) type Permille = BTreeMap<RegionName, u16>;
pub(crate) type Roster = BTreeMap<RegionName, Vec<NodeName>>;

/// Entry of the log.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Said(Statement),
    Limit(Option<Whole>, Permille),
    Members(Roster),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) shares: Shares,
    pub(crate) limit: Option<Whole>,
    permille: Permille,
    roster: Roster,
}

impl State {
    pub(crate) fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Limit(limit, permille) => {
                (self.limit, self.permille) = (*limit, permille.clone());
            }
            Entry::Members(roster) => self.roster.clone_from(roster),
            Entry::Said(said) => {
                let agreed_limits = self.agreed_limits(&"r0".into());
                let terms = |scope: &Scope| agreed_limits.terms.get(scope).cloned();
                let ground =
                    Ground { members: &agreed_limits.members, terms: &terms, rows_max: ROWS_MAX };
                // A refusal changes nothing, here as there.
                let _: Result<(), _> = self.shares.apply(said, &ground);
            }
        }
    }

    pub(crate) fn agreed_limits(&self, region: &RegionName) -> AgreedLimits {
        let terms = self.limit.map(|whole| {
            let floors = floors(whole, &self.permille, &self.roster);
            let nodes = self.roster.values().map(Vec::len).sum();
            (SCOPE, PoolTerms { whole, floors, nodes, ..PoolTerms::default() })
        });
        AgreedLimits {
            terms: terms.into_iter().collect(),
            members: self.roster.values().flatten().cloned().collect(),
            siblings: self.roster.get(region).into_iter().flatten().cloned().collect(),
            place_ms: RUN_MS_MAX,
            lease_ms: 30_000,
        }
    }

    pub(crate) fn taken(&self) -> Units {
        self.shares.pool(&SCOPE).map(|pool| pool.taken()).unwrap_or_default()
    }

    pub(crate) fn whole(&self) -> Units {
        Units(self.limit.unwrap_or_default().map(|whole| whole.unwrap_or(0)))
    }
}
