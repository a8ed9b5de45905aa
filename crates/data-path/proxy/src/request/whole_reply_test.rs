use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use http_body_util::{BodyExt, Full};
use spillway_transport::BoxError;

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

fn judging(api: ReplyApi, is_known: bool) -> Judging<'static> {
    static MODEL: LazyLock<ModelName> = LazyLock::new(|| "tiny".into());
    Judging {
        api: Some(api),
        is_call: false,
        model: Some(&MODEL),
        is_known,
        first_byte: IDLE,
        idle: IDLE,
        deadline: coarse_clock::now() + 2 * IDLE,
    }
}

/// Judges a reply of a chat, and returns its body, or the error.
async fn judged_chat(reply: Response<UpstreamBody>, is_known: bool) -> Result<String, String> {
    match judge(reply, judging(ReplyApi::Chat, is_known)).await {
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
async fn a_reply_that_the_model_is_missing_is_no_answer() {
    let missing = r#"{"error":{"message":"The model `tiny` does not exist.","code":404}}"#;
    let other = r#"{"detail":"Not Found"}"#;
    for status in [400, 404] {
        check(judged_chat(whole(status, missing), false).await, Err(AttemptError::NoModel));
        let pieces = chunks(missing);
        check(judged_chat(in_pieces(status, pieces), true).await, Err(AttemptError::NoModel));
        check(judged_chat(whole(status, other), true).await, Ok(other));
    }
    check(judged_chat(whole(409, missing), true).await, Ok(missing));
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
    let reply = judge(whole(200, aborted), judging(ReplyApi::Embeddings, true)).await;
    assert!(matches!(reply, Ok((_, None))), "{reply:?}");
}

/// A body that does not say how long it is.
struct Pieces {
    /// `None` breaks it off.
    pieces: VecDeque<Option<Frame<Bytes>>>,
    /// True if it has no end.
    is_endless: bool,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.pieces.pop_front() {
            None if self.is_endless => Poll::Pending,
            next => Poll::Ready(next.map(|piece| piece.ok_or_else(|| "it broke off".into()))),
        }
    }
}

/// A reply of these pieces; `None` breaks it off.
fn with_body(
    status: u16,
    pieces: impl IntoIterator<Item = Option<Frame<Bytes>>>,
    is_endless: bool,
) -> Response<UpstreamBody> {
    let mut reply = whole(status, "");
    let body = Pieces { pieces: pieces.into_iter().collect(), is_endless };
    *reply.body_mut() = UpstreamBody::Link(body.boxed_unsync());
    reply
}

/// A whole reply of these pieces.
fn in_pieces(
    status: u16,
    pieces: impl IntoIterator<Item = Frame<Bytes>>,
) -> Response<UpstreamBody> {
    with_body(status, pieces.into_iter().map(Some), false)
}

fn chunks(text: &str) -> impl Iterator<Item = Frame<Bytes>> + use<> {
    let chunks: Vec<_> =
        text.as_bytes().chunks(7).map(|piece| Frame::data(Bytes::copy_from_slice(piece))).collect();
    chunks.into_iter()
}

#[tokio::test]
async fn an_answer_without_a_length_is_judged_if_its_engine_is_known() {
    let of = |reason: &str| {
        format!(
            "{{\"choices\":[{{\"message\":{{\"content\":\"a\"}},\"finish_reason\":{reason:?}}}]}}"
        )
    };
    let (good, aborted) = (of("stop"), of("abort"));
    check(judged_chat(in_pieces(200, chunks(&good)), true).await, Ok(&good));
    check(judged_chat(in_pieces(200, chunks(&aborted)), true).await, Err(AttemptError::Aborted));
    check(judged_chat(in_pieces(200, []), true).await, Err(AttemptError::Unfinished));
    // It may be an answer that comes as it is made.
    check(judged_chat(in_pieces(200, chunks(&aborted)), false).await, Ok(&aborted));
    let dying = "{\"error\":{\"message\":\"EngineCore encountered an issue\"}}";
    check(judged_chat(in_pieces(500, chunks(dying)), false).await, Err(AttemptError::EngineDying));
    // A reply that is too long passes whole, and is not judged.
    let long = format!("{}{aborted}", " ".repeat(JUDGED_BYTES_MAX));
    check(judged_chat(in_pieces(200, chunks(&long)), true).await, Ok(&long));
    let broken = with_body(200, chunks(&good).map(Some).take(3).chain([None]), false);
    check(judged_chat(broken, true).await, Err(AttemptError::Cut));
}

#[tokio::test]
async fn trailers_of_a_reply_that_was_held_stay_behind_it() {
    let good = "{\"choices\":[{\"message\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}";
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", HeaderValue::from_static("1"));
    let pieces = chunks(good).chain([Frame::trailers(trailers.clone())]);
    let judged = judge(in_pieces(200, pieces), judging(ReplyApi::Chat, true)).await;
    let (reply, reader) = judged.expect("an answer");
    assert!(reader.is_some());
    let body = reply.into_body().collect().await.expect("a body");
    assert_eq!(body.trailers(), Some(&trailers));
    assert_eq!(body.to_bytes(), good);
}

#[tokio::test]
async fn a_body_is_waited_for_no_longer_than_it_may_take() {
    let silent = || with_body(200, [], true);
    let reply = judge(silent(), judging(ReplyApi::Chat, false)).await;
    assert!(matches!(reply, Ok((_, None))), "it is not held: {reply:?}");
    let short = Duration::from_millis(20);
    let impatient = Judging { first_byte: short, ..judging(ReplyApi::Chat, true) };
    let reply = judge(silent(), impatient).await;
    assert!(matches!(reply, Err(AttemptError::FirstByteTimeout)), "{reply:?}");
    let late = Judging { deadline: coarse_clock::now() + short, ..judging(ReplyApi::Chat, true) };
    let reply = judge(silent(), late).await;
    assert!(matches!(reply, Err(AttemptError::DeadlinePassed)), "{reply:?}");
}
