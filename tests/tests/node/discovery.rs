//! Replicas that are found come and go while requests are served.

use std::time::Duration;

use spillway_config::Config;
use spillway_node::Node;
use spillway_resolver::{NameServers, SystemFiles};
use spillway_testkit::{DnsServer, Mood};
use spillway_tests::{Client, OK, Page, Scripted, Setup, chat, eventually, get};

use crate::health::stands_at_last;
use crate::reload::{File, reloads};

async fn ask(node: &Node) -> u16 {
    Client::once(node.addresses()[0], chat("tiny", "")).await.status
}

fn is_listed(node: &Node, replica: &str) -> bool {
    let text = Page::of(node);
    text.sum("spillway_replica_ramp", &[("replica", replica)]) > 0.0
}

#[tokio::test]
async fn a_file_of_replicas_is_followed_and_one_with_a_fault_changes_nothing() {
    let (one, two) = (Scripted::start().await.serve(OK), Scripted::start().await.serve(OK));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("replicas.toml");
    let listed = |name: &str, address: &dyn std::fmt::Display| {
        format!("[[replica]]\nname = \"{name}\"\nurl = \"http://{address}\"\nmodels = [\"tiny\"]\n")
    };
    std::fs::write(&path, listed("one", &one.address)).expect("writes");
    let source = format!("[[discovery]]\nname = \"listed\"\nfile = \"{}\"", path.display());
    let node = Setup::new().table(source).start().await;
    assert_eq!(ask(&node).await, 200);
    std::fs::write(&path, listed("two", &two.address)).expect("writes");
    stands_at_last(&node, "two", "open").await;
    eventually("the first one left", || !is_listed(&node, "one")).await;
    let before = one.requests.count();
    for _ in 0..5 {
        assert_eq!(ask(&node).await, 200);
    }
    assert_eq!(one.requests.count(), before);
    std::fs::write(&path, "[[replica]]\nname = \"three\"\nurl = \"ftp://x\"\n").expect("writes");
    // Then a good one again: when it is in use, the bad one was seen.
    let both = listed("two", &two.address) + &listed("four", &one.address);
    assert_eq!(ask(&node).await, 200);
    std::fs::write(&path, both).expect("writes");
    stands_at_last(&node, "four", "open").await;
    assert!(is_listed(&node, "two") && !is_listed(&node, "three"));
    node.stop().await;
}

#[tokio::test]
async fn addresses_of_a_name_are_replicas() {
    let one = Scripted::start().await.serve(OK);
    // The name of this machine needs no name server.
    let source = format!(
        "[[discovery]]\nname = \"workers\"\ndns = \"localhost:{}\"\n\
         [discovery.replica]\nurl = \"http://\"\nmodels = [\"tiny\"]",
        one.address.port()
    );
    let node = Setup::new().table(source).start().await;
    let name = format!("workers-127.0.0.1-{}", one.address.port());
    stands_at_last(&node, &name, "open").await;
    assert_eq!(ask(&node).await, 200);
    node.stop().await;
}

#[tokio::test]
async fn a_model_whose_replicas_are_not_found_yet_is_unavailable_and_not_unknown() {
    // No process listens there, so the name server never answers.
    let source = format!(
        "[[discovery]]\nname = \"workers\"\ndns = \"workers.test:8000\"\nresolver = \"{}\"\n\
         [discovery.replica]\nurl = \"http://\"\nmodels = [\"tiny\"]",
        Scripted::refusing()
    );
    let other = Scripted::start().await.serve(OK);
    let replica = format!("url = \"http://{}\"\nmodels = [\"other\"]", other.address);
    let node = Setup::new().table(source).table(format!("[[replica]]\nname = \"o\"\n{replica}"));
    let node = node.start().await;
    let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
    assert_eq!((reply.status, reply.code()), (503, Some("no_replica")), "{}", reply.text());
    assert!(reply.header("retry-after").is_some());
    let list = Client::once(node.addresses()[0], get("/v1/models")).await;
    assert!(list.text().contains("\"tiny\""), "{}", list.text());
    let card = Client::once(node.addresses()[0], get("/v1/models/tiny")).await;
    assert_eq!(card.status, 200);
    let unknown = Client::once(node.addresses()[0], chat("huge", "")).await;
    assert_eq!(unknown.status, 404, "{}", unknown.text());
    node.stop().await;
}

#[tokio::test]
async fn what_a_discovery_found_leaves_with_it() {
    let (found, listed) = (Scripted::start().await.serve(OK), Scripted::start().await.serve(OK));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("replicas.toml");
    let replica = format!(
        "[[replica]]\nname = \"found\"\nurl = \"http://{}\"\nmodels = [\"tiny\"]\n",
        found.address
    );
    std::fs::write(&path, replica).expect("writes");
    let source = format!("[[discovery]]\nname = \"d\"\nfile = \"{}\"", path.display());
    let without = Setup::new().replica("listed", listed.address);
    let file = File::new(&without.clone().table(source));
    let node = file.start().await;
    stands_at_last(&node, "found", "open").await;
    file.replace(&without.text());
    eventually("the reload", || reloads(&node, "applied") == 1.0).await;
    assert!(!is_listed(&node, "found") && is_listed(&node, "listed"));
    node.stop().await;
}

fn is_in_state(node: &Node, state: &str) -> bool {
    Page::of(node).sum("spillway_discovery_state", &[("state", state)]) == 1.0
}

async fn admin(node: &Node, path: &str) -> String {
    let address = node.admin_address().expect("an admin listener");
    Client::once(address, get(path)).await.text().to_owned()
}

#[tokio::test]
async fn a_file_that_is_empty_for_a_moment_removes_nothing() {
    let one = Scripted::start().await.serve(OK);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("replicas.toml");
    let listed = format!(
        "[[replica]]\nname = \"one\"\nurl = \"http://{}\"\nmodels = [\"tiny\"]\n",
        one.address
    );
    std::fs::write(&path, &listed).expect("writes");
    let source = format!("[[discovery]]\nname = \"listed\"\nfile = \"{}\"", path.display());
    let node = Setup::new().table(source).start().await;
    eventually("the first reading", || is_in_state(&node, "answered")).await;
    std::fs::write(&path, "").expect("writes");
    eventually("the empty file was read", || is_in_state(&node, "empty")).await;
    assert_eq!(ask(&node).await, 200);
    assert!(is_listed(&node, "one"));
    // Half of it, as a writer that was interrupted leaves it.
    std::fs::write(&path, &listed[..listed.len() / 2]).expect("writes");
    eventually("the half file was read", || is_in_state(&node, "stale")).await;
    assert_eq!(ask(&node).await, 200);
    std::fs::write(&path, &listed).expect("writes");
    eventually("the whole file was read", || is_in_state(&node, "answered")).await;
    assert_eq!(ask(&node).await, 200);
    node.stop().await;
}

#[tokio::test]
async fn a_file_that_stays_empty_leaves_its_models_known() {
    let (one, other) = (Scripted::start().await.serve(OK), Scripted::start().await.serve(OK));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("replicas.toml");
    let listed = format!(
        "[[replica]]\nname = \"one\"\nurl = \"http://{}\"\nmodels = [\"tiny\"]\n",
        one.address
    );
    std::fs::write(&path, &listed).expect("writes");
    let source = format!("[[discovery]]\nname = \"listed\"\nfile = \"{}\"", path.display());
    let url = format!("http://{}", other.address);
    let without = Setup::new().replica_with("other", &url, "models = [\"other\"]");
    let file = File::new(&without.clone().table(source));
    let grace = |config: &mut Config| {
        config.world.discoveries[0].empty_grace = Duration::from_millis(100);
    };
    let node = file.start_with(grace).await;
    eventually("the first reading", || is_in_state(&node, "answered")).await;
    std::fs::write(&path, "# none\n").expect("writes");
    eventually("the replica left", || !is_listed(&node, "one")).await;
    let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
    assert_eq!((reply.status, reply.code()), (503, Some("no_replica")), "{}", reply.text());
    // Replicas that the operator removes from the config stay removed.
    std::fs::write(&path, listed).expect("writes");
    eventually("the replica is back", || is_listed(&node, "one")).await;
    file.replace(&without.text());
    eventually("the reload", || reloads(&node, "applied") == 1.0).await;
    assert_eq!(ask(&node).await, 404);
    node.stop().await;
}

#[tokio::test]
async fn a_discovery_without_an_answer_is_shown_everywhere() {
    let server = DnsServer::start().await;
    server.mood(Mood::Silent);
    let other = Scripted::start().await.serve(OK);
    let source = "[[discovery]]\nname = \"workers\"\ndns = \"workers.test.:8000\"\n\
                  [discovery.replica]\nurl = \"http://\"\nmodels = [\"big\"]";
    let mut config = Setup::new().replica("a", other.address).table(source).config();
    let servers = NameServers::Fixed(vec![server.address]);
    config.system_files = SystemFiles { servers, ..SystemFiles::default() };
    let node = Node::start(config).await.expect("a node");
    eventually("a failure", || is_in_state(&node, "unanswered")).await;
    let answer = admin(&node, "/v1/node").await;
    assert!(
        answer.contains("degraded: discoveries lack answers (workers is unanswered)"),
        "{answer}"
    );
    assert!(answer.contains("do not answer"), "{answer}");
    let ready = admin(&node, "/readyz").await;
    assert_eq!(ready, r#"{"discovery":{"workers":"unanswered"}}"#);
    server.addresses("workers.test.", 1, &["127.0.0.1"]);
    server.mood(Mood::Well);
    eventually("an answer", || is_in_state(&node, "answered")).await;
    assert_eq!(Page::of(&node).sum("spillway_discovery_replicas", &[]), 1.0);
    assert_eq!(admin(&node, "/readyz").await, "{}");
    node.stop().await;
}

#[tokio::test]
async fn other_settings_of_its_replicas_do_not_make_a_discovery_forget_them() {
    let server = DnsServer::start().await;
    let one = Scripted::start().await.serve(OK);
    server.addresses("workers.test.", 30, &["127.0.0.1"]);
    let with = |lines: &str| {
        let text = format!(
            "[[discovery]]\nname = \"workers\"\ndns = \"workers.test.:{}\"\nresolver = \"{}\"\n\
             [discovery.replica]\nurl = \"http://\"\nmodels = [\"tiny\"]\n{lines}",
            one.address.port(),
            server.address
        );
        Setup::new().table(text)
    };
    let file = File::new(&with(""));
    let node = file.start().await;
    let name = format!("workers-127.0.0.1-{}", one.address.port());
    stands_at_last(&node, &name, "open").await;
    server.mood(Mood::Silent);
    file.replace(&with("weight = 7").text());
    eventually("the reload", || reloads(&node, "applied") == 1.0).await;
    assert!(is_listed(&node, &name));
    assert_eq!(ask(&node).await, 200);
    node.stop().await;
}
