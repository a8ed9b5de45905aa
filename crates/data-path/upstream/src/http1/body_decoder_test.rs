use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use proptest::prelude::*;

use super::body_decoder::{BodyDecoder, BodyRead};
use crate::http1::error::Http1Error;

/// Output of a decoder: pieces, trailers, and whether the end was reached.
#[derive(Debug, Default, PartialEq, Eq)]
struct Decoded {
    pieces: Vec<Bytes>,
    trailers: HeaderMap,
    has_ended: bool,
}

impl Decoded {
    fn body(&self) -> Vec<u8> {
        self.pieces.concat()
    }
}

/// Feeds `parts` to a decoder, one after the other; returns the bytes left over, too.
fn decode(mut decoder: BodyDecoder, parts: &[&[u8]]) -> Result<(Decoded, BytesMut), Http1Error> {
    let (mut decoded, mut buffer) = (Decoded::default(), BytesMut::new());
    for part in parts {
        buffer.extend_from_slice(part);
        loop {
            match decoder.take(&mut buffer)? {
                BodyRead::Data(piece) => decoded.pieces.push(piece),
                BodyRead::Trailers(trailers) => decoded.trailers = trailers,
                BodyRead::End => {
                    decoded.has_ended = true;
                    break;
                }
                BodyRead::More => break,
            }
        }
    }
    Ok((decoded, buffer))
}

#[test]
fn chunks_that_came_together_are_one_piece_and_the_end_is_known_with_it() {
    let mut buffer = BytesMut::from(&b"3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\n\r\nHTTP/1.1"[..]);
    let mut decoder = BodyDecoder::chunked();
    assert_eq!(decoder.take(&mut buffer).unwrap(), BodyRead::Data(Bytes::from_static(b"abcdefg")));
    assert!(decoder.is_over());
    assert_eq!(decoder.take(&mut buffer).unwrap(), BodyRead::End);
    assert_eq!(buffer, "HTTP/1.1", "what follows is left");
}

#[test]
fn a_part_of_a_chunk_is_handed_over_without_the_rest() {
    let mut buffer = BytesMut::from(&b"5\r\nab"[..]);
    let mut decoder = BodyDecoder::chunked();
    assert_eq!(decoder.take(&mut buffer).unwrap(), BodyRead::Data(Bytes::from_static(b"ab")));
    assert_eq!(decoder.take(&mut buffer).unwrap(), BodyRead::More);
    buffer.extend_from_slice(b"cde\r");
    assert_eq!(decoder.take(&mut buffer).unwrap(), BodyRead::Data(Bytes::from_static(b"cde")));
    assert_eq!(decoder.take(&mut buffer).unwrap(), BodyRead::More);
    assert_eq!(decoder.end().unwrap_err().to_string(), Http1Error::Closed.to_string());
}

#[test]
fn trailers_may_be_as_long_as_a_head_and_come_in_pieces() {
    let text = "t".repeat(400 << 10);
    let wire = format!("0\r\nx-text: {text}\r\n{}\r\n", "x-more: 1\r\n".repeat(200));
    for step in [1_000, 16_384, wire.len()] {
        let parts: Vec<_> = wire.as_bytes().chunks(step).collect();
        let (decoded, rest) = decode(BodyDecoder::chunked(), &parts).unwrap();
        assert_eq!(decoded.trailers["x-text"].len(), text.len(), "pieces of {step}");
        assert_eq!(decoded.trailers.len(), 201);
        assert!(decoded.has_ended && rest.is_empty());
    }
}

#[test]
fn trailers_come_behind_the_data() {
    let body = b"1\r\na\r\n0\r\nx-sum: 7\r\nx-sum: 8\r\n\r\n";
    let (decoded, _) = decode(BodyDecoder::chunked(), &[body]).unwrap();
    assert_eq!((decoded.body(), decoded.has_ended), (b"a".to_vec(), true));
    let sums: Vec<_> = decoded.trailers.get_all("x-sum").iter().collect();
    assert_eq!(sums, ["7", "8"]);
}

#[test]
fn malformed_and_endless_framing_is_refused() {
    let long_line = [b"1;", &[b'x'; 5 << 10][..]].concat();
    let extensions = b"1;abcdefghijklmnopqrstuvwxyz\r\na\r\n".repeat(2_000);
    let long_trailers = [b"0\r\n", &b"x-field: value\r\n".repeat(9_000)[..], b"\r\n"].concat();
    let endless_trailer = [b"0\r\nx: ", &[b'x'; 513 << 10][..]].concat();
    for (bytes, why) in [
        (&b"g\r\n"[..], "no size"),
        (b"-1\r\n", "a sign"),
        (b"\r\n", "nothing"),
        (b"10000000000000000\r\n", "65 bits"),
        (b"1\r\nabc", "no end of data"),
        (b"1\r\na\nb", "a bare line feed"),
        (b"1;a\n0\r\na\r\n", "a bare line feed in an extension"),
        (b"0\r\na: b\n\r\n", "a bare line feed in trailers"),
        (b"0\r\nno field\r\n\r\n", "a trailer without colon"),
        (&long_line, "a long line"),
        (&extensions, "many extensions"),
        (&long_trailers, "many trailers"),
        (&endless_trailer, "a long trailer"),
    ] {
        let result = decode(BodyDecoder::chunked(), &[bytes]);
        assert!(result.is_err_and(|error| error.is_malformed()), "{why}");
    }
}

#[test]
fn a_length_ends_a_body_and_a_close_ends_one_without() {
    let (decoded, rest) = decode(BodyDecoder::Length(3), &[b"ab", b"cde"]).unwrap();
    assert_eq!((decoded.body(), decoded.has_ended), (b"abc".to_vec(), true));
    assert_eq!(rest, "de");
    assert!(BodyDecoder::Length(1).end().is_err());
    let mut open = BodyDecoder::UntilClose;
    assert_eq!(open.bytes_left(), None);
    assert!(open.end().is_ok() && open.is_over());
}

proptest! {
    /// However a body is cut into chunks, and the bytes of those into reads, it is the same.
    #[test]
    fn a_body_does_not_depend_on_chunks_and_reads(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..60), 0..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        has_trailer in any::<bool>(),
    ) {
        let mut wire = Vec::new();
        for chunk in &chunks {
            wire.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(if has_trailer { b"0\r\na: b\r\n\r\n" } else { b"0\r\n\r\n" });
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(wire.len())).collect();
        cuts.extend([0, wire.len()]);
        cuts.sort_unstable();
        let parts: Vec<&[u8]> = cuts.windows(2).map(|cut| &wire[cut[0]..cut[1]]).collect();
        let (decoded, rest) = decode(BodyDecoder::chunked(), &parts).unwrap();
        prop_assert_eq!(decoded.body(), chunks.concat());
        prop_assert!(decoded.has_ended && rest.is_empty());
        prop_assert_eq!(decoded.trailers.len(), usize::from(has_trailer));
        prop_assert!(decoded.pieces.len() <= parts.len(), "one piece a read at most");
    }
}
