//! Fuzz targets for messages between nodes, except those of the replicated log.

use bytes::Bytes;
use spillway_codec::fuzz::check_message;

use super::head::HeadMessage;
use super::piece::{Piece, PieceReader};
use super::word::{ForwardWord, ReplyHead, Trailers};
use crate::hello::Hello;
use crate::identity::Identity;

/// Fuzz target: the name of the folder of its inputs, and the function that runs one input.
pub type Target = (&'static str, fn(&[u8]));

/// Fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    ("forward_head", forward_head),
    ("forward_reply", forward_reply),
    ("forward_pieces", forward_pieces),
    ("node_identity", node_identity),
];

/// Checks that an accepted head can be sent on as it was understood.
fn forward_head(input: &[u8]) {
    let _hello = check_message::<Hello>(input);
    let Some(message) = check_message::<HeadMessage>(input) else { return };
    if let Ok(head) = message.into_head() {
        assert!(HeadMessage::of(head).is_ok(), "a head was taken that has more than is sent");
    }
}

fn forward_reply(input: &[u8]) {
    let _word = check_message::<ForwardWord>(input);
    if let Some(reply) = check_message::<ReplyHead>(input) {
        drop(reply.into_parts());
    }
    if let Some(trailers) = check_message::<Trailers>(input) {
        drop(trailers.into_map());
    }
}

/// Checks that the same pieces come out wherever the bytes are cut, and none after the end.
fn forward_pieces(input: &[u8]) {
    let cut = input.first().map_or(1, |byte| usize::from(*byte % 16) + 1);
    let whole = pieces(input.chunks(input.len().max(1)));
    let cut = pieces(input.chunks(cut));
    assert_eq!(whole, cut);
    let (data, _, _) = whole;
    assert!(data.len() <= input.len());
}

/// Returns the data, the number of trailers, and the end: true for a proper end, false for broken
/// rules, `None` for neither.
fn pieces<'i>(chunks: impl Iterator<Item = &'i [u8]>) -> (Vec<u8>, usize, Option<bool>) {
    let mut reader = PieceReader::default();
    let (mut data, mut trailers, mut ended) = (Vec::new(), 0, None);
    for chunk in chunks {
        let mut chunk = Bytes::copy_from_slice(chunk);
        loop {
            match reader.next(&mut chunk) {
                Ok(None) => break,
                Ok(Some(Piece::Data(bytes))) => data.extend_from_slice(&bytes),
                Ok(Some(Piece::Trailers(_))) => trailers += 1,
                Ok(Some(Piece::End)) => ended = Some(true),
                Err(_) => return (data, trailers, Some(false)),
            }
        }
    }
    (data, trailers, ended)
}

/// Checks that an identity in a certificate is written exactly as it was read.
fn node_identity(input: &[u8]) {
    let Ok(uri) = std::str::from_utf8(input) else { return };
    if let Some(identity) = Identity::from_uri(uri) {
        assert_eq!(identity.uri(), uri);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn targets_hold_on_kept_inputs_and_on_mutations_of_them() {
        spillway_fuzz::check(super::TARGETS);
    }
}
