//! Replicas whose reply to a request shows that they do not have its model.

use spillway_emulator::kserve::InferResponse;
use spillway_node::Node;
use spillway_tests::{
    Call, CallServer, Client, OK, Page, Reply, Scripted, Serving, Setup, chat, eventually, full,
    get, post,
};

use crate::grpc_calls::{code, connect, frame, infer, kserve, scripted};

fn reply(status: u16, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

const MISSING: &str =
    r#"{"object":"error","message":"The model `tiny` does not exist.","code":404}"#;

/// A node over these replicas of `tiny`, the first of which gets the first request.
async fn node_over(replies: &[&str]) -> (Node, Vec<Serving>) {
    let mut setup = Setup::new().table("[[route]]\nname = \"r\"\npolicy = \"round_robin\"\n");
    let mut replicas = Vec::new();
    for (index, reply) in replies.iter().enumerate() {
        let replica = Scripted::start().await.serve(*reply);
        setup = setup.replica(&format!("r{index}"), replica.address);
        replicas.push(replica);
    }
    (setup.start().await, replicas)
}

async fn ask(node: &Node) -> Reply {
    Client::once(node.addresses()[0], chat("tiny", "")).await
}

fn counts(replicas: &[Serving]) -> Vec<usize> {
    replicas.iter().map(|replica| replica.requests.count()).collect()
}

#[tokio::test]
async fn the_request_goes_to_a_replica_that_has_the_model_and_later_ones_as_well() {
    let missing = reply(404, MISSING);
    let (node, replicas) = node_over(&[&missing, &missing, &missing, &missing, OK]).await;
    for _ in 0..5 {
        let reply = ask(&node).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let is_removed = || {
        let page = Page::of(&node);
        page.sum("spillway_replica_models_missing", &[]) == 4.0
    };
    eventually("the model is removed there", is_removed).await;
    let before = counts(&replicas);
    for _ in 0..10 {
        assert_eq!(ask(&node).await.status, 200);
    }
    let after = counts(&replicas);
    assert_eq!((&after[..4], after[4]), (&before[..4], before[4] + 10));
    // None of this is a fault of a replica.
    assert_eq!(Page::of(&node).sum("spillway_replica_faults_total", &[]), 0.0);
    node.stop().await;
}

#[tokio::test]
async fn if_no_replica_has_the_model_the_client_gets_the_gateway_s_own_404() {
    let missing = reply(404, MISSING);
    let (node, replicas) = node_over(&[&missing, &missing]).await;
    let reply = ask(&node).await;
    assert_eq!((reply.status, reply.code()), (404, Some("model_not_found")), "{}", reply.text());
    assert_eq!(counts(&replicas), [1, 1]);
    eventually("the model is listed no more", || {
        Page::of(&node).sum("spillway_replica_models_missing", &[]) == 2.0
    })
    .await;
    let list = Client::once(node.addresses()[0], get("/v1/models")).await.json();
    assert_eq!(list["data"].as_array().map(Vec::len), Some(0), "{list}");
    // All are asked all the same: one may have the model again.
    assert_eq!(ask(&node).await.code(), Some("model_not_found"));
    assert_eq!(counts(&replicas), [2, 2]);
    node.stop().await;
}

#[tokio::test]
async fn other_errors_of_a_request_are_passed_on_and_remove_nothing() {
    for (path, status, body) in [
        ("/v1/chat/completions", 404, r#"{"detail":"Not Found"}"#),
        ("/v1/chat/completions", 400, r#"{"error":{"message":"bad messages","code":400}}"#),
        ("/v1/batches", 404, r#"{"error":{"message":"No such File object: tiny","code":404}}"#),
        ("/v1/chat/completions", 404, r#"{"error":"The model `other` does not exist."}"#),
    ] {
        let error = reply(status, body);
        let (node, replicas) = node_over(&[&error, &error]).await;
        let request = post(path, "{\"model\":\"tiny\",\"messages\":[]}");
        let got = Client::once(node.addresses()[0], request).await;
        if got.code() == Some("route_not_found") {
            continue;
        }
        assert_eq!((got.status, got.text()), (status, body));
        assert_eq!(counts(&replicas).iter().sum::<usize>(), 1, "{body}");
        assert_eq!(Page::of(&node).sum("spillway_replica_models_missing", &[]), 0.0);
        node.stop().await;
    }
}

#[tokio::test]
async fn servers_of_kserve_s_protocol_are_understood() {
    let missing = reply(400, r#"{"error":"Request for unknown model: 'tiny' is not found"}"#);
    let (node, replicas) = node_over(&[&missing, OK]).await;
    for _ in 0..2 {
        let request = post("/v2/models/tiny/infer", "{\"inputs\":[]}");
        assert_eq!(Client::once(node.addresses()[0], request).await.status, 200);
    }
    assert!(replicas[0].requests.count() >= 1);
    node.stop().await;
}

#[tokio::test]
async fn servers_of_grpc_are_understood() {
    let (mut lacking, mut having) = (CallServer::start().await, CallServer::start().await);
    let node = scripted(scripted(Setup::new(), "a", &lacking), "b", &having).start().await;
    let mut client = connect(&node).await;
    let refuse = |call: Call| {
        let head = http::Response::builder().header("grpc-status", "5");
        let message = "Request for unknown model: 'tiny' is not found";
        call.answer_with(head.header("grpc-message", message).body(()).expect("a head"));
    };
    let request = || kserve("ModelInfer", full(frame(&infer("tiny", &[1]))));
    let answer = frame(&InferResponse::default());
    let (reply, ()) = tokio::join!(client.fetch(request()), async {
        // Either may be asked first.
        loop {
            tokio::select! {
                call = lacking.call() => refuse(call),
                mut call = having.call() => return call.reply(answer.clone()),
            }
        }
    });
    assert_eq!(code(&reply), "0");
    node.stop().await;
}
