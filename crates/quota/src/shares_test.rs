use super::*;
use crate::{LimitKind, ShareLine, Units, floors};

const SCOPE: Scope = Scope::Global;

/// Two regions with a node each, and a limit of 1,000 tokens.
struct World {
    shares: Shares,
    members: BTreeSet<NodeName>,
}

impl World {
    fn new() -> Self {
        Self { shares: Shares::default(), members: ["a".into(), "b".into()].into() }
    }

    fn apply(&mut self, said: &Statement) -> Result<(), StatementFault> {
        let regions = self.members.iter().map(|node| (node.as_str().into(), vec![node.clone()]));
        let whole = [None, Some(1_000), None];
        let floors = floors(whole, &BTreeMap::new(), &regions.collect());
        let terms = |_: &Scope| Some(PoolTerms { whole, floors: floors.clone() });
        self.shares.apply(said, &Ground { members: &self.members, terms: &terms })
    }

    #[track_caller]
    fn applied(&mut self, said: &Statement) {
        self.apply(said).unwrap();
    }

    /// Tokens leased to a process.
    fn leased(&self, run: &Run) -> Option<u64> {
        let lease = self.shares.pool(&SCOPE)?.lease(run)?;
        Some(lease.held[LimitKind::TokenRate])
    }
}

fn run(node: &str, incarnation: u64) -> Run {
    Run { node: node.into(), incarnation }
}

fn says(run: &Run, serial: u64, lease: u64, need: u64) -> Statement {
    let line = ShareLine {
        scope: SCOPE,
        floor: Units([u64::MAX; 3]),
        lease: Units([0, lease, 0]),
        need: Units([0, need, 0]),
    };
    Statement {
        run: run.clone(),
        serial,
        length_ms: 30_000,
        lines: vec![line],
        overdue: Vec::new(),
        is_last: false,
    }
}

const ALL: u64 = u64::MAX;

#[test]
fn what_nobody_needs_is_divided_evenly_and_what_somebody_needs_is_not() {
    let (mut world, a, b) = (World::new(), run("a", 1), run("b", 1));
    world.applied(&says(&a, 1, 0, 0));
    assert_eq!(world.leased(&a), Some(900));
    world.applied(&says(&b, 1, 0, 0));
    assert_eq!(world.leased(&b), Some(0), "the other has not given anything yet");
    world.applied(&says(&a, 2, 450, 0));
    assert_eq!((world.leased(&a), world.leased(&b)), (Some(450), Some(450)));
    world.applied(&says(&b, 2, ALL, 800));
    world.applied(&says(&a, 3, 100, 0));
    assert_eq!((world.leased(&a), world.leased(&b)), (Some(100), Some(800)));
}

#[test]
fn a_process_that_ends_gets_nothing_more() {
    let (mut world, a, b) = (World::new(), run("a", 1), run("b", 1));
    world.applied(&says(&a, 1, 0, 0));
    world.applied(&Statement { is_last: true, ..says(&a, 2, 70, 0) });
    assert_eq!(world.leased(&a), Some(70), "what it has in use stays its own");
    world.applied(&says(&b, 1, 0, 0));
    assert_eq!(world.leased(&b), Some(830));
    // The next process finds what others don't have.
    let next = run("a", 2);
    world.applied(&says(&b, 2, 400, 0));
    world.applied(&says(&next, 1, 0, 0));
    world.applied(&says(&b, 3, 400, 0));
    let leased = world.leased(&b).unwrap() + world.leased(&next).unwrap();
    assert_eq!((world.leased(&a), leased), (Some(70), 830));
    assert_eq!(world.apply(&says(&a, 3, 0, 0)), Err(StatementFault::Stale));
}

#[test]
fn who_is_overdue_gets_nothing_more_until_he_speaks_again() {
    let (mut world, a, b) = (World::new(), run("a", 1), run("b", 1));
    world.applied(&says(&a, 1, 0, 0));
    let call = |serial, kinds| {
        let overdue = vec![Overdue { run: a.clone(), serial: 1, kinds }];
        Statement { overdue, ..says(&b, serial, ALL, 0) }
    };
    world.applied(&call(1, [true, false, false]));
    assert_eq!((world.leased(&a), world.leased(&b)), (Some(900), Some(0)), "another kind");
    world.applied(&call(2, [true, true, false]));
    assert_eq!((world.leased(&a), world.leased(&b)), (None, Some(900)));
    world.applied(&says(&b, 3, ALL, 100));
    world.applied(&says(&a, 2, ALL, 0));
    world.applied(&says(&b, 4, 500, 100));
    assert_eq!((world.leased(&a), world.leased(&b)), (Some(400), Some(500)));
    world.applied(&call(5, [true; 3]));
    assert_eq!(world.leased(&a), Some(400), "it has spoken since");
}

#[test]
fn processes_are_forgotten_when_they_have_nothing_and_refused_when_too_many_have() {
    let mut world = World::new();
    for incarnation in 1..20 {
        let a = run("a", incarnation);
        world.applied(&says(&a, 1, 0, 0));
        world.applied(&Statement { is_last: true, ..says(&a, 2, 0, 0) });
    }
    assert_eq!(world.shares.runs().len(), 1, "those that ended well leave nothing");
    for incarnation in 20..23 {
        let a = run("a", incarnation);
        world.applied(&says(&a, 1, 0, 0));
        // It ends well, but with a little in use.
        world.applied(&Statement { is_last: true, ..says(&a, 2, 1, 0) });
        assert_eq!(world.leased(&a), Some(1));
    }
    world.applied(&says(&run("a", 30), 1, 0, 0));
    assert_eq!(world.apply(&says(&run("a", 31), 1, 0, 0)), Err(StatementFault::TooManyRuns));
    assert_eq!(world.apply(&says(&run("a", 22), 9, 0, 0)), Err(StatementFault::Stale));
    let lines = vec![says(&run("a", 30), 2, 0, 0).lines[0].clone(); LINES_MAX + 1];
    let long = Statement { lines, ..says(&run("a", 30), 2, 0, 0) };
    assert_eq!(world.apply(&long), Err(StatementFault::TooLong));
}
