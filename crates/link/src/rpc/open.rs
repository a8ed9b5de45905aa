//! Opens streams to peers.

use futures_util::FutureExt;
use quinn::ConnectionError;

use super::{OpenFault, StreamReceiver, StreamSender};
use crate::peer::Live;

/// Opens a stream of both directions on a control connection. Never waits, because that would be a
/// queue that no load report shows.
pub(crate) fn open_control(live: &Live) -> Result<(StreamSender, StreamReceiver), OpenFault> {
    let (send, receive) = settled(live.connection.open_bi().now_or_never())?;
    Ok((StreamSender::new(send), StreamReceiver::new(receive)))
}

/// Opens a stream of one direction on a data connection.
pub(crate) fn open_bulk(live: &Live) -> Result<StreamSender, OpenFault> {
    settled(live.connection.open_uni().now_or_never()).map(StreamSender::new)
}

fn settled<T>(opened: Option<Result<T, ConnectionError>>) -> Result<T, OpenFault> {
    match opened {
        None => Err(OpenFault::Saturated),
        Some(Err(_)) => Err(OpenFault::NotConnected),
        Some(Ok(streams)) => Ok(streams),
    }
}
