//! Tests of several nodes: leaders, the loss of a quorum.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::world::{World, eventually};
use crate::AdminConfig;

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_took_every_node_shows() {
    let world = World::started(3, AdminConfig::default()).await;
    for at in 0..3 {
        let path = format!("/v1/models/m{at}");
        world.client(at).put(&path, &json!({})).await.done();
        // A linearizable read sees the write at once, on every node.
        for other in 0..3 {
            world.client(other).get(&path).await.done();
        }
    }
    let status = world.client(0).get("/v1/status").await.done();
    assert_eq!(status["members"].as_array().unwrap().len(), 3);
    assert!(status["members"].as_array().unwrap().iter().all(|it| it["is_voter"] == true));
    assert_eq!(status["node"]["name"], "a");
    let leader = world.leader();
    let name = |at: usize| char::from(b'a' + at as u8).to_string();
    assert_eq!(status["leader"]["node"], name(leader).as_str());
    let removed = world.client(0).delete("/v1/nodes/b?dry_run=true").await.done();
    assert_eq!(removed["changes"][0]["before"]["key"], "b");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_must_not_vote_loses_its_vote() {
    let world = World::started(3, AdminConfig::default()).await;
    let leader = world.leader();
    let client = world.client(leader);
    let other = char::from(b'a' + ((leader + 1) % 3) as u8).to_string();
    let path = format!("/v1/nodes/{other}");
    let role = async || client.get(&path).await.done()["item"]["record"]["role"].clone();
    assert_eq!(role().await, "any");
    client.put(&path, &json!({ "role": "learner" })).await.done();
    assert_eq!(role().await, "learner");
    let by = Instant::now() + super::world::PATIENCE;
    loop {
        let status = client.get("/v1/status").await.done();
        let members = status["members"].as_array().unwrap().clone();
        let votes = |name: &str| {
            members.iter().find(|member| member["name"] == name).unwrap()["is_voter"] == true
        };
        if !votes(&other) {
            let leader = char::from(b'a' + leader as u8).to_string();
            assert!(votes(&leader), "{status}");
            break;
        }
        assert!(Instant::now() < by, "it votes still: {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_disk_from_the_past_is_to_be_trusted_and_only_by_its_node() {
    let world = World::started(2, AdminConfig::default()).await;
    let trust = async |at: usize, name: &str| {
        let path = format!("/v1/nodes/{name}/trust-disk");
        world.client(at).post(&path, &Value::Null).await
    };
    assert_eq!(trust(0, "a").await.refused(409), "not_from_past");
    assert_eq!(trust(0, "b").await.refused(409), "other_node");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_hands_over() {
    let world = World::started(3, AdminConfig::default()).await;
    let leader = world.leader();
    let to = (leader + 1) % 3;
    let name = char::from(b'a' + to as u8).to_string();
    let asked = world.client(to).post("/v1/leader", &json!({ "to": "zoe" })).await;
    assert_eq!(asked.refused(422), "invalid");
    let other = (leader + 2) % 3;
    let not_leader = world.client(other).post("/v1/leader", &json!({ "to": name })).await;
    assert_eq!(not_leader.refused(409), "not_leader");
    assert_eq!(
        not_leader.body["error"]["leader"]["node"],
        char::from(b'a' + leader as u8).to_string()
    );
    let done = world.client(leader).post("/v1/leader", &json!({ "to": name })).await.done();
    assert_eq!(done["leader"]["node"], name.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_writes_are_refused_at_once_and_reads_say_that_they_are_stale() {
    let mut world = World::started(3, AdminConfig::default()).await;
    world.client(0).put("/v1/models/before", &json!({})).await.done();
    let survivor = (world.leader() + 1) % 3;
    for at in (0..3).filter(|at| *at != survivor) {
        world.kill(at).await;
    }
    let client = world.client(survivor);
    let control_plane = &world.node(survivor).control_plane;
    let lease = Duration::from_millis(1_000);
    eventually("the leader is silent for a lease", || {
        control_plane.status().age.is_some_and(|age| age > lease)
    })
    .await;
    for _ in 0..20 {
        let begin = Instant::now();
        let refused = client.put("/v1/models/after", &json!({})).await;
        assert_eq!(refused.refused(503), "no_quorum");
        assert!(refused.body["error"]["leader"].is_null(), "it answers no writes: {refused:?}");
        assert_eq!(client.get("/v1/models/before").await.refused(503), "no_quorum");
        // The refusal comes at once, not after the time limit.
        assert!(begin.elapsed() < AdminConfig::default().time_limit / 2, "{:?}", begin.elapsed());
    }
    let stale = client.get("/v1/models/before?consistency=stale").await.done();
    assert_eq!(stale["consistency"], "stale");
    assert!(stale["age_ms"].as_u64().unwrap() > 1_000, "{stale}");
    let dry = client.post("/v1/regions/region-a/drain?dry_run=true", &Value::Null).await.done();
    assert_eq!(dry["consistency"], "stale");
    assert_eq!(dry["changes"][0]["after"]["record"]["state"], "draining");
    let status = client.get("/v1/status").await.done();
    assert!(status["age_ms"].as_u64().unwrap() > 1_000, "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_met_with_the_loss_of_its_leader_is_settled_by_the_next_one() {
    let mut world = World::started(3, AdminConfig::default()).await;
    let leader = world.leader();
    let follower = world.client((leader + 1) % 3);
    let writes = tokio::task::JoinSet::from_iter((0..8).map(|writer| {
        let client = follower.clone();
        async move {
            let mut answers = Vec::new();
            for number in 0..20 {
                let path = format!("/v1/models/w{writer}-{number}");
                let answer = client.with("if-none-match", "*").put(&path, &json!({})).await;
                answers.push((path, answer));
            }
            answers
        }
    }));
    let applied = world.node((leader + 1) % 3).control_plane.applied();
    let at = *applied.borrow();
    eventually("writes are under way", || *applied.borrow() > at + 10).await;
    world.kill(leader).await;
    let client = follower;
    for (path, answer) in writes.join_all().await.into_iter().flatten() {
        match answer.status.as_u16() {
            // Each write was carried out exactly once, though some were proposed twice.
            200 => {
                let read = read_again(&client, &path).await;
                assert_eq!(read["item"]["version"], answer.body["version"], "{path}");
            }
            429 => assert_eq!(answer.refused(429), "budget"),
            _ => assert_eq!(answer.refused(503), "no_quorum"),
        }
    }
}

/// Reads again until there is a leader.
async fn read_again(client: &super::client::Client, path: &str) -> Value {
    let by = Instant::now() + super::world::PATIENCE;
    loop {
        let answer = client.get(path).await;
        if answer.status != 503 {
            return answer.done();
        }
        assert!(Instant::now() < by, "no leader");
    }
}
