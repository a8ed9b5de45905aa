//! Tests of the answers of the join protocol.

use std::sync::Arc;
use std::time::Duration;

use spillway_cluster_state::{
    Command, DiskId, Expect, Fingerprint, Item, JoinText, NodeSpec, RecordKey, RefusalCode, State,
    TokenId, TokenTerms, WIRE,
};
use spillway_link::{Link, PeerConfig};
use spillway_raft::{Consistency, Role};
use spillway_testkit::eventually;

use super::message::{JoinAnswer, Question, Wish};
use crate::control_plane_test::{World, agreed};

const LIMIT: Duration = Duration::from_secs(60);
const VALID_MS: u64 = 24 * 3_600_000;

/// Starts a link with a valid certificate of an unknown node: `z` of `region-z`.
fn stranger(world: &World) -> Arc<Link> {
    stranger_named(world, "z")
}

/// Starts a link with a valid certificate of an unknown node of `region-z`.
fn stranger_named(world: &World, name: &str) -> Arc<Link> {
    world.certificates.start_link("region-z", name)
}

fn spec(disk: u8) -> NodeSpec {
    NodeSpec {
        name: "z".into(),
        region: "region-z".into(),
        address: "127.0.0.1:7946".to_owned(),
        disk: DiskId::from_bytes([disk; 16]),
        fingerprint: Fingerprint([1; 32]),
        wire_oldest: 1,
        wire_newest: WIRE,
    }
}

async fn ask(world: &World, at: usize, link: &Link, question: &Question) -> JoinAnswer {
    let address = world.nodes[at].as_ref().unwrap().link.local_address().unwrap().to_string();
    let peer = PeerConfig { identity: world.identity(at), address, rtt_ms: None };
    link.ask_to_join(&peer, question, LIMIT).await.unwrap()
}

/// Makes the question of a node without a token.
fn join_freely(node: NodeSpec) -> Question {
    Question { cluster: None, node, wish: Wish::Join }
}

/// Makes the question of a node with the token of this secret, for the cluster of `world`.
fn join(world: &World, node: NodeSpec, secret: u8) -> Question {
    let text = token_text(secret);
    let cluster = world.control_plane(0).published().cluster().unwrap();
    let wish = Wish::JoinSigned(JoinText::read(&text).unwrap().sign(cluster, &node));
    Question { cluster: Some(cluster), node, wish }
}

fn token_text(secret: u8) -> String {
    format!("swj_t_{}", format!("{secret:02x}").repeat(32))
}

fn standing(node: NodeSpec) -> Question {
    Question { cluster: None, node, wish: Wish::Standing }
}

fn code(answer: JoinAnswer) -> RefusalCode {
    match answer {
        JoinAnswer::Refused(refusal) => refusal.code,
        other => panic!("{other:?}"),
    }
}

/// Returns true if the log has a registration of the stranger, refused or not.
async fn was_written(world: &World) -> bool {
    let look = |state: &State| format!("{:?}", state.system_audit()).contains("register node z");
    world.control_plane(0).read(Consistency::Linearizable, LIMIT, look).await.unwrap().value
}

async fn put_token(world: &World, uses: u32) {
    let key = JoinText::read(&token_text(0xaa)).unwrap().public_key();
    let terms = TokenTerms { key, region: None, valid_ms: VALID_MS, uses, is_operator: false };
    let item = Item::JoinToken(TokenId::from("t"), terms);
    agreed(world.control_plane(0), Command::Put { item, expect: Expect::Any }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_lets_one_in_and_whoever_is_refused_costs_the_log_nothing() {
    let world = World::started(3).await;
    world.settled().await;
    eventually("membership is enforced", || {
        (0..3).all(|at| world.control_plane(at).published().is_enforced())
    })
    .await;
    put_token(&world, 1).await;
    let link = stranger(&world);
    for (question, expected) in [
        (join_freely(spec(1)), RefusalCode::TokenRefused),
        (join(&world, spec(1), 0xbb), RefusalCode::TokenRefused),
        (join(&world, NodeSpec { name: "a".into(), ..spec(1) }, 0xaa), RefusalCode::Invalid),
        (
            join(&world, NodeSpec { region: "region-a".into(), ..spec(1) }, 0xaa),
            RefusalCode::Invalid,
        ),
        (standing(spec(1)), RefusalCode::TokenRefused),
        (
            Question { cluster: Some(7_u128.into()), ..join(&world, spec(1), 0xaa) },
            RefusalCode::OtherCluster,
        ),
    ] {
        assert_eq!(code(ask(&world, 1, &link, &question).await), expected, "{question:?}");
    }
    assert!(!was_written(&world).await, "a stranger wrote to the log");

    let taken = ask(&world, 1, &link, &join(&world, spec(1), 0xaa)).await;
    let JoinAnswer::Member(membership) = taken.clone() else { panic!("{taken:?}") };
    assert!(was_written(&world).await);
    assert_eq!((membership.number.0, membership.others.len()), (4, 3));
    assert_eq!(Some(membership.cluster), world.control_plane(0).published().cluster());
    // The answer may get lost: another node answers a repeated question in the same way.
    assert_eq!(ask(&world, 2, &link, &join(&world, spec(1), 0xaa)).await, taken);
    assert_eq!(ask(&world, 0, &link, &standing(spec(1))).await, taken);
    // With another disk it is another node, with a token or without.
    put_token(&world, 5).await;
    for question in [join(&world, spec(2), 0xaa), standing(spec(2))] {
        assert_eq!(code(ask(&world, 0, &link, &question).await), RefusalCode::WipedDisk);
    }
    let key = RecordKey::Node(membership.number);
    agreed(world.control_plane(0), Command::Remove { key, expect: Expect::Any }).await;
    eventually("all know that it is gone", || {
        (0..3).all(|at| world.control_plane(at).published().is_retired(spec(1).disk))
    })
    .await;
    for question in [join(&world, spec(1), 0xaa), standing(spec(1))] {
        assert_eq!(code(ask(&world, 2, &link, &question).await), RefusalCode::RetiredDisk);
    }
    // The token was made before the removal: it lets in other nodes, but not this one.
    let again = ask(&world, 0, &link, &join(&world, spec(2), 0xaa)).await;
    assert_eq!(code(again), RefusalCode::TokenRefused);
    put_token(&world, 3).await;
    let again = ask(&world, 0, &link, &join(&world, spec(2), 0xaa)).await;
    assert!(matches!(again, JoinAnswer::Member(it) if it.number.0 == 5), "ids are not given twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_in_no_cluster_or_has_no_quorum_says_so() {
    let mut world = World::new(3);
    world.start(0).await;
    let link = stranger(&world);
    assert_eq!(ask(&world, 0, &link, &join_freely(spec(1))).await, JoinAnswer::NotFormed);
    let which = Question { wish: Wish::Cluster, ..join_freely(spec(1)) };
    assert_eq!(ask(&world, 0, &link, &which).await, JoinAnswer::NotFormed);
    world.start(1).await;
    world.start(2).await;
    world.settled().await;
    put_token(&world, 1).await;
    for at in [1, 2] {
        let node = world.nodes[at].take().unwrap();
        node.link.shutdown(Duration::ZERO).await;
        drop(node);
    }
    let node = world.control_plane(0);
    eventually("it knows that it is alone", || node.status().role != Role::Leader).await;
    let refused = ask(&world, 0, &link, &join(&world, spec(1), 0xaa)).await;
    assert!(matches!(refused, JoinAnswer::NotNow(_)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_that_another_node_has_used_lets_nobody_in() {
    let world = World::started(3).await;
    world.settled().await;
    put_token(&world, 9).await;
    let (link, thief) = (stranger(&world), stranger_named(&world, "y"));
    let which = Question { wish: Wish::Cluster, ..join_freely(spec(1)) };
    let cluster = world.control_plane(0).published().cluster().unwrap();
    let told = JoinAnswer::Cluster(cluster);
    assert_eq!(ask(&world, 1, &link, &which).await, told);
    let signed = join(&world, spec(1), 0xaa);
    let taken = ask(&world, 1, &link, &signed).await;
    assert!(matches!(taken, JoinAnswer::Member(_)), "{taken:?}");
    assert_eq!(ask(&world, 1, &link, &which).await, taken, "who is in need not sign again");
    // A reader of the log has the signature, and a certificate of its own.
    for node in [
        NodeSpec { name: "y".into(), ..spec(2) },
        NodeSpec { name: "y".into(), fingerprint: Fingerprint([2; 32]), ..spec(2) },
    ] {
        let replayed = Question { node, ..signed.clone() };
        assert_eq!(code(ask(&world, 2, &thief, &replayed).await), RefusalCode::TokenRefused);
    }
    let as_it_was = ask(&world, 2, &thief, &signed).await;
    assert_eq!(code(as_it_was), RefusalCode::Invalid, "the certificate is of y");
    let counted = |state: &State| {
        let token = state.records().join_tokens.get(&TokenId::from("t")).unwrap();
        (state.records().nodes.len(), token.uses_left)
    };
    let state = world.control_plane(0).read(Consistency::Linearizable, LIMIT, counted).await;
    assert_eq!(state.unwrap().value, (4, 8));
}
