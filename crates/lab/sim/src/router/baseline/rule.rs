//! Rule of a baseline: the part in which baselines differ.

use std::fmt;

use super::view::{Choice, View};
use crate::router::{Ended, Forwarded, Replied, Sent};

/// Way of choosing. [`Driver`](super::driver::Driver) does everything else.
pub(super) trait Rule: fmt::Debug {
    /// Chooses where a request goes. At least one own replica is open.
    fn choose(&mut self, view: &View<'_>, rng: &mut fastrand::Rng) -> Choice;

    /// Learns from what became of requests of this node.
    fn note(&mut self, news: &News<'_>) {
        let _ = news;
    }
}

/// News of a request of this node.
#[derive(Clone, Copy, Debug)]
pub(super) enum News<'a> {
    /// The request was sent to a replica.
    Sent(&'a Sent<'a>),
    /// The reply began.
    Replied(&'a Replied<'a>),
    /// The reply ended.
    Ended(&'a Ended<'a>),
    /// The request has reached another region, or came to something there.
    Forwarded(&'a Forwarded<'a>),
    /// The node has nothing more to decide about the request of this number.
    Left(usize),
}
