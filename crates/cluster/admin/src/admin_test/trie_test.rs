//! Tests of hot prompts, of their key, and of explanations.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use spillway_cluster_state::{Actor, Command, HotBlock, HotDelta, Outcome};
use spillway_control_plane::ControlPlane;
use spillway_rollout::{ArmFigures, RequestFacts};
use spillway_types::{AwayReason, ModelName, RequestEntry, Steering};
use spillway_usage::{Money, UsageQuery, UsageTable, Used};

use super::client::Client;
use super::world::{World, listen};
use crate::{
    Admin, AdminConfig, AllNodes, AllReplicas, ArmsOfNodes, AskedNode, Asking, ClusterUsage,
    Explain, ExplainError, ExplainRequest, Explaining, HistoryPointOverview, HistoryScope,
    ListenerOverview, Listing, Looking, NodeOverview, Overview, RegionOverview, RegionReplica,
    ReplicaOverview, ReplicaTally, RequestFilter, RequestHistoryOverview, Requests,
    RequestsOfNodes, RouteOverview, Steered, SteeredRegion, Summing, parse_token_file,
};

/// Test double that repeats the question. Real answers are made by a node's data path.
#[derive(Debug)]
pub(super) struct Teller;

impl Steered for Teller {
    fn regions(&self) -> Vec<SteeredRegion> {
        let region = |name: &str, is_heard, steering| SteeredRegion {
            name: name.into(),
            is_heard,
            steering,
            rtt_ms: 93.04,
        };
        let draining = Steering::Away(AwayReason::Draining);
        vec![
            region("eu", true, Steering::Send),
            region("us", true, draining),
            region("ap", false, Steering::Send),
        ]
    }
}

impl Overview for Teller {
    fn node(&self) -> Looking<'_> {
        let replicas = ReplicaTally { known: 2, up: 2, ..ReplicaTally::default() };
        let listener = ListenerOverview {
            address: "127.0.0.1:8080".to_owned(),
            auth: "keys".to_owned(),
            is_tls: true,
        };
        let node = NodeOverview {
            name: "a".to_owned(),
            region: "region-a".to_owned(),
            listeners: vec![listener],
            replicas,
            is_in_cluster: true,
            ..NodeOverview::default()
        };
        Box::pin(std::future::ready(node))
    }

    fn regions(&self) -> Vec<RegionOverview> {
        vec![RegionOverview { region: "eu".to_owned(), is_own: true, ..RegionOverview::default() }]
    }

    fn history(&self) -> RequestHistoryOverview {
        RequestHistoryOverview::default()
    }

    fn routes(&self) -> Vec<RouteOverview> {
        vec![RouteOverview { name: "all".to_owned(), ..RouteOverview::default() }]
    }

    fn replicas(&self) -> Listing<'_> {
        let replica = ReplicaOverview { name: "gpu-a".to_owned(), ..ReplicaOverview::default() };
        Box::pin(std::future::ready(vec![replica]))
    }

    fn usage(&self, query: UsageQuery) -> Summing<'_> {
        let (tenant, key, model) = (Some("acme".into()), Some("k1".into()), Some("big".into()));
        let used = Used {
            requests: 2,
            errors: 1,
            prompt: 1_000,
            cached: 64,
            completion: 500,
            estimated: 30,
            cost: Money::of_millionths(450),
        };
        let mut table = UsageTable::default();
        table.add_line(&query, query.since, &(tenant, key, model), &used);
        let node = |name: &str, region: &str, fault: Option<&str>| AskedNode {
            name: name.to_owned(),
            region: region.to_owned(),
            fault: fault.map(str::to_owned),
        };
        let nodes = vec![node("a", "eu", None), node("b", "us", Some("there is no connection"))];
        Box::pin(std::future::ready(ClusterUsage::new(&query, nodes, table)))
    }
}

impl AllNodes for Teller {
    fn history(&self, _: HistoryScope) -> Asking<'_, RequestHistoryOverview> {
        let point = HistoryPointOverview { requests_per_s: 2.0, ..HistoryPointOverview::default() };
        let history = RequestHistoryOverview {
            points: vec![point],
            nodes: vec![AskedNode::default()],
            ..RequestHistoryOverview::default()
        };
        Box::pin(std::future::ready(history))
    }

    fn replicas(&self) -> Asking<'_, AllReplicas> {
        let replica = ReplicaOverview { name: "gpu-a".to_owned(), ..ReplicaOverview::default() };
        let replicas = vec![RegionReplica { region: "eu".to_owned(), replica }];
        Box::pin(std::future::ready(AllReplicas { nodes: vec![AskedNode::default()], replicas }))
    }

    fn requests(&self, filter: RequestFilter, limit: usize) -> Asking<'_, RequestsOfNodes> {
        let requests = self.recent(&filter, limit);
        Box::pin(std::future::ready(RequestsOfNodes { nodes: Vec::new(), requests }))
    }

    fn arms(&self, _: ModelName, _: u32) -> Asking<'_, ArmsOfNodes> {
        let (mut baseline, mut candidate) = (ArmFigures::default(), ArmFigures::default());
        for number in 0..400 {
            baseline.record(RequestFacts::default());
            let has_failed = number % 2 == 0;
            candidate.record(RequestFacts { has_failed, ..RequestFacts::default() });
        }
        let nodes = vec![AskedNode::default()];
        Box::pin(std::future::ready(ArmsOfNodes { nodes, baseline, candidate }))
    }
}

impl Requests for Teller {
    fn recent(&self, filter: &RequestFilter, limit: usize) -> Vec<RequestEntry> {
        let entry = RequestEntry { number: 7, status: 503, ..RequestEntry::default() };
        [entry].into_iter().filter(|entry| filter.passes(entry)).take(limit).collect()
    }
}

impl Explain for Teller {
    fn explain(&self, request: ExplainRequest) -> Explaining<'_> {
        Box::pin(async move {
            if request.body.starts_with(b"[") {
                let (cause, remedy) = ("the body is no object".into(), "send one".into());
                return Err(ExplainError { cause, remedy });
            }
            let heard = json!({
                "path": request.path,
                "headers": request.headers.len(),
                "session": request.headers.get("x-session-id").map(|it| it.to_str().unwrap()),
                "tenant": request.tenant.map(|it| it.to_string()),
                "body": String::from_utf8(request.body.to_vec()).unwrap(),
            });
            let candidate = json!({
                "name": "gpu-a", "region": "eu", "chosen": true, "why": "least cost",
                "cost_ms": 1.5, "terms": { "wait": 1.5, "prefill": null }, "queued": 3,
            });
            Ok(json!({
                "model": "m", "policy": "predicted_latency", "chosen": "gpu-a", "blocks": 2,
                "candidates": [candidate], "heard": heard,
            }))
        })
    }
}

async fn report(
    control_plane: &ControlPlane,
    region: &str,
    key_epoch: u64,
    hashes: &[u64],
) -> Outcome {
    let block = |(at, hash): (usize, &u64)| HotBlock {
        hash: *hash,
        parent: if at == 0 { 0 } else { hashes[at - 1] },
        depth: at as u16 + 1,
        heat: 20 - 2 * at as u8,
    };
    let delta = HotDelta { enter: hashes.iter().enumerate().map(block).collect(), leave: vec![] };
    let command = Command::HotBlocks { region: region.into(), key_epoch, delta };
    let limit = Duration::from_secs(10);
    control_plane.propose(command, Actor::Node, None, limit).await.unwrap().outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_hot_is_shown_by_region_and_by_hash() {
    let world = World::started(2, AdminConfig::default()).await;
    let empty = world.client(0).get("/v1/trie?top=5").await.done();
    assert_eq!(
        (&empty["blocks"], &empty["regions"], &empty["top"]),
        (&json!(0), &json!([]), &json!([]))
    );
    report(&world.node(0).control_plane, "region-a", 0, &[0xa, 0xb, 0xc]).await;
    report(&world.node(1).control_plane, "region-b", 0, &[0xa]).await;
    for at in 0..2 {
        let trie = world.client(at).get("/v1/trie?top=2").await.done();
        assert_eq!((&trie["key_epoch"], &trie["blocks"]), (&json!(0), &json!(4)), "{trie}");
        assert_eq!(trie["consistency"], "linearizable");
        let region = |at: usize| {
            (trie["regions"][at]["region"].clone(), trie["regions"][at]["blocks"].clone())
        };
        assert_eq!(region(0), (json!("region-a"), json!(3)));
        assert_eq!(region(1), (json!("region-b"), json!(1)));
        let bytes = |at: usize| trie["regions"][at]["bytes"].as_u64().unwrap();
        assert_eq!(json!(bytes(0) + bytes(1)), trie["bytes"]);
        assert_eq!(trie["top"].as_array().unwrap().len(), 2, "{trie}");
        let first = json!({ "block": "000000000000000a", "parent": null, "depth": 1, "heat": 1024.0,
            "regions": ["region-a", "region-b"] });
        assert_eq!(trie["top"][0], first);
        assert_eq!(
            (&trie["top"][1]["block"], &trie["top"][1]["parent"], &trie["top"][1]["heat"]),
            (&json!("000000000000000b"), &json!("000000000000000a"), &json!(512.0))
        );
        assert!(trie["entries_per_s"].as_f64().unwrap() > 0.0, "{trie}");
        assert!(trie["bytes_per_s"].as_f64().unwrap() > 0.0, "{trie}");
    }
    let client = world.client(0);
    client.post("/v1/regions/region-b/evacuate", &Value::Null).await.done();
    let dry = client.delete("/v1/regions/region-b?dry_run=true").await.done();
    let lost = dry["changes"].as_array().unwrap().iter().find(|it| it["resource"] == "trie");
    assert_eq!(lost.unwrap()["before"]["blocks"], 1, "{dry}");
    let stale = world.client(0).get("/v1/trie?consistency=stale").await.done();
    assert_eq!((&stale["blocks"], &stale["top"]), (&json!(4), &json!([])));
    assert_eq!(world.client(0).get("/v1/trie?top=1001").await.refused(400), "bad_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_is_rotated_by_those_who_operate() {
    let [reader, operator] = [["reader"; 4].join("-"), ["operator"; 4].join("-")];
    let tokens = parse_token_file(&format!("eve read {reader}\nbob operate {operator}")).unwrap();
    let world = World::one(AdminConfig { tokens, ..AdminConfig::default() }).await;
    let control_plane = &world.node(0).control_plane;
    let (reader, operator) = (world.client(0).token(&reader), world.client(0).token(&operator));
    report(control_plane, "region-a", 0, &[1, 2]).await;
    let rotate = async |client: &Client, how: &str| {
        client.post(&format!("/v1/trie/rotate{how}"), &Value::Null).await
    };
    assert_eq!(rotate(&reader, "").await.refused(403), "forbidden");
    let dry = rotate(&operator, "?dry_run=true").await.done();
    assert_eq!(dry["changes"][0]["key"], "prefix.key_epoch");
    assert_eq!(dry["changes"][0]["before"], Value::Null);
    assert_eq!(dry["changes"][0]["after"]["record"]["value"], "1");
    assert_eq!(dry["changes"][1]["resource"], "trie");
    assert_eq!(dry["changes"][1]["key"], "all");
    assert_eq!(dry["changes"][1]["before"]["blocks"], 2);
    assert_eq!(dry["changes"][1]["after"], Value::Null);
    assert_eq!(reader.get("/v1/trie").await.done()["blocks"], 2);
    // A request with a used idempotency key is not carried out again.
    let named = operator.with("idempotency-key", "once");
    let done = rotate(&named, "").await.done();
    assert_eq!(done["outcome"], "applied");
    assert_eq!(rotate(&named, "").await.done()["version"], done["version"]);
    let trie = reader.get("/v1/trie?top=9").await.done();
    assert_eq!((&trie["key_epoch"], &trie["blocks"]), (&json!(1), &json!(0)), "{trie}");
    let late = operator.with("if-match", "\"1\"");
    assert_eq!(rotate(&late, "").await.refused(409), "conflict");
    let late = report(control_plane, "region-a", 0, &[1]).await;
    assert!(matches!(late, Outcome::Refused(_)), "{late:?}");
    let new = report(control_plane, "region-a", 1, &[1]).await;
    assert!(matches!(new, Outcome::Applied { .. }), "{new:?}");
    let setting = reader.get("/v1/settings/prefix.key_epoch").await.done();
    assert_eq!(setting["item"]["record"]["value"], "1");
}

#[tokio::test]
async fn regions_are_shown_with_whether_clients_are_sent_there_and_why_not() {
    let (address, _listening) =
        listen(Admin::new(None, AdminConfig::default()).steering(std::sync::Arc::new(Teller)))
            .await;
    let answer = Client::new(address).get("/v1/steering").await.done();
    let of = |name: &str| {
        let regions = answer["regions"].as_array().unwrap().iter();
        regions.map(|region| region[name].clone()).collect::<Vec<_>>()
    };
    assert_eq!(of("region"), ["eu", "us", "ap"]);
    assert_eq!(of("takes_clients"), [true, false, false]);
    assert_eq!(of("reason"), [Value::Null, "draining".into(), "silent".into()]);
    assert_eq!(of("rtt_ms")[0], 93.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_explained_as_it_is_and_sent_nowhere() {
    let (address, _listening) =
        listen(Admin::new(None, AdminConfig::default()).explaining(std::sync::Arc::new(Teller)))
            .await;
    let client = Client::new(address);
    let told = client.post("/v1/explain", &json!({ "body": {} })).await.done();
    assert_eq!(
        (&told["chosen"], &told["candidates"][0]["cost_ms"]),
        (&json!("gpu-a"), &json!(1.5))
    );
    let usual = json!({ "path": "/v1/chat/completions", "headers": 0, "session": null,
        "tenant": null, "body": "{}" });
    assert_eq!(told["heard"], usual);
    // The body passes byte for byte: order of members and spaces stay.
    let body = r#"{"z": 1,  "a": "é"}"#;
    let order = format!(
        r#"{{"path": "/v1/completions", "headers": {{"X-Session-Id": "7"}}, "tenant": "acme", "body": {body}}}"#
    );
    let (head, bytes) = client.raw(Method::POST, "/v1/explain", order.into()).await;
    assert!(head.status.is_success(), "{bytes:?}");
    let told: Value = serde_json::from_slice(&bytes).unwrap();
    let heard = json!({ "path": "/v1/completions", "headers": 1, "session": "7", "tenant": "acme",
        "body": body });
    assert_eq!(told["heard"], heard);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_explained_is_answered_with_why() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    let ask = async |order: Value| client.post("/v1/explain", &order).await;
    assert_eq!(ask(json!({ "body": [] })).await.refused(422), "invalid");
    assert_eq!(ask(json!({})).await.refused(400), "bad_request");
    assert_eq!(ask(json!({ "body": {}, "more": 1 })).await.refused(400), "bad_request");
    assert_eq!(ask(json!({ "body": {}, "path": "v1" })).await.refused(400), "bad_request");
    let wrong = json!({ "body": {}, "headers": { "a b": "c" } });
    assert_eq!(ask(wrong).await.refused(400), "bad_request");
    let many: serde_json::Map<_, _> = (0..101).map(|n| (format!("x-{n}"), json!("1"))).collect();
    assert_eq!(ask(json!({ "body": {}, "headers": many })).await.refused(400), "bad_request");
    let long = json!({ "body": { "prompt": "x".repeat(1 << 20) } });
    assert!(ask(long).await.status.is_success(), "prompts are long");
    let longer = json!({ "body": { "prompt": "x".repeat(4 << 20) } });
    assert_eq!(ask(longer).await.refused(413), "too_large");
    let (address, _listening) = listen(Admin::new(None, AdminConfig::default())).await;
    let nobody = Client::new(address).post("/v1/explain", &json!({ "body": {} })).await;
    assert_eq!(nobody.refused(503), "no_explanation");
}
