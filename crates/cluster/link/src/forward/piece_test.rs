use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;

use super::piece::*;

fn trailer_map() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.append("grpc-status", HeaderValue::from_static("0"));
    headers.append("grpc-message", HeaderValue::from_static("fine"));
    headers
}

/// Returns the bytes of a body of these data pieces, with trailers if asked for.
fn body_of(pieces: &[Vec<u8>], with_trailers: bool) -> Vec<u8> {
    let mut wire = Vec::new();
    for piece in pieces {
        wire.extend_from_slice(&data_head(piece.len() as u32));
        wire.extend_from_slice(piece);
    }
    if with_trailers {
        trailers(&trailer_map()).unwrap().iter().for_each(|part| wire.extend_from_slice(part));
    }
    wire.extend_from_slice(&end());
    wire
}

/// Returns all pieces that come out when `wire` goes in, cut at `cuts`.
fn read(wire: &[u8], cuts: &[usize]) -> Result<(Vec<u8>, Option<HeaderMap>, bool), PieceError> {
    let mut reader = PieceReader::default();
    let (mut data, mut found, mut ended) = (Vec::new(), None, false);
    let mut rest = wire;
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let count = cuts.next().map_or(rest.len(), |cut| (*cut).clamp(1, rest.len()));
        let (chunk, after) = rest.split_at(count);
        let mut chunk = Bytes::copy_from_slice(chunk);
        while let Some(piece) = reader.next(&mut chunk)? {
            match piece {
                Piece::Data(bytes) => data.extend_from_slice(&bytes),
                Piece::Trailers(headers) => found = Some(headers),
                Piece::End => ended = true,
            }
        }
        rest = after;
    }
    Ok((data, found, ended))
}

#[test]
fn a_cut_off_body_has_no_end() {
    let wire = body_of(&[b"hello".to_vec()], true);
    for length in 0..wire.len() {
        let (_, _, ended) = read(&wire[..length], &[]).unwrap();
        assert!(!ended, "cut to {length} of {}", wire.len());
    }
    assert!(read(&wire, &[]).unwrap().2);
}

#[test]
fn pieces_against_the_rules_are_refused() {
    let piece = |kind: u8, bytes: u32, payload: &[u8]| {
        [&[kind][..], &bytes.to_le_bytes(), payload].concat()
    };
    let refused = |wire: &[u8]| read(wire, &[]).unwrap_err();
    assert_eq!(refused(&piece(0, 0, b"")), PieceError::Kind(0));
    assert_eq!(refused(&piece(4, 1, b"x")), PieceError::Kind(4));
    assert_eq!(refused(&piece(1, 0, b"")), PieceError::Length { kind: 1, bytes: 0 });
    let long = DATA_BYTES_MAX + 1;
    assert_eq!(refused(&piece(1, long, b"x")), PieceError::Length { kind: 1, bytes: long });
    assert_eq!(refused(&piece(2, 0, b"")), PieceError::Length { kind: 2, bytes: 0 });
    let long = u32::MAX;
    assert_eq!(refused(&piece(2, long, b"x")), PieceError::Length { kind: 2, bytes: long });
    assert_eq!(refused(&piece(3, 1, b"x")), PieceError::Length { kind: 3, bytes: 1 });
    assert!(matches!(refused(&piece(2, 3, b"abc")), PieceError::Trailers(_)));
    let after_end = [body_of(&[], false), piece(1, 1, b"x")].concat();
    assert_eq!(refused(&after_end), PieceError::Late(1));
    let after_trailers = body_of(&[], true);
    let after_trailers = [&after_trailers[..after_trailers.len() - 5], &piece(1, 1, b"x")].concat();
    assert_eq!(refused(&after_trailers), PieceError::Late(1));
}

#[test]
fn too_many_trailers_are_not_sent() {
    let mut headers = HeaderMap::new();
    headers.insert("x-long", HeaderValue::from_bytes(&[b'x'; 656_000]).unwrap());
    assert!(trailers(&headers).is_err());
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..100_000 {
        let wire: Vec<u8> = (0..random.usize(0..48))
            .map(|at| if at % 5 == 0 { random.u8(0..5) } else { random.u8(..) & random.u8(..) })
            .collect();
        let cut = random.usize(1..48);
        let outcome = read(&wire, &[cut]);
        if let Ok((data, ..)) = outcome {
            assert!(data.len() <= wire.len());
        }
    }
}

proptest! {
    #[test]
    fn a_body_comes_out_whole_however_it_is_cut(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..8),
        with_trailers in any::<bool>(),
        cuts in proptest::collection::vec(1_usize..40, 1..6),
    ) {
        let (data, found, ended) = read(&body_of(&pieces, with_trailers), &cuts).unwrap();
        prop_assert_eq!(data, pieces.concat());
        prop_assert_eq!(found, with_trailers.then(trailer_map));
        prop_assert!(ended);
    }
}
