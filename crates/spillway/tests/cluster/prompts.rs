//! Commands about hot prompts, and about where requests would go.

use std::time::Duration;

use serde_json::json;
use spillway_cluster_state::{Actor, Command, HotBlock, HotDelta};

use crate::world::World;

#[test]
fn the_trie_is_a_picture_and_its_key_can_be_changed() {
    let world = World::new();
    let nothing = world.text(&["trie"]);
    assert!(nothing.starts_with("0 blocks, 0 B, key epoch 0\n"), "{nothing}");
    let block = |hash, parent, depth| HotBlock { hash, parent, depth, heat: 12 };
    let delta = HotDelta { enter: vec![block(0xabc, 0, 1), block(0xdef, 0xabc, 2)], leave: vec![] };
    let command = Command::HotBlocks { region: "eu".into(), key_epoch: 0, delta };
    let limit = Duration::from_secs(10);
    let proposing = world.control_plane.propose(command, Actor::Node, None, limit);
    world.runtime.block_on(proposing).unwrap();
    let picture = world.text(&["trie", "--top", "5"]);
    assert!(picture.contains(&format!("eu  {} 2 blocks", "█".repeat(40))), "{picture}");
    assert!(picture.contains("0000000000000abc  1      64.0  eu"), "{picture}");
    assert!(!world.text(&["trie"]).contains("abc"));
    assert_eq!(world.json(&["trie", "--top", "1"])["top"].as_array().unwrap().len(), 1);
    let dry = world.text(&["trie", "rotate", "--dry-run"]);
    assert!(dry.starts_with("+ settings prefix.key_epoch\n  + record.value: 1\n"), "{dry}");
    assert!(dry.contains("- trie all\n  - blocks: 2\n"), "{dry}");
    assert!(world.text(&["trie", "rotate"]).starts_with("done: version "));
    let after = world.text(&["trie"]);
    assert!(after.starts_with("0 blocks, 0 B, key epoch 1\n"), "{after}");
}

#[test]
fn a_request_is_explained_as_a_table() {
    let world = World::new();
    let table = world.text(&["explain", "--model", "big", "--prompt", "four"]);
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = "It would go to gpu-b: the replica had the lowest predicted cost, which is mostly the time to the first token.\nmodel big, route chat, policy predicted_latency\n\
                4 blocks of prompt, 1 of them cached here\n";
    assert!(table.starts_with(head), "{table}");
    assert_eq!(lines[4], ["replica", "cost", "wait", "prefill", "why", "not"]);
    assert_eq!(lines[5], ["gpu-a", "30.2", "30.0", "0.2", "/v1/chat/completions"]);
    assert_eq!(lines[6], ["*", "gpu-b", "2.5", "0.0", "2.5", "-"]);
    let file = world.path("body.json");
    std::fs::write(&file, "{\"model\": \"m\"}\n").unwrap();
    let body = ["explain", "--body", file.to_str().unwrap()];
    let more = ["--header", "x-session-id: s7", "--tenant", "acme", "--path", "/v1/embeddings"];
    let told = world.json(&[&body[..], &more].concat());
    assert_eq!((&told["model"], &told["tenant"]), (&json!("m"), &json!("acme")));
    assert_eq!(told["candidates"][0]["why"], "/v1/embeddings");
    assert_eq!(told["candidates"][1]["why"], "s7");
    std::fs::write(&file, "{}").unwrap();
    assert!(world.fault(&body).contains("it names no model (invalid): add it"));
    std::fs::write(&file, "{").unwrap();
    assert!(world.fault(&body).contains("the body is no JSON"));
    assert!(world.fault(&["explain"]).contains("--model"), "it needs one of both");
}
