//! Events by which a stream shows that it failed, although its connection is in order.

use super::{EventOptions, JudgedStream};
use crate::reply::{EngineTrouble, Finish, engine_trouble};
use crate::{ReplyError, ReplyFacts, ReplyVerdict};

/// Code of this gateway's error for a request that engines died of.
const ENGINES_DIED: &str = "engines_died";

/// Failure that a stream shows by its events. The events are held back from the first that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFault {
    /// An error of the server; with the state of its engine if that is in trouble.
    Error(Option<EngineTrouble>),
    /// Another node of the gateway gave the request up, since engines died with it.
    GivenUp,
    /// The engine aborted the request.
    Aborted,
    /// The stream says that it has ended, without a reason for the end of its answer or without any
    /// token.
    Unfinished,
}

impl EventFault {
    /// Returns the failure that these facts show; `None` if they show none.
    pub(super) fn of(facts: &ReplyFacts, options: &EventOptions) -> Option<Self> {
        if options.judged == JudgedStream::Nothing {
            return None;
        }
        if let Some(error) = &facts.error {
            return Self::of_error(error);
        }
        if facts.finish == Some(Finish::Aborted) {
            return Some(Self::Aborted);
        }
        let verdict = facts.verdict(options.api, options.judged == JudgedStream::Ends);
        let is_short = matches!(verdict, ReplyVerdict::Unfinished | ReplyVerdict::Empty);
        (facts.is_done && is_short).then_some(Self::Unfinished)
    }

    /// Returns the failure by an error; `None` if the client is to blame.
    fn of_error(error: &ReplyError) -> Option<Self> {
        if error.code.as_deref() == Some(ENGINES_DIED) {
            return Some(Self::GivenUp);
        }
        error
            .is_of_server()
            .then(|| Self::Error(engine_trouble(error.status.unwrap_or(500), &error.message)))
    }
}
