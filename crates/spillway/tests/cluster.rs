//! The commands about a cluster, as people type them, against a real node's admin API.
#![expect(clippy::unwrap_used, reason = "a test's helper fails by panicking")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use spillway_admin::{Admin, AdminConfig, connection_builder, parse_token_file};
use spillway_agreement::{Agreement, AgreementConfig};
use spillway_consensus::Seed;
use spillway_control::Fingerprint;
use spillway_link::certs::{Authority, IfExists, NodeFiles, Validity};
use spillway_link::{
    CertificateFiles, Deciding, ForwardBody, ForwardHead, Handler, Identity, Link, Refused,
    RefusedReason,
};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

struct NoHandler;

impl Handler for NoHandler {
    fn datagram(&self, _from: &Identity, _datagram: Bytes) {}

    fn forwarded(&self, _from: &Identity, _head: ForwardHead, _body: ForwardBody) -> Deciding {
        Box::pin(async { Err(Refused { reason: RefusedReason::NoReplica, wait_ms: None }) })
    }
}

/// One node that is a cluster, with an admin listener that wants a token.
struct World {
    folder: TempDir,
    address: SocketAddr,
    runtime: tokio::runtime::Runtime,
    link: Arc<Link>,
    agreement: Arc<Agreement>,
}

impl World {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        std::fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let (link, agreement) = runtime.block_on(Box::pin(start(folder.path())));
        let tokens = parse_token_file(&format!("ada admin {TOKEN}")).unwrap();
        let admin = Admin::new(
            Some(Arc::clone(&agreement)),
            AdminConfig { tokens, ..AdminConfig::default() },
        );
        let address = runtime.block_on(listen(admin));
        let by = Instant::now() + Duration::from_secs(30);
        while agreement.published().records().nodes.is_empty() {
            assert!(Instant::now() < by, "no cluster is formed");
            // wait: between two looks
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { folder, address, runtime, link, agreement }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `spillway` with these words, and the listener's address and token.
    fn run(&self, words: &[&str]) -> Output {
        run(&[
            words,
            &["--admin", &format!("http://{}", self.address)],
            &["--token-file", self.path("token").to_str().unwrap()],
        ]
        .concat())
    }

    /// What it prints.
    fn text(&self, words: &[&str]) -> String {
        printed(&self.run(words))
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[words, &["--json"]].concat())).unwrap()
    }

    /// What it says on standard error when it fails.
    fn fault(&self, words: &[&str]) -> String {
        fault(&self.run(words))
    }

    fn stop(self) -> TempDir {
        let Self { folder, runtime, link, agreement, .. } = self;
        runtime.block_on(async {
            agreement.shutdown().await;
            link.shutdown(Duration::from_secs(1)).await;
        });
        drop(agreement);
        runtime.shutdown_timeout(Duration::from_secs(5));
        folder
    }
}

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spillway"))
        .env_remove("SPILLWAY_ADMIN")
        .env_remove("SPILLWAY_TOKEN_FILE")
        .args(words)
        .output()
        .unwrap()
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn fault(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

async fn start(folder: &Path) -> (Arc<Link>, Arc<Agreement>) {
    let validity = || Validity::days(SystemTime::now(), 5).unwrap();
    let authority = Authority::new("test", validity()).unwrap();
    std::fs::write(folder.join("ca.pem"), authority.certificate_pem()).unwrap();
    let files = NodeFiles::in_folder(folder, "eu", "a");
    files.write(authority.issue("eu", "a", validity()).unwrap(), IfExists::Replace).unwrap();
    let files = CertificateFiles {
        authority: folder.join("ca.pem"),
        certificate: files.certificate,
        key: files.key,
    };
    let me = Identity::new("test", "eu", "a").unwrap();
    let config = spillway_link::Config::new(me, "127.0.0.1:0".parse().unwrap(), files);
    let link = Arc::new(Link::start(config, Arc::new(NoHandler)).unwrap());
    let config = AgreementConfig {
        name: "a".into(),
        region: "eu".into(),
        advertise: link.local_address().unwrap().to_string(),
        fingerprint: Fingerprint([7; 32]),
        folder: folder.join("data"),
        seeds: vec![Seed { name: "a".into(), region: "eu".into() }],
        join_token: None,
        rtt_max: Duration::from_millis(20),
    };
    let agreement = Agreement::start(config, Arc::clone(&link)).await.unwrap();
    (link, agreement)
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

#[test]
fn operators_see_and_change_what_the_cluster_agrees_on() {
    let world = World::new();
    let status = world.text(&["status"]);
    assert!(status.contains("node a is leader"), "{status}");
    assert!(status.contains("leader a in term 1"), "{status}");
    assert_eq!(world.json(&["status"])["members"][0]["name"], "a");
    let nodes = world.text(&["nodes"]);
    assert!(nodes.lines().nth(1).unwrap().starts_with("a     1       eu"), "{nodes}");

    let dry = world.text(&["drain", "eu", "--dry-run"]);
    assert_eq!(dry, "~ regions eu\n  - record.state: active\n  + record.state: draining\n");
    assert!(world.text(&["regions"]).contains("active"));
    assert!(world.text(&["drain", "eu"]).starts_with("done: version "));
    assert!(world.text(&["regions"]).contains("draining"));
    assert_eq!(world.text(&["drain", "eu"]), "nothing to change\n");
    world.text(&["undrain", "eu"]);
    assert_eq!(world.json(&["regions", "show", "eu"])["item"]["record"]["state"], "active");
    world.text(&["weight", "eu", "250"]);
    assert!(world.text(&["regions", "show", "eu"]).contains("record.weight_permille: 250"));

    world.text(&["models", "put", "meta/small", "{\"fallbacks\": [\"big\"]}"]);
    let version = world.json(&["models", "show", "meta/small"])["item"]["version"].to_string();
    assert!(world.text(&["models"]).contains("meta/small"));
    let late = world.fault(&["models", "remove", "meta/small", "--if-version", "1"]);
    assert!(late.contains("(conflict)") && late.contains(&format!("version {version}")), "{late}");
    world.text(&["models", "remove", "meta/small", "--if-version", &version]);
    assert_eq!(world.json(&["models"])["items"], serde_json::json!([]));
    let settings = world.text(&["settings"]);
    assert!(settings.contains("join.token_required    true"), "{settings}");
    assert!(world.text(&["replicas", "--cluster"]).starts_with("replica"));
    let unknown = world.fault(&["drain", "eu/none"]);
    assert!(unknown.contains("does not exist (not_found)"), "{unknown}");
    assert!(world.fault(&["drain", "eu/none", "--evacuate"]).contains("only a region"));
}

#[test]
fn secrets_are_printed_once_and_a_token_is_needed() {
    let world = World::new();
    world.text(&["tenants", "put", "acme", "{}"]);
    let made = world.run(&["keys", "create", "--tenant", "acme", "--model", "big", "--days", "1"]);
    let secret = printed(&made);
    let secret = secret.trim();
    assert!(secret.starts_with("sw_"), "{secret}");
    assert!(String::from_utf8_lossy(&made.stderr).contains("shown this once"), "{made:?}");
    let keys = world.json(&["keys", "list"]);
    let key = keys["items"][0]["key"].as_str().unwrap();
    assert!(secret.starts_with(&format!("sw_{key}_")) && !keys.to_string().contains(secret));
    assert!(keys["items"][0]["record"]["expires_ms"].is_u64());
    world.text(&["keys", "revoke", key]);
    assert_eq!(world.json(&["keys", "list"])["items"][0]["info"]["is_revoked"], true);
    let token = world.json(&["join-token", "create", "--region", "eu", "--hours", "2"]);
    assert!(token["secret"].as_str().unwrap().starts_with("swj_"));
    let dry = world.text(&["join-token", "create", "--dry-run"]);
    assert!(dry.starts_with("+ join-tokens "), "{dry}");
    assert_eq!(world.json(&["join-token"])["items"].as_array().unwrap().len(), 1);

    let address = world.address.to_string();
    let refused = fault(&run(&["status", "--admin", &address]));
    assert!(refused.contains("there is no token (unauthorized)"), "{refused}");
    let refused = run(&["status", "--admin", &address, "--json"]);
    let json: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(json["error"]["code"], "unauthorized");
}

#[test]
fn a_backup_becomes_the_folder_of_a_new_cluster() {
    let world = World::new();
    world.text(&["models", "put", "kept", "{}"]);
    let backup = world.path("state.backup");
    let backup = backup.to_str().unwrap();
    world.text(&["backup", backup]);
    assert!(world.fault(&["backup", backup]).contains("--force"));
    world.text(&["backup", backup, "--force"]);

    let new = world.path("new");
    let restore = |more: &[&str]| {
        let words = ["restore", backup, "--node", "a"];
        run(&[&words[..], &["--folder", new.to_str().unwrap()], more].concat())
    };
    printed(&restore(&["--dry-run"]));
    assert!(!new.exists(), "a dry run has made {}", new.display());
    let restored: Value = serde_json::from_str(&printed(&restore(&["--json"]))).unwrap();
    assert_eq!(restored["cluster"].as_str().unwrap().len(), 32);
    assert!(fault(&restore(&[])).contains("name an empty folder"));
    let torn = world.path("torn");
    let bytes = std::fs::read(backup).unwrap();
    std::fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    let words = ["restore", torn.to_str().unwrap(), "--node", "a"];
    let more = ["--dry-run", "--folder", "elsewhere"];
    assert!(fault(&run(&[&words[..], &more].concat())).contains("can't be restored"));
    let stranger = ["restore", backup, "--node", "z", "--folder", "elsewhere"];
    assert!(fault(&run(&stranger)).contains("begin with one of a,"), "who begins is known");
}

#[test]
fn a_new_cluster_is_forced_only_when_it_is_meant() {
    let world = World::new();
    let folder = world.stop();
    let data = folder.path().join("data");
    let force = |more: &[&str]| {
        let words = ["force-new-cluster", "--node", "a", "--region", "eu", "--folder"];
        run(&[&words[..], &[data.to_str().unwrap()], more].concat())
    };
    let before = spillway_consensus::owner_of(&data).unwrap();
    assert!(fault(&force(&[])).contains("say --yes"));
    assert!(printed(&force(&["--dry-run"])).contains("node 1 (a) of cluster"));
    assert_eq!(spillway_consensus::owner_of(&data).unwrap(), before);
    let forced: Value = serde_json::from_str(&printed(&force(&["--yes", "--json"]))).unwrap();
    let after = spillway_consensus::owner_of(&data).unwrap().unwrap();
    assert_eq!(forced["cluster"], after.cluster.unwrap().to_string().as_str());
    assert_ne!(after.cluster, before.unwrap().cluster);
    let nowhere = run(&["force-new-cluster", "--node", "a", "--region", "eu", "--folder", "none"]);
    assert!(fault(&nowhere).contains("holds no log"));
}

#[test]
fn every_command_has_an_example() {
    for words in [
        "status",
        "nodes",
        "regions",
        "replicas",
        "models",
        "routes",
        "splits",
        "limits",
        "tenants",
        "settings",
        "keys list",
        "keys create",
        "keys revoke",
        "drain",
        "undrain",
        "weight",
        "join-token",
        "backup",
        "restore",
        "force-new-cluster",
    ] {
        let words: Vec<&str> = words.split(' ').chain(["--help"]).collect();
        let help = printed(&run(&words));
        assert!(help.contains("Example: spillway "), "{words:?}: {help}");
    }
}
