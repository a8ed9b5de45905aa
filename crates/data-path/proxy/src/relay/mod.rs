//! Replies to clients: passed on piece by piece, and read ahead only for slow clients.

mod ahead;
mod backpressure;
mod body;
mod content;
mod continuation;
mod ends;
mod events;
mod pump;
mod relay_body;
mod relay_plan;

pub(crate) use body::ReplyBody;
pub(crate) use pump::Pump;
pub(crate) use relay_body::{Relay, Upstream};
pub(crate) use relay_plan::RelayPlan;
