//! Most of a cluster is gone for good.

use spillway_cluster_state::{Item, RegionState, Tenant, TokenTerms};
use spillway_node::Node;
use spillway_raft::{ClusterId, Founder, Role, force_new_cluster, owner_of, restore};
use spillway_tests::eventually;

use crate::join::{Growing, make_token, members, number};
use crate::world::*;

const REGIONS: [&str; 3] = ["one", "three", "two"];

async fn put_tenant(node: &Node, name: &str) {
    let tenant = Tenant { title: name.to_owned(), ..Tenant::default() };
    put(node, Item::Tenant(name.into(), tenant)).await;
}

fn has_tenant(node: &Node, name: &str) -> bool {
    state(node).records().tenants.get(&name.into()).is_some()
}

fn cluster_of(node: &Node) -> Option<ClusterId> {
    state(node).cluster()
}

/// All three are members, vote, and know the same.
async fn is_whole(world: &Growing) {
    eventually("the cluster is whole again", || {
        world.running().count() == 3
            && world.running().all(|node| {
                let status = node.control_plane().expect("a part").status();
                members(node) == 3 && status.voters.len() == 3 && status.fault.is_none()
            })
    })
    .await;
    // A member that joined may give no orders; the node that founded the cluster again may.
    set_region(world.node(0), "one", RegionState::Draining).await;
    eventually("all know the same", || {
        let digests: Vec<_> =
            world.running().map(|node| node.control_plane().map(|it| it.digest())).collect();
        digests.iter().all(|digest| *digest == digests[0])
    })
    .await;
}

#[tokio::test]
async fn a_backup_becomes_a_cluster_of_new_disks() {
    let mut world = Growing::started(&REGIONS, 0).await;
    put_tenant(world.node(1), "kept").await;
    let token = make_token(world.node(1), "t", |token| TokenTerms { uses: 2, ..token }).await;
    eventually("it is everywhere", || world.running().all(|node| has_tenant(node, "kept"))).await;
    let before = cluster_of(world.node(0));
    let folder = world.cluster.data(0);
    let file = folder.with_extension("backup");
    world.node(0).control_plane().expect("a part").backup(&file).await.expect("a backup");
    put_tenant(world.node(0), "lost").await;
    for index in 0..3 {
        world.stop(index).await;
        world.wipe(index);
    }
    // The backup knows the token, and so do two of the nodes.
    let (cluster, founder) = restore(&file, &folder, &"n0".into()).expect("a folder");
    assert_eq!((founder.name.as_str(), founder.region.as_str()), ("n0", "one"));
    world.start(0).await;
    eventually("it leads a cluster of one", || members(world.node(0)) == 1).await;
    assert!(cluster_of(world.node(0)) == Some(cluster) && before != Some(cluster));
    assert!(has_tenant(world.node(0), "kept") && !has_tenant(world.node(0), "lost"));
    assert_eq!(number(world.node(0), "n0"), Some(founder.node.0));
    for index in [1, 2] {
        world.cluster.give_token(index, &token);
        world.start(index).await;
    }
    is_whole(&world).await;
    assert!(world.running().all(|node| has_tenant(node, "kept")));
    assert!(world.running().all(|node| cluster_of(node) == Some(cluster)));
    assert_eq!(served_in(world.node(1)).await, "three");
}

#[tokio::test]
async fn one_surviving_region_begins_anew_and_the_others_join_it() {
    let mut world = Growing::started(&REGIONS, 0).await;
    put_tenant(world.node(2), "kept").await;
    eventually("it is everywhere", || world.running().all(|node| has_tenant(node, "kept"))).await;
    let before = cluster_of(world.node(0));
    for index in 0..3 {
        world.stop(index).await;
    }
    // Node 1 is gone with its disk; node 2 will be back with its own.
    world.wipe(1);
    let folder = world.cluster.data(0);
    let owner = owner_of(&folder).expect("a folder").expect("a log");
    let founder = Founder { node: owner.node, name: "n0".into(), region: "one".into() };
    let cluster = force_new_cluster(&folder, &founder).expect("a cluster");
    assert_ne!(before, Some(cluster));
    world.start(0).await;
    eventually("it is alone", || members(world.node(0)) == 1).await;
    assert!(has_tenant(world.node(0), "kept"));
    put_tenant(world.node(0), "new").await;

    // A node of the old cluster serves its own, and neither mixes with the new one nor votes in it.
    world.start(2).await;
    world.troubled(2, "the folder of test/two/n2 is of").await;
    assert_eq!(cluster_of(world.node(2)), before);
    assert!(!has_tenant(world.node(2), "new") && members(world.node(0)) == 1);
    assert_eq!(world.node(0).control_plane().expect("a part").status().role, Role::Leader);
    assert_eq!(served_in(world.node(2)).await, "two");
    world.stop(2).await;
    world.wipe(2);

    let token = make_token(world.node(0), "t", |token| TokenTerms { uses: 2, ..token }).await;
    for index in [1, 2] {
        world.cluster.give_token(index, &token);
        world.start(index).await;
    }
    is_whole(&world).await;
    assert!(world.running().all(|node| has_tenant(node, "kept") && has_tenant(node, "new")));
    let old: Vec<u64> = vec![1, 2, 3];
    for name in ["n1", "n2"] {
        let number = number(world.node(0), name).expect("a number");
        assert!(!old.contains(&number), "{name} is {number} again");
    }
}
