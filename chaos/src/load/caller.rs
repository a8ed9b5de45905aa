//! Client of one listener, inside a region; notes the result of each request.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use tokio::time::{sleep, timeout, timeout_at};

use super::note::{LoadNote, NoteEnd, NotedAnswer};
use crate::trial::door::Door;
use crate::trial::task::spawn;

/// Largest reply in bytes; a longer one counts as cut.
const REPLY_BYTES_MAX: usize = 16 << 20;
/// Most idle connections to keep: as many as are ever in use at once.
const IDLE_MAX: usize = 4_096;
/// Time limit of a client for a request of [`CallerAsk::get`].
pub(crate) const GET_PATIENCE: Duration = Duration::from_secs(5);
/// Header in which the gateway gives the reason for a refusal.
const SHED_REASON: &str = "x-spillway-shed-reason";
const REGION: &str = "x-spillway-region";
const REPLICA: &str = "x-spillway-replica";

/// Request that can be sent any number of times.
#[derive(Clone, Debug)]
pub(crate) struct CallerAsk {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
    /// Time limit of the client for the whole reply.
    pub(crate) patience: Duration,
    /// Pause between two pieces of the reply, for a client that reads slowly.
    pub(crate) dawdle: Option<Duration>,
}

/// Client with a pool of kept connections.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Arc<CallerInner>);

#[derive(Debug)]
struct CallerInner {
    door: Door,
    idle: Mutex<Vec<Sender>>,
    /// Next address to try if this one cannot be reached, as a client does that knows several
    /// addresses.
    other: Option<Caller>,
}

/// Reason why no reply began.
enum Missed {
    /// No connection could be opened.
    Unsent(String),
    /// The connection failed before the head of the reply.
    Broken(String),
}

type Sender = SendRequest<Full<Bytes>>;

impl CallerAsk {
    pub(crate) fn get(path: &str) -> Self {
        let (path, patience) = (path.to_owned(), GET_PATIENCE);
        let (headers, body) = (Vec::new(), Bytes::new());
        Self { method: "GET", path, headers, body, patience, dawdle: None }
    }

    fn request(&self, host: SocketAddr) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::builder().method(self.method).uri(&self.path);
        request = request.header(header::HOST, host.to_string());
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        request.body(Full::new(self.body.clone())).map_err(|error| error.to_string())
    }
}

impl Caller {
    pub(crate) fn inside(namespace: &str, address: SocketAddr) -> io::Result<Self> {
        let door = Door::inside(namespace, address)?;
        Ok(Self(Arc::new(CallerInner { door, idle: Mutex::default(), other: None })))
    }

    /// Returns a client of `address` that asks `other` if no connection can be opened.
    pub(crate) fn or(namespace: &str, address: SocketAddr, other: Self) -> io::Result<Self> {
        let door = Door::inside(namespace, address)?;
        Ok(Self(Arc::new(CallerInner { door, idle: Mutex::default(), other: Some(other) })))
    }

    pub(crate) fn door(&self) -> &Door {
        &self.0.door
    }

    /// Sends a request, once. `due` is the time at which it was to be sent.
    pub(crate) async fn ask(&self, ask: &CallerAsk, due: Instant) -> LoadNote {
        let mut caller = self;
        let end = loop {
            let end = caller.ask_here(ask).await;
            match (&end, &caller.0.other) {
                (NoteEnd::Unsent(_), Some(other)) => caller = other,
                _ => break end,
            }
        };
        LoadNote { due, ended: Instant::now(), end }
    }

    async fn ask_here(&self, ask: &CallerAsk) -> NoteEnd {
        let until = Instant::now() + ask.patience;
        match timeout_at(until.into(), self.exchange(ask)).await {
            Ok(Ok((response, sender))) => self.read(ask, response, sender, until).await,
            Ok(Err(Missed::Unsent(why))) => NoteEnd::Unsent(why),
            Ok(Err(Missed::Broken(why))) => NoteEnd::Nothing(why),
            Err(_) => NoteEnd::Nothing("out of patience".to_owned()),
        }
    }

    /// Returns the body of a GET; anything but a whole reply with status 200 is an error.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Bytes> {
        let note = self.ask(&CallerAsk::get(path), Instant::now()).await;
        match note.end {
            NoteEnd::Whole(answer) if answer.status == 200 => Ok(answer.body),
            end => anyhow::bail!("{path}: {end:?}"),
        }
    }

    /// Sends JSON and returns status and body of the reply; anything but a whole reply is an error.
    pub(crate) async fn post(&self, path: &str, body: String) -> anyhow::Result<(u16, Bytes)> {
        let headers = vec![("content-type", "application/json".to_owned())];
        let ask = CallerAsk { method: "POST", headers, body: body.into(), ..CallerAsk::get(path) };
        let note = self.ask(&ask, Instant::now()).await;
        match note.end {
            NoteEnd::Whole(answer) => Ok((answer.status, answer.body)),
            end => anyhow::bail!("{path}: {end:?}"),
        }
    }

    async fn exchange(&self, ask: &CallerAsk) -> Result<(Response<Incoming>, Sender), Missed> {
        let told = |error: hyper::Error| Missed::Broken(format!("{error:?}"));
        let request = || ask.request(self.0.door.address()).map_err(Missed::Broken);
        while let Some(mut sender) = self.idle() {
            // Closed while idle: try the next one.
            if sender.is_closed() || sender.ready().await.is_err() {
                continue;
            }
            match sender.try_send_request(request()?).await {
                Ok(response) => return Ok((response, sender)),
                // The connection was closed at this moment, and nothing was sent: try the next one.
                Err(error) if error.message().is_some() => {}
                Err(error) => return Err(told(error.into_error())),
            }
        }
        let connected = self.0.door.connect().await;
        let stream = connected.map_err(|error| Missed::Unsent(error.to_string()))?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(told)?;
        // The request reports the error of the connection, too.
        spawn(async move { drop(connection.await) });
        let response = sender.send_request(request()?).await.map_err(told)?;
        Ok((response, sender))
    }

    async fn read(
        &self,
        ask: &CallerAsk,
        response: Response<Incoming>,
        sender: Sender,
        until: Instant,
    ) -> NoteEnd {
        let text = |name: &str| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let retry_after = text(header::RETRY_AFTER.as_str()).parse().ok().map(Duration::from_secs);
        let mut answer = NotedAnswer {
            status: response.status().as_u16(),
            reason: text(SHED_REASON),
            retry_after,
            region: text(REGION),
            replica: text(REPLICA),
            body: Bytes::new(),
        };
        let mut body = response.into_body();
        let mut bytes = BytesMut::new();
        let fault = loop {
            match timeout_at(until.into(), body.frame()).await {
                Ok(None) => break None,
                Ok(Some(Ok(frame))) => {
                    bytes.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
                }
                Ok(Some(Err(error))) => break Some(format!("{error:?}")),
                Err(_) => break Some("out of patience".to_owned()),
            }
            if bytes.len() > REPLY_BYTES_MAX {
                break Some("too long".to_owned());
            }
            if let Some(dawdle) = ask.dawdle {
                // wait: this client reads slowly on purpose
                sleep(dawdle).await;
            }
        };
        answer.body = bytes.freeze();
        let Some(fault) = fault else {
            // Only after a whole reply can the connection be used again.
            self.keep(sender);
            return NoteEnd::Whole(answer);
        };
        NoteEnd::Cut(answer, fault)
    }

    fn idle(&self) -> Option<Sender> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(sender);
        }
    }

    /// Waits until the listener answers `path` with 200. Returns an error after `limit`.
    pub(crate) async fn ready(&self, path: &str, limit: Duration) -> anyhow::Result<()> {
        let trying = async {
            while self.get(path).await.is_err() {
                // wait: until the next try, while the program starts
                sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = timeout(limit, trying).await;
        waited.map_err(|_| anyhow::anyhow!("{path} does not answer within {limit:?}"))
    }
}
