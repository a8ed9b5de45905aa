//! Records of requests that failed in another region, or for which regions were left out.

use serde_json::json;
use spillway_tests::{
    Client, Cluster, OK, Scripted, Setup, chat, check_record, knows, last_record,
};

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
    check_record(&last_record(&edge).await, &common);
    check_record(&last_record(&edge).await, &json!({ "replica": null, "is_guest": false }));
    check_record(&last_record(&core).await, &common);
    check_record(&last_record(&core).await, &json!({ "replica": "a", "is_guest": true }));
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
    let record = last_record(&edge).await;
    check_record(&record, &json!({ "code": reply.code(), "region": null, "tries": [] }));
    check_record(&record, &json!({ "residency": "only in the regions edge, far" }));
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

#[tokio::test]
async fn a_request_that_no_rule_lets_be_served_anywhere_names_the_rule_and_the_regions() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["edge", "core"]);
    let lines = "[[route]]\nname = \"all\"\nregions = [\"mars\"]";
    let edge = cluster.start(0, Setup::new().table(lines).replica("a", replica.address)).await;
    let core = cluster.start(1, Setup::new().replica("a", replica.address)).await;
    knows(&edge, "core").await;
    let reply = Client::once(edge.addresses()[0], chat("tiny", "")).await;
    assert_eq!((reply.status, reply.code()), (403, Some("region_not_allowed")), "{}", reply.text());
    let left_out = json!([{ "region": "core", "reason": "outside_residency" }]);
    check_record(
        &last_record(&edge).await,
        &json!({
            "status": 403, "code": "region_not_allowed", "route": "all", "model": "tiny",
            "residency": "only in the regions mars", "left_out": left_out, "region": null,
        }),
    );
    assert_eq!(replica.requests.count(), 0);
    edge.stop().await;
    core.stop().await;
}
