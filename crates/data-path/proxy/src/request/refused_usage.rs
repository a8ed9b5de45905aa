//! Replicas that refuse a request because of the usage options that this node added to it. The
//! request is sent there again without them, as part of the same attempt, and the refusal is
//! remembered.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use spillway_journey::Connection;
use spillway_protocol::UsageWish;
use spillway_transport::coarse_clock;
use spillway_upstream::{FailedAttempt, UpstreamBody, UpstreamBodyError};
use spillway_view::UsageReports;
use tokio::time::error::Elapsed;
use tokio::time::timeout_at;

use crate::request::asked::Asked;
use crate::request::dispatch::Dispatch;

/// Most bytes of a refusal that are read for the names of options. Servers that check schemas repeat
/// the faulty part of a request, and name the option before it.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Part of a reply that was read.
#[derive(Debug, Default)]
struct BeginningOfReply {
    bytes: BytesMut,
    /// Trailers, or the error with which the reply broke off.
    last: Option<Result<Frame<Bytes>, UpstreamBodyError>>,
}

impl Asked {
    /// Returns true if the reply may be a refusal of usage options that this node added.
    pub(super) fn may_refuse_usage(&self, reply: &Response<UpstreamBody>) -> bool {
        self.usage != UsageWish::AsSent && is_refusal(reply.status())
    }
}

impl Dispatch<'_> {
    /// Sends the request to the same replica again, without the option that its reply names: first
    /// without usage in every event, then without any option of this node. Returns the first reply
    /// that names no such option.
    ///
    /// # Errors
    /// Returns the failure of the attempt, as [`Self::attempt`] does.
    pub(super) async fn ask_for_less_usage(
        &mut self,
        asked: &mut Asked,
        mut refusal: Response<UpstreamBody>,
    ) -> Result<Response<UpstreamBody>, FailedAttempt> {
        loop {
            let bounds = self.bounds(Connection::KeptOrNew);
            let until = (coarse_clock::now() + bounds.timeouts.idle).min(bounds.deadline.at());
            let mut beginning = BeginningOfReply::default();
            // The part that was read before the time-out is kept, and the rest is up to the relay.
            let _: Result<(), Elapsed> =
                timeout_at(until.into(), beginning.read(refusal.body_mut())).await;
            let Some(accepted) = accepted_by(&beginning.bytes, asked.usage) else {
                return Ok(refusal.map(|body| beginning.put_back(body)));
            };
            if let Some(connection) = refusal.body_mut().take_connection() {
                // A connection with a reply that was not read to its end is closed by its pool.
                asked.replica.connections().keep(self.worker.id, connection, coarse_clock::now());
            }
            asked.usage = self.prepared.beyond_client(|_| accepted.wish());
            let reply = self.attempt(asked, Connection::KeptOrNew).await?;
            if !is_refusal(reply.status()) {
                note_refusal(asked, accepted);
                return Ok(reply);
            }
            // A refusal for another reason says nothing about options: the names may have been
            // repeated from the request.
            if !asked.may_refuse_usage(&reply) {
                return Ok(reply);
            }
            refusal = reply;
        }
    }
}

impl BeginningOfReply {
    /// Reads a reply as far as it may name options.
    async fn read(&mut self, body: &mut UpstreamBody) {
        while self.bytes.len() < REFUSAL_BYTES_MAX
            && let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
        {
            match frame.map(Frame::into_data) {
                Ok(Ok(piece)) => self.bytes.extend_from_slice(&piece),
                Ok(Err(trailers)) => {
                    self.last = Some(Ok(trailers));
                    return;
                }
                Err(error) => {
                    self.last = Some(Err(error));
                    return;
                }
            }
        }
    }

    /// Returns the reply's body as it was before it was read.
    fn put_back(self, rest: UpstreamBody) -> UpstreamBody {
        let first = (!self.bytes.is_empty()).then(|| Ok(Frame::data(self.bytes.freeze())));
        rest.beginning_with(self.last).beginning_with(first)
    }
}

/// Returns true if the status is one by which servers refuse a malformed request.
fn is_refusal(status: StatusCode) -> bool {
    [StatusCode::BAD_REQUEST, StatusCode::UNPROCESSABLE_ENTITY].contains(&status)
}

/// Returns the usage reports for which a server that gave this refusal may be asked, after it was
/// asked for `added` beyond the client's own request; `None` if it names no option that was added.
fn accepted_by(refusal: &[u8], added: UsageWish) -> Option<UsageReports> {
    let names =
        |option: &str| refusal.windows(option.len()).any(|window| window == option.as_bytes());
    match added {
        UsageWish::AsSent => None,
        UsageWish::Throughout if names("continuous_usage_stats") => Some(UsageReports::AtEnd),
        UsageWish::AtEnd | UsageWish::Throughout => {
            let is_named = names("stream_options") || names("include_usage");
            is_named.then_some(UsageReports::None)
        }
    }
}

/// Remembers that the replica refuses more than these reports.
fn note_refusal(asked: &Asked, accepted: UsageReports) {
    if asked.replica.limit_usage(accepted) {
        let replica = &asked.replica.spec().name;
        let refused = match accepted {
            UsageReports::None => "stream_options.include_usage",
            UsageReports::AtEnd | UsageReports::Throughout => {
                "stream_options.continuous_usage_stats"
            }
        };
        tracing::info!(%replica, refused, "the replica refuses a usage option, and is no longer asked");
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn an_option_that_was_added_and_is_named_is_left_out() {
        use UsageWish::{AsSent, AtEnd, Throughout};
        let (none, at_end) = (Some(UsageReports::None), Some(UsageReports::AtEnd));
        for (refusal, added, expected) in [
            ("Extra inputs are not permitted: stream_options", AtEnd, none),
            ("unknown field `include_usage`", Throughout, none),
            ("stream_options.continuous_usage_stats: not permitted", Throughout, at_end),
            // The client sent it: its own body would be refused, too.
            ("continuous_usage_stats is unknown", AtEnd, None),
            ("stream_options", AsSent, None),
            ("temperature must be at least 0", Throughout, None),
            ("", AtEnd, None),
        ] {
            assert_eq!(accepted_by(refusal.as_bytes(), added), expected, "{refusal} {added:?}");
        }
    }

    #[tokio::test]
    async fn a_refusal_that_was_read_is_whole_again() {
        for last in [None, Some(Ok(Frame::trailers(http::HeaderMap::new())))] {
            let beginning = BeginningOfReply { bytes: BytesMut::from("no"), last };
            let has_trailers = beginning.last.is_some();
            let whole = beginning.put_back(UpstreamBody::Over).collect().await.expect("no error");
            assert_eq!(whole.trailers().is_some(), has_trailers);
            assert_eq!(whole.to_bytes(), "no");
        }
    }
}
