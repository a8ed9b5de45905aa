//! Node under test with the backends behind it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use spillway_harness::{LoadClient, Process};
use tempfile::TempDir;

use crate::arrivals::ArrivalPace;
use crate::backend::BackendAnswer;
use crate::client::BenchReply;
use crate::compare::{START_MAX, start_backends};
use crate::load::{LoadSpec, Protocol};
use crate::proxy::{Proxy, Site, SpillwaySetup, start_spillway};
use crate::scale::memory::Memory;
use crate::settle::settle;
use crate::usage::TreeUsage;

/// Answer of backends that do not stream: 512 bytes.
pub(super) const SHORT_ANSWER: BackendAnswer = BackendAnswer::Json { bytes: 512 };

/// Backends and the folder of a measurement. Dropping this ends them and removes the folder.
pub(super) struct ScaleSite {
    // First, so that the processes end before their folder goes.
    _backends: Process,
    addresses: Vec<SocketAddr>,
    folder: TempDir,
}

/// Node that is ready.
pub(super) struct ScaleNode {
    proxy: Proxy,
}

impl ScaleSite {
    /// Starts backends with this answer.
    pub(super) fn start(answer: BackendAnswer) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("spillway-bench-").tempdir()?;
        let (backends, addresses) = start_backends(folder.path(), answer)?;
        Ok(Self { _backends: backends, addresses, folder })
    }

    /// Returns the folder for configs and logs.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the addresses of the backends.
    pub(super) fn backends(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns what configs of nodes are made of.
    pub(super) fn site(&self) -> Site<'_> {
        Site { folder: self.folder.path(), backends: &self.addresses, protocol: Protocol::Http1 }
    }

    /// Starts a node with its defaults and these lines for each replica. Waits until it is ready
    /// and idle.
    pub(super) async fn node(
        &self,
        spillway: &Path,
        name: &str,
        replica: &str,
    ) -> anyhow::Result<ScaleNode> {
        let mut proxy = start_spillway(spillway, name, setup(replica), self.site())?;
        let client = LoadClient::new(proxy.address);
        // Not a request for a model: the answer of a slow stream has no end.
        proxy.process.ready(START_MAX, async || client.get("/readyz").await.map(drop)).await?;
        let node = ScaleNode { proxy };
        node.settle().await?;
        Ok(node)
    }
}

impl ScaleNode {
    /// Returns the address for clients.
    pub(super) fn address(&self) -> SocketAddr {
        self.proxy.address
    }

    /// Returns the id of the guard above the node.
    pub(super) fn guard(&self) -> u32 {
        self.proxy.process.id()
    }

    /// Waits until the node is idle, and returns its resource usage.
    pub(super) async fn settle(&self) -> anyhow::Result<TreeUsage> {
        settle(self.guard()).await.context("read /proc")
    }

    /// Returns the memory of the node.
    pub(super) fn memory(&self) -> anyhow::Result<Memory> {
        Memory::below(self.guard()).context("read /proc")
    }
}

/// Returns the settings of a node under test.
pub(super) fn setup(replica: &str) -> SpillwaySetup<'_> {
    SpillwaySetup { policy: None, replica, more: "" }
}

/// Returns a load of one small request, which shows that a node serves.
pub(super) fn one_request() -> LoadSpec {
    LoadSpec {
        clients: 1,
        protocol: Protocol::Http1,
        pace: ArrivalPace::Closed,
        body_bytes: 1024,
        reply: BenchReply::Whole,
        ramp: Duration::ZERO,
        warm_up: Duration::ZERO,
        window: Duration::ZERO,
    }
}
