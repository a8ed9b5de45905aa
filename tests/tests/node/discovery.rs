//! Replicas that are found come and go while requests are served.

use spillway_node::Node;
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
    let name = format!("workers-127.0.0.1:{}", one.address.port());
    stands_at_last(&node, &name, "open").await;
    assert_eq!(ask(&node).await, 200);
    node.stop().await;
}

#[tokio::test]
async fn a_model_whose_replicas_are_not_found_yet_is_unavailable_and_not_unknown() {
    // Nobody listens there: the name server never answers.
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
