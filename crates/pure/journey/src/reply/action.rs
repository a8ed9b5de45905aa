//! Outputs of the reply machine.

use crate::reply::fault::ReplyFault;

/// Act of the driver of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyAction {
    /// Go on: read from the source while the client takes pieces.
    Proceed,
    /// Drop the source and look for a target that continues the reply. Report
    /// [`ReplyEvent::Continued`](crate::ReplyEvent::Continued) or
    /// [`ReplyEvent::NotContinued`](crate::ReplyEvent::NotContinued).
    Continue(ReplyFault),
    /// Keep the source without reading from it, and look for a target with room that continues the
    /// reply. Report as for [`ReplyAction::Continue`]; then drop or read on from the source.
    Move,
    /// Send the client a keep-alive, between two events.
    KeepAlive,
    /// Write the last events, which the source did not send: the answer is whole.
    Complete,
    /// End the reply as the source ended its part, and keep the connection to the source.
    Finish,
    /// End the reply in good order, and drop the source: the client has the last event.
    Close,
    /// Pass on the source's own error event, which was held back, and end the reply with it.
    Release(ReplyFault),
    /// End the reply with an error of the gateway, in the form that the reply allows.
    Break(ReplyFault),
}
