//! Nodes whose folder can't be used at first, is damaged, or is another node's.

use std::fs;

use spillway_cluster_state::{Actor, Command, Expect, Outcome};
use spillway_raft::{DiskError, ProposeError, RaftStartError, Role};
use spillway_testkit::{PATIENCE, eventually};

use crate::control_plane_test::{World, agreed};

fn weight(weight_permille: u16) -> Command {
    Command::SetRegionWeight { region: "region-a".into(), weight_permille, expect: Expect::Any }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_folder_cant_be_used_at_its_start_begins_when_it_can() {
    let mut world = World::new(1);
    // Something else has the name, as a mount that is not there yet.
    fs::write(world.data(0), "").unwrap();
    world.start(0).await;
    let node = world.control_plane(0);
    let status = node.status();
    let fault = status.fault.unwrap_or_default();
    assert!(status.role == Role::Stopped && fault.contains("continues by itself"), "{fault}");
    let refused = node.propose(weight(500), Actor::Node, None, PATIENCE).await.unwrap_err();
    assert!(matches!(refused, ProposeError::Stopped(_)), "{refused}");

    fs::remove_file(world.data(0)).unwrap();
    eventually("it leads", || node.status().role == Role::Leader).await;
    assert_eq!(node.status().fault, None);
    eventually("it is formed", || node.published().cluster().is_some()).await;
    let done = agreed(node, weight(500)).await;
    assert!(matches!(done, Outcome::Applied { .. }), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_log_is_stopped_and_not_replaced() {
    let mut world = World::started(1).await;
    world.settled().await;
    world.stop(0).await;
    let log = world.data(0).join("log.redb");
    let mut damaged = fs::read(&log).unwrap();
    damaged[4_096..].iter_mut().step_by(61).for_each(|byte| *byte ^= 0x55);
    fs::write(&log, &damaged).unwrap();
    world.start(0).await;
    let status = world.control_plane(0).status();
    let fault = status.fault.unwrap_or_default();
    assert!(status.role == Role::Stopped && fault.contains("join as a new node"), "{fault}");
    world.stop(0).await;

    // The first bytes alone, which the database reports as an error of the disk.
    damaged.fill(0);
    fs::write(&log, &damaged).unwrap();
    world.start(0).await;
    let fault = world.control_plane(0).status().fault.unwrap_or_default();
    assert!(fault.contains("join as a new node"), "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_folder_of_another_node_is_refused_by_name() {
    let mut world = World::started(2).await;
    world.settled().await;
    world.stop(0).await;
    world.stop(1).await;
    fs::remove_dir_all(world.data(1)).unwrap();
    fs::create_dir(world.data(1)).unwrap();
    for file in ["log.redb", "witness"] {
        fs::copy(world.data(0).join(file), world.data(1).join(file)).unwrap();
    }
    let Err(RaftStartError::Disk(fault)) = world.try_start(1).await else { panic!("it starts") };
    assert!(matches!(fault, DiskError::OtherNode { .. }), "{fault}");
    let text = fault.to_string();
    assert!(text.contains("belongs to node a, and this is node b"), "{text}");
    // Its own node takes it as before.
    world.start(0).await;
    assert_eq!(world.control_plane(0).status().fault, None);
}
