//! Strategies for any entries, over few names so that entries concern the same records.

use proptest::prelude::*;
use proptest::sample::select;
use spillway_rate_limit::{Overdue, Run, Scope, ShareLine, Statement, Units};
use spillway_rollout::RolloutChange;

use crate::golden_test::{commands, items, rolled_out_split};
use crate::items_test::key;
use crate::test_world::{
    CLUSTER, START_MS, join_by, node_spec, put, register, remove, renew, replica_id, report,
    token_terms,
};
use crate::{
    Actor, Belief, ClusterId, Command, DiskId, Entry, Expect, HotBlock, HotDelta, Item, KEY_EPOCH,
    LeaseSource, Limit, LimitScope, Model, NodeId, NodeRole, NodeSpec, Proposer, RecordKey, Region,
    RegionState, ReplicaState, RequestId, ResidencyRule, Route, Split, State, Tenant,
};

const NODES: [&str; 5] = ["a1", "a2", "a3", "b1", "c1"];
const REPLICAS: [&str; 4] = ["a/r", "a/s", "b/r", "c/r"];
const REGIONS: [&str; 4] = ["a", "b", "c", "d"];
/// Epoch that [`resolve`] replaces by the replica's present one.
const PRESENT: u64 = u64::MAX;

/// Makes any entries from about `START_MS` on. Stamps go on by up to some seconds, jump, or go
/// back.
pub(crate) fn entries(count: usize) -> impl Strategy<Value = Vec<Entry>> {
    prop::collection::vec((entry(), 0_u64..4_000, prop::bool::weighted(0.02)), 1..count).prop_map(
        |entries| {
            let mut now_ms = START_MS;
            let timed = entries.into_iter().map(|(mut entry, wait_ms, jumps)| {
                now_ms += wait_ms;
                entry.stamp_ms = if jumps { now_ms * (wait_ms % 3) } else { now_ms };
                entry
            });
            timed.collect()
        },
    )
}

/// Returns the entry with [`PRESENT`] replaced by the replicas' present epochs.
pub(crate) fn resolve(state: &State, mut entry: Entry) -> Entry {
    let epoch = |region: &spillway_types::RegionName, name: &spillway_types::ReplicaName| {
        let id = crate::ReplicaId::new(region.clone(), name.clone());
        state.records().replicas.get(&id).map_or(1, |replica| replica.epoch)
    };
    match &mut entry.command {
        Command::RenewLeases { region, leases } => leases
            .iter_mut()
            .filter(|lease| lease.epoch == PRESENT)
            .for_each(|lease| lease.epoch = epoch(region, &lease.name)),
        Command::ReportHealth { region, observations, .. } => observations
            .iter_mut()
            .filter(|seen| seen.epoch == PRESENT)
            .for_each(|seen| seen.epoch = epoch(region, &seen.replica)),
        Command::HotBlocks { key_epoch, .. } if *key_epoch == PRESENT => {
            *key_epoch = state.key_epoch();
        }
        _ => {}
    }
    entry
}

fn entry() -> impl Strategy<Value = Entry> {
    (command(), select(&NODES), prop::option::weighted(0.3, 0_u8..9), prop::bool::weighted(0.7))
        .prop_map(|(command, node, request, is_operator)| {
            // Mostly a node that may propose the command.
            let node = match &command {
                Command::LeaseShares { said, .. } => {
                    NODES.into_iter().find(|name| *name == said.run.node.as_str()).unwrap_or(node)
                }
                Command::RenewLeases { region, .. }
                | Command::ExpireLeases { region }
                | Command::ReportHealth { region, .. }
                | Command::HotBlocks { region, .. }
                | Command::DeclareCountry { region, .. }
                    if node != "b1" && region.as_str() == "a" =>
                {
                    "a1"
                }
                _ => node,
            };
            let proposer = Proposer { node: node.into(), region: node[..1].into() };
            let actor = if is_operator { Actor::Operator("ada".to_owned()) } else { Actor::Node };
            let request = request.map(|id| RequestId([id; 16]));
            Entry { stamp_ms: START_MS, proposer, request, actor, command }
        })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        4 => replica_command(),
        3 => lease_command(),
        3 => health_command(),
        3 => hot_command(),
        1 => share_command(),
        2 => node_command(),
        2 => region_command(),
        3 => item().prop_flat_map(|item| expect().prop_map(move |expect| {
            Command::Put { item: item.clone(), expect }
        })),
        2 => (record_key(), expect()).prop_map(|(key, expect)| Command::Remove { key, expect }),
        2 => (select(&["x", "x", "y"]), expect())
            .prop_map(|(id, expect)| Command::RevokeKey { key: id.into(), expect }),
        1 => rollout_command(),
        1 => select(commands()).prop_map(|(_, command)| command),
        1 => select(items()).prop_map(|(_, item)| Command::Put { item, expect: Expect::Any }),
    ]
}

/// Makes writes of one split and changes of its rollout, in equal parts.
fn rollout_command() -> impl Strategy<Value = Command> {
    let change = (select(RolloutChange::ALL.to_vec()), prop::option::of(0_u32..3), expect());
    prop_oneof![
        any::<bool>().prop_map(|has_rollout| {
            let split = rolled_out_split();
            let rollout = split.rollout.clone().filter(|_| has_rollout);
            put(Item::Split("v".into(), Split { rollout, ..split }))
        }),
        change.prop_map(|(change, number, expect)| Command::ChangeRollout {
            split: "v".into(),
            change,
            number,
            why: String::new(),
            expect,
        }),
    ]
}

fn share_command() -> impl Strategy<Value = Command> {
    let units = || [0_u64..20, 0_u64..20, 0_u64..20].prop_map(Units);
    let scopes = [
        Scope::Global,
        Scope::Tenant("t".into()),
        Scope::Model("m".into()),
        Scope::Key("x".to_owned()),
    ];
    let line = (select(scopes.to_vec()), units(), units(), units())
        .prop_map(|(scope, floor, lease, need)| ShareLine { scope, floor, lease, need });
    let run = || {
        (select(&NODES), 1_u64..4)
            .prop_map(|(node, incarnation)| Run { node: node.into(), incarnation })
    };
    let overdue = (run(), 1_u64..9, any::<[bool; 3]>()).prop_map(|(run, serial, kinds)| Overdue {
        run,
        serial,
        kinds,
    });
    let lists = (prop::collection::vec(line, 0..4), prop::collection::vec(overdue, 0..2));
    (run(), 1_u64..9, lists).prop_map(|(run, serial, (lines, overdue))| {
        let region = run.node.as_str()[..1].into();
        let said =
            Statement { run, serial, length_ms: 30_000, lines, overdue, is_last: serial == 8 };
        Command::LeaseShares { region, said }
    })
}

fn expect() -> impl Strategy<Value = Expect> {
    prop_oneof![
        4 => Just(Expect::Any),
        1 => Just(Expect::Absent),
        1 => (1_u64..30).prop_map(Expect::Version),
    ]
}

fn source() -> impl Strategy<Value = LeaseSource> {
    prop_oneof![
        Just(LeaseSource::Config),
        (10_000_u64..40_000).prop_map(|length_ms| LeaseSource::Lease { length_ms }),
    ]
}

fn replica_command() -> impl Strategy<Value = Command> {
    let states = [ReplicaState::Active, ReplicaState::Draining, ReplicaState::Drained];
    prop_oneof![
        3 => (select(&REPLICAS), source(), 0_u64..3)
            .prop_map(|(id, source, incarnation)| register(id, source, incarnation)),
        1 => (select(&REPLICAS), select(states.to_vec()), expect()).prop_map(|(id, state, expect)| {
            Command::SetReplicaState { id: replica_id(id), state, expect }
        }),
        1 => (select(&REPLICAS), prop::option::of(0_u32..9), expect()).prop_map(
            |(id, weight, expect)| Command::SetReplicaWeight { id: replica_id(id), weight, expect }
        ),
        1 => select(&REPLICAS).prop_map(|id| remove(RecordKey::Replica(replica_id(id)))),
    ]
}

fn epoch() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(PRESENT), 1 => 1_u64..30]
}

fn lease_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        (select(&REPLICAS), epoch()).prop_map(|(id, epoch)| renew(id, epoch)),
        select(&REGIONS).prop_map(|region| Command::ExpireLeases { region: region.into() }),
    ]
}

fn health_command() -> impl Strategy<Value = Command> {
    let live = prop::collection::vec(select(&NODES), 0..4);
    let belief = select(&[Belief::Up, Belief::Down]);
    (live, select(&REPLICAS), epoch(), belief, 0_u8..4).prop_map(
        |(live, id, epoch, belief, signals)| report(&live, &[(id, epoch, (belief, signals))]),
    )
}

/// Makes changes of few blocks, so that the same blocks enter and leave.
fn hot_command() -> impl Strategy<Value = Command> {
    let block = (1_u64..12, 0_u64..12, 1_u16..5, any::<u8>())
        .prop_map(|(hash, parent, depth, heat)| HotBlock { hash, parent, depth, heat });
    let delta = (prop::collection::vec(block, 0..6), prop::collection::vec(0_u64..12, 0..3))
        .prop_map(|(enter, leave)| HotDelta { enter, leave });
    prop_oneof![
        4 => (select(&REGIONS), prop_oneof![4 => Just(PRESENT), 1 => 0_u64..3], delta).prop_map(
            |(region, key_epoch, delta)| {
                Command::HotBlocks { region: region.into(), key_epoch, delta }
            }
        ),
        1 => expect().prop_map(|expect| Command::RotatePrefixKey { expect }),
    ]
}

fn node_command() -> impl Strategy<Value = Command> {
    let any_node = (select(&NODES), prop::bool::weighted(0.2), 0_u8..4);
    prop_oneof![
        any_node.prop_map(|(name, is_wiped, pass)| {
            let mut node = node_spec(name, &name[..1]);
            if is_wiped {
                node = NodeSpec { disk: DiskId::from_bytes([0xee; 16]), ..node };
            }
            match pass {
                0 | 1 => Command::RegisterNode { node },
                _ => join_by(node, 3),
            }
        }),
        (1_u64..8, select(&[NodeRole::Any, NodeRole::Learner]), expect())
            .prop_map(|(id, role, expect)| Command::SetNodeRole { node: NodeId(id), role, expect }),
        (1_u64..8, any::<bool>(), expect()).prop_map(|(id, is_operator, expect)| {
            Command::SetNodeOperators { node: NodeId(id), is_operator, expect }
        }),
        any::<bool>().prop_map(|is_operator| Command::DeclareOperators { is_operator }),
        select(&NODES).prop_map(|name| remove(RecordKey::RemovedNode(name.into()))),
        Just(Command::ReplaceCluster { from: CLUSTER, to: ClusterId::from_bytes([8; 16]) }),
    ]
}

fn region_command() -> impl Strategy<Value = Command> {
    let states = [RegionState::Active, RegionState::Draining, RegionState::Evacuating];
    prop_oneof![
        (select(&REGIONS), select(states.to_vec()), expect()).prop_map(
            |(region, state, expect)| {
                Command::SetRegionState { region: region.into(), state, expect }
            }
        ),
        (select(&REGIONS), 0_u16..20_000).prop_map(|(region, weight_permille)| {
            Command::SetRegionWeight { region: region.into(), weight_permille, expect: Expect::Any }
        }),
        select(&REGIONS).prop_map(|region| remove(RecordKey::Region(region.into()))),
        (select(&REGIONS), select(&["DE", "FR"])).prop_map(|(region, code)| {
            Command::DeclareCountry { region: region.into(), country: code.parse().unwrap() }
        }),
    ]
}

fn item() -> impl Strategy<Value = Item> {
    let name = || select(&["x", "x", "x", "x", "y", "", "a b"]);
    prop_oneof![
        1 => select(&REGIONS).prop_map(|region| Item::Region(region.into(), Region::default())),
        1 => (name(), prop::option::of(name()), name()).prop_map(|(name, alias, fallback)| {
            let alias_of = alias.map(Into::into);
            Item::Model(name.into(), Model { alias_of, fallbacks: vec![fallback.into()], price: None })
        }),
        2 => (name(), any::<bool>(), residency()).prop_map(|(name, is_suspended, residency)| {
            let title = String::new();
            Item::Tenant(name.into(), Tenant { title, is_suspended, residency, ..Tenant::default() })
        }),
        1 => (name(), residency()).prop_map(|(name, residency)| {
            Item::Route(name.into(), Route { residency, ..Route::default() })
        }),
        2 => (name(), name()).prop_map(|(id, tenant)| Item::Key(id.into(), key(Some(tenant)))),
        1 => (name(), prop::option::of(0_u32..9)).prop_map(|(id, concurrency)| {
            Item::Limit(LimitScope::Key(id.into()), Limit { concurrency, ..Limit::default() })
        }),
        1 => (0_u32..3).prop_map(|uses| {
            Item::JoinToken("t".into(), token_terms(3, uses))
        }),
        1 => (0_u64..20_000)
            .prop_map(|ms| { Item::Setting("health.transition_ms".to_owned(), ms.to_string()) }),
        1 => (0_u64..3).prop_map(|epoch| Item::Setting(KEY_EPOCH.to_owned(), epoch.to_string())),
    ]
}

/// Makes residency rules, often empty ones, so that rules are taken back.
fn residency() -> impl Strategy<Value = ResidencyRule> {
    let regions = prop::collection::btree_set(select(&REGIONS).prop_map(Into::into), 0..3);
    let country = select(&["DE", "FR"]).prop_map(|code| code.parse().unwrap());
    let rule = (regions, prop::collection::btree_set(country, 0..2))
        .prop_map(|(regions, countries)| ResidencyRule { regions, countries });
    prop_oneof![1 => Just(ResidencyRule::default()), 2 => rule]
}

fn record_key() -> impl Strategy<Value = RecordKey> {
    prop_oneof![
        (1_u64..8).prop_map(|id| RecordKey::Node(NodeId(id))),
        select(&["x", "y", ""]).prop_map(|name| RecordKey::Tenant(name.into())),
        select(&["x", "y", ""]).prop_map(|id| RecordKey::Key(id.into())),
        select(&["x", "y", ""]).prop_map(|name| RecordKey::Model(name.into())),
        select(&REPLICAS).prop_map(|id| RecordKey::Lease(replica_id(id))),
    ]
}
