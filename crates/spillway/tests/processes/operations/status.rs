//! `spillway status` and `regions` against real nodes: their output for a cluster that loses
//! voters.

use serde_json::Value;
use spillway_emulator::{Emulator, EmulatorConfig};

use super::world::{NODES, World};
use crate::caller::chat;
use crate::machines::{Machines, admin, data, spillway};

/// Returns the first line of a command's output, and its exit code.
fn first_line(at: usize, words: &[&str]) -> (String, Option<i32>) {
    let done = World::order(at, words);
    let text = String::from_utf8_lossy(&done.stdout);
    (text.lines().next().unwrap_or_default().to_owned(), done.status.code())
}

fn status(at: usize) -> (String, Option<i32>) {
    first_line(at, &["status"])
}

fn json(at: usize, words: &[&str]) -> Value {
    let done = World::order(at, &[words, &["--json"]].concat());
    serde_json::from_slice(&done.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_says_in_words_that_it_loses_its_voters() {
    let mut world = World::started().await;
    world.until("all is well", 0, || {
        status(0) == ("healthy: serves 1 of 1 replicas; 3 of 3 voters".to_owned(), Some(0))
    });
    let answer = json(0, &["status"]);
    let nodes = answer["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), NODES);
    let is_known = |node: &Value| {
        node["version"]
            .as_str()
            .is_some_and(|it| it.starts_with(concat!(env!("CARGO_PKG_VERSION"), "+")))
            && node["lag_entries"].as_u64().is_some()
    };
    assert!(nodes.iter().all(is_known), "{answer:#}");
    assert_eq!(nodes.iter().filter(|node| node["role"] == "leader").count(), 1);
    assert!(nodes[1]["rtt_ms"].as_f64().is_some(), "{answer:#}");

    world.machines.kill(2);
    world.until("the loss of n2", 0, || {
        let (line, code) = status(0);
        line.starts_with("degraded: 2 of 3 voters reporting (n2 is silent for") && code == Some(1)
    });
    let table = World::order(0, &["status"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.lines().any(|line| line.starts_with("n2 ") && line.contains("silent for")));

    world.machines.kill(1);
    world.until("the loss of the quorum", 0, || {
        let (line, code) = status(0);
        line.starts_with("NO QUORUM: 1 of 3 voters reporting") && code == Some(1)
    });
    for told in ["the quorum is lost", "a region is lost"] {
        world.until(told, 0, || world.machines.log(0).contains(told));
    }
    world.serves(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_are_shown_as_they_are_with_orders() {
    let mut world = World::started().await;
    let region = |name: &str| {
        let answer = json(0, &["get", "regions"]);
        let items = answer["items"].as_array().unwrap().clone();
        items.into_iter().find(|item| item["key"] == name).unwrap_or_default()
    };
    world.until("all regions", 0, || {
        let is_up = |name: &str| {
            let world = region(name)["world"].clone();
            world["is_reachable"] == true && world["replicas_up"] == 1
        };
        ["region-0", "region-1", "region-2"].into_iter().all(is_up)
    });
    World::text(0, &["weight", "region-1", "50"]);
    let table = World::text(0, &["get", "regions"]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[1].starts_with("region-0  here"), "{table}");
    assert!(lines[2].contains("up") && lines[2].ends_with("weight 50 %"), "{table}");

    // Its clients' requests go elsewhere, and are counted.
    World::text(0, &["drain", "region-0", "--evacuate"]);
    world.until("a request elsewhere", 0, || {
        let sent = ["region-1", "region-2"].map(|name| region(name)["world"]["sent"].as_u64());
        tokio::task::block_in_place(|| {
            let asking = chat(data(0), false, 1);
            tokio::runtime::Handle::current().block_on(asking).is_ok()
        }) && sent.iter().flatten().sum::<u64>() > 0
    });
    assert!(World::text(0, &["get", "regions"]).contains("evacuating"));
    what_happened_is_told();
    world.machines.kill(2);
    world.until("the silence of region-2", 0, || {
        let table = World::text(0, &["get", "regions"]);
        table.lines().any(|line| line.starts_with("region-2") && line.contains("silent"))
    });
}

/// Checks the commands that look back, after an order and a request that went elsewhere.
fn what_happened_is_told() {
    let audit = World::text(0, &["audit"]);
    assert!(audit.contains("weight of region region-1"), "{audit}");
    let leader = World::text(0, &["leader"]);
    assert!(leader.contains(" leads in term "), "{leader}");

    let tail = World::text(0, &["tail", "--once", "--status", "2xx"]);
    assert!(tail.lines().any(|line| line.contains("(forwarded)")), "{tail}");
    let answer = json(0, &["tail", "--once", "--last", "1", "--status", "2xx"]);
    let id = answer["id"].as_str().unwrap().to_owned();
    let story = World::text(0, &["explain", &id]);
    assert!(story.starts_with("It was forwarded to region-"), "{story}");
    assert!(!World::order(0, &["explain", "nobody-s-id"]).status.success());

    let top = World::text(0, &["top", "--once"]);
    for part in ["REGIONS", "region-2", "REPLICAS", " leads in term "] {
        assert!(top.contains(part), "{part}: {top}");
    }
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    let answer = json(0, &["debug", bundle.to_str().unwrap()]);
    let missing: Vec<&str> =
        answer["missing"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(missing, ["config.toml: not asked for", "spillway.log: not asked for"]);
    let requests = std::fs::read_to_string(bundle.join("requests.json")).unwrap();
    assert!(requests.contains(&id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_another_identity_is_refused_by_name_on_both_sides() {
    let emulator = Emulator::start(EmulatorConfig::default()).await.unwrap();
    let url = emulator.addresses()[0];
    let replica =
        format!("[[replica]]\nname = \"a\"\nurl = \"http://{url}\"\nmodels = [\"tiny\"]\n");
    let mut machines = Machines::new(2, "", |_| replica.clone());
    // The config of the first node has the other's region wrong.
    let config = machines.path("n0.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("region = \"region-1\"", "region = \"region-x\""))
        .unwrap();
    machines.start(0);
    machines.start(1);
    let told = "shows test/region-1/n1, and test/region-x/n1 was expected";
    let until = |what: &str, condition: &dyn Fn() -> bool| {
        spillway_testkit::eventually_blocking(what, condition);
    };
    until("n0 says who is refused", &|| machines.log(0).contains(told));
    until("n1 says that it is refused", &|| {
        machines.log(1).contains("refuses this node's certificate")
    });
    let log = machines.log(0);
    let address = spillway(&["status", "--admin", &format!("http://{}", admin(0))]);
    let line = String::from_utf8_lossy(&address.stdout).into_owned();
    assert!(line.contains("NO CLUSTER YET"), "{line}");
    assert_eq!(log.matches(told).count(), 1, "it is told once a minute:\n{log}");
}
