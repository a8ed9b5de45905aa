//! The bytes of entries and snapshots, as they were when their version was made.

use std::collections::BTreeSet;

use spillway_codec::{Wire, golden};
use spillway_rate_limit::{Overdue, Run, Scope, ShareLine, Statement, Units};
use spillway_rollout::{
    AgreedMargins, Rollout, RolloutChange, RolloutPlan, RolloutProgress, RolloutStep,
};
use spillway_types::SplitBy;

use crate::items_test::key;
use crate::snapshot_test::{full, full_of};
use crate::test_world::{
    CLUSTER, join_by, node_spec_of, refusal, remove, replica_id, replica_spec,
};
use crate::{
    Arm, Belief, ClusterId, Command, Expect, Form, Hidden, HotBlock, HotDelta, Item, LeaseRenewal,
    LeaseSource, Limit, LimitScope, Model, NodeId, NodeRole, Observation, Outcome, RecordKey,
    Region, RegionState, ReplicaState, ResidencyRule, RevokedCertificate, Route, STICKY_MAX_AGE_S,
    Split, StickyArm, Tenant, TenantTerms, TokenPrice, TokenTerms, WIRE,
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");

/// Wire version of the nodes in samples: the bytes on file stay when [`WIRE`] is counted up.
const SAMPLE_WIRE: u16 = 1;

/// Returns one of each command, with a name.
pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    commands_of(WIRE)
}

/// Returns one of each command, with a name. Nodes in them have the wire version `wire`.
fn commands_of(wire: u16) -> Vec<(&'static str, Command)> {
    let expect = Expect::Version(300);
    let node = node_spec_of(wire, "a1", "a");
    let (id, region) = (replica_id("a/r"), || "a".into());
    let spec = replica_spec(LeaseSource::Lease { length_ms: 30_000 });
    let leases = vec![LeaseRenewal { name: "r".into(), epoch: 5 }];
    let observations =
        vec![Observation { replica: "r".into(), epoch: 5, belief: Belief::Down, signals: 2 }];
    let live = BTreeSet::from(["a1".into()]);
    let state = ReplicaState::Draining;
    let enter = vec![
        HotBlock { hash: u64::MAX, parent: 0, depth: 1, heat: 150 },
        HotBlock { hash: 7, parent: u64::MAX, depth: 2, heat: 140 },
    ];
    let delta = HotDelta { enter, leave: vec![9] };
    vec![
        ("form", Command::Form(Form { cluster: CLUSTER, nodes: vec![node.clone()] })),
        (
            "replace_cluster",
            Command::ReplaceCluster { from: CLUSTER, to: ClusterId::from_bytes([8; 16]) },
        ),
        ("register_node", Command::RegisterNode { node }),
        ("node_role", Command::SetNodeRole { node: NodeId(3), role: NodeRole::Learner, expect }),
        ("region_state", {
            Command::SetRegionState { region: region(), state: RegionState::Draining, expect }
        }),
        ("region_weight", {
            Command::SetRegionWeight { region: region(), weight_permille: 500, expect }
        }),
        ("register_replica", {
            Command::RegisterReplica { id: id.clone(), spec, incarnation: 9, expect }
        }),
        ("replica_state", Command::SetReplicaState { id: id.clone(), state, expect }),
        ("replica_weight", Command::SetReplicaWeight { id: id.clone(), weight: Some(7), expect }),
        ("renew_leases", Command::RenewLeases { region: region(), leases }),
        ("expire_leases", Command::ExpireLeases { region: region() }),
        ("report_health", Command::ReportHealth { region: region(), live, observations }),
        ("revoke_key", Command::RevokeKey { key: "k".into(), expect: Expect::Absent }),
        ("remove_replica", Command::Remove { key: RecordKey::Replica(id), expect: Expect::Any }),
        ("hot_blocks", Command::HotBlocks { region: region(), key_epoch: 0, delta }),
        ("rotate_prefix_key", Command::RotatePrefixKey { expect }),
        ("lease_shares", Command::LeaseShares { region: region(), said: said() }),
        ("declare_country", {
            Command::DeclareCountry { region: region(), country: "DE".parse().unwrap() }
        }),
        ("declare_operators", Command::DeclareOperators { is_operator: true }),
        ("enforce_membership", Command::EnforceMembership),
        ("node_operators", {
            Command::SetNodeOperators { node: NodeId(3), is_operator: true, expect }
        }),
        ("join_node", join_by(node_spec_of(wire, "b1", "b"), 1)),
        ("record_order", {
            let what = "drain replica r of node a1".to_owned();
            Command::RecordOrder { what, refused: None }
        }),
        ("change_rollout", {
            let (split, why) = ("v".into(), "failed requests 5 % against 1 %".to_owned());
            let change = RolloutChange::RollBack;
            Command::ChangeRollout { split, change, number: Some(300), why, expect }
        }),
        ("readmit_node", remove(RecordKey::RemovedNode("c1".into()))),
    ]
}

fn said() -> Statement {
    let scopes = [
        Scope::Global,
        Scope::Tenant("acme".into()),
        Scope::Model("m".into()),
        Scope::Key("k".to_owned()),
    ];
    let line = |scope| ShareLine {
        scope,
        floor: Units([1, 20, 3]),
        lease: Units([300, 70_000, 0]),
        need: Units([0, u64::MAX, 1]),
    };
    let run = |incarnation| Run { node: "a1".into(), incarnation };
    let overdue = vec![Overdue { run: run(7), serial: 300, kinds: [true, true, false] }];
    let lines = scopes.map(line).into();
    Statement { run: run(8), serial: 9, length_ms: 30_000, lines, overdue, is_last: true }
}

/// Returns a route that only regions in Germany and France serve.
pub(crate) fn resident_route() -> Route {
    let countries = ["DE", "FR"].map(|code| code.parse().unwrap()).into();
    Route { residency: ResidencyRule { countries, ..Default::default() }, ..Route::default() }
}

/// Returns a tenant that only region `a` serves, and only if `a` is in Germany.
pub(crate) fn resident_tenant() -> Tenant {
    let countries = ["DE".parse().unwrap()].into();
    let residency = ResidencyRule { regions: ["a".into()].into(), countries };
    Tenant { title: "Acme".to_owned(), residency, ..Tenant::default() }
}

/// Returns a split that chooses arms by a header, or by a cookie.
pub(crate) fn keyed_split() -> Split {
    let arm = |name: &str, weight_permille| Arm {
        name: name.into(),
        model: "m".into(),
        version: None,
        weight_permille,
    };
    Split {
        arms: vec![arm("x", 900), arm("y", 100)],
        by: Some(SplitBy::Header("x-user".to_owned())),
        sticky: Some(StickyArm { cookie: "arm".to_owned(), max_age_s: STICKY_MAX_AGE_S }),
        rollout: None,
    }
}

/// Returns a split whose arm `y` is rolled out.
pub(crate) fn rolled_out_split() -> Split {
    let step = |candidate_permille, hold_s| RolloutStep { candidate_permille, hold_s };
    let plan = RolloutPlan {
        baseline: "x".into(),
        candidate: "y".into(),
        steps: vec![step(10, 300), step(1_000, 70_000)],
        requests_min: 500,
        margins: AgreedMargins { failed: Some(10), first_token: Some(300), ..Default::default() },
        false_alarms_permille: 10,
    };
    let rollout = Some(Rollout { plan, progress: RolloutProgress::default() });
    Split { sticky: None, rollout, ..keyed_split() }
}

/// Returns one of each item, with a name.
pub(crate) fn items() -> Vec<(&'static str, Item)> {
    let terms = TokenTerms {
        key: Hidden::new([3; 32]),
        region: Some("a".into()),
        valid_ms: 3_600_000,
        uses: 2,
        is_operator: true,
    };
    let arm = Arm {
        name: "x".into(),
        model: "m".into(),
        version: Some("2".into()),
        weight_permille: 1000,
    };
    let limit = Limit {
        concurrency: Some(3),
        floors_permille: [("a".into(), 10)].into(),
        ..Limit::default()
    };
    let model = Model { alias_of: Some("m".into()), fallbacks: vec!["n".into()], price: None };
    vec![
        ("put_region", Item::Region("a".into(), Region::default())),
        ("put_model", Item::Model("x".into(), model)),
        ("put_route", Item::Route("r".into(), Route::default())),
        ("put_split", Item::Split("s".into(), Split { arms: vec![arm], ..Split::default() })),
        ("put_split_by_header", Item::Split("u".into(), keyed_split())),
        ("put_split_with_rollout", Item::Split("v".into(), rolled_out_split())),
        ("put_limit", Item::Limit(LimitScope::Model("m".into()), limit)),
        ("put_limit_by_minute", {
            let limit = Limit { requests_per_min: Some(60), ..Limit::default() };
            Item::Limit(LimitScope::Global, limit)
        }),
        ("put_tenant", Item::Tenant("acme".into(), Tenant::default())),
        ("put_key", Item::Key("k".into(), key(Some("acme")))),
        ("put_revoked_certificate", {
            let reason = "stolen".to_owned();
            Item::RevokedCertificate("5c1d".into(), RevokedCertificate { reason })
        }),
        ("put_join_token", Item::JoinToken("t".into(), terms)),
        ("put_resident_route", Item::Route("r".into(), resident_route())),
        ("put_resident_tenant", Item::Tenant("acme".into(), resident_tenant())),
        ("put_setting", Item::Setting("join.token_required".to_owned(), "false".to_owned())),
        ("put_tenant_with_terms", {
            let terms = TenantTerms {
                isolates_prompts: true,
                budget_per_day: Some(2_500_000),
                budget_per_month: None,
            };
            Item::Tenant("acme".into(), Tenant { terms, ..resident_tenant() })
        }),
        ("put_priced_model", {
            let price = TokenPrice { prompt: 300, cached: None, completion: 70_000 };
            let alias_of = Some("m".into());
            Item::Model("x".into(), Model { alias_of, price: Some(price), ..Model::default() })
        }),
        ("put_route_with_settings", {
            let settings = "{\"slo_ms\":800}".to_owned();
            Item::Route("r".into(), Route { settings, ..resident_route() })
        }),
    ]
}

/// The tags of options and booleans are the numbers of the variants that are in their place.
#[test]
fn records_without_newer_fields_have_the_bytes_of_the_first_version() {
    let route = (None::<String>, BTreeSet::from(["m"]), "p", "random", resident_route().residency);
    let prefixed = (Some("/x"), route.1.clone(), route.2, route.3, resident_route().residency);
    let named = |path_prefix: Option<&str>| Route {
        path_prefix: path_prefix.map(str::to_owned),
        models: ["m".into()].into(),
        pool: "p".to_owned(),
        policy: "random".to_owned(),
        ..resident_route()
    };
    let tenant = resident_tenant();
    let suspended = Tenant { is_suspended: true, ..resident_tenant() };
    let alias = Model { alias_of: Some("m".into()), fallbacks: vec!["n".into()], price: None };
    let plain = Model { fallbacks: vec!["n".into()], ..Model::default() };
    for (new, old) in [
        (crate::Digest::of(&named(None)), crate::Digest::of(&route)),
        (crate::Digest::of(&named(Some("/x"))), crate::Digest::of(&prefixed)),
        (crate::Digest::of(&tenant), crate::Digest::of(&("Acme", false, &tenant.residency))),
        (crate::Digest::of(&suspended), crate::Digest::of(&("Acme", true, &tenant.residency))),
        (crate::Digest::of(&alias), crate::Digest::of(&(Some("m"), vec!["n"]))),
        (crate::Digest::of(&plain), crate::Digest::of(&(None::<&str>, vec!["n"]))),
    ] {
        assert_eq!(new, old);
    }
}

#[test]
fn newer_fields_need_the_version_that_has_them() {
    for (name, item) in items() {
        let is_newer = name.ends_with("_with_terms")
            || name.ends_with("_with_settings")
            || ["put_priced_model", "put_split_by_header"].contains(&name);
        let since = match name {
            "put_split_with_rollout" => 3,
            _ if is_newer => 2,
            _ => 1,
        };
        assert_eq!(item.since(), since, "{name}");
    }
}

#[test]
fn the_bytes_of_commands_are_those_on_file() {
    for (name, command) in commands_of(SAMPLE_WIRE) {
        golden::check(FOLDER, name, &command);
    }
    for (name, item) in items() {
        golden::check(FOLDER, name, &Command::Put { item, expect: Expect::Any });
    }
}

#[test]
fn the_bytes_of_an_entry_are_those_on_file() {
    let world = full_of(SAMPLE_WIRE);
    let (_, command) = commands_of(SAMPLE_WIRE).remove(0);
    let entry = world.by_request(1, command);
    golden::check(FOLDER, "entry", &entry);
}

#[test]
fn the_bytes_of_outcomes_are_those_on_file() {
    golden::check(FOLDER, "outcome_applied", &Outcome::Applied { version: 300, skipped: 2 });
    golden::check(FOLDER, "outcome_unchanged", &Outcome::Unchanged);
    let (key, current) = (RecordKey::Node(NodeId(3)), Some(300));
    golden::check(FOLDER, "outcome_conflict", &Outcome::Conflict { key, current });
    let mut world = full();
    let command = Command::ReplaceCluster { from: ClusterId::from_bytes([1; 16]), to: CLUSTER };
    let outcome = world.apply(&world.by_operator(command));
    refusal(outcome.clone());
    golden::check(FOLDER, "outcome_refused", &outcome);
}

/// Digests stay the same too, since the head has one.
#[test]
fn the_bytes_of_a_snapshot_are_those_on_file() {
    let state = full_of(SAMPLE_WIRE).state;
    golden::check(FOLDER, "snapshot_head", &state.to_head());
    golden::check(FOLDER, "snapshot", &state.to_layout());
}

#[test]
fn kinds_are_distinct() {
    let kinds = [Command::KIND, Outcome::KIND, crate::Entry::KIND];
    assert_eq!(BTreeSet::from(kinds).len(), kinds.len());
}
