//! Reader of a peer's streams and datagrams on one connection.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::counters::add;
use crate::forward::Service;
use crate::identity::Identity;
use crate::kind::Kind;
use crate::peer::{LiveConnection, OpenStream};
use crate::rpc::Serving;
use crate::shared::LinkShared;

/// Reads until the connection ends, then sends its serial number to `ended`.
pub(crate) async fn read(
    shared: Arc<LinkShared>,
    from: Identity,
    kind: Kind,
    live: Arc<LiveConnection>,
    ended: mpsc::Sender<u64>,
) {
    match kind {
        Kind::Control => control(&shared, &from, &live).await,
        Kind::Data => requests(&shared, from, &live).await,
    }
    // An error means that the keeper of this peer has ended.
    let _ = ended.send(live.serial).await;
}

async fn control(shared: &Arc<LinkShared>, from: &Identity, live: &LiveConnection) {
    let connection = &live.connection;
    let serving = Serving { shared, from, live };
    loop {
        tokio::select! {
            datagram = connection.read_datagram() => {
                let Ok(datagram) = datagram else { return };
                add(&shared.counters.datagrams_received);
                // A leaving peer takes part in the log alone.
                if shared.members.is_leaving(from.node()) {
                    continue;
                }
                shared.handler.datagram(from, datagram);
            }
            streams = connection.accept_bi() => {
                let Ok((send, receive)) = streams else { return };
                serving.control(send, receive);
            }
        }
    }
}

async fn requests(shared: &Arc<LinkShared>, from: Identity, live: &Arc<LiveConnection>) {
    let service = Arc::new(Service {
        from,
        handler: Arc::clone(&shared.handler),
        limits: shared.limits.clone(),
        counters: Arc::clone(&shared.counters),
    });
    let bulk = Serving { shared, from: &service.from, live };
    loop {
        tokio::select! {
            streams = live.connection.accept_bi() => {
                let Ok(streams) = streams else { return };
                // A leaving peer takes part in the log alone.
                if shared.members.is_leaving(service.from.node()) {
                    continue;
                }
                let open = OpenStream::on(live, &shared.open);
                let service = Arc::clone(&service);
                let serving = async move { service.serve(streams, open).await };
                shared.tracker.spawn_on(serving, &shared.runtime);
            }
            stream = live.connection.accept_uni() => {
                let Ok(stream) = stream else { return };
                bulk.bulk(stream);
            }
        }
    }
}
