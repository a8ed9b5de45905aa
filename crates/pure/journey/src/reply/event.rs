//! Inputs of the reply machine.

use std::time::Instant;

use crate::continuation::StreamEnd;
use crate::reply::fault::{EngineState, ReplySource};

/// Input of a [`Reply`](crate::Reply), reported by the driver as soon as it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyEvent {
    /// A piece of the reply came.
    Piece(PieceKind),
    /// A piece was handed to the client, which has not asked for more since.
    Passed,
    /// The client takes pieces, but the source has none at the moment: its silence counts.
    Asked,
    /// The client is behind, and no more may be read for it.
    ClientBehind,
    /// The client or its buffer takes pieces again.
    ClientCaughtUp,
    /// The client left.
    ClientGone,
    /// The source ended its part in good order.
    Ended(PartEnd),
    /// The connection to the source broke.
    Broke,
    /// The source reported its own failure by an error event, which the driver holds back.
    Reported(EngineState),
    /// The source aborted the request by an event that the driver holds back.
    Aborted,
    /// Another node of the gateway gave the request up, since engines died with it. Its error event
    /// is held back.
    GivenUp,
    /// Another target continues the reply.
    Continued(ReplySource),
    /// No other target continues the reply.
    NotContinued(StreamEnd),
}

/// Content of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// Comments, or events before the first content, such as a role.
    NoContent,
    /// A part of the answer.
    Content,
    /// The last event of the stream, e.g. `[DONE]`: the client has the whole answer.
    Last,
}

/// Way in which the source ended its part in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartEnd {
    /// The answer is whole.
    Whole,
    /// The answer lacks its end: no reason to finish, no token, or no status.
    Unfinished,
    /// The source aborted the request.
    Aborted,
    /// The source's own error was passed on, which is the answer.
    Failed(EngineState),
}

/// Facts about the source at one moment, for [`Reply::on_time`](crate::Reply::on_time).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceSight {
    /// State of the source.
    pub state: SourceState,
    /// Moment at which the client last sent a part of its own half, in calls where both sides
    /// send; `None` in all others.
    pub client_sent: Option<Instant>,
}

/// State of the target that serves a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// Nothing speaks against it.
    Well,
    /// The target is being drained, and the stream can be continued by a target that has room.
    Leaving,
    /// The replica is down, and no request has had a byte from it since.
    Down,
    /// The replica is down as far as silence shows, and the stream can be continued by a target that
    /// has room. Without such a target, waiting is all that is left: it may merely be busy.
    Silent,
    /// The region is out of reach, as far as this node knows.
    OutOfReach,
    /// The region is there, but no connection leads to the node that serves the reply.
    Disconnected,
}
