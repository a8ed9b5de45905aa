//! Failures of a reply that has begun.

use spillway_types::End;

use crate::continuation::BreakCause;

/// Failure of the target that serves a reply, or of the reply itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyFault {
    /// The connection ended before the reply did.
    Cut,
    /// The replica counts as down, and no request has had a byte from it since.
    Down,
    /// The region that serves the reply is silent and out of reach.
    Lost,
    /// The replica did not begin its reply in time.
    NotBegun,
    /// The replica sent no byte for longer than the route allows.
    Stalled,
    /// The replica reported its own failure by an error event.
    Reported(EngineState),
    /// Engines died with the request, here or in another region: no other target is tried.
    GivenUp,
    /// The replica aborted the request, although no client asked for that.
    Aborted,
    /// The replica ended its reply in good order, but in the middle of the answer.
    Unfinished,
    /// The request's deadline passed.
    DeadlinePassed,
}

/// State of an engine after it reported a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineState {
    /// The engine serves other requests.
    Serving,
    /// The engine finishes what it has and refuses new requests.
    Draining,
    /// The engine has died or is about to.
    Dying,
}

impl ReplyFault {
    /// All faults, for tables and tests.
    pub const ALL: [Self; 12] = [
        Self::Cut,
        Self::Down,
        Self::Lost,
        Self::NotBegun,
        Self::Stalled,
        Self::Reported(EngineState::Serving),
        Self::Reported(EngineState::Draining),
        Self::Reported(EngineState::Dying),
        Self::GivenUp,
        Self::Aborted,
        Self::Unfinished,
        Self::DeadlinePassed,
    ];

    /// Returns how the request ended, if nothing continues the reply.
    #[must_use]
    pub fn end(self) -> End {
        match self {
            Self::NotBegun | Self::Stalled => End::Stalled,
            Self::DeadlinePassed => End::DeadlinePassed,
            Self::Cut
            | Self::Down
            | Self::Lost
            | Self::Reported(_)
            | Self::GivenUp
            | Self::Aborted
            | Self::Unfinished => End::Cut,
        }
    }

    /// Returns the reason why another target continues the reply.
    #[must_use]
    pub fn break_cause(self) -> BreakCause {
        match self {
            Self::NotBegun | Self::Stalled | Self::DeadlinePassed => BreakCause::Stalled,
            Self::Reported(_) | Self::GivenUp => BreakCause::Error,
            Self::Aborted => BreakCause::Aborted,
            Self::Lost => BreakCause::Lost,
            Self::Cut | Self::Down | Self::Unfinished => BreakCause::Cut,
        }
    }

    /// Returns true if another target may continue the reply.
    #[must_use]
    pub fn is_repairable(self) -> bool {
        !matches!(self, Self::DeadlinePassed | Self::GivenUp)
    }

    /// Returns true if the source's own error event is the best answer to the client.
    #[must_use]
    pub fn has_own_event(self) -> bool {
        matches!(self, Self::Reported(_) | Self::GivenUp)
    }

    /// Returns true if an engine died while it worked on the request, which may be the reason. A
    /// replica that fell silent, drains or aborts has not died.
    #[must_use]
    pub fn is_death(self, source: ReplySource) -> bool {
        source == ReplySource::Replica
            && matches!(self, Self::Cut | Self::Reported(EngineState::Dying))
    }
}

/// Target that serves a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplySource {
    /// A replica of this region.
    Replica,
    /// A node of another region, which watches its replica itself.
    Region,
}
