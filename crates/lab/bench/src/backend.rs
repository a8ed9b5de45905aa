//! Minimal model servers: fixed answers, several ports, one thread.
//!
//! Requests are read to their end and otherwise ignored. The form of the answer is set when the
//! process starts, so that no body has to be parsed.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};

use crate::request::MODEL;

/// Most connections of one port; more are closed at once.
const CONNECTIONS_MAX: usize = 4096;

/// Event that ends a stream.
const DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");

/// Answer to POST requests. All other requests get a small JSON object, for health checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendAnswer {
    /// JSON body of about `bytes` bytes.
    Json {
        /// Size of the body in bytes; a value that is too small gives the smallest possible body.
        bytes: usize,
    },
    /// Stream of server-sent events.
    Stream {
        /// Events before `[DONE]`.
        tokens: u64,
        /// Time between two events; zero sends as fast as the socket takes them.
        interval: Duration,
    },
}

/// Serves forever. Dropping the future ends all servers.
pub(crate) async fn serve(listeners: Vec<TcpListener>, answer: BackendAnswer) {
    let script = Arc::new(Script::new(answer));
    let mut servers = JoinSet::new();
    for listener in listeners {
        servers.spawn(accept(listener, Arc::clone(&script)));
    }
    while servers.join_next().await.is_some() {}
}

/// Opens `count` listeners on free loopback ports.
pub(crate) async fn listen(count: usize) -> std::io::Result<(Vec<TcpListener>, Vec<SocketAddr>)> {
    let mut listeners = Vec::with_capacity(count);
    let mut addresses = Vec::with_capacity(count);
    for _ in 0..count {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        addresses.push(listener.local_addr()?);
        listeners.push(listener);
    }
    Ok((listeners, addresses))
}

async fn accept(listener: TcpListener, script: Arc<Script>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Usually out of file descriptors: wait until some are closed.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        // Forgets the connections that have ended.
        while connections.try_join_next().is_some() {}
        if connections.len() < CONNECTIONS_MAX {
            let script = Arc::clone(&script);
            connections.spawn(async move {
                // An error means that the client has gone.
                drop(serve_connection(stream, script).await);
            });
        }
    }
}

async fn serve_connection(stream: TcpStream, script: Arc<Script>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let service = service_fn(move |request| answer(Arc::clone(&script), request));
    Ok(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await?)
}

/// Reads a request to its end and answers it.
async fn answer(script: Arc<Script>, mut request: Request<Incoming>) -> anyhow::Result<Answer> {
    while let Some(frame) = request.frame().await {
        frame?;
    }
    let is_post = request.method() == Method::POST;
    let (kind, body) = match script.answer {
        _ if !is_post => ("application/json", Full::new(script.health.clone()).boxed_unsync()),
        BackendAnswer::Json { .. } => {
            ("application/json", Full::new(script.reply.clone()).boxed_unsync())
        }
        // Without a length, as model servers send streams: they do not know the length yet.
        BackendAnswer::Stream { tokens, interval } => {
            let events = events(script, tokens, interval).map(|event| Ok(Frame::data(event)));
            ("text/event-stream", StreamBody::new(events).boxed_unsync())
        }
    };
    Ok(Response::builder().header(header::CONTENT_TYPE, kind).body(body)?)
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Returns the events of a stream, each on its own, as model servers send tokens.
fn events(script: Arc<Script>, tokens: u64, interval: Duration) -> impl Stream<Item = Bytes> {
    // Counted from the start, so that late wake-ups do not add up over a long stream.
    let start = Instant::now();
    stream::iter(0..=tokens).then(move |number| {
        let event = if number < tokens { script.reply.clone() } else { DONE };
        async move {
            match u32::try_from(number) {
                Ok(0) => {}
                // Lets other streams send their token, too: the streams of one server advance
                // together.
                _ if interval.is_zero() => tokio::task::yield_now().await,
                Ok(number) => tokio::time::sleep_until(start + interval * number).await,
                Err(_) => tokio::time::sleep(interval).await,
            }
            event
        }
    })
}

/// Bodies of all replies, built once.
#[derive(Debug)]
struct Script {
    answer: BackendAnswer,
    health: Bytes,
    /// Whole JSON body, or the event of a token.
    reply: Bytes,
}

impl Script {
    fn new(answer: BackendAnswer) -> Self {
        let reply = match answer {
            BackendAnswer::Json { bytes } => completion(bytes),
            BackendAnswer::Stream { .. } => token_event(),
        };
        Self { answer, health: "{\"status\":\"ok\"}".into(), reply: reply.into() }
    }
}

/// Builds a chat completion with its text padded so that the body has `bytes` bytes.
fn completion(bytes: usize) -> String {
    let before = format!(
        "{{\"id\":\"chatcmpl-0000000000000000\",\"object\":\"chat.completion\",\"created\":1700000000,\
         \"model\":\"{MODEL}\",\"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\""
    );
    let after = "\"},\"finish_reason\":\"stop\"}],\
                 \"usage\":{\"prompt_tokens\":256,\"completion_tokens\":64,\"total_tokens\":320}}";
    let text = "x".repeat(bytes.saturating_sub(before.len() + after.len()));
    format!("{before}{text}{after}")
}

fn token_event() -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-0000000000000000\",\"object\":\"chat.completion.chunk\",\
         \"created\":1700000000,\"model\":\"{MODEL}\",\"choices\":[{{\"index\":0,\
         \"delta\":{{\"content\":\" token\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        arrivals::ArrivalPace,
        client::BenchReply,
        load::{LoadSpec, Protocol, run},
    };

    fn spec(body_bytes: usize, reply: BenchReply) -> LoadSpec {
        LoadSpec {
            clients: 3,
            protocol: Protocol::Http1,
            pace: ArrivalPace::Closed,
            body_bytes,
            reply,
            ramp: Duration::ZERO,
            warm_up: Duration::ZERO,
            window: Duration::from_millis(200),
        }
    }

    #[test]
    fn answers_are_json_of_the_asked_size() {
        assert_eq!(completion(512).len(), 512);
        let value: serde_json::Value = serde_json::from_str(&completion(0)).unwrap();
        assert_eq!(value["usage"]["total_tokens"], 320);
        let token = token_event();
        let json = token.strip_prefix("data: ").unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(json).is_ok(), "{json}");
    }

    #[tokio::test]
    async fn bodies_of_all_sizes_are_drained_and_answered() {
        let (listeners, addresses) = listen(2).await.unwrap();
        let load = async {
            for body_bytes in [1024, 16 * 1024, 128 * 1024] {
                let spec = spec(body_bytes, BenchReply::Whole);
                let (measurement, (), ()) = run(addresses[1], &spec, || Ok(())).await.unwrap();
                assert_eq!((measurement.errors, measurement.first_error), (0, None));
                assert!(measurement.requests > 3);
            }
        };
        tokio::select! {
            () = serve(listeners, BackendAnswer::Json { bytes: 512 }) => panic!("the backend ended"),
            () = load => {}
        }
    }

    #[tokio::test]
    async fn paced_streams_have_all_tokens_at_their_pace() {
        let (listeners, addresses) = listen(1).await.unwrap();
        let answer = BackendAnswer::Stream { tokens: 7, interval: Duration::from_millis(4) };
        let spec = spec(1024, BenchReply::Stream { tokens: Some(7) });
        tokio::select! {
            () = serve(listeners, answer) => panic!("the backend ended"),
            result = run(addresses[0], &spec, || Ok(())) => {
                let (measurement, (), ()) = result.unwrap();
                assert_eq!((measurement.errors, measurement.first_error), (0, None));
                // Seven intervals of 4 ms: a stream cannot be over sooner.
                assert!(measurement.latency.p50_us >= 27_900.0, "{:?}", measurement.latency);
                assert!(measurement.requests <= 3 * 200 / 28, "{}", measurement.requests);
            }
        }
    }

    #[tokio::test]
    async fn a_stream_with_a_missing_token_is_an_error() {
        let (listeners, addresses) = listen(1).await.unwrap();
        let answer = BackendAnswer::Stream { tokens: 6, interval: Duration::ZERO };
        let spec = spec(1024, BenchReply::Stream { tokens: Some(7) });
        tokio::select! {
            () = serve(listeners, answer) => panic!("the backend ended"),
            result = run(addresses[0], &spec, || Ok(())) => {
                let (measurement, (), ()) = result.unwrap();
                assert_eq!(measurement.requests, 0);
                assert!(measurement.errors > 0);
                assert_eq!(measurement.first_error.unwrap(), "6 tokens instead of Some(7)");
            }
        }
    }
}
