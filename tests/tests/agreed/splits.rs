//! Splits of the cluster: every node gives a user the same arm.

use spillway_cluster_state::{Arm, Item, RecordKey, STICKY_MAX_AGE_S, Split, StickyArm};
use spillway_node::Node;
use spillway_tests::{Client, Reply, chat, eventually};
use spillway_types::SplitBy;

use crate::world::*;

fn halves(by: Option<SplitBy>, sticky: Option<StickyArm>) -> Item {
    let arm = |name: &str| Arm {
        name: name.into(),
        model: "tiny".into(),
        version: None,
        weight_permille: 500,
    };
    Item::Split(
        "mixed".into(),
        Split { arms: vec![arm("old"), arm("new")], by, sticky, rollout: None },
    )
}

/// Waits until every node has the version of the split that `node` has.
async fn known_everywhere(world: &World, node: &Node) {
    let key = RecordKey::Split("mixed".into());
    let version = state(node).records().version(&key);
    let is_known = || world.running().all(|node| state(node).records().version(&key) == version);
    eventually("all nodes have applied the split", is_known).await;
}

async fn ask_with(node: &Node, header: (&'static str, &str)) -> Reply {
    let mut request = chat("mixed", "");
    request.headers_mut().insert(header.0, header.1.parse().expect("a value"));
    Client::once(node.addresses()[0], request).await
}

fn arm_of(reply: &Reply) -> Option<String> {
    reply.header("x-spillway-arm").map(str::to_owned)
}

#[tokio::test]
async fn a_user_has_the_same_arm_at_all_nodes() {
    let world = World::started(&REGIONS).await;
    put(world.node(0), halves(Some(SplitBy::Header("x-user".to_owned())), None)).await;
    known_everywhere(&world, world.node(0)).await;
    let arms_at = async |node: &Node| {
        let mut arms = Vec::new();
        for user in 0..40 {
            let user = format!("user-{user}");
            // The view follows the state a moment later.
            let mut arm = None;
            while arm.is_none() {
                arm = arm_of(&ask_with(node, ("x-user", &user)).await);
            }
            arms.extend(arm);
        }
        arms
    };
    let first = arms_at(world.node(0)).await;
    assert!(first.contains(&"old".to_owned()) && first.contains(&"new".to_owned()), "{first:?}");
    for node in world.running() {
        assert_eq!(arms_at(node).await, first);
    }
}

#[tokio::test]
async fn an_arm_that_one_node_drew_is_kept_at_all_nodes() {
    let world = World::started(&REGIONS).await;
    let sticky = StickyArm { cookie: "arm".to_owned(), max_age_s: STICKY_MAX_AGE_S };
    put(world.node(0), halves(None, Some(sticky))).await;
    known_everywhere(&world, world.node(0)).await;
    for arm in ["old", "new"] {
        for node in world.running() {
            // Chance alone would draw the other arm in one of ten.
            for _ in 0..10 {
                let mut reply = ask_with(node, ("cookie", &format!("arm={arm}"))).await;
                while arm_of(&reply).is_none() {
                    reply = ask_with(node, ("cookie", &format!("arm={arm}"))).await;
                }
                assert_eq!(arm_of(&reply).as_deref(), Some(arm));
                assert_eq!(reply.header("set-cookie"), None);
            }
            let drawn = ask_with(node, ("x-user", "ada")).await;
            let cookie = drawn.header("set-cookie").expect("a cookie").to_owned();
            let arm = arm_of(&drawn).expect("an arm");
            assert!(
                cookie.starts_with(&format!("arm={arm}; Path=/; Max-Age=2592000;")),
                "{cookie}"
            );
        }
    }
}
