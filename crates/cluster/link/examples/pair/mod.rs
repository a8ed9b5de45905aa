//! Two nodes on this machine, with a simulated network between them.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use spillway_link::delayed::{Path, Paths};
use spillway_link::{
    BoxBody, Deciding, ForwardBody, ForwardHead, Handler, Identity, Link, PeerConfig, Refused,
    Serving, Transport,
};
use spillway_testkit::{Certificates, as_peer};

/// Two nodes: `near` forwards and `far` serves.
pub(crate) struct Pair {
    pub(crate) near: Link,
    pub(crate) far: Link,
    pub(crate) far_identity: Identity,
    /// Bytes of bodies that have arrived at `far`.
    arrived: Arc<AtomicU64>,
    _certificates: Certificates,
}

/// Handler that answers each request with a short reply once its body has arrived.
pub(crate) struct Server(pub(crate) Arc<AtomicU64>);

impl Server {
    /// Reads the body of a request and makes the reply, for local and forwarded requests.
    pub(crate) async fn serve(
        arrived: Arc<AtomicU64>,
        mut body: ForwardBody,
    ) -> Result<http::Response<BoxBody>, spillway_link::BoxError> {
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                arrived.fetch_add(data.len() as u64, Ordering::Relaxed);
            }
        }
        let reply = Full::new(Bytes::from_static(b"first token")).map_err(Into::into);
        let reply: BoxBody = Box::pin(reply);
        Ok(http::Response::new(reply))
    }
}

impl Handler for Server {
    fn datagram(&self, _: &Identity, _: Bytes) {}

    fn forwarded(&self, _: &Identity, _: ForwardHead, body: ForwardBody) -> Deciding {
        let arrived = Arc::clone(&self.0);
        Box::pin(async move { Ok::<Serving, Refused>(Box::pin(Self::serve(arrived, body))) })
    }
}

impl Pair {
    /// Starts both nodes and waits until they are connected.
    pub(crate) async fn start(transport: Transport, path: Path, seed: u64) -> Result<Self> {
        let certificates = Certificates::new();
        let arrived = Arc::new(AtomicU64::new(0));
        let start = |region: &str, node: &str, seed| -> Result<_> {
            let mut config = certificates.link_config(region, node);
            let identity = config.me.clone();
            config.transport = transport.clone();
            let paths = Paths::new(seed);
            config.paths = Some(Arc::clone(&paths));
            let link = Link::start(config, Arc::new(Server(Arc::clone(&arrived))))?;
            Ok((link, identity, paths))
        };
        let (near, near_identity, near_paths) = start("eu", "near", seed)?;
        let (far, far_identity, far_paths) = start("ap", "a-far", seed + 1)?;
        let rtt_ms = Some(u32::try_from(2 * path.one_way.as_millis())?.max(1));
        let (Some(near_at), Some(far_at)) = (near.local_address(), far.local_address()) else {
            bail!("no address");
        };
        near_paths.set(far_at, path);
        far_paths.set(near_at, path);
        // `a-far` has the lower name, so it would dial; but a user's request comes from the other
        // side, and that side's first window is what is measured.
        far.set_peers(vec![PeerConfig {
            address: "127.0.0.1:9".to_owned(),
            rtt_ms,
            ..as_peer(&near_identity, &near)
        }]);
        near.set_peers(vec![PeerConfig { rtt_ms, ..as_peer(&far_identity, &far) }]);
        let pair = Self { near, far, far_identity, arrived, _certificates: certificates };
        pair.connected().await?;
        Ok(pair)
    }

    /// Returns the bytes of bodies that have arrived at `far`.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    async fn connected(&self) -> Result<()> {
        for _ in 0..20_000 {
            let both = [&self.near, &self.far];
            if both.iter().all(|link| link.peers().iter().all(|peer| peer.is_connected())) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        bail!("the nodes did not connect")
    }
}

/// Writes a line to standard output.
pub(crate) fn line(text: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}

/// Returns the value that `percent` percent of the sorted `values` do not exceed; not a number if
/// there is none.
pub(crate) fn percentile(values: &mut [f64], percent: usize) -> f64 {
    // Exact, by hand: there are few values, and the buckets of a histogram would round them.
    values.sort_by(f64::total_cmp);
    values
        .get((values.len() * percent / 100).min(values.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}
