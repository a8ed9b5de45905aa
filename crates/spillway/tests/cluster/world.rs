//! A cluster of one node, and `spillway` as people type it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use spillway_admin::{
    Admin, AdminConfig, AskedNode, ClusterUsage, Explain, ExplainError, ExplainRequest, Explaining,
    Listing, Looking, NodeOverview, Overview, RegionOverview, ReplicaTally, RequestHistoryOverview,
    RouteOverview, Summing, connection_builder, parse_token_file,
};
use spillway_cluster_state::Fingerprint;
use spillway_control_plane::{ControlPlane, ControlPlaneConfig};
use spillway_link::Link;
use spillway_raft::Seed;
use spillway_testkit::{Certificates, eventually_blocking};
use spillway_usage::{Money, UsageQuery, UsageTable, Used};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Replacement of a node's data path: its answer repeats the request.
#[derive(Debug)]
struct Teller;

impl Explain for Teller {
    fn explain(&self, request: ExplainRequest) -> Explaining<'_> {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let session = request.headers.get("x-session-id").map(|it| it.to_str().unwrap().to_owned());
        let told = match body["model"].as_str() {
            Some(model) => Ok(json!({
                "model": model, "policy": "predicted_latency", "chosen": "gpu-b",
                "decision": "replica", "reason": "soonest", "route": "chat", "cached_blocks": 1,
                "blocks": body["messages"][0]["content"].as_str().map_or(0, str::len),
                "candidates": [
                    { "name": "gpu-a", "region": "eu", "chosen": false, "why": request.path,
                      "cost_ms": 30.25, "terms": { "wait_ms": 30.0, "prefill_ms": 0.25 } },
                    { "name": "gpu-b", "region": "eu", "chosen": true, "why": session,
                      "cost_ms": 2.5, "terms": { "wait_ms": 0.0, "prefill_ms": 2.5 } },
                ],
                "tenant": request.tenant.map(|it| it.to_string()),
            })),
            None => {
                Err(ExplainError { cause: "it names no model".into(), remedy: "add it".into() })
            }
        };
        Box::pin(std::future::ready(told))
    }
}

impl Overview for Teller {
    fn node(&self) -> Looking<'_> {
        let replicas = ReplicaTally { known: 1, up: 1, ..ReplicaTally::default() };
        let (name, region) = ("a".to_owned(), "eu".to_owned());
        let node = NodeOverview { name, region, replicas, ..NodeOverview::default() };
        Box::pin(std::future::ready(NodeOverview { is_in_cluster: true, ..node }))
    }

    fn regions(&self) -> Vec<RegionOverview> {
        let eu = RegionOverview { region: "eu".to_owned(), ..RegionOverview::default() };
        vec![RegionOverview { is_own: true, is_heard: true, is_reachable: true, ..eu }]
    }

    fn history(&self) -> RequestHistoryOverview {
        RequestHistoryOverview::default()
    }

    fn routes(&self) -> Vec<RouteOverview> {
        Vec::new()
    }

    fn replicas(&self) -> Listing<'_> {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn usage(&self, query: UsageQuery) -> Summing<'_> {
        let (tenant, key, model) = (Some("acme".into()), Some("k1".into()), Some("big".into()));
        let used = Used {
            requests: 2,
            errors: 1,
            prompt: 1_000,
            cached: 64,
            completion: 500,
            estimated: 30,
            cost: Money::of_millionths(450),
        };
        let mut table = UsageTable::default();
        table.add_line(&query, query.since, &(tenant, key, model), &used);
        let node = |name: &str, region: &str, fault: Option<&str>| AskedNode {
            name: name.to_owned(),
            region: region.to_owned(),
            fault: fault.map(str::to_owned),
        };
        let nodes = vec![node("a", "eu", None), node("b", "us", Some("there is no connection"))];
        Box::pin(std::future::ready(ClusterUsage::new(&query, nodes, table)))
    }
}

/// Cluster of one node, with an admin listener that wants a token.
pub(crate) struct World {
    certificates: Certificates,
    pub(crate) address: SocketAddr,
    pub(crate) runtime: tokio::runtime::Runtime,
    link: Arc<Link>,
    pub(crate) control_plane: Arc<ControlPlane>,
}

impl World {
    pub(crate) fn new() -> Self {
        let certificates = Certificates::new();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        std::fs::write(certificates.folder().join("token"), format!("{TOKEN}\n")).unwrap();
        let (link, control_plane) = runtime.block_on(Box::pin(start(&certificates)));
        let tokens = parse_token_file(&format!("ada admin {TOKEN}")).unwrap();
        let config = AdminConfig { tokens, ..AdminConfig::default() };
        let admin =
            Admin::new(Some(Arc::clone(&control_plane)), config).explaining(Arc::new(Teller));
        let admin = admin.overviewing(Arc::new(Teller));
        let address = runtime.block_on(listen(admin));
        eventually_blocking("a cluster is formed", || {
            !control_plane.published().records().nodes.is_empty()
        });
        Self { certificates, address, runtime, link, control_plane }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.certificates.folder().join(name)
    }

    /// Runs `spillway` with these words, and the listener's address and token.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Returns `spillway` with these words, and the listener's address and token.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        command(
            &[
                words,
                &["--admin", &format!("http://{}", self.address)],
                &["--token-file", self.path("token").to_str().unwrap()],
            ]
            .concat(),
        )
    }

    /// Runs a command, which must succeed, and returns its standard output.
    pub(crate) fn text(&self, words: &[&str]) -> String {
        printed(&self.run(words))
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[words, &["--json"]].concat())).unwrap()
    }

    /// Runs a command, which must fail, and returns its standard error.
    pub(crate) fn fault(&self, words: &[&str]) -> String {
        fault(&self.run(words))
    }

    pub(crate) fn stop(self) -> TempDir {
        let Self { certificates, runtime, link, control_plane, .. } = self;
        runtime.block_on(async {
            control_plane.shutdown().await;
            link.shutdown(Duration::from_secs(1)).await;
        });
        drop(control_plane);
        runtime.shutdown_timeout(Duration::from_secs(5));
        certificates.into_folder()
    }
}

pub(crate) fn run(words: &[&str]) -> Output {
    command(words).output().unwrap()
}

/// Returns `spillway` with these words, and no settings of the environment.
pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.env_remove("SPILLWAY_ADMIN").env_remove("SPILLWAY_TOKEN_FILE").args(words);
    command
}

pub(crate) fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn fault(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

async fn start(certificates: &Certificates) -> (Arc<Link>, Arc<ControlPlane>) {
    let link = certificates.start_link("eu", "a");
    let config = ControlPlaneConfig {
        name: "a".into(),
        region: "eu".into(),
        advertise: link.local_address().unwrap().to_string(),
        fingerprint: Fingerprint([7; 32]),
        folder: certificates.folder().join("data"),
        seeds: vec![Seed { name: "a".into(), region: "eu".into() }],
        join_token: None,
        is_operator: true,
        rtt_max: Duration::from_millis(20),
        watch: Default::default(),
    };
    let control_plane = ControlPlane::start(config, Arc::clone(&link)).await.unwrap();
    (link, control_plane)
}

async fn listen(admin: Admin) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = TaskTracker::new();
    let connections = tasks.clone();
    tasks.spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let admin = admin.clone();
            connections.spawn(async move {
                let service = service_fn(move |request| {
                    let admin = admin.clone();
                    async move { Ok::<_, Infallible>(admin.answer(request).await) }
                });
                connection_builder().serve_connection(TokioIo::new(tcp), service).await
            });
        }
    });
    address
}
