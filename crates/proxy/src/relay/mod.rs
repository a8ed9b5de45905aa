//! Replies on their way back: passed on piece by piece, and read ahead only for slow clients.

mod ahead;
mod ahead_room;
mod behind;
mod body;
mod continuation;
mod ends;
mod events;
mod pump;
mod relay_body;

pub use ahead_room::AheadRoom;
pub(crate) use body::ReplyBody;
pub(crate) use events::Flavour;
pub(crate) use pump::Pump;
pub(crate) use relay_body::{Relay, RelayPlan, Upstream};
