//! Opens streams to peers.

use futures_util::FutureExt;
use quinn::ConnectionError;

use super::{OpenError, StreamReceiver, StreamSender};
use crate::peer::LiveConnection;

/// Opens a stream of both directions on a control connection. Never waits, because that would be a
/// queue that no load report shows.
pub(crate) fn open_control(
    live: &LiveConnection,
) -> Result<(StreamSender, StreamReceiver), OpenError> {
    let (send, receive) = settled(live.connection.open_bi().now_or_never())?;
    Ok((StreamSender::new(send), StreamReceiver::new(receive)))
}

/// Opens a stream of one direction on a data connection.
pub(crate) fn open_bulk(live: &LiveConnection) -> Result<StreamSender, OpenError> {
    settled(live.connection.open_uni().now_or_never()).map(StreamSender::new)
}

fn settled<T>(opened: Option<Result<T, ConnectionError>>) -> Result<T, OpenError> {
    match opened {
        None => Err(OpenError::Saturated),
        Some(Err(_)) => Err(OpenError::NotConnected),
        Some(Ok(streams)) => Ok(streams),
    }
}
