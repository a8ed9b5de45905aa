//! Keys change while the node runs.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use spillway_config::Config;
use spillway_node::Node;
use spillway_rate_limit::{Scope, Units};
use spillway_tests::{
    Client, OK, PATIENCE, Page, SLOWDOWN, Scripted, Setup, chat, eventually, get,
};
use tempfile::TempDir;

use crate::keys::Key;

/// Longest time until a revocation takes effect everywhere.
const REVOKED_WITHIN: Duration = Duration::from_secs(2);

struct File(TempDir);

impl File {
    fn new(text: &str) -> Self {
        let file = Self(tempfile::tempdir().expect("a folder"));
        std::fs::write(file.path(), text).expect("writes");
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("spillway.toml")
    }

    async fn start(&self) -> Node {
        Node::start(Config::load_with(&self.path(), []).expect("a config")).await.expect("a node")
    }

    fn replace(&self, text: &str) {
        let beside = self.0.path().join("new");
        std::fs::write(&beside, text).expect("writes");
        std::fs::rename(beside, self.path()).expect("renames");
    }
}

async fn reloads(node: &Node, result: &str, count: f64) {
    let total = || Page::of(node).sum("spillway_config_reloads_total", &[("result", result)]);
    eventually("it is reloaded", || total() >= count).await;
}

/// Asks over and over on one connection until the status is this one.
async fn until(client: &mut Client, key: &Key, status: u16) -> Duration {
    let since = Instant::now();
    loop {
        let reply = client.fetch(key.sign(chat("tiny", ""))).await;
        if reply.status == status {
            return since.elapsed();
        }
        assert!(since.elapsed() < PATIENCE, "still {}", reply.status);
        // wait: the next look, so that the node has the machine to itself in between.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_revoked_key_stops_soon_on_open_connections_too() {
    let replica = Scripted::start().await.serve(OK);
    let (kept, revoked) = (Key::new("a", "acme", ""), Key::new("b", "acme", ""));
    let setup = Setup::new().replica("a", replica.address).table(&*kept.block);
    let file = File::new(&setup.clone().table(&*revoked.block).text());
    let node = file.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    until(&mut client, &revoked, 200).await;
    file.replace(&setup.clone().table(Key::new("b", "acme", "revoked = true").block).text());
    let took = until(&mut client, &revoked, 401).await;
    assert!(took <= SLOWDOWN * REVOKED_WITHIN, "{took:?}");
    until(&mut client, &kept, 200).await;
    // Admitted again, and then removed altogether.
    file.replace(&setup.clone().table(&*revoked.block).text());
    until(&mut client, &revoked, 200).await;
    file.replace(&setup.text());
    let took = until(&mut client, &revoked, 401).await;
    assert!(took <= SLOWDOWN * REVOKED_WITHIN, "{took:?}");
    assert!(client.is_open());
}

#[tokio::test]
async fn a_new_key_is_let_in_and_keys_are_asked_for_from_then_on() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().replica("a", replica.address);
    let file = File::new(&setup.text());
    let node = file.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    assert_eq!(client.fetch(chat("tiny", "")).await.status, 200, "loopback without keys");
    let key = Key::new("a", "acme", "");
    file.replace(&setup.clone().table(&*key.block).text());
    reloads(&node, "applied", 1.0).await;
    assert_eq!(client.fetch(chat("tiny", "")).await.status, 401);
    assert_eq!(client.fetch(key.sign(chat("tiny", ""))).await.status, 200);
    // The last key goes: that must not let everybody in.
    file.replace(&setup.text());
    reloads(&node, "applied", 2.0).await;
    assert_eq!(client.fetch(chat("tiny", "")).await.status, 401);
    assert_eq!(client.fetch(key.sign(chat("tiny", ""))).await.status, 401);
    file.replace(&setup.set("auth.mode = \"none\"").text());
    reloads(&node, "applied", 3.0).await;
    assert_eq!(client.fetch(chat("tiny", "")).await.status, 200, "now it was said");
}

#[tokio::test]
async fn a_bad_file_leaves_the_keys_as_they_were() {
    let replica = Scripted::start().await.serve(OK);
    let key = Key::new("a", "acme", "");
    let setup = Setup::new().replica("a", replica.address);
    let file = File::new(&setup.clone().table(&*key.block).text());
    let node = file.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    assert_eq!(client.fetch(key.sign(chat("tiny", ""))).await.status, 200);
    file.replace(&setup.table(key.block.replace("salt = \"5a", "salt = \"zz")).text());
    reloads(&node, "refused", 1.0).await;
    assert_eq!(client.fetch(key.sign(chat("tiny", ""))).await.status, 200);
    assert_eq!(client.fetch(chat("tiny", "")).await.status, 401);
}

#[tokio::test]
async fn listeners_keep_what_is_said_of_them_when_they_change_places() {
    let replica = Scripted::start().await.serve(OK);
    let key = Key::new("a", "acme", "");
    let [open, closed] = free_addresses();
    let text = |sections: [String; 2]| {
        let text = Setup::new().replica("a", replica.address).table(&*key.block).text();
        let (head, rest) = text.split_once("[[listener]]").expect("a listener");
        let rest = rest.split_once("[[").expect("a replica").1;
        format!("{head}{}{}[[{rest}", sections[0], sections[1])
    };
    let section =
        |address, auth| format!("[[listener]]\naddress = \"{address}\"\nauth = \"{auth}\"\n");
    let file = File::new(&text([section(open, "none"), section(closed, "keys")]));
    let node = file.start().await;
    let status = async |address| Client::once(address, chat("tiny", "")).await.status;
    assert_eq!((status(open).await, status(closed).await), (200, 401));
    file.replace(&text([section(closed, "keys"), section(open, "none")]));
    reloads(&node, "applied", 1.0).await;
    assert_eq!((status(open).await, status(closed).await), (200, 401));
    // Both change, and each listener follows its own section.
    file.replace(&text([section(closed, "none"), section(open, "keys")]));
    reloads(&node, "applied", 2.0).await;
    assert_eq!((status(open).await, status(closed).await), (401, 200));
}

/// Reserves addresses that no other process on this machine gets: the ports were free, and the host
/// is this process's own.
fn free_addresses() -> [SocketAddr; 2] {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, high | 0x80, low, 1);
    let listeners =
        [0, 0].map(|port| std::net::TcpListener::bind((host, port)).expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("an address"))
}

fn limited(requests: u32) -> String {
    format!(
        "[[limit]]\nname = \"tenant:acme\"\nrequests_per_min = {requests}\n\
         [[limit]]\nname = \"model:tiny\"\ntokens_per_min = 90000\n"
    )
}

#[tokio::test]
async fn limits_of_the_file_change_while_the_node_runs_and_what_was_used_counts_on() {
    let replica = Scripted::start().await.serve(OK);
    let (one, other) = (Key::new("a", "acme", ""), Key::new("b", "acme", ""));
    let keys = format!("{}{}", one.block, other.block);
    let setup = Setup::new().replica("a", replica.address).table(&*keys);
    let file = File::new(&setup.clone().table(&*limited(2)).text());
    let node = file.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for (key, remaining) in [(&one, "1"), (&other, "0")] {
        let reply = client.fetch(key.sign(chat("tiny", ",\"max_tokens\":9"))).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        // The tenant's requests, and the model's tokens.
        assert_eq!(reply.header("x-ratelimit-limit-requests"), Some("2"));
        assert_eq!(reply.header("x-ratelimit-remaining-requests"), Some(remaining));
        assert_eq!(reply.header("x-ratelimit-limit-tokens"), Some("90000"));
    }
    let refused = client.fetch(one.sign(chat("tiny", ""))).await;
    assert_eq!(refused.status, 429, "its tenant has used all: {}", refused.text());
    let labels = [("limit", "tenant:acme"), ("kind", "requests_per_min")];
    assert_eq!(Page::of(&node).sum("spillway_limit_share", &labels), 2.0);
    file.replace(&setup.clone().table(&*limited(3)).text());
    reloads(&node, "applied", 1.0).await;
    let reply = client.fetch(one.sign(chat("tiny", ""))).await;
    let remaining = reply.header("x-ratelimit-remaining-requests");
    assert_eq!((reply.status, remaining), (200, Some("0")), "{}", reply.text());
    // Operators see it, though the node is in no cluster.
    let shown = |path: &'static str| async {
        let admin = node.admin_address().expect("an admin listener");
        let reply = Client::once(admin, get(path)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    };
    let listed = shown("/v1/limits").await;
    assert_eq!(listed["items"], serde_json::json!([]));
    assert_eq!(listed["file"][1]["key"], "model:tiny");
    for item in [&listed["file"][0], &shown("/v1/limits/tenant:acme").await["item"]] {
        assert_eq!((&item["key"], &item["version"]), (&"tenant:acme".into(), &Value::Null));
        assert_eq!(item["record"]["requests_per_min"], 3);
        assert_eq!(item["info"]["file"]["used"]["requests_per_min"], 3);
        assert_eq!(item["info"]["file"]["is_replaced"], false);
    }
    file.replace(&setup.text());
    reloads(&node, "applied", 2.0).await;
    let reply = client.fetch(one.sign(chat("tiny", ""))).await;
    assert_eq!((reply.status, reply.header("x-ratelimit-limit-requests")), (200, None));
    assert_eq!(shown("/v1/limits").await["file"], serde_json::json!([]));
}

#[tokio::test]
async fn debt_to_a_limit_of_the_file_is_paid_while_nobody_asks() {
    let limit = "[[limit]]\nname = \"global\"\ntokens_per_min = 1000\n";
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().replica("a", replica.address).table(limit).start().await;
    let quotas = &node.gateway().clients.quotas;
    quotas.owe(&Scope::Global, Units([0, 700, 0]));
    let standing = || {
        let usage = quotas.usage(&Scope::Global, Instant::now()).expect("a limit");
        (usage.in_use.0[1], usage.debt.0[1])
    };
    eventually("all of it is charged", || standing() == (700, 0)).await;
}
