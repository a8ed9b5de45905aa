//! Gateways whose replicas are gateways.

use spillway_node::Node;
use spillway_tests::{Client, OK, Reply, Scripted, Setup, chat, eventually};

use crate::reload::{File, reloads};

async fn ask(node: &Node) -> Reply {
    Client::once(node.addresses()[0], chat("tiny", "")).await
}

#[tokio::test]
async fn two_nodes_that_are_each_other_s_replicas_answer_with_an_error_that_says_so() {
    let server = Scripted::start().await.serve(OK);
    let file = File::new(&Setup::new().replica("server", server.address));
    let one = file.start().await;
    let two = Setup::new().replica("one", one.addresses()[0]).start().await;
    assert_eq!(ask(&two).await.status, 200, "tiers of gateways are no loop");
    let via = server.requests.last().header("via").expect("two names").to_owned();
    assert_eq!(
        via.split(", ").filter(|name| name.starts_with("1.1 spillway-")).count(),
        2,
        "{via}"
    );

    file.replace(&Setup::new().replica("two", two.addresses()[0]).text());
    eventually("it is applied", || reloads(&one, "applied") >= 1.0).await;
    for node in [&one, &two] {
        let reply = ask(node).await;
        assert_eq!((reply.status, reply.code()), (508, Some("request_loop")), "{}", reply.text());
    }
    assert_eq!(server.requests.count(), 1);
    two.stop().await;
    one.stop().await;
}
