use std::pin::Pin;
use std::task::{Context, Poll};

use http::HeaderValue;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use spillway_upstream::wire_body::BoxError;

use super::*;

const IDLE: Duration = Duration::from_secs(60);

/// A reply in one piece of a known length.
fn whole(status: u16, body: &'static str) -> Response<UpstreamBody> {
    let bytes = Full::new(Bytes::from_static(body.as_bytes())).map_err(BoxError::from);
    let mut reply = Response::new(UpstreamBody::Link(bytes.boxed_unsync()));
    *reply.status_mut() = StatusCode::from_u16(status).expect("a status");
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// Judges a reply of a chat, and returns its body, or the error.
async fn judged_chat(reply: Response<UpstreamBody>, is_known: bool) -> Result<String, String> {
    match judge(reply, Judging { api: ReplyApi::Chat, is_known, idle: IDLE }).await {
        Ok((reply, _)) => {
            let bytes = reply.into_body().collect().await.expect("a body").to_bytes();
            Ok(String::from_utf8(bytes.to_vec()).expect("text"))
        }
        Err(error) => Err(error.to_string()),
    }
}

#[track_caller]
fn check(result: Result<String, String>, expected: Result<&str, AttemptError>) {
    let expected = expected.map(str::to_owned).map_err(|error| error.to_string());
    assert_eq!(result, expected);
}

#[tokio::test]
async fn an_answer_that_was_cut_short_is_no_answer() {
    let of = |reason: &str| {
        let choice = format!("{{\"index\":0,\"message\":{{\"content\":\"a b\"}}{reason}}}");
        let body = format!("{{\"id\":\"c\",\"choices\":[{choice}]}}");
        &*Box::leak(body.into_boxed_str())
    };
    let whole_one = of(",\"finish_reason\":\"stop\"");
    check(judged_chat(whole(200, whole_one), true).await, Ok(whole_one));
    let aborted = of(",\"finish_reason\":\"abort\"");
    for is_known in [true, false] {
        check(judged_chat(whole(200, aborted), is_known).await, Err(AttemptError::Aborted));
    }
    let open = of(",\"finish_reason\":null");
    check(judged_chat(whole(200, open), true).await, Err(AttemptError::Unfinished));
    // Servers of other kinds may give no reason, and answer in forms of their own.
    check(judged_chat(whole(200, open), false).await, Ok(open));
    for odd in ["{}", "{\"id\":\"x\",\"choices\":[]}", "no JSON"] {
        check(judged_chat(whole(200, odd), false).await, Ok(odd));
    }
    let empty = "{\"id\":\"x\",\"choices\":[]}";
    check(judged_chat(whole(200, empty), true).await, Err(AttemptError::Unfinished));
}

#[tokio::test]
async fn an_error_by_which_an_engine_reports_its_end_is_no_answer() {
    let dying = "{\"error\":{\"message\":\"EngineCore encountered an issue\",\"code\":500}}";
    let draining =
        "{\"error\":{\"message\":\"cannot schedule new futures after shutdown\",\"code\":500}}";
    let other = "{\"error\":{\"message\":\"list index out of range\",\"code\":500}}";
    check(judged_chat(whole(500, dying), false).await, Err(AttemptError::EngineDying));
    check(judged_chat(whole(500, draining), false).await, Err(AttemptError::EngineDraining));
    check(judged_chat(whole(500, other), true).await, Ok(other));
    check(judged_chat(whole(400, dying), true).await, Ok(dying));
}

#[tokio::test]
async fn replies_that_are_long_coded_or_streamed_pass_unread() {
    let aborted = "{\"choices\":[{\"message\":{\"content\":\"a\"},\"finish_reason\":\"abort\"}]}";
    let mut coded = whole(200, aborted);
    coded.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    check(judged_chat(coded, true).await, Ok(aborted));
    let mut streamed = whole(200, aborted);
    let events = HeaderValue::from_static("text/event-stream");
    streamed.headers_mut().insert(CONTENT_TYPE, events);
    check(judged_chat(streamed, true).await, Ok(aborted));
    let reply = judge(
        whole(200, aborted),
        Judging { api: ReplyApi::Embeddings, is_known: true, idle: IDLE },
    )
    .await;
    assert!(matches!(reply, Ok((_, None))), "{reply:?}");
}

/// A body that never says how long it is.
struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Pending
    }
}

#[tokio::test]
async fn a_body_of_unknown_length_is_not_held() {
    let mut reply = whole(200, "");
    *reply.body_mut() = UpstreamBody::Link(Endless.boxed_unsync());
    let judged = judge(reply, Judging { api: ReplyApi::Chat, is_known: true, idle: IDLE }).await;
    assert!(matches!(judged, Ok((_, None))), "{judged:?}");
}
