//! HTTP/2 to a replica: connections that requests share.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use spillway_resolver::ConnectionAddress;
use spillway_transport::Stream;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::body::OutboundBody;
use crate::connection_count::ConnectionCount;
use crate::error::{AttemptError, ConnectionError};
use crate::executor::Executor;
use crate::guarded_stream::{GuardedStream, StreamGuards};
use crate::http1::{HEAD_BYTES_MAX, plain_length};
use crate::open_uploads::OpenUpload;
use crate::stream_count::StreamPermit;
use crate::streamed_body::UploadHold;

/// Bytes of one reply that may wait here for a slow client. A nearby replica fills this window in
/// well under a millisecond, so it limits no speed.
const STREAM_WINDOW_BYTES: u32 = 512 << 10;
/// Bytes of all replies on a connection that may wait: the most that the protocol allows, or a few
/// slow clients would stop the replies to all others. The windows of the streams are the real
/// limit.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// Size of a list of fields from which the HTTP library drops fields. It reports that for heads and
/// conceals it for trailers, so the limit that counts, [`HEAD_BYTES_MAX`], is checked here and for
/// the bytes on the wire. Those are five eighths of the text at least, so that a list which the
/// library cuts is always found too long by one of the two.
const FIELDS_BYTES_MAX: u32 = 4 * HEAD_BYTES_MAX as u32;
/// Bytes that count for each field of a list beside its text (RFC 9113, section 6.5.2).
const FIELD_BYTES: usize = 32;
/// Longest wait for the settings of a server: it sends them at once, unless it is blocked.
const SETTINGS_WAIT: Duration = Duration::from_millis(250);

/// Handle on a shared connection; clones share it.
#[derive(Clone, Debug)]
pub struct Http2Connection {
    sender: SendRequest<OutboundBody>,
    address: Arc<ConnectionAddress>,
    guards: StreamGuards,
}

/// Stream of a connection, for one request.
#[derive(Debug)]
pub struct OpenStream {
    connection: Http2Connection,
    permit: StreamPermit,
}

/// Failure of an exchange before the head of its reply.
#[derive(Debug)]
pub struct FailedExchange {
    /// Cause.
    pub error: AttemptError,
    /// The request, if nothing of it was read.
    pub request: Option<Box<Request<OutboundBody>>>,
}

/// Body of a reply over HTTP/2.
///
/// Dropping it ends the upload of its request. hyper sends that in a task of its own, which waits
/// for the replica's window, even after the end of the reply.
#[derive(Debug)]
pub struct Http2Body {
    incoming: Incoming,
    _upload: Option<(UploadHold, OpenUpload)>,
    _permit: StreamPermit,
}

/// Error of a body that broke off.
#[derive(Debug, thiserror::Error)]
pub enum Http2Error {
    /// The connection failed, or the replica reset the stream.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    /// The trailers are longer than a head may be.
    #[error("trailers of more than 512 KiB")]
    LongTrailers,
}

impl Http2Connection {
    /// Takes over a connected stream, and waits a little for the server's settings. The connection
    /// itself becomes a task: its streams belong to many requests, so none of them could drive it for
    /// the others.
    ///
    /// It sends no PING. gRPC servers close connections that send more than one in five minutes without
    /// data; the socket's keep-alive finds peers that are gone.
    ///
    /// # Errors
    /// Returns an error if the HTTP/2 handshake fails.
    pub async fn new(
        stream: Stream,
        address: ConnectionAddress,
        count: ConnectionCount,
        tracker: &TaskTracker,
    ) -> Result<Self, AttemptError> {
        let guards = StreamGuards::default();
        let stream = GuardedStream::new(stream, guards.clone());
        let (sender, connection) = http2::Builder::new(Executor(tracker.clone()))
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(FIELDS_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| AttemptError::of_http2(error, true))?;
        tracker.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "HTTP/2 connection to a replica ended");
            }
            drop(count);
        });
        // A server that is blocked gets the request, and as long for it as any other.
        let _is_late = timeout(SETTINGS_WAIT, guards.streams.settled()).await;
        Ok(Self { sender, address: Arc::new(address), guards })
    }

    /// Takes a stream; `None` if the connection takes no more.
    pub fn open_stream(&self) -> Option<OpenStream> {
        let permit = self.is_usable().then(|| self.guards.streams.open()).flatten()?;
        Some(OpenStream { connection: self.clone(), permit })
    }

    /// Takes the first stream of a connection that was just opened, whatever the server's limit.
    pub fn first_stream(&self) -> OpenStream {
        OpenStream { connection: self.clone(), permit: self.guards.streams.open_first() }
    }

    /// Returns true if the connection still takes requests, and the replica's name still has the
    /// server's address.
    pub fn is_usable(&self) -> bool {
        let Self { sender, address, guards } = self;
        let is_open = !sender.is_closed() && !guards.uploads.has_ended();
        is_open && !guards.streams.is_leaving() && address.is_current()
    }

    /// Returns the most streams that the server takes at a time.
    pub fn streams_max(&self) -> u32 {
        self.guards.streams.max()
    }

    /// Returns the time without a stream at `now`; `None` while there is one.
    pub fn idle_for(&self, now: Instant) -> Option<Duration> {
        self.guards.streams.idle_for(now)
    }
}

impl OpenStream {
    /// Sends the request and waits for the reply's head. Dropping the future resets the stream.
    ///
    /// # Errors
    /// The returned future ends with an error if the stream or connection breaks.
    pub fn exchange(
        self,
        request: Request<OutboundBody>,
    ) -> impl Future<Output = Result<Response<Http2Body>, FailedExchange>> {
        let Self { connection: Http2Connection { mut sender, guards, .. }, permit } = self;
        guards.earnings.request_sent();
        let mut upload = request.body().hold().map(|hold| (hold, guards.uploads.begin()));
        // Begun here and not in the future, which so does not hold the request.
        let reply = sender.try_send_request(request);
        async move {
            let reply = reply.await.map_err(|mut failed| {
                let request = failed.take_message().map(Box::new);
                let error = AttemptError::of_http2(failed.into_error(), request.is_some());
                FailedExchange { error, request }
            });
            if let Err(FailedExchange { error, request }) = &reply
                && (request.is_some() || matches!(error, AttemptError::Refused(_)))
                && let Some((hold, _)) = upload.take()
            {
                hold.let_go();
            }
            let mut reply = reply?;
            if is_too_long(reply.headers()) {
                let error = AttemptError::BadReply(ConnectionError::LongFields);
                return Err(FailedExchange { error, request: None });
            }
            plain_length(reply.headers_mut());
            let body = |incoming| Http2Body { incoming, _upload: upload, _permit: permit };
            Ok(reply.map(body))
        }
    }
}

impl From<AttemptError> for FailedExchange {
    fn from(error: AttemptError) -> Self {
        Self { error, request: None }
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = Http2Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Http2Error>>> {
        let next = ready!(Pin::new(&mut self.incoming).poll_frame(cx)?);
        if next.as_ref().and_then(Frame::trailers_ref).is_some_and(is_too_long) {
            return Poll::Ready(Some(Err(Http2Error::LongTrailers)));
        }
        Poll::Ready(next.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// Returns true if a list of fields is longer than a head of HTTP/1.1 may be.
fn is_too_long(fields: &HeaderMap) -> bool {
    let bytes = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES);
    bytes.sum::<usize>() > HEAD_BYTES_MAX
}
