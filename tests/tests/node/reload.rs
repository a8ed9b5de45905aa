//! A changed config takes effect while the node runs; a bad one changes nothing.

use std::path::PathBuf;

use spillway_config::Config;
use spillway_node::Node;
use spillway_tests::{Client, OK, Page, Reply, Scripted, Setup, chat, eventually, get, spawn};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::certificates::Certificates;
use crate::log::Log;

/// A config in a file, and how it is written.
pub(crate) struct File {
    folder: TempDir,
}

impl File {
    pub(crate) fn new(setup: &Setup) -> Self {
        let file = Self { folder: tempfile::tempdir().expect("a folder") };
        std::fs::write(file.path(), setup.text()).expect("writes");
        file
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("spillway.toml")
    }

    pub(crate) async fn start(&self) -> Node {
        self.start_with(|_| {}).await
    }

    pub(crate) async fn start_with(&self, change: impl FnOnce(&mut Config)) -> Node {
        let mut config = Config::load_with(&self.path(), []).expect("a config");
        change(&mut config);
        Node::start(config).await.expect("a node")
    }

    /// As deployment tools do it.
    pub(crate) fn replace(&self, text: &str) {
        let beside = self.folder.path().join("new");
        std::fs::write(&beside, text).expect("writes");
        std::fs::rename(beside, self.path()).expect("renames");
    }

    /// As editors may do it.
    fn overwrite(&self, text: &str) {
        std::fs::write(self.path(), text).expect("writes");
    }
}

pub(crate) fn reloads(node: &Node, result: &str) -> f64 {
    Page::of(node).sum("spillway_config_reloads_total", &[("result", result)])
}

#[tokio::test]
async fn a_new_set_of_replicas_is_used_and_a_running_stream_goes_on() {
    let old = Scripted::start().await;
    let new = Scripted::start().await.serve(OK);
    let file = File::new(&Setup::new().replica("old", old.address));
    let node = file.start().await;
    let mut streaming = Client::http1(node.addresses()[0]).await;
    let (response, mut wire) = tokio::join!(streaming.send(chat("tiny", "")), async {
        let (mut wire, _) = old.request().await;
        wire.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n").await;
        wire
    });
    let response = response.expect("a head");

    let text = Setup::new().set("aliases.other = \"tiny\"").replica("new", new.address).text();
    file.replace(&text);
    eventually("it is applied", || reloads(&node, "applied") >= 1.0).await;
    let mut client = Client::http1(node.addresses()[0]).await;
    assert_eq!(client.fetch(chat("other", "")).await.body, "ok");
    assert_eq!(new.requests.count(), 1);

    file.overwrite(&text.replace("other", "another"));
    eventually("it is applied", || {
        let models = node
            .gateway()
            .routing
            .view()
            .models()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>();
        models == ["tiny", "another"]
    })
    .await;
    assert_eq!(client.fetch(chat("another", "")).await.body, "ok");
    assert_eq!(client.fetch(chat("other", "")).await.status, 404);

    wire.send("data: [DONE]\n\n").await;
    wire.finish().await;
    let reply = Reply::collect(response).await.expect("a whole stream");
    assert_eq!(reply.text(), "data: 1\n\ndata: [DONE]\n\n");
    assert_eq!(reloads(&node, "refused"), 0.0);
}

#[tokio::test]
async fn an_unchanged_replica_keeps_its_connections() {
    let kept = Scripted::start().await;
    let setup = || Setup::new().replica("kept", kept.address);
    let file = File::new(&setup());
    let node = file.start().await;
    let reply = spawn(Client::once(node.addresses()[0], chat("tiny", "")));
    let (mut wire, _) = kept.request().await;
    wire.send(OK).await;
    assert_eq!(reply.await.expect("a reply").status, 200);

    // The newcomer serves another model, so that the next request can't go there.
    let dead = format!("http://{}", Scripted::refusing());
    file.replace(&setup().replica_with("new", &dead, "models = [\"huge\"]").text());
    eventually("it is applied", || reloads(&node, "applied") >= 1.0).await;
    let reply = spawn(Client::once(node.addresses()[0], chat("tiny", "")));
    wire.message().await;
    wire.send(OK).await;
    assert_eq!(reply.await.expect("a reply").status, 200);
    assert!(kept.is_alone().await, "no second connection");
}

#[tokio::test]
async fn a_bad_file_leaves_the_old_config_in_use() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().replica("a", replica.address);
    let file = File::new(&setup);
    let node = file.start().await;
    // The watch begins beside the first request.
    assert_eq!(Client::once(node.addresses()[0], chat("tiny", "")).await.status, 200);
    file.replace("[node\n");
    eventually("it is refused", || reloads(&node, "refused") >= 1.0).await;
    assert_eq!(Client::once(node.addresses()[0], chat("tiny", "")).await.status, 200);
    std::fs::remove_file(file.path()).expect("removes");
    eventually("a missing file is refused", || reloads(&node, "refused") >= 2.0).await;
    assert_eq!(Client::once(node.addresses()[0], chat("tiny", "")).await.status, 200);
    assert_eq!(reloads(&node, "applied"), 0.0);
    file.replace(&setup.set("aliases.other = \"tiny\"").text());
    eventually("it is applied", || reloads(&node, "applied") >= 1.0).await;
    assert_eq!(Client::once(node.addresses()[0], get("/v1/models/other")).await.status, 200);
}

#[tokio::test]
async fn settings_that_wait_for_a_restart_are_named_and_the_rest_of_the_file_counts() {
    const WARNING: &str = "; waits for a restart: ";
    let replica = Scripted::start().await.serve(OK);
    let setup = || Setup::new().replica("a", replica.address);
    let log = Log::default();
    let _guard = log.begin();
    let file = File::new(&setup());
    let node = file.start().await;
    assert_eq!(Client::once(node.addresses()[0], chat("tiny", "")).await.status, 200);
    let steps = [
        (&["aliases.other = \"tiny\""][..], ""),
        (&["prefix.index_bytes_max = 33554432"], "prefix.index_bytes_max"),
        (
            &["retry.attempts_max = 2", "limits.body_bytes_max = 4096"],
            "limits.body_bytes_max, retry.attempts_max",
        ),
        (&["spill.queue_ms = 17"], ""),
    ];
    let mut warnings = 0;
    for (done, (lines, waiting)) in (1_u32..).zip(steps) {
        let text = lines.iter().fold(setup(), |setup, line| setup.set(*line)).text();
        file.replace(&text);
        eventually("it is applied", || reloads(&node, "applied") >= f64::from(done)).await;
        warnings += usize::from(!waiting.is_empty());
        eventually("it is logged", || log.count("config reloaded") == done as usize).await;
        assert_eq!(log.count(WARNING), warnings, "{lines:?}");
        assert!(log.count(&format!("{WARNING}{waiting} path")) == 1 || waiting.is_empty());
    }
    // The rest of such a file counts all the same.
    let lines = setup().set("prefix.index_bytes_max = 2000000").set("aliases.third = \"tiny\"");
    file.replace(&lines.text());
    eventually("it is applied", || log.count(WARNING) == warnings + 1).await;
    eventually("its alias is known", || {
        node.gateway().routing.view().models().iter().any(|model| model.as_str() == "third")
    })
    .await;
}

#[tokio::test]
async fn whether_replies_tell_how_they_were_routed_changes_without_a_restart() {
    let replica = Scripted::start().await.serve(OK);
    let setup = || Setup::new().replica("a", replica.address);
    let file = File::new(&setup().set("node.expose_routing = false"));
    let node = file.start().await;
    let mut is_told = Vec::new();
    for (done, exposed) in [(1.0, true), (2.0, false)] {
        file.replace(&setup().set(format!("node.expose_routing = {exposed}")).text());
        eventually("it is applied", || reloads(&node, "applied") >= done).await;
        let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
        is_told.push(reply.headers.contains_key("x-spillway-replica"));
    }
    assert_eq!(is_told, [true, false]);
}

#[tokio::test]
async fn new_connections_get_the_new_certificate() {
    let mut certificates = Certificates::for_name("localhost");
    let setup = Setup::new().listener(&certificates.listener());
    let file = File::new(&setup);
    let node = file.start().await;
    let tcp = || async { TcpStream::connect(node.addresses()[0]).await.expect("connects") };
    assert!(certificates.connect(tcp().await, "localhost", &[]).await.is_ok());
    certificates.renew("localhost");
    assert!(certificates.connect(tcp().await, "localhost", &[]).await.is_err(), "not yet");
    file.replace(&setup.text());
    eventually("it is applied", || reloads(&node, "applied") >= 1.0).await;
    assert!(certificates.connect(tcp().await, "localhost", &[]).await.is_ok());
}
