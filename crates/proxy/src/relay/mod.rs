//! Replies on their way back: passed on piece by piece, never collected.

mod body;
mod events;
mod go_on;
mod relay_body;

pub(crate) use body::ReplyBody;
pub(crate) use events::Flavour;
pub(crate) use relay_body::{Relay, RelayPlan, Upstream};
