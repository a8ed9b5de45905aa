//! Reads what a peer sends on a connection that stands.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::code::CloseCode;
use crate::counters::add;
use crate::forward::Service;
use crate::identity::Identity;
use crate::kind::Kind;
use crate::peer::{Live, OpenStream};
use crate::shared::Shared;

/// Reads until the connection ends, then says so with its number.
pub(crate) async fn read(
    shared: Arc<Shared>,
    from: Identity,
    (kind, live): (Kind, Arc<Live>),
    ended: mpsc::Sender<u64>,
) {
    match kind {
        Kind::Control => datagrams(&shared, &from, &live).await,
        Kind::Data => requests(&shared, from, &live).await,
    }
    // An error means that nobody keeps this peer any more.
    let _ = ended.send(live.serial).await;
}

async fn datagrams(shared: &Shared, from: &Identity, live: &Live) {
    let connection = &live.connection;
    loop {
        tokio::select! {
            datagram = connection.read_datagram() => {
                let Ok(datagram) = datagram else { return };
                add(&shared.counters.datagrams_received);
                shared.handler.datagram(from, datagram);
            }
            stream = connection.accept_bi() => {
                if stream.is_ok() {
                    tracing::warn!(peer = %from, "a stream on a control connection");
                    add(&shared.counters.malformed);
                    connection.close(CloseCode::Malformed.number(), b"");
                }
            }
        }
    }
}

async fn requests(shared: &Arc<Shared>, from: Identity, live: &Arc<Live>) {
    let service = Arc::new(Service {
        from,
        handler: Arc::clone(&shared.handler),
        limits: shared.limits.clone(),
        counters: Arc::clone(&shared.counters),
    });
    while let Ok(streams) = live.connection.accept_bi().await {
        let open = OpenStream::on(live, &shared.open);
        let service = Arc::clone(&service);
        let serving = async move { service.serve(streams, open).await };
        shared.tracker.spawn_on(serving, &shared.runtime);
    }
}
