//! Tests of membership: rights of nodes and returns of removed nodes.

use crate::test_world::{
    CLUSTER, World, node_spec, put, refusal, remove, renew, setting, token_key, token_text,
};
use crate::{
    CertificateSerial, ClusterId, Command, CommandError, Entry, Expect, Item, JoinText, NodeRight,
    NodeSpec, Outcome, Proposer, RecordKey, RefusalCode, RevokedCertificate, State, TokenTerms,
};

/// Returns two nodes with replicas and an edge node, with membership enforced.
pub(crate) fn enforced() -> World {
    let mut world = World::of(&[("a", 1), ("b", 1), ("e", 1)]);
    for node in ["a1", "b1", "e1"] {
        world.applied(node, Command::DeclareOperators { is_operator: node != "e1" });
    }
    world.applied("a1", Command::EnforceMembership);
    world
}

pub(crate) fn by_operator_at(world: &World, node: &str, command: Command) -> Entry {
    let entry = world.by_operator(command);
    let (node, region) = (node.into(), node[..1].into());
    Entry { proposer: Proposer { node, region }, ..entry }
}

#[track_caller]
fn denied_at(world: &mut World, node: &str, command: Command) -> CommandError {
    refusal(world.apply(&by_operator_at(world, node, command)))
}

pub(crate) fn token_item(id: &str, is_operator: bool) -> Item {
    let terms =
        TokenTerms { key: token_key(3), region: None, valid_ms: 3_600_000, uses: 9, is_operator };
    Item::JoinToken(id.into(), terms)
}

pub(crate) fn joining(name: &str, disk: u8, token: Option<&str>) -> Command {
    let node =
        NodeSpec { disk: crate::DiskId::from_bytes([disk; 16]), ..node_spec(name, &name[..1]) };
    joining_as(node, token)
}

/// Returns a node's command to join, signed if there is a token.
pub(crate) fn joining_as(node: NodeSpec, token: Option<&str>) -> Command {
    let Some(id) = token else { return Command::RegisterNode { node } };
    let text = token_text(3).replace("_t_", &format!("_{id}_"));
    let token = JoinText::read(&text).unwrap().sign(CLUSTER, &node);
    Command::JoinNode { node, token }
}

#[test]
fn an_edge_node_gives_no_orders_and_the_refusal_names_who_may() {
    let mut world = enforced();
    let refusal = denied_at(&mut world, "e1", setting("health.transition_ms", "7"));
    assert_eq!(refusal.code, RefusalCode::NotPermitted);
    assert!(refusal.remedy.contains("a1, b1"), "{refusal}");
    assert!(refusal.remedy.contains("spillway nodes operators e1 allow"), "{refusal}");
    world.done(setting("health.transition_ms", "7"));
    // Commands of nodes themselves go on.
    let renewed = world.apply(&world.by_node("e1", renew("e/r", 1)));
    assert!(!matches!(&renewed, Outcome::Refused(it) if it.code == RefusalCode::NotPermitted));
}

#[test]
fn a_node_can_not_give_itself_the_right() {
    let mut world = enforced();
    let id = world.node_id("e1");
    let again = world.apply(&world.by_node("e1", Command::DeclareOperators { is_operator: true }));
    assert_eq!(again, Outcome::Unchanged);
    let set =
        |is_operator| Command::SetNodeOperators { node: id, is_operator, expect: Expect::Any };
    assert_eq!(world.refused("e1", set(true)), RefusalCode::NotPermitted);
    assert_eq!(denied_at(&mut world, "e1", set(true)).code, RefusalCode::NotPermitted);
    assert!(!world.state.may_order(&"e1".into()));
    world.done(set(true));
    assert!(world.state.may_order(&"e1".into()));
    let order = by_operator_at(&world, "e1", setting("health.transition_ms", "8"));
    assert!(matches!(world.apply(&order), Outcome::Applied { .. }));
    world.done(set(false));
    assert!(!world.state.may_order(&"e1".into()));
}

#[test]
fn an_order_without_the_right_takes_no_place_of_operators() {
    let mut world = enforced();
    let before = (world.state.operator_audit().len(), world.state.system_audit().len());
    let mut order = by_operator_at(&world, "e1", setting("health.transition_ms", "7"));
    order.request = Some(crate::RequestId([1; 16]));
    refusal(world.apply(&order));
    let after = (world.state.operator_audit().len(), world.state.system_audit().len());
    assert_eq!((before.0, before.1 + 1), after);
    // The refused order has not used the request id up.
    let allowed = Entry { proposer: world.by_node("a1", order.command.clone()).proposer, ..order };
    assert!(matches!(world.apply(&allowed), Outcome::Applied { .. }));
}

#[test]
fn who_is_no_member_proposes_nothing_but_to_join() {
    let mut world = enforced();
    for command in [renew("x/r", 1), Command::ExpireLeases { region: "a".into() }] {
        assert_eq!(world.refused("x1", command), RefusalCode::NotPermitted);
    }
    let order = denied_at(&mut world, "x1", setting("health.transition_ms", "7"));
    assert_eq!(order.code, RefusalCode::NotPermitted);
    assert!(order.cause.contains("is no node of the cluster"), "{order}");
    let replace = Command::ReplaceCluster { from: CLUSTER, to: ClusterId::from_bytes([8; 16]) };
    assert_eq!(world.refused("x1", replace), RefusalCode::NotPermitted);
    // A proposer with a member's name and another region is no member.
    let entry = world.by_node("a1", Command::ExpireLeases { region: "b".into() });
    let proposer = Proposer { node: "a1".into(), region: "b".into() };
    assert_eq!(refusal(world.apply(&Entry { proposer, ..entry })).code, RefusalCode::NotPermitted);
    assert_eq!(world.refused("x1", joining("x1", 0x71, None)), RefusalCode::TokenRefused);
}

#[test]
fn before_it_is_enforced_anybody_gives_orders() {
    let mut world = World::of(&[("a", 1), ("e", 1)]);
    let order = by_operator_at(&world, "e1", setting("health.transition_ms", "7"));
    assert!(matches!(world.apply(&order), Outcome::Applied { .. }));
    let order = by_operator_at(&world, "x1", setting("health.transition_ms", "8"));
    assert!(matches!(world.apply(&order), Outcome::Applied { .. }));
    assert!(world.state.may_order(&"e1".into()));
}

#[test]
fn the_right_to_give_orders_is_never_lost_to_all() {
    let mut world = World::of(&[("a", 1), ("b", 1)]);
    for node in ["a1", "b1"] {
        world.applied(node, Command::DeclareOperators { is_operator: false });
    }
    world.applied("a1", Command::EnforceMembership);
    assert!(["a1", "b1"].into_iter().all(|node| world.state.may_order(&node.into())));
    let (a, b) = (world.node_id("a1"), world.node_id("b1"));
    let deny = |node| Command::SetNodeOperators { node, is_operator: false, expect: Expect::Any };
    world.done(deny(b));
    assert_eq!(world.denied(deny(a)), RefusalCode::InUse);
    assert_eq!(world.denied(remove(RecordKey::Node(a))), RefusalCode::InUse);
    world.done(remove(RecordKey::Node(b)));
}

#[test]
fn who_joins_has_the_right_only_by_a_token_that_grants_it() {
    let mut world = enforced();
    world.done(put(token_item("plain", false)));
    world.done(put(token_item("mighty", true)));
    world.applied("a1", joining("c1", 0x61, Some("plain")));
    world.applied("b1", joining("d1", 0x62, Some("mighty")));
    assert!(!world.state.may_order(&"c1".into()));
    assert!(world.state.may_order(&"d1".into()));
    let claim = world.by_node("c1", Command::DeclareOperators { is_operator: true });
    assert_eq!(world.apply(&claim), Outcome::Unchanged);
    world.done(setting("join.token_required", "false"));
    world.applied("a1", joining("f1", 0x63, None));
    assert!(!world.state.may_order(&"f1".into()));
}

#[test]
fn a_removed_node_comes_back_by_a_later_token_or_an_operators_leave() {
    let mut world = enforced();
    world.done(put(token_item("before", false)));
    world.done(remove(RecordKey::Node(world.node_id("e1"))));
    assert!(world.state.is_removed(&"e1".into()));
    world.state = State::from_snapshot(&world.state.to_snapshot().unwrap()).unwrap();
    assert_eq!(world.refused("a1", joining("e1", 0x71, Some("before"))), RefusalCode::TokenRefused);
    // The old token does not let the node in under another name with the same certificate either.
    assert_eq!(node_spec("e2", "e").fingerprint, node_spec("e1", "e").fingerprint);
    assert_eq!(world.refused("a1", joining("e2", 0x72, Some("before"))), RefusalCode::TokenRefused);
    world.done(setting("join.token_required", "false"));
    assert_eq!(world.refused("a1", joining("e1", 0x71, None)), RefusalCode::TokenRefused);
    world.done(put(token_item("after", false)));
    world.applied("a1", joining("e1", 0x71, Some("after")));
    assert!(!world.state.is_removed(&"e1".into()) && !world.state.may_order(&"e1".into()));
    assert!(world.state.records().removed_nodes.is_empty());

    world.done(remove(RecordKey::Node(world.node_id("e1"))));
    assert_eq!(world.refused("e1", remove(RecordKey::RemovedNode("e1".into()))), {
        RefusalCode::NotPermitted
    });
    world.done(remove(RecordKey::RemovedNode("e1".into())));
    world.applied("a1", joining("e1", 0x73, None));
}

#[test]
fn a_removed_node_proposes_nothing_more() {
    let mut world = enforced();
    world.done(remove(RecordKey::Node(world.node_id("b1"))));
    let refusal = denied_at(&mut world, "b1", setting("health.transition_ms", "7"));
    assert_eq!(refusal.code, RefusalCode::NotPermitted);
    assert_eq!(world.refused("b1", renew("b/r", 1)), RefusalCode::NotPermitted);
}

#[test]
fn removed_nodes_are_remembered_within_a_bound() {
    let mut world = enforced();
    let most = crate::limits::REMOVED_NODES_MAX;
    for number in 0..=most {
        let mut node = node_spec("x1", "x");
        node.name = format!("x{number}").as_str().into();
        let mut disk = [0x80; 16];
        disk[..8].copy_from_slice(&(number as u64).to_be_bytes());
        node.disk = crate::DiskId::from_bytes(disk);
        node.fingerprint.0[..16].copy_from_slice(&disk);
        world.done(Command::RegisterNode { node: node.clone() });
        world.done(remove(RecordKey::Node(world.state.node(&node.name).unwrap().0)));
    }
    let removed = &world.state.records().removed_nodes;
    assert_eq!(removed.len(), most);
    assert!(removed.get(&"x0".into()).is_none(), "the oldest is forgotten");
}

#[test]
fn only_a_node_itself_says_how_it_is_reached() {
    let mut world = enforced();
    let moved = NodeSpec { address: "evil:1".to_owned(), ..node_spec("a1", "a") };
    let command = Command::RegisterNode { node: moved };
    assert_eq!(world.refused("e1", command.clone()), RefusalCode::NotOwner);
    world.applied("a1", command);
    let older = NodeSpec { wire_oldest: 0, wire_newest: 0, ..node_spec("b1", "b") };
    let command = Command::RegisterNode { node: older };
    assert_eq!(world.refused("e1", command), RefusalCode::WireVersion);
}

#[test]
fn a_certificate_is_revoked_and_taken_back_by_operators_alone() {
    let mut world = enforced();
    let serial = CertificateSerial::read("5C:1D").unwrap();
    let revoked = RevokedCertificate { reason: "stolen".to_owned() };
    let command = put(Item::RevokedCertificate(serial.clone(), revoked.clone()));
    assert_eq!(world.refused("e1", command.clone()), RefusalCode::NotPermitted);
    assert_eq!(denied_at(&mut world, "e1", command.clone()).code, RefusalCode::NotPermitted);
    world.done(command);
    let read = State::from_snapshot(&world.state.to_snapshot().unwrap()).unwrap();
    assert_eq!(read.records().revoked_certificates.get(&serial), Some(&revoked));
    for wrong in ["5C1D", "05c1d", "", "x"] {
        let item = Item::RevokedCertificate(wrong.into(), RevokedCertificate::default());
        assert_eq!(world.denied(put(item)), RefusalCode::Invalid, "{wrong}");
    }
    world.done(remove(RecordKey::RevokedCertificate(serial)));
    assert!(world.state.records().revoked_certificates.is_empty());
}

#[test]
fn who_makes_the_cluster_anew_may_give_orders_there() {
    let mut world = enforced();
    let to = ClusterId::from_bytes([8; 16]);
    world.applied("e1", Command::ReplaceCluster { from: CLUSTER, to });
    assert!(world.state.may_order(&"e1".into()));
    // The other nodes do not count as removed, so their names are free.
    assert!(world.state.records().removed_nodes.is_empty());
    let right = |name: &str| {
        let id = world.state.node(&name.into())?.0;
        world.state.records().node_rights.get(&id).copied()
    };
    assert_eq!(right("e1"), Some(NodeRight { is_operator: true, is_edge: true }));
    assert_eq!(world.state.records().node_rights.len(), 1);
}

#[test]
fn an_edge_node_votes_only_where_fewer_than_three_others_can() {
    use crate::{Membership, MembershipPlan, VoterFacts, voters};
    let mut world = World::of(&[("a", 1), ("b", 1), ("c", 1), ("e", 1), ("f", 1)]);
    for node in ["a1", "b1", "c1", "e1", "f1"] {
        let is_operator = !matches!(node, "e1" | "f1");
        world.applied(node, Command::DeclareOperators { is_operator });
    }
    world.applied("a1", Command::EnforceMembership);
    let all: std::collections::BTreeSet<_> = world.state.records().nodes.keys().copied().collect();
    let sight = VoterFacts { live: all.clone(), caught_up: all.clone() };
    let mut current = Membership { voters: all, learners: Default::default() };
    let mut settle = |world: &World| {
        while let MembershipPlan::ChangeVoters(next) = voters(&world.state, &sight, &current) {
            let is_known = |id: &&crate::NodeId| world.state.records().nodes.get(id).is_some();
            current.learners = sight.live.difference(&next).filter(is_known).copied().collect();
            current.voters = next;
        }
        (current.voters.len(), current.voters.clone())
    };
    assert_eq!(settle(&world).0, 3);
    let (c, f) = (world.node_id("c1"), world.node_id("f1"));
    let set =
        |node, is_operator| Command::SetNodeOperators { node, is_operator, expect: Expect::Any };
    // An edge node with an operator's permission votes like others; so does a node that is no edge
    // node and has no permission.
    world.done(set(f, true));
    world.done(set(c, false));
    world.done(remove(RecordKey::Node(c)));
    let (settled, voters) = settle(&world);
    assert_eq!(settled, 3);
    assert!(voters.contains(&f) && !voters.contains(&world.node_id("e1")));
    // With fewer than three others, edge nodes vote.
    world.done(set(f, false));
    let edges = ["e1", "f1"].map(|name| world.node_id(name));
    let (settled, voters) = settle(&world);
    assert!(settled >= 3 && edges.iter().any(|edge| voters.contains(edge)));
}
