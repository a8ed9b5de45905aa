use super::*;
use crate::{LimitKind, ShareLine, Units, floors};

const SCOPE: Scope = Scope::Global;

/// Two regions with a node each, and a limit of 1,000 tokens.
struct World {
    shares: Shares,
    members: BTreeSet<NodeName>,
    rows_max: usize,
    /// Nodes for which a part stays free.
    nodes: usize,
}

impl Shares {
    /// Returns the division as a snapshot has it.
    pub(crate) fn without_derived(&self) -> Self {
        Self { derived: Derived::default(), ..self.clone() }
    }
}

impl World {
    fn new() -> Self {
        let members = ["a".into(), "b".into()].into();
        Self { shares: Shares::default(), members, rows_max: ROWS_MAX, nodes: 0 }
    }

    fn apply(&mut self, said: &Statement) -> Result<(), StatementError> {
        let regions = self.members.iter().map(|node| (node.as_str().into(), vec![node.clone()]));
        let whole = [None, Some(1_000), None];
        let floors = floors(whole, &BTreeMap::new(), &regions.collect());
        let terms = |_: &Scope| {
            Some(PoolTerms {
                whole,
                floors: floors.clone(),
                nodes: self.nodes,
                ..PoolTerms::default()
            })
        };
        self.shares
            .apply(said, &Ground { members: &self.members, terms: &terms, rows_max: self.rows_max })
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
fn the_part_of_a_node_that_has_not_spoken_stays_free_for_it_and_for_who_needs_it() {
    let (mut world, a, b) = (World { nodes: 2, ..World::new() }, run("a", 1), run("b", 1));
    world.applied(&says(&a, 1, 0, 0));
    assert_eq!(world.leased(&a), Some(450), "half of what is no floor");
    let mut other = World { shares: world.shares.clone(), nodes: 2, ..World::new() };
    world.applied(&says(&b, 1, 0, 0));
    assert_eq!((world.leased(&a), world.leased(&b)), (Some(450), Some(450)), "at once");
    other.applied(&says(&a, 2, ALL, 700));
    assert_eq!(other.leased(&a), Some(800), "nobody has to be asked");
}

#[test]
fn a_process_takes_over_what_an_earlier_one_of_its_node_held() {
    let (mut world, a, b) = (World::new(), run("a", 1), run("b", 1));
    world.applied(&says(&a, 1, 0, 600));
    world.applied(&says(&b, 1, 0, 900));
    let (next, kinds) = (run("a", 2), [false, true, true]);
    let overdue = vec![Overdue { run: a.clone(), serial: 1, kinds }];
    let said = Statement { overdue, ..says(&next, 1, 0, 0) };
    world.applied(&said);
    assert_eq!((world.leased(&a), world.leased(&next)), (None, Some(900)));
    assert_eq!(world.leased(&b), Some(0), "nothing of it is free for others");
}

#[test]
fn a_process_that_finds_no_place_takes_over_nothing() {
    let (mut world, a) = (World { rows_max: 3, ..World::new() }, run("a", 1));
    // Two floors and a lease.
    world.applied(&says(&a, 1, 0, 600));
    let next = run("a", 2);
    let overdue = vec![Overdue { run: a.clone(), serial: 1, kinds: [false, true, true] }];
    world.applied(&Statement { overdue, ..says(&next, 1, 0, 0) });
    assert_eq!((world.leased(&a), world.leased(&next)), (Some(900), None));
}

#[test]
fn a_process_that_ends_gets_nothing_more() {
    let (mut world, a, b) = (World::new(), run("a", 1), run("b", 1));
    world.applied(&says(&a, 1, 0, 0));
    world.applied(&Statement { is_last: true, ..says(&a, 2, 70, 0) });
    assert_eq!(world.leased(&a), Some(70), "what it has in use stays its own");
    world.applied(&says(&b, 1, 0, 0));
    assert_eq!(world.leased(&b), Some(830));
    // The next process gets the units that other processes don't hold.
    let next = run("a", 2);
    world.applied(&says(&b, 2, 400, 0));
    world.applied(&says(&next, 1, 0, 0));
    world.applied(&says(&b, 3, 400, 0));
    let leased = world.leased(&b).unwrap() + world.leased(&next).unwrap();
    assert_eq!((world.leased(&a), leased), (Some(70), 830));
    assert_eq!(world.apply(&says(&a, 3, 0, 0)), Err(StatementError::Stale));
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
fn what_a_silent_node_held_is_free_for_all_and_not_for_who_says_so() {
    let mut world = World { members: ["a".into(), "b".into(), "c".into()].into(), ..World::new() };
    let (a, b, c) = (run("a", 1), run("b", 2), run("c", 3));
    world.applied(&says(&a, 1, 0, 0));
    world.applied(&says(&b, 1, 0, 0));
    world.applied(&says(&c, 1, 0, 0));
    assert_eq!(
        (world.leased(&a), world.leased(&b), world.leased(&c)),
        (Some(901), Some(0), Some(0))
    );
    let overdue = vec![Overdue { run: a, serial: 1, kinds: [true; 3] }];
    world.applied(&Statement { overdue, ..says(&c, 2, ALL, 0) });
    assert_eq!((world.leased(&b), world.leased(&c)), (Some(451), Some(450)));
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
        // The process ends properly, with a little in use.
        world.applied(&Statement { is_last: true, ..says(&a, 2, 1, 0) });
        assert_eq!(world.leased(&a), Some(1));
    }
    world.applied(&says(&run("a", 30), 1, 0, 0));
    assert_eq!(world.apply(&says(&run("a", 31), 1, 0, 0)), Err(StatementError::TooManyRuns));
    assert_eq!(world.apply(&says(&run("a", 22), 9, 0, 0)), Err(StatementError::Stale));
    // The next process knows that they have ended, and reports it.
    let ended = |kinds| {
        let earlier = [run("a", 20), run("a", 21), run("a", 22), run("a", 30)];
        let serials = [2, 2, 2, 1];
        let of = |(run, serial)| Overdue { run, serial, kinds };
        let overdue = earlier.into_iter().zip(serials).map(of).collect();
        Statement { overdue, ..says(&run("a", 31), 1, 0, 0) }
    };
    let mut next = World { shares: world.shares.clone(), ..World::new() };
    assert_eq!(next.apply(&ended([true, true, false])), Err(StatementError::TooManyRuns));
    next.applied(&ended([true; 3]));
    assert_eq!((next.leased(&run("a", 31)), next.shares.runs().len()), (Some(900), 1));
    let lines = vec![says(&run("a", 30), 2, 0, 0).lines[0].clone(); LINES_MAX + 1];
    let long = Statement { lines, ..says(&run("a", 30), 2, 0, 0) };
    assert_eq!(world.apply(&long), Err(StatementError::TooLong));
}

#[test]
fn limits_beyond_what_there_is_room_for_get_nothing_and_take_nothing_from_others() {
    let mut world = World { rows_max: 5, ..World::new() };
    let (a, b) = (run("a", 1), run("b", 1));
    let other = |said: Statement| {
        let line = ShareLine { scope: Scope::Model("m".into()), ..said.lines[0].clone() };
        Statement { lines: vec![said.lines[0].clone(), line], ..said }
    };
    // Two floors and a lease each: the second limit would make six.
    world.applied(&other(says(&a, 1, 0, 0)));
    assert_eq!(world.shares.pools().len(), 1);
    assert_eq!(world.leased(&a), Some(900));
    // A statement of a node that has a part of the limit already is accepted in any case.
    world.applied(&other(says(&b, 1, 0, 0)));
    world.applied(&other(says(&a, 2, 450, 0)));
    assert_eq!((world.leased(&a), world.leased(&b)), (Some(450), Some(450)));
    assert_eq!(world.shares.pools().len(), 1);
    world.rows_max = 9;
    world.applied(&other(says(&a, 3, 450, 0)));
    assert_eq!(world.shares.pools().len(), 2, "as soon as there is room");
}

#[test]
fn changes_are_known_also_where_serials_begin_again_because_a_node_was_removed() {
    let (mut world, a, b) = (World::new(), run("a", 1), run("b", 1));
    world.applied(&says(&a, 5, 0, 0));
    let seen = world.shares.runs().clone();
    world.members.remove("a");
    world.applied(&says(&b, 1, 0, 0));
    world.members.insert("a".into());
    // Proposed before the fifth one.
    world.applied(&says(&a, 4, 0, 0));
    assert!(world.shares.changed_since(&seen).is_none_or(|scopes| scopes.contains(&&SCOPE)));
}
