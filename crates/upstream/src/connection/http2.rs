//! HTTP/2 to a replica: one shared connection per worker.

use std::future::Future;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio_util::task::TaskTracker;

use crate::connection::body::OutboundBody;
use crate::connection::error::AttemptError;
use crate::connection::guarded_stream::{FrameEarnings, GuardedStream};
use crate::connection::open_uploads::{OpenUpload, OpenUploads};
use crate::connection::streamed_body::UploadHold;
use crate::connection_count::ConnectionCount;
use crate::executor::Executor;
use crate::stream::Stream;

/// Interval of pings on a connection with requests: many requests would wait on a dead one.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Time without an answer to a ping after which a replica counts as gone.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of one reply that may wait here for a slow client. A nearby replica fills this window in
/// well under a millisecond, so it limits no speed.
const STREAM_WINDOW_BYTES: u32 = 512 << 10;
/// Bytes of all replies on a connection that may wait: the most that the protocol allows, or a few
/// slow clients would stop the replies to all others. The windows of the streams are the real
/// limit.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// Handle on a shared connection; clones share it.
#[derive(Clone, Debug)]
pub struct Http2Connection {
    sender: SendRequest<OutboundBody>,
    earnings: FrameEarnings,
    uploads: OpenUploads,
}

/// Body of a reply over HTTP/2.
///
/// Dropping it ends the upload of its request. hyper sends that in a task of its own, which waits
/// for the replica's window, even after the end of the reply.
#[derive(Debug)]
pub struct Http2Body {
    /// The body itself.
    pub(crate) incoming: Incoming,
    _upload: Option<(UploadHold, OpenUpload)>,
}

impl Http2Connection {
    /// Takes over a connected stream. The connection itself becomes a task: its streams belong to
    /// many requests, so none of them could drive it for the others.
    ///
    /// # Errors
    /// Returns an error if the HTTP/2 handshake fails.
    pub async fn new(
        stream: Stream,
        count: ConnectionCount,
        tracker: &TaskTracker,
    ) -> Result<Self, AttemptError> {
        let earnings = FrameEarnings::default();
        let uploads = OpenUploads::default();
        let stream = GuardedStream::new(stream, earnings.clone(), uploads.clone());
        let (sender, connection) = http2::Builder::new(Executor(tracker.clone()))
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .keep_alive_interval(Some(PING_INTERVAL))
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| AttemptError::of_http2(error, true))?;
        tracker.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "HTTP/2 connection to a replica ended");
            }
            drop(count);
        });
        Ok(Self { sender, earnings, uploads })
    }

    /// Sends the request and waits for the reply's head. Dropping the future resets the stream.
    ///
    /// # Errors
    /// Returns an error if the stream or connection breaks.
    pub fn exchange(
        &mut self,
        request: Request<OutboundBody>,
    ) -> impl Future<Output = Result<Response<Http2Body>, AttemptError>> + use<> {
        self.earnings.request_sent();
        let upload = request.body().hold().map(|hold| (hold, self.uploads.begin()));
        // Begun here and not in the future, which so borrows nothing of this handle.
        let reply = self.sender.try_send_request(request);
        async move {
            let reply = reply.await.map_err(|mut failed| {
                let unsent = failed.take_message().is_some();
                AttemptError::of_http2(failed.into_error(), unsent)
            })?;
            Ok(reply.map(|incoming| Http2Body { incoming, _upload: upload }))
        }
    }

    /// Returns true if the connection still takes requests.
    pub fn is_usable(&self) -> bool {
        !self.sender.is_closed() && !self.uploads.has_ended()
    }
}
