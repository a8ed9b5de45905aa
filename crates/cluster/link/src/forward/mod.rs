//! Forwarded requests: one bidirectional stream for each.
//!
//! The request stream has the [`HeadMessage`](head::HeadMessage), then the body in pieces. The
//! reply stream has the decision and, if the request is accepted, the head of the reply and its
//! body in pieces.

mod body;
mod client;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod handler;
mod head;
mod headers;
mod piece;
mod send_body;
mod server;
mod streams;
mod urgency;
mod word;

#[cfg(test)]
mod message_test;
#[cfg(test)]
mod piece_test;

pub use body::{BodyError, ForwardBody};
pub(crate) use client::ForwardCall;
pub use client::{ForwardAnswer, PeerRoom};
pub use error::{ForwardError, ForwardStage};
pub use handler::{BoxBody, BoxError, Deciding, Handler, Serving};
pub use head::{BodyPlan, ForwardHead};
pub use piece::PieceError;
pub(crate) use server::Service;
pub use word::{Refused, RefusedReason};

/// Returns the frame of a head as [`Link::forward`](crate::Link::forward) sends it.
#[cfg(test)]
pub(crate) fn head_frame_for_tests(head: ForwardHead) -> bytes::Bytes {
    spillway_codec::encode(&head::HeadMessage::of(head).unwrap()).unwrap()
}
