//! Minimal model servers: fixed answers, several ports, one thread.
//!
//! Requests are read to their end and otherwise ignored. The form of the answer is set when the
//! process starts, so that no request has to be parsed.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};

use crate::{
    http1::{HttpRole, MessageReader, Start},
    request::MODEL,
};

/// Most connections of one port; more are closed at once.
const CONNECTIONS_MAX: usize = 4096;

/// Size of the read buffer of one connection.
const READ_BYTES: usize = 64 * 1024;

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
                drop(serve_connection(stream, &script).await);
            });
        }
    }
}

async fn serve_connection(mut stream: TcpStream, script: &Script) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; READ_BYTES];
    let mut reader = MessageReader::new(HttpRole::Server);
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        // One read may hold the end of a request and the start of the next.
        let mut at = 0;
        while at < length {
            at += reader.feed(&buffer[at..length], &mut |_| {})?;
            if reader.is_done() {
                let is_post = reader.head().is_some_and(|head| head.start == Start::Post);
                script.play(&mut stream, is_post).await?;
                reader.reset();
            }
        }
    }
}

/// All responses of the backend, built once.
#[derive(Debug)]
struct Script {
    answer: BackendAnswer,
    health: Bytes,
    /// Whole JSON response, or the head of the stream.
    first: Bytes,
    token: Bytes,
    end: Bytes,
}

impl Script {
    fn new(answer: BackendAnswer) -> Self {
        let first = match answer {
            BackendAnswer::Json { bytes } => json_response(&completion(bytes)),
            // Chunked, as model servers send streams: they do not know the length yet.
            BackendAnswer::Stream { .. } => {
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                 cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
                    .into()
            }
        };
        let mut end = chunk("data: [DONE]\n\n");
        end.push_str("0\r\n\r\n");
        Self {
            answer,
            health: json_response("{\"status\":\"ok\"}").into(),
            first: first.into(),
            token: chunk(&token_event()).into(),
            end: end.into(),
        }
    }

    async fn play(&self, stream: &mut TcpStream, is_post: bool) -> std::io::Result<()> {
        if !is_post {
            return stream.write_all(&self.health).await;
        }
        stream.write_all(&self.first).await?;
        if let BackendAnswer::Stream { tokens, interval } = self.answer {
            self.play_tokens(stream, tokens, interval).await?;
        }
        Ok(())
    }

    /// Writes each token on its own, as model servers do.
    async fn play_tokens(
        &self,
        stream: &mut TcpStream,
        tokens: u64,
        interval: Duration,
    ) -> std::io::Result<()> {
        let mut due = Instant::now();
        for _ in 0..tokens {
            stream.write_all(&self.token).await?;
            if interval.is_zero() {
                // Lets other streams send their token, too: the streams of one server advance
                // together.
                tokio::task::yield_now().await;
            } else {
                // Counted from the due time, so that late wake-ups do not add up over a long
                // stream.
                due += interval;
                tokio::time::sleep_until(due).await;
            }
        }
        stream.write_all(&self.end).await
    }
}

fn json_response(body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
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

fn chunk(payload: &str) -> String {
    format!("{:x}\r\n{payload}\r\n", payload.len())
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
