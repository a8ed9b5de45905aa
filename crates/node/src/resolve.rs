//! Keeps the addresses of replicas fresh, so that no request ever waits for a name.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use spillway_request::gateway::Gateway;
use spillway_upstream::replica::Replica;
use spillway_upstream::replica_spec::ReplicaSpec;
use tokio::net::lookup_host;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Period of looking names up again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// Time limit of one look-up. The last known addresses stay in use if it fails.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Looks every replica up once, all at the same time.
pub(crate) async fn resolve_all(replicas: &[Arc<Replica>]) {
    let mut lookups = tokio::task::JoinSet::new();
    for replica in replicas {
        lookups.spawn(resolve(Arc::clone(replica)));
    }
    lookups.join_all().await;
}

/// Looks the replicas of the current view up again in each period.
pub(crate) async fn refresh_loop(gateway: Arc<Gateway>, stop: CancellationToken) {
    let mut interval = tokio::time::interval(REFRESH_INTERVAL);
    loop {
        tokio::select! {
            _ = interval.tick() => resolve_all(gateway.view().replicas()).await,
            () = stop.cancelled() => return,
        }
    }
}

async fn resolve(replica: Arc<Replica>) {
    let spec = replica.spec();
    if let Some(addresses) = look_up(spec, &spec.host, spec.port).await {
        replica.set_addresses(addresses);
    }
    if let Some(grpc) = &spec.grpc
        && let Some(addresses) = look_up(spec, &grpc.host, grpc.port).await
    {
        replica.set_grpc_addresses(addresses);
    }
}

async fn look_up(spec: &ReplicaSpec, host: &str, port: u16) -> Option<Vec<SocketAddr>> {
    match timeout(LOOKUP_TIMEOUT, lookup_host((host, port))).await {
        Ok(Ok(addresses)) => return Some(addresses.collect()),
        Ok(Err(error)) => {
            tracing::warn!(replica = %spec.name, host, %error, "name look-up failed");
        }
        Err(_) => tracing::warn!(replica = %spec.name, host, "name look-up took too long"),
    }
    None
}
