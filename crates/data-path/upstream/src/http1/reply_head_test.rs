use bytes::BytesMut;
use http::{HeaderMap, Method, StatusCode, Version};
use hyper::ext::ReasonPhrase;

use super::body_decoder::{BodyDecoder, Chunk};
use super::error::Http1Error;
use super::reply_head::{ReplyHead, take_head};

fn head(text: &str) -> Result<ReplyHead, Http1Error> {
    head_of(&Method::POST, text)
}

fn head_of(method: &Method, text: &str) -> Result<ReplyHead, Http1Error> {
    let mut buffer = BytesMut::from(text);
    let head = take_head(&mut buffer, method, &mut HeaderMap::new())?.ok_or(Http1Error::Closed)?;
    assert_eq!(buffer, "", "the head was taken");
    Ok(head)
}

/// Returns the body's framing in one word.
fn framing(head: &ReplyHead) -> String {
    match &head.body {
        BodyDecoder::Length(length) => length.to_string(),
        BodyDecoder::Chunked { next: Chunk::Size, .. } => "chunks".to_owned(),
        BodyDecoder::UntilClose => "close".to_owned(),
        BodyDecoder::Over => "none".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_head_is_taken_once_it_is_whole_and_what_follows_is_left() {
    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\nx-a: 2\r\n\r\nhello";
    let whole = text.len() - 5;
    for length in 0..whole {
        let mut buffer = BytesMut::from(&text[..length]);
        assert!(
            take_head(&mut buffer, &Method::GET, &mut HeaderMap::new()).unwrap().is_none(),
            "{length}"
        );
        assert_eq!(buffer.len(), length, "nothing was taken");
    }
    let mut buffer = BytesMut::from(&text[..]);
    let head = take_head(&mut buffer, &Method::GET, &mut HeaderMap::new()).unwrap().unwrap();
    assert_eq!((head.parts.status, head.parts.version), (StatusCode::OK, Version::HTTP_11));
    assert_eq!(head.parts.headers.get_all("x-a").iter().count(), 2);
    assert_eq!(buffer, "hello");
    assert!(head.parts.extensions.get::<ReasonPhrase>().is_none());
}

#[test]
fn the_end_of_the_body_is_where_the_head_says() {
    for (fields, expected, keeps_alive) in [
        ("content-length: 7\r\n", "7", true),
        ("content-length: 7\r\ncontent-length: 7\r\n", "7", true),
        ("content-length: 7, 7\r\n", "7", true),
        ("content-length: 0\r\n", "none", true),
        ("content-length: 7\r\nconnection: close\r\n", "7", false),
        ("content-length: 7\r\nconnection: x, Close\r\n", "7", false),
        ("transfer-encoding: chunked\r\n", "chunks", true),
        ("transfer-encoding: gzip, Chunked\r\n", "chunks", true),
        ("transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n", "chunks", true),
        ("transfer-encoding: chunked\r\ncontent-length: 7\r\n", "chunks", true),
        ("transfer-encoding: chunked, gzip\r\n", "close", false),
        ("", "close", false),
    ] {
        let head = head(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).unwrap();
        assert_eq!(
            (framing(&head).as_str(), head.keeps_alive),
            (expected, keeps_alive),
            "{fields}"
        );
    }
    let both = head("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 7\r\n\r\n");
    assert!(!both.unwrap().parts.headers.contains_key("content-length"), "it is not passed on");
}

#[test]
fn some_replies_have_no_body_whatever_their_fields_say() {
    let fields = "content-length: 7\r\n\r\n";
    for status in ["204 No Content", "304 Not Modified", "103 Early Hints"] {
        let head = head(&format!("HTTP/1.1 {status}\r\n{fields}")).unwrap();
        assert_eq!(framing(&head), "none", "{status}");
    }
    let head = head_of(&Method::HEAD, &format!("HTTP/1.1 200 OK\r\n{fields}")).unwrap();
    assert_eq!(framing(&head), "none");
    assert_eq!(head.parts.headers["content-length"], "7", "clients want to know it");
}

#[test]
fn an_old_server_closes_unless_it_says_otherwise() {
    let closing = head("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\n").unwrap();
    assert!(!closing.keeps_alive);
    let keeping = "HTTP/1.0 200 OK\r\ncontent-length: 1\r\nconnection: Keep-Alive\r\n\r\n";
    assert!(head(keeping).unwrap().keeps_alive);
    assert!(head("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
}

#[test]
fn a_reason_of_its_own_is_kept() {
    let head = head("HTTP/1.1 200 Fine\r\ncontent-length: 0\r\n\r\n").unwrap();
    let reason = head.parts.extensions.get::<ReasonPhrase>().unwrap();
    assert_eq!(reason.as_bytes(), b"Fine");
}

#[test]
fn what_is_unclear_is_refused() {
    for text in [
        "HTTP/2.0 200 OK\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 099 No\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 7\r\ncontent-length: 8\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 7, 8\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: +7\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551616\r\n\r\n",
        "HTTP/1.1 200 OK\r\na : b\r\n\r\n",
        "HTTP/1.1 200 OK\r\n a: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n",
    ] {
        let refused = head(text);
        assert!(refused.is_err_and(|error| error.is_malformed()), "{text}");
    }
}

#[test]
fn a_length_is_one_field_in_plain_digits() {
    let get = |head: ReplyHead| {
        let fields = head.parts.headers.get_all("content-length").iter();
        fields.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for fields in
        ["content-length: 7, 7", "content-length: 7\r\ncontent-length: 7", "content-length: 007"]
    {
        let head = head(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n")).unwrap();
        assert_eq!(get(head), ["7"], "{fields}");
    }
    for (fields, expected) in
        [("content-length: 7, 7", &["7"][..]), ("content-length: 7, 8", &[]), ("x: 1", &[])]
    {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
        assert_eq!(get(head_of(&Method::HEAD, &text).unwrap()), expected, "{fields}");
    }
}

#[test]
fn a_head_may_have_thousands_of_fields() {
    for (count, is_taken) in [(101, true), (8_000, true), (9_000, false)] {
        let fields: String = (0..count).map(|number| format!("x-{number}: {number}\r\n")).collect();
        let head = head(&format!("HTTP/1.1 200 OK\r\n{fields}content-length: 1\r\n\r\n"));
        match head {
            Ok(head) => assert!(is_taken && head.parts.headers.len() == count + 1, "{count}"),
            Err(error) => assert!(!is_taken, "{count}: {error}"),
        }
    }
}
