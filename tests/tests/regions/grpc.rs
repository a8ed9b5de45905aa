//! Calls over gRPC that another region serves: unary, streams both ways, errors.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use spillway_emulator::kserve::InferResponse;
use spillway_node::Node;
use spillway_tests::{CallServer, Cluster, Setup, full, knows, streamed, within};

use crate::grpc_calls::{
    code, connect, ending, frame, infer, kserve, next_frame, scripted, text, unframe,
};

async fn edge_and_core(server: &CallServer) -> (Node, Node) {
    let cluster = Cluster::new(&["edge", "core"]);
    let core = cluster.start(1, scripted(Setup::new(), "a", server)).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    (edge, core)
}

#[tokio::test]
async fn a_unary_call_is_served_far_away_with_its_trailers() {
    let mut server = CallServer::start().await;
    let (edge, core) = edge_and_core(&server).await;
    let mut client = connect(&edge).await;
    let asked = kserve("ModelInfer", full(frame(&infer("tiny", &[1, 2, 3]))));
    let (reply, ()) = tokio::join!(client.fetch(asked), async {
        let mut call = server.call().await;
        assert_eq!(call.message().await, Some(frame(&infer("tiny", &[1, 2, 3]))));
        let response = InferResponse { model_name: "tiny".into(), ..InferResponse::default() };
        call.reply(frame(&response));
    });
    assert_eq!(code(&reply), "0", "{:?}", ending(&reply));
    let messages: Vec<InferResponse> = unframe(&reply.body);
    assert_eq!(messages[0].model_name, "tiny");
    assert_eq!(reply.header("x-spillway-region"), Some("core"));
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn messages_go_both_ways_through_another_region() {
    let mut server = CallServer::start().await;
    let (edge, core) = edge_and_core(&server).await;
    let mut client = connect(&edge).await;
    let (messages, body) = streamed();
    let message = |number: u8| frame(&infer("tiny", &[number]));
    messages.send(message(0)).await.expect("room");
    let (response, mut call) = tokio::join!(client.send(kserve("ModelStreamInfer", body)), async {
        let mut call = server.call().await;
        assert_eq!(call.message().await, Some(message(0)));
        call.begin();
        call
    });
    let mut response = response.expect("a reply");
    for number in 1..4 {
        // Each waits for the reply to the one before.
        let reply = Bytes::from(vec![number; 7]);
        call.send(reply.clone());
        assert_eq!(within("a reply", next_frame(&mut response)).await, reply);
        messages.send(message(number)).await.expect("room");
        assert_eq!(call.message().await, Some(message(number)));
    }
    drop(messages);
    assert_eq!(call.message().await, None);
    call.end();
    let reply = spillway_tests::Reply::collect(response).await.expect("an orderly end");
    assert_eq!(text(reply.trailers.as_ref().expect("trailers"), "grpc-status"), "0");
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn a_call_that_no_region_can_serve_is_refused_in_its_own_words() {
    let server = CallServer::start().await;
    let (edge, core) = edge_and_core(&server).await;
    core.stop().await;
    let mut client = connect(&edge).await;
    let reply = client.fetch(kserve("ModelInfer", full(frame(&infer("tiny", &[1]))))).await;
    // RESOURCE_EXHAUSTED or UNAVAILABLE, depending on what the edge knows already.
    assert!(["8", "14"].contains(&code(&reply)), "{:?}", ending(&reply));
    edge.stop().await;
}

#[tokio::test]
async fn long_heads_and_trailers_come_whole_from_another_region() {
    const BYTES: usize = 100_000;
    let mut server = CallServer::start().await;
    let (edge, core) = edge_and_core(&server).await;
    let mut client = connect(&edge).await;
    let asked = kserve("ModelInfer", full(frame(&infer("tiny", &[1]))));
    let detail = || HeaderValue::try_from("d".repeat(BYTES)).expect("a value");
    let (reply, ()) = tokio::join!(client.fetch(asked), async {
        let mut call = server.call().await;
        let head = Response::builder().header("x-detail", detail()).body(()).expect("a head");
        call.begin_with(head);
        call.send(frame(&InferResponse::default()));
        let code = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("3"));
        let details = (HeaderName::from_static("grpc-status-details-bin"), detail());
        call.end_with(HeaderMap::from_iter([code, details]));
    });
    assert_eq!(code(&reply), "3");
    assert_eq!(text(ending(&reply), "grpc-status-details-bin").len(), BYTES);
    assert_eq!(reply.header("x-detail").map(str::len), Some(BYTES));
    edge.stop().await;
    core.stop().await;
}
