//! Access rules for calls over gRPC, with its status codes.

use bytes::Bytes;
use spillway_emulator::kserve::{HealthRequest, ModelRequest};
use spillway_tests::{CallServer, Client, Setup, full, spawn, streamed};

use crate::grpc_calls::{
    OWN, call, check_refused, code, connect, frame, infer, kserve, scripted, with,
};
use crate::keys::Key;

const UNAUTHENTICATED: &str = "16";
const NOT_FOUND: &str = "5";
const PERMISSION_DENIED: &str = "7";

async fn node(server: &CallServer, keys: &[&Key]) -> spillway_node::Node {
    let setup = Setup::new().table(OWN).set("aliases.other = \"tiny\"");
    let setup = keys.iter().fold(setup, |setup, key| setup.table(&*key.block));
    scripted(setup, "a", server).start().await
}

#[tokio::test]
async fn calls_need_a_key_in_their_metadata() {
    let mut server = CallServer::start().await;
    let key = Key::new("a", "acme", "");
    let node = node(&server, &[&key]).await;
    let mut client = connect(&node).await;
    let request = || kserve("ModelInfer", full(frame(&infer("tiny", &[1]))));
    check_refused(&client.fetch(request()).await, UNAUTHENTICATED, "missing_api_key");
    let wrong = with(request(), "authorization", "Bearer sw_a_0");
    check_refused(&client.fetch(wrong).await, UNAUTHENTICATED, "invalid_api_key");
    let metadata = kserve("ServerMetadata", full(frame(&ModelRequest::default())));
    check_refused(&client.fetch(metadata).await, UNAUTHENTICATED, "missing_api_key");
    let health = frame(&HealthRequest::default());
    let health = call("/grpc.health.v1.Health/Check", full(health));
    assert_eq!(code(&client.fetch(health).await), "0", "health needs none");
    assert!(server.is_alone());
    for request in [key.sign(request()), with(request(), "x-api-key", &key.text)] {
        let mut client = connect(&node).await;
        let waiting = spawn(async move { client.fetch(request).await });
        let mut call = server.call().await;
        for name in ["authorization", "x-api-key"] {
            assert_eq!(call.header(name), None, "{name}");
        }
        call.reply(Bytes::new());
        assert_eq!(code(&waiting.await.expect("a reply")), "0");
    }
}

#[tokio::test]
async fn a_call_for_another_model_is_answered_as_for_none() {
    let server = CallServer::start().await;
    let key = Key::new("a", "acme", "models = [\"huge\"]");
    let node = node(&server, &[&key]).await;
    let mut client = connect(&node).await;
    for model in ["tiny", "other"] {
        let request = kserve("ModelInfer", full(frame(&infer(model, &[1]))));
        let reply = client.fetch(key.sign(request)).await;
        check_refused(&reply, NOT_FOUND, "model_not_found");
    }
    let own = key.sign(call("/my.pkg.Service/Do", full(frame(&ModelRequest::default()))));
    check_refused(&client.fetch(own).await, PERMISSION_DENIED, "model_not_allowed");
}

#[tokio::test]
async fn no_later_message_of_a_stream_gets_at_another_model() {
    let mut server = CallServer::start().await;
    let key = Key::new("a", "acme", "models = [\"tiny\"]");
    let node = node(&server, &[&key]).await;
    let (messages, body) = streamed();
    let request = key.sign(kserve("ModelStreamInfer", body));
    let mut client: Client = connect(&node).await;
    let waiting = spawn(async move { client.fetch(request).await });
    messages.send(frame(&infer("tiny", &[1]))).await.expect("is read");
    let mut call = server.call().await;
    assert!(call.message().await.is_some());
    messages.send(frame(&infer("huge", &[1]))).await.expect("is read");
    let reply = waiting.await.expect("a reply");
    check_refused(&reply, PERMISSION_DENIED, "model_not_allowed");
}
