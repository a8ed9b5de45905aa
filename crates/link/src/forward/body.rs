//! A body that comes from another node.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use quinn::ReadError;
use thiserror::Error;
use tokio_util::task::AbortOnDropHandle;

use super::piece::{Piece, PieceFault, PieceReader};
use super::streams::Receiver;
use crate::code::StreamCode;
use crate::peer::OpenStream;

/// Why a body ended before its end.
#[derive(Debug, Error)]
pub enum BodyFault {
    /// The peer gave it up.
    #[error("the peer gave up: {0:?}")]
    Reset(StreamCode),
    /// The connection is gone.
    #[error("the connection is lost")]
    Lost,
    /// The peer broke the rules.
    #[error(transparent)]
    Malformed(#[from] PieceFault),
    /// The body has not the length that was announced.
    #[error("the body has not the announced length")]
    Length,
}

/// A body that comes from another node, as it comes.
///
/// What is not polled for is not read, and so the sender stops after a window's worth. Dropping it
/// before its end tells the sender at once, in a reply's case also that the request is given up.
#[derive(Debug)]
pub struct ForwardBody {
    state: State,
    reader: PieceReader,
    chunk: Bytes,
    /// Found while looking ahead; what comes next.
    fault: Option<BodyFault>,
    /// How many bytes are still to come, if that was announced.
    bytes_left: Option<u64>,
    /// The request's body, while it is still being sent: given up with the reply.
    _upload: Option<AbortOnDropHandle<()>>,
    _open: Option<OpenStream>,
}

#[derive(Debug)]
enum State {
    /// More is to come. // => Ended
    Coming(Receiver),
    /// Its end was read, or it failed and said so. // => Ended
    Ended,
}

impl ForwardBody {
    /// A body with nothing in it.
    pub(super) fn empty() -> Self {
        Self {
            state: State::Ended,
            reader: PieceReader::default(),
            chunk: Bytes::new(),
            fault: None,
            bytes_left: Some(0),
            _upload: None,
            _open: None,
        }
    }

    /// A request's body, of so many bytes if that was announced.
    pub(super) fn of_request(receiver: Receiver, bytes: Option<u64>) -> Self {
        Self { state: State::Coming(receiver), bytes_left: bytes, ..Self::empty() }
    }

    /// A reply's body; `upload` is what is still being sent of the request.
    pub(super) fn of_reply(
        receiver: Receiver,
        upload: Option<AbortOnDropHandle<()>>,
        open: OpenStream,
    ) -> Self {
        Self {
            state: State::Coming(receiver),
            bytes_left: None,
            _upload: upload,
            _open: Some(open),
            ..Self::empty()
        }
    }

    /// Gives the body up for `code` instead of as cancelled.
    pub fn abandon(mut self, code: StreamCode) {
        if let State::Coming(receiver) = &mut self.state {
            receiver.if_dropped(code);
        }
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Piece, BodyFault>> {
        let State::Coming(receiver) = &mut self.state else {
            return Poll::Ready(Ok(Piece::End));
        };
        loop {
            if let Some(fault) = self.fault.take() {
                return Poll::Ready(Err(fault));
            }
            match self.reader.next(&mut self.chunk) {
                Ok(Some(piece)) => return Poll::Ready(Ok(piece)),
                Ok(None) => {}
                Err(fault) => {
                    receiver.if_dropped(StreamCode::Malformed);
                    return Poll::Ready(Err(fault.into()));
                }
            }
            match ready!(receiver.poll_chunk(context)) {
                Ok(Some(chunk)) => self.chunk = chunk,
                Ok(None) => return Poll::Ready(Err(PieceFault::CutOff.into())),
                Err(error) => return Poll::Ready(Err(fault_of(&error))),
            }
        }
    }

    /// Takes note of the end if it is right behind the data. Readers that know the length of a
    /// body drop it after the last byte, and that must not look as if they gave it up.
    fn look_for_end(&mut self, context: &mut Context<'_>) {
        let State::Coming(receiver) = &mut self.state else { return };
        if self.chunk.is_empty() {
            match receiver.poll_chunk(context) {
                Poll::Pending => return,
                Poll::Ready(Ok(Some(chunk))) => self.chunk = chunk,
                Poll::Ready(Ok(None)) => self.fault = Some(PieceFault::CutOff.into()),
                Poll::Ready(Err(error)) => self.fault = Some(fault_of(&error)),
            }
        }
        // A length that is not what was announced is found by the next poll.
        if self.bytes_left.is_none_or(|left| left == 0) && self.reader.take_end(&mut self.chunk) {
            self.end(context);
        }
    }

    /// Counts `bytes` more; `false` if that is more than was announced.
    fn count(&mut self, bytes: usize) -> bool {
        match &mut self.bytes_left {
            None => true,
            Some(left) => match left.checked_sub(bytes as u64) {
                Some(rest) => {
                    *left = rest;
                    true
                }
                None => false,
            },
        }
    }

    /// Ends the body; the peer learns of it if it is not at its end.
    fn fail(&mut self, fault: BodyFault) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        self.state = State::Ended;
        Poll::Ready(Some(Err(fault)))
    }

    /// Takes note of the end of the stream too, if it is there, so that nothing is given up.
    fn end(&mut self, context: &mut Context<'_>) {
        if let State::Coming(receiver) = &mut self.state {
            // Not waited for: the body has ended, whatever else comes.
            drop(receiver.poll_chunk(context));
        }
        self.state = State::Ended;
        self._upload = None;
        self._open = None;
    }
}

fn fault_of(error: &ReadError) -> BodyFault {
    match error {
        ReadError::Reset(code) => BodyFault::Reset(StreamCode::from_number(*code)),
        _ => BodyFault::Lost,
    }
}

impl Body for ForwardBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        if matches!(self.state, State::Ended) {
            return Poll::Ready(None);
        }
        match ready!(self.poll_piece(context)) {
            Ok(Piece::Data(data)) => {
                if !self.count(data.len()) {
                    return self.fail(BodyFault::Length);
                }
                self.look_for_end(context);
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Ok(Piece::Trailers(headers)) => Poll::Ready(Some(Ok(Frame::trailers(headers)))),
            Ok(Piece::End) => {
                if self.bytes_left.is_some_and(|left| left > 0) {
                    return self.fail(BodyFault::Length);
                }
                self.end(context);
                Poll::Ready(None)
            }
            Err(fault) => self.fail(fault),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    fn size_hint(&self) -> SizeHint {
        self.bytes_left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
