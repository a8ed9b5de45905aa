//! What the record of a request says that another region failed, or was not asked for.

use serde_json::{Value, json};
use spillway_node::Node;
use spillway_tests::{Client, Cluster, OK, Scripted, Setup, chat, get, knows};

/// Returns the record of the request that ended last on a node.
pub(crate) async fn last(node: &Node) -> Value {
    let admin = node.admin_address().expect("an admin listener");
    let reply = Client::once(admin, get("/v1/requests?limit=1")).await;
    let answer: Value = serde_json::from_str(reply.text()).expect("JSON");
    answer["requests"][0].clone()
}

/// Checks fields of a record.
pub(crate) fn check(record: &Value, expected: &Value) {
    for (name, value) in expected.as_object().expect("fields") {
        assert_eq!(&record[name], value, "{name} of {record}");
    }
}

#[tokio::test]
async fn another_region_s_replica_that_answers_with_an_error_is_the_cause() {
    let replica = Scripted::start().await;
    let replica = replica.serve("HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\n{}");
    let cluster = Cluster::new(&["edge", "core"]);
    let edge = cluster.start(0, Setup::new()).await;
    let core = cluster.start(1, Setup::new().replica("a", replica.address)).await;
    knows(&edge, "core").await;
    let reply = Client::once(edge.addresses()[0], chat("tiny", "")).await;
    assert_eq!(reply.status, 500, "{}", reply.text());
    let common = json!({ "status": 500, "code": "replica_error", "region": "core", "tries": [] });
    check(&last(&edge).await, &common);
    check(&last(&edge).await, &json!({ "replica": null, "is_guest": false }));
    check(&last(&core).await, &common);
    check(&last(&core).await, &json!({ "replica": "a", "is_guest": true }));
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn regions_that_rules_or_weights_leave_out_are_named_with_the_reason() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["edge", "near", "far"]);
    let lines = "[[route]]\nname = \"all\"\nregions = [\"edge\", \"far\"]\n\
                 [[region]]\nname = \"far\"\nweight_percent = 0";
    let edge = cluster.start(0, Setup::new().table(lines)).await;
    let near = cluster.start(1, Setup::new().replica("a", replica.address)).await;
    let far = cluster.start(2, Setup::new().replica("a", replica.address)).await;
    knows(&edge, "near").await;
    knows(&edge, "far").await;
    let reply = Client::once(edge.addresses()[0], chat("tiny", "")).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    let record = last(&edge).await;
    check(&record, &json!({ "code": reply.code(), "region": null, "tries": [] }));
    check(&record, &json!({ "residency": "only in the regions edge, far" }));
    let mut left_out = record["left_out"].as_array().expect("a list").clone();
    left_out.sort_by_key(ToString::to_string);
    let expected = [
        json!({ "region": "far", "reason": "drained" }),
        json!({ "region": "near", "reason": "outside_residency" }),
    ];
    assert_eq!(left_out.as_slice(), expected.as_slice(), "{record}");
    assert_eq!(replica.requests.count(), 0);
    edge.stop().await;
    near.stop().await;
    far.stop().await;
}
