//! What clients' and replicas' connections share: byte streams, bodies, and limits of memory and
//! time.
//!
//! Nothing here knows requests, replicas or routes.

mod ahead_room;
mod body_limits;
pub mod coarse_clock;
mod frame_budget;
mod hpack_fields;
mod limits;
mod memory;
mod stream;
pub mod tls;
mod unread_body;
mod upload_pace;
mod wire_body;

pub use ahead_room::{AheadHold, AheadRoom};
pub use body_limits::{
    DISCARD_TIME_MAX, DISCARDED_BYTES_MAX, REST_FAREWELL_TIME, REST_SILENCE_MAX, REST_TIME_MAX,
    refuse_oversize, rest_bytes_max,
};
pub use frame_budget::{BYTES_PER_EARNED, EARNED_BY_PIECE, FrameBudget, FrameFacts, FrameSender};
pub use limits::Limits;
pub use memory::{Memory, Pressure};
pub use stream::{Received, Stream};
pub use unread_body::{RestReader, UnreadBody};
pub use upload_pace::{PaceTimer, UploadPace};
pub use wire_body::{BoxError, HttpBody, LinkBody, WireBody, WireError};
