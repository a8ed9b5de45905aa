//! Fuzz targets of what nodes send each other beside the log.

use bytes::Bytes;
use spillway_codec::fuzz::check_message;

use super::head::HeadMessage;
use super::piece::{Piece, PieceReader};
use super::word::{ReplyHead, Trailers, Word};
use crate::hello::Hello;
use crate::identity::Identity;

/// A target: the name of the folder of its inputs, and what runs one of them.
pub type Target = (&'static str, fn(&[u8]));

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    ("forward_head", forward_head),
    ("forward_reply", forward_reply),
    ("forward_pieces", forward_pieces),
    ("node_identity", node_identity),
];

/// A head that is taken can be sent on as it was understood.
fn forward_head(input: &[u8]) {
    let _hello = check_message::<Hello>(input);
    let Some(message) = check_message::<HeadMessage>(input) else { return };
    if let Ok(head) = message.into_head() {
        assert!(HeadMessage::of(head).is_ok(), "a head was taken that has more than is sent");
    }
}

fn forward_reply(input: &[u8]) {
    let _word = check_message::<Word>(input);
    if let Some(reply) = check_message::<ReplyHead>(input) {
        drop(reply.into_parts());
    }
    if let Some(trailers) = check_message::<Trailers>(input) {
        drop(trailers.into_map());
    }
}

/// However the bytes are cut, the same comes out of them; nothing comes after the end.
fn forward_pieces(input: &[u8]) {
    let cut = input.first().map_or(1, |byte| usize::from(*byte % 16) + 1);
    let whole = pieces(input.chunks(input.len().max(1)));
    let cut = pieces(input.chunks(cut));
    assert_eq!(whole, cut);
    let (data, _, _) = whole;
    assert!(data.len() <= input.len());
}

/// The data, how many trailers came, and whether the body ended or broke the rules.
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

/// An identity that is read out of a certificate is written as it stood there.
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
