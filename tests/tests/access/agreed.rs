//! Keys that the cluster agreed on: admitted everywhere, and refused everywhere once they are
//! revoked.

use std::time::{Duration, Instant};

use http::{HeaderValue, header};
use serde_json::json;
use spillway_cluster_state::{
    Actor, Command, Expect, Item, KeyId, Model, Outcome, RequestId, Tenant, TenantTerms, TokenPrice,
};
use spillway_node::Node;
use spillway_raft::ProposeError;
use spillway_tests::{
    Client, Cluster, OK, PATIENCE, SLOWDOWN, Scripted, Setup, chat, eventually, post, retried,
};

use crate::keys::{Key, record};

/// Longest time for a command, elections included.
const LIMIT: Duration = PATIENCE;
/// Longest time until a revocation takes effect everywhere.
const REVOKED_WITHIN: Duration = Duration::from_secs(2);

pub(crate) async fn agree(node: &Node, item: Item) {
    let control_plane = node.control_plane().expect("a part in the cluster");
    let command = Command::Put { item, expect: Expect::Any };
    // A repeated request id is carried out once.
    let request = Some(RequestId(fastrand::u128(..).to_le_bytes()));
    let actor = Actor::Operator("ada".to_owned());
    // An election may be under way, or come in between.
    let done = retried(ProposeError::is_transient, || {
        control_plane.propose(command.clone(), actor.clone(), request, LIMIT)
    });
    let outcome = done.await.expect("an outcome").outcome;
    assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
}

pub(crate) async fn status(node: &Node, key: &Key) -> u16 {
    Client::once(node.addresses()[0], key.sign(chat("tiny", ""))).await.status
}

pub(crate) async fn until(node: &Node, key: &Key, expected: u16) -> Duration {
    let since = Instant::now();
    while status(node, key).await != expected {
        assert!(since.elapsed() < LIMIT, "never {expected}");
        // wait: the next look.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    since.elapsed()
}

#[tokio::test]
async fn a_key_of_the_cluster_is_let_in_and_revoked_everywhere() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["one", "three", "two"]).agreeing();
    let own = Key::new("own", "acme", "");
    let mut nodes = Vec::new();
    for index in 0..3 {
        let setup = Setup::new().replica("a", replica.address).table(&*own.block);
        nodes.push(cluster.start(index, setup).await);
    }
    let is_formed = || {
        let counts =
            |node: &Node| node.control_plane().expect("one").published().records().nodes.len();
        nodes.iter().all(|node| counts(node) == 3)
    };
    eventually("the cluster is formed", is_formed).await;
    let key = Key::new("a", "acme", "");
    for node in &nodes {
        assert_eq!(status(node, &key).await, 401, "not yet");
    }
    let good = record(&key.text, "acme");
    agree(&nodes[0], Item::Tenant("acme".into(), Tenant::default())).await;
    agree(&nodes[0], Item::Key(KeyId::from("a"), good.clone())).await;
    for node in &nodes {
        until(node, &key, 200).await;
        assert_eq!(status(node, &own).await, 200, "the config's own key too");
    }
    let mut revoked = good;
    revoked.is_revoked = true;
    // Even a key of the config is revoked: the cluster takes precedence.
    let mut own_revoked = record(&own.text, "acme");
    own_revoked.is_revoked = true;
    let since = Instant::now();
    agree(&nodes[1], Item::Key(KeyId::from("a"), revoked)).await;
    for node in &nodes {
        until(node, &key, 401).await;
    }
    assert!(since.elapsed() <= SLOWDOWN * REVOKED_WITHIN, "{:?}", since.elapsed());
    agree(&nodes[1], Item::Key(KeyId::from("own"), own_revoked)).await;
    for node in &nodes {
        until(node, &own, 401).await;
    }
    let other = Key::new("b", "acme", "");
    agree(&nodes[2], Item::Key(KeyId::from("b"), record(&other.text, "acme"))).await;
    for node in &nodes {
        until(node, &other, 200).await;
    }
    let suspended = Tenant { is_suspended: true, ..Tenant::default() };
    agree(&nodes[2], Item::Tenant("acme".into(), suspended)).await;
    for node in &nodes {
        until(node, &other, 401).await;
    }
    for node in nodes {
        node.stop().await;
    }
}

/// Three nodes that know each other, and need keys.
async fn formed(replica: &str) -> (Cluster, Vec<Node>) {
    let cluster = Cluster::new(&["one", "three", "two"]).agreeing();
    let own = Key::new("own", "other", "");
    let mut nodes = Vec::new();
    for index in 0..3 {
        let setup = Setup::new().replica_with("a", replica, "models = [\"tiny\"]");
        nodes.push(cluster.start(index, setup.table(&*own.block)).await);
    }
    eventually("the cluster is formed", || {
        let counts =
            |node: &Node| node.control_plane().expect("one").published().records().nodes.len();
        nodes.iter().all(|node| counts(node) == 3)
    })
    .await;
    (cluster, nodes)
}

#[tokio::test]
async fn a_fresh_key_works_where_it_was_made_and_a_moment_later_everywhere() {
    const ROUNDS: usize = 9;
    let replica = Scripted::start().await.serve(OK);
    let (_cluster, nodes) = formed(&format!("http://{}", replica.address)).await;
    agree(&nodes[0], Item::Tenant("acme".into(), Tenant::default())).await;
    let mut elsewhere = 0;
    for round in 0..ROUNDS {
        let (node, other) = (&nodes[round % 3], &nodes[(round + 1) % 3]);
        let admin = node.admin_address().expect("an admin listener");
        let made = retried(
            |reply: &u16| *reply == 503,
            || async {
                let body = json!({ "record": { "tenant": "acme" } }).to_string();
                let reply = Client::once(admin, post("/v1/keys", body)).await;
                if reply.status == 201 { Ok(reply) } else { Err(reply.status) }
            },
        );
        let secret = made.await.expect("a key").json()["secret"].as_str().expect("text").to_owned();
        let ask = async |node: &Node| {
            let mut request = chat("tiny", "");
            let bearer = HeaderValue::try_from(format!("Bearer {secret}")).expect("a value");
            request.headers_mut().insert(header::AUTHORIZATION, bearer);
            Client::once(node.addresses()[0], request).await.status
        };
        assert_eq!(ask(node).await, 200, "the node that made it, round {round}");
        // It waits a second at most, which a busy machine may need.
        elsewhere += usize::from(ask(other).await == 200);
    }
    assert!(elsewhere > ROUNDS / 2, "{elsewhere} of {ROUNDS} at the first request");
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn isolation_and_budgets_of_a_tenant_of_the_cluster_hold_at_all_nodes() {
    let body = r#"{"usage":{"prompt_tokens":1000,"completion_tokens":1000}}"#;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let reply = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let replica = Scripted::start().await.serve(reply);
    let (_cluster, nodes) = formed(&format!("http://{}", replica.address)).await;
    let price = TokenPrice { prompt: 1_000_000, cached: None, completion: 1_000_000 };
    let priced = Model { price: Some(price), ..Model::default() };
    agree(&nodes[0], Item::Model(Model::EVERY.into(), priced)).await;
    let of = |terms| Item::Tenant("acme".into(), Tenant { terms, ..Tenant::default() });
    let isolated = TenantTerms { isolates_prompts: true, ..TenantTerms::default() };
    agree(&nodes[0], of(isolated)).await;
    let key = Key::new("a", "acme", "");
    agree(&nodes[0], Item::Key(KeyId::from("a"), record(&key.text, "acme"))).await;
    for node in &nodes {
        until(node, &key, 200).await;
        eventually("its prompts are kept apart", || {
            node.gateway().clients.authenticator.isolates_any()
        })
        .await;
    }
    // Less than the cost of one request: earlier spending counts.
    let poor = TenantTerms { budget_per_day: Some(1_000), ..isolated };
    agree(&nodes[1], of(poor)).await;
    for node in &nodes {
        until(node, &key, 429).await;
    }
    let rich = TenantTerms { budget_per_day: Some(1_000_000_000), ..isolated };
    agree(&nodes[2], of(rich)).await;
    for node in &nodes {
        until(node, &key, 200).await;
    }
    for node in nodes {
        node.stop().await;
    }
}
