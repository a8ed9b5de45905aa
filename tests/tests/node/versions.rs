//! Versions of a model: which replicas serve them, and how a request asks for one.

use spillway_node::Node;
use spillway_tests::{Client, OK, Scripted, Serving, Setup, both, chat, get, post};

/// Replicas of `resnet` with these versions each, and of `tiny` without any.
async fn world(versions: &[&str]) -> (Node, Vec<Serving>) {
    let mut setup = Setup::new();
    let mut replicas = Vec::new();
    for (number, versions) in versions.iter().enumerate() {
        let replica = Scripted::start().await.serve(OK);
        let url = format!("http://{}", replica.address);
        let lines = format!("models = [\"resnet\", \"tiny\"]\n{versions}");
        setup = setup.replica_with(&format!("r{number}"), &url, &lines);
        replicas.push(replica);
    }
    (setup.start().await, replicas)
}

fn counts(replicas: &[Serving]) -> Vec<usize> {
    replicas.iter().map(|replica| replica.requests.count()).collect()
}

const ONE: &str = "versions = { resnet = [\"1\"] }";
const BOTH: &str = "versions = { resnet = [\"1\", \"2\"] }";

#[tokio::test]
async fn a_version_in_the_path_goes_only_where_it_is_served() {
    // The last replica reports no versions, so it is not known to serve them.
    let (node, replicas) = world(&[ONE, BOTH, ""]).await;
    for client in &mut both(&node).await {
        for (path, version) in [
            ("/v2/models/resnet/versions/2/infer", "2"),
            ("/v2/models/resnet@2/infer", "2"),
            ("/v2/models/resnet%402/infer", "2"),
            ("/v2/models/resnet@2/versions/2/infer", "2"),
        ] {
            let before = counts(&replicas);
            for _ in 0..6 {
                assert_eq!(client.fetch(post(path, "{}")).await.status, 200, "{path}");
            }
            let after = counts(&replicas);
            assert_eq!(after, [before[0], before[1] + 6, before[2]], "{path}");
            let seen = format!("POST /v2/models/resnet/versions/{version}/infer HTTP/1.1");
            assert_eq!(replicas[1].requests.last().first_line(), seen);
        }
    }
    let before = counts(&replicas);
    let mut client = Client::http1(node.addresses()[0]).await;
    for _ in 0..40 {
        let path = "/v2/models/resnet/versions/1/infer";
        assert_eq!(client.fetch(post(path, "{}")).await.status, 200);
        assert_eq!(client.fetch(post("/v2/models/resnet/infer", "{}")).await.status, 200);
    }
    let after = counts(&replicas);
    // Drawn by chance among two, and without a version among three.
    assert!(after[0] > before[0] && after[1] > before[1] && after[2] > before[2], "{after:?}");
    let seen = |replica: &Serving| {
        let lines = replica.requests.all();
        lines.iter().filter(|message| message.first_line().contains("versions/1")).count()
    };
    assert_eq!(seen(&replicas[0]) + seen(&replicas[1]), 40);
}

#[tokio::test]
async fn an_unknown_version_is_a_404_that_names_the_known_ones() {
    let (node, replicas) = world(&[ONE, BOTH]).await;
    for client in &mut both(&node).await {
        for request in [
            post("/v2/models/resnet/versions/9/infer", "{}"),
            post("/v2/models/resnet@9/infer", "{}"),
            post("/v1/completions", r#"{"model":"resnet@9"}"#),
        ] {
            let reply = client.fetch(request).await;
            assert_eq!((reply.status, reply.code()), (404, Some("model_not_found")));
            assert!(reply.text().contains("served here: 1, 2"), "{}", reply.text());
        }
        let two = client.fetch(post("/v2/models/resnet@1/versions/2/infer", "{}")).await;
        assert_eq!((two.status, two.code()), (400, Some("bad_request")));
    }
    assert_eq!(counts(&replicas), [0, 0]);
}

#[tokio::test]
async fn a_body_that_names_a_version_goes_where_no_other_is_served() {
    let (node, replicas) = world(&[ONE, BOTH]).await;
    for client in &mut both(&node).await {
        for _ in 0..6 {
            let reply = client.fetch(post("/v1/completions", r#"{"model":"resnet@1"}"#)).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            assert_eq!(replicas[0].requests.last().text(), r#"{"model":"resnet"}"#);
        }
        // A request to the second replica could not say that version 2 is meant.
        let reply = client.fetch(post("/v1/completions", r#"{"model":"resnet@2"}"#)).await;
        assert_eq!((reply.status, reply.code()), (404, Some("model_not_found")));
        assert!(reply.text().contains("/v2/models/resnet/versions"), "{}", reply.text());
        assert_eq!(client.fetch(get("/v1/models/resnet@1")).await.status, 200);
        assert_eq!(client.fetch(get("/v1/models/tiny@1")).await.status, 404);
    }
    assert_eq!(counts(&replicas), [12, 0]);
}

#[tokio::test]
async fn a_model_whose_replicas_say_nothing_of_versions_takes_any() {
    let (node, replicas) = world(&[ONE, ONE]).await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let path = "/v2/models/tiny/versions/7/infer";
    for _ in 0..20 {
        assert_eq!(client.fetch(post(path, "{}")).await.status, 200);
    }
    assert_eq!(counts(&replicas).iter().sum::<usize>(), 20);
    let seen = format!("POST {path} HTTP/1.1");
    assert!(replicas.iter().all(|r| r.requests.all().iter().all(|m| m.first_line() == seen)));
    assert_eq!(client.fetch(chat("tiny@7", "")).await.status, 404, "no place to say it");
}

#[tokio::test]
async fn a_literal_name_with_an_at_sign_is_a_name() {
    let replica = Scripted::start().await.serve(OK);
    let lines = "models = [\"resnet\", \"resnet@1\"]\nversions = { resnet = [\"1\"] }";
    let url = format!("http://{}", replica.address);
    let node = Setup::new().replica_with("a", &url, lines).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let body = r#"{"model":"resnet@1"}"#;
    assert_eq!(client.fetch(post("/v1/completions", body)).await.status, 200);
    assert_eq!(replica.requests.last().text(), body);
}
