//! Calls over gRPC as the tests make them, and checks of their replies.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use prost::Message;
use spillway_emulator::Emulator;
use spillway_emulator::kserve::{InferRequest, Parameter, ParameterValue, Tensor};
use spillway_node::Node;
use spillway_tests::{
    Call, CallServer, Client, ClientBody, Reply, Setup, message, spawn, streamed, within,
};
use tokio::sync::mpsc;

/// Passes a service on.
pub(crate) const OWN: &str =
    "[[route]]\nname = \"own\"\npath_prefix = \"/my.pkg.Service\"\nprotocol = \"grpc\"\n";

pub(crate) const KSERVE: &str = "/inference.GRPCInferenceService/";
pub(crate) const CONTENT_TYPE: &str = "application/grpc";

/// A message in its frame.
pub(crate) fn frame(message: &impl Message) -> Bytes {
    let length = u32::try_from(message.encoded_len()).expect("short");
    [&[0][..], &length.to_be_bytes(), &message.encode_to_vec()].concat().into()
}

/// The messages in a body.
pub(crate) fn unframe<M: Message + Default>(mut body: &[u8]) -> Vec<M> {
    let mut messages = Vec::new();
    while let Some((head, rest)) = body.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (message, rest) = rest.split_at(length);
        messages.push(M::decode(message).expect("a message"));
        body = rest;
    }
    assert!(body.is_empty(), "{body:?}");
    messages
}

/// A request for inference on some bytes.
pub(crate) fn infer(model: &str, data: &[u8]) -> InferRequest {
    let shape = vec![i64::try_from(data.len()).expect("short")];
    let input = Tensor { name: "x".into(), datatype: "UINT8".into(), shape, ..Tensor::default() };
    InferRequest {
        model_name: model.to_owned(),
        inputs: vec![input],
        raw_input_contents: vec![Bytes::copy_from_slice(data)],
        ..InferRequest::default()
    }
}

/// A request for so many tokens, each in a reply of its own.
pub(crate) fn tokens(model: &str, count: i64) -> InferRequest {
    let parameter = Parameter::from(ParameterValue::Int(count));
    InferRequest {
        parameters: BTreeMap::from([("max_tokens".to_owned(), parameter)]),
        ..infer(model, b"prompt")
    }
}

/// A call of a KServe method.
pub(crate) fn kserve(method: &str, body: ClientBody) -> Request<ClientBody> {
    call(&format!("{KSERVE}{method}"), body)
}

pub(crate) fn call(path: &str, body: ClientBody) -> Request<ClientBody> {
    let mut request = message(Method::POST, path, CONTENT_TYPE, body);
    request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
    request
}

pub(crate) fn with(
    mut request: Request<ClientBody>,
    name: &'static str,
    value: &str,
) -> Request<ClientBody> {
    request.headers_mut().insert(name, value.parse().expect("a value"));
    request
}

/// Adds all replicas of an emulator, spoken to over HTTP/2.
pub(crate) fn emulated(mut setup: Setup, emulator: &Emulator) -> Setup {
    for (index, address) in emulator.addresses().iter().enumerate() {
        let url = format!("http://{address}");
        setup = setup.replica_with(&format!("r{index}"), &url, "protocol = \"http2\"");
    }
    setup
}

/// A replica under a script.
pub(crate) fn scripted(setup: Setup, name: &str, server: &CallServer) -> Setup {
    let url = format!("http://{}", server.address);
    setup.replica_with(name, &url, "protocol = \"http2\"")
}

pub(crate) async fn connect(node: &Node) -> Client {
    Client::http2(node.addresses()[0]).await
}

/// Returns the headers that show how the call ended: the trailers, or the head if there are none.
pub(crate) fn ending(reply: &Reply) -> &HeaderMap {
    assert_eq!((reply.status, reply.header("content-type")), (200, Some(CONTENT_TYPE)));
    reply.trailers.as_ref().unwrap_or(&reply.headers)
}

pub(crate) fn text<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The status that a call ended with.
pub(crate) fn code(reply: &Reply) -> &str {
    text(ending(reply), "grpc-status")
}

/// The gateway's own error: status and code.
#[track_caller]
pub(crate) fn check_refused(reply: &Reply, status: &str, code: &str) {
    let ending = ending(reply);
    assert_eq!((text(ending, "grpc-status"), text(ending, "x-spillway-code")), (status, code));
    assert!(!text(ending, "grpc-message").is_empty());
}

/// A call under way: its client's half, its replica's, and the reply to come.
pub(crate) struct Stream {
    /// Ends the client's half when dropped.
    pub(crate) messages: Option<mpsc::Sender<Bytes>>,
    pub(crate) call: Call,
    pub(crate) reply: tokio::task::JoinHandle<(Client, Result<Response<Incoming>, hyper::Error>)>,
}

impl Stream {
    /// Opens a stream whose first message is being sent.
    pub(crate) async fn open(
        node: &Node,
        server: &mut CallServer,
        request: impl FnOnce(ClientBody) -> Request<ClientBody>,
        first: Bytes,
    ) -> Self {
        let mut client = connect(node).await;
        let (messages, body) = streamed();
        let request = request(body);
        let reply = spawn(async move {
            let response = client.send(request).await;
            (client, response)
        });
        messages.send(first).await.expect("is read");
        Self { messages: Some(messages), call: server.call().await, reply }
    }

    pub(crate) async fn say(&self, message: Bytes) {
        let messages = self.messages.as_ref().expect("still open");
        within("room", messages.send(message)).await.expect("is read");
    }

    pub(crate) async fn response(&mut self) -> (Client, Response<Incoming>) {
        let (client, response) = within("a head", &mut self.reply).await.expect("a task");
        (client, response.expect("a head"))
    }

    pub(crate) async fn collect(&mut self) -> Reply {
        let (_client, response) = self.response().await;
        Reply::collect(response).await.expect("an orderly end")
    }
}

pub(crate) fn stream(body: ClientBody) -> Request<ClientBody> {
    kserve("ModelStreamInfer", body)
}

pub(crate) async fn next_frame(response: &mut Response<Incoming>) -> Bytes {
    let frame = within("a piece", response.frame()).await.expect("a piece").expect("a piece");
    frame.into_data().expect("data")
}
