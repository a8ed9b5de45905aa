//! Body that comes from another node.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use quinn::ReadError;
use thiserror::Error;
use tokio_util::task::AbortOnDropHandle;

use super::piece::{Piece, PieceError, PieceReader};
use super::streams::Receiver;
use crate::code::StreamCode;
use crate::peer::OpenStream;

/// Reason for which a body ended too early.
#[derive(Debug, Error)]
pub enum BodyError {
    /// The peer gave the body up.
    #[error("the peer gave up: {0:?}")]
    Reset(StreamCode),
    /// The connection is lost.
    #[error("the connection is lost")]
    Lost,
    /// The body breaks the rules of pieces.
    #[error(transparent)]
    Malformed(#[from] PieceError),
    /// The body does not have the announced length.
    #[error("the body has not the announced length")]
    Length,
}

/// Body that is read from another node as it arrives.
///
/// Backpressure: the body is read only when it is polled, so the sender stops after a window's
/// worth. A body that is dropped before its end informs the sender at once; in the case of a reply,
/// this also gives the request up.
#[derive(Debug)]
pub struct ForwardBody {
    state: ForwardBodyState,
    reader: PieceReader,
    chunk: Bytes,
    /// Fault that was found while looking ahead; returned by the next poll.
    fault: Option<BodyError>,
    /// Bytes that are still to come, if the length was announced.
    bytes_left: Option<u64>,
    /// Task that still sends the request's body; aborted with the reply.
    _upload: Option<AbortOnDropHandle<()>>,
    _open: Option<OpenStream>,
}

#[derive(Debug)]
enum ForwardBodyState {
    /// More is to come. // => Ended
    Coming(Receiver),
    /// The end was read, or the body failed and returned its error. // => Ended
    Ended,
}

impl ForwardBody {
    /// Makes an empty body.
    pub(super) fn empty() -> Self {
        Self {
            state: ForwardBodyState::Ended,
            reader: PieceReader::default(),
            chunk: Bytes::new(),
            fault: None,
            bytes_left: Some(0),
            _upload: None,
            _open: None,
        }
    }

    /// Makes the body of a request, with its announced length if there is one.
    pub(super) fn of_request(receiver: Receiver, bytes: Option<u64>) -> Self {
        Self { state: ForwardBodyState::Coming(receiver), bytes_left: bytes, ..Self::empty() }
    }

    /// Makes the body of a reply; `upload` is the task that still sends the request's body.
    pub(super) fn of_reply(
        receiver: Receiver,
        upload: Option<AbortOnDropHandle<()>>,
        open: OpenStream,
    ) -> Self {
        Self {
            state: ForwardBodyState::Coming(receiver),
            bytes_left: None,
            _upload: upload,
            _open: Some(open),
            ..Self::empty()
        }
    }

    /// Gives the body up with `code` instead of [`StreamCode::Cancelled`].
    pub fn abandon(mut self, code: StreamCode) {
        if let ForwardBodyState::Coming(receiver) = &mut self.state {
            receiver.if_dropped(code);
        }
    }

    /// Polls for the next piece; [`Piece::End`] once the body has ended.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Piece, BodyError>> {
        let ForwardBodyState::Coming(receiver) = &mut self.state else {
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
                    // The peer learns that it broke the protocol.
                    receiver.if_dropped(StreamCode::Malformed);
                    return Poll::Ready(Err(fault.into()));
                }
            }
            match ready!(receiver.poll_chunk(context)) {
                Ok(Some(chunk)) => self.chunk = chunk,
                Ok(None) => return Poll::Ready(Err(PieceError::CutOff.into())),
                Err(error) => return Poll::Ready(Err(fault_of(&error))),
            }
        }
    }

    /// Takes the end if it is right behind the data. A reader that knows the length of a body drops
    /// it after the last byte, and the peer must not take that for giving up.
    fn look_for_end(&mut self, context: &mut Context<'_>) {
        let ForwardBodyState::Coming(receiver) = &mut self.state else { return };
        if self.chunk.is_empty() {
            match receiver.poll_chunk(context) {
                Poll::Pending => return,
                Poll::Ready(Ok(Some(chunk))) => self.chunk = chunk,
                Poll::Ready(Ok(None)) => self.fault = Some(PieceError::CutOff.into()),
                Poll::Ready(Err(error)) => self.fault = Some(fault_of(&error)),
            }
        }
        // If the length is wrong, the next poll finds that.
        if self.bytes_left.is_none_or(|left| left == 0) && self.reader.take_end(&mut self.chunk) {
            self.end(context);
        }
    }

    /// Counts `bytes` more; returns false if that is more than the announced length.
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

    /// Ends the body with an error. The drop of the receiver informs the peer if the stream has not
    /// ended.
    fn fail(&mut self, fault: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.state = ForwardBodyState::Ended;
        Poll::Ready(Some(Err(fault)))
    }

    /// Ends the body. Takes the end of the stream too, if it is there, so that the peer sees no
    /// giving up.
    fn end(&mut self, context: &mut Context<'_>) {
        if let ForwardBodyState::Coming(receiver) = &mut self.state {
            // The poll is not waited for, because the body has ended in any case.
            drop(receiver.poll_chunk(context));
        }
        self.state = ForwardBodyState::Ended;
        self._upload = None;
        self._open = None;
    }
}

fn fault_of(error: &ReadError) -> BodyError {
    match error {
        ReadError::Reset(code) => BodyError::Reset(StreamCode::from_number(*code)),
        _ => BodyError::Lost,
    }
}

impl Body for ForwardBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if matches!(self.state, ForwardBodyState::Ended) {
            return Poll::Ready(None);
        }
        match ready!(self.poll_piece(context)) {
            Ok(Piece::Data(data)) => {
                if !self.count(data.len()) {
                    return self.fail(BodyError::Length);
                }
                self.look_for_end(context);
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Ok(Piece::Trailers(headers)) => Poll::Ready(Some(Ok(Frame::trailers(headers)))),
            Ok(Piece::End) => {
                if self.bytes_left.is_some_and(|left| left > 0) {
                    return self.fail(BodyError::Length);
                }
                self.end(context);
                Poll::Ready(None)
            }
            Err(fault) => self.fail(fault),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, ForwardBodyState::Ended)
    }

    fn size_hint(&self) -> SizeHint {
        self.bytes_left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
