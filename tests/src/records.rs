//! Records of requests, as a node's admin listener shows them.

use serde_json::Value;
use spillway_node::Node;
use spillway_testkit::{Client, get, retried};

/// Returns the records that pass these filters, newest first.
///
/// # Panics
/// Panics if the node has no admin listener, or it does not answer.
pub async fn records(node: &Node, query: &str) -> Vec<Value> {
    let admin = node.admin_address().expect("an admin listener");
    let reply = Client::once(admin, get(&format!("/v1/requests?{query}"))).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answer: Value = serde_json::from_str(reply.text()).expect("JSON");
    answer["requests"].as_array().expect("a list").clone()
}

/// Returns the newest record that passes these filters, once there is one.
pub async fn newest_record(node: &Node, query: &str) -> Value {
    let query = format!("{query}&limit=1");
    let found = || async { records(node, &query).await.into_iter().next().ok_or("no record") };
    retried(|_| true, found).await.expect("a record")
}

/// Returns the record of the last request, once it has one.
pub async fn last_record(node: &Node) -> Value {
    newest_record(node, "").await
}

/// Checks fields of a record.
///
/// # Panics
/// Panics if one has another value.
#[track_caller]
pub fn check_record(record: &Value, expected: &Value) {
    for (name, value) in expected.as_object().expect("fields") {
        assert_eq!(&record[name], value, "{name} of {record}");
    }
}
