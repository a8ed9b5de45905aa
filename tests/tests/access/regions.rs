//! The rights of a credential travel with a request to another region, and decide where it may go.

use std::time::Duration;

use spillway_node::Node;
use spillway_tests::{
    Client, Cluster, OK, Reply, Scripted, Setup, chat, emulator, eventually, get, knows, post,
};

use crate::keys::Key;
use crate::tenants::{STORE, response_id};

async fn ask(node: &Node, key: &Key) -> Reply {
    Client::once(node.addresses()[0], key.sign(chat("tiny", ""))).await
}

#[tokio::test]
async fn a_forwarded_request_is_its_tenant_s_there_too() {
    let emulator = emulator(1).await;
    let (own, other) = (Key::new("a", "acme", "priority = 1"), Key::new("b", "rival", ""));
    let keys = |setup: Setup| setup.table(&*own.block).table(&*other.block);
    let cluster = Cluster::new(&["edge", "core"]);
    let edge = cluster.start(0, keys(Setup::new())).await;
    let core = cluster.start(1, keys(Setup::new().emulated(&emulator))).await;
    knows(&edge, "core").await;
    let mut client = Client::http1(edge.addresses()[0]).await;
    let stored = client.fetch(own.sign(post("/v1/responses", STORE))).await;
    assert_eq!(stored.status, 200, "{}", stored.text());
    assert_eq!(stored.header("x-spillway-region"), Some("core"));
    let path = format!("/v1/responses/{}", response_id(stored.text()));
    for node in [&edge, &core] {
        let responses = &node.gateway().homes.responses;
        eventually("it has heard what others know", || !responses.is_learning()).await;
        let mut client = Client::http1(node.addresses()[0]).await;
        assert_eq!(client.fetch(get(&path)).await.status, 401);
        assert_eq!(client.fetch(other.sign(get(&path))).await.status, 404);
        assert_eq!(client.fetch(own.sign(get(&path))).await.status, 200);
    }
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn the_replica_of_another_region_sees_no_key_and_no_claim_either() {
    let replica = Scripted::start().await.serve(OK);
    let key = Key::new("a", "acme", "");
    let cluster = Cluster::new(&["edge", "core"]);
    let edge = cluster.start(0, Setup::new().table(&*key.block)).await;
    // It knows no key, and asks a guest for none.
    let setup = Setup::new().set("auth.mode = \"keys\"").replica("a", replica.address);
    let core = cluster.start(1, setup).await;
    knows(&edge, "core").await;
    let reply = ask(&edge, &key).await;
    assert_eq!((reply.status, reply.header("x-spillway-region")), (200, Some("core")));
    for name in ["authorization", "x-api-key", "x-spillway-tenant"] {
        assert_eq!(replica.requests.last().header(name), None, "{name}");
    }
    assert_eq!(ask(&core, &key).await.status, 401, "its own clients are asked");
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn a_key_s_regions_alone_serve_it() {
    let (here, there) = (Scripted::start().await.serve(OK), Scripted::start().await.serve(OK));
    let keys = [
        Key::new("a", "acme", ""),
        Key::new("b", "acme", "regions = [\"away\"]"),
        Key::new("c", "acme", "regions = [\"mars\"]"),
        Key::new("d", "acme", "regions = [\"home\"]"),
    ];
    let setup = || keys.iter().fold(Setup::new(), |setup, key| setup.table(&*key.block));
    let cluster = Cluster::new(&["home", "away"]);
    let home = cluster.start(0, setup().replica("a", here.address)).await;
    let away = cluster.start(1, setup().replica("a", there.address)).await;
    knows(&home, "away").await;
    for (key, region) in [(&keys[0], "home"), (&keys[1], "away"), (&keys[3], "home")] {
        for _ in 0..3 {
            let reply = ask(&home, key).await;
            assert_eq!((reply.status, reply.header("x-spillway-region")), (200, Some(region)));
        }
    }
    assert_eq!((here.requests.count(), there.requests.count()), (6, 3));
    let reply = ask(&home, &keys[2]).await;
    assert_eq!((reply.status, reply.code()), (403, Some("region_not_allowed")), "{}", reply.text());
    // The only region that may serve the request is down, so it fails although the own region has
    // room.
    away.stop().await;
    let reply = ask(&home, &keys[1]).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(here.requests.count(), 6);
    home.stop().await;
}

#[tokio::test]
async fn a_key_for_this_region_goes_nowhere_else() {
    let there = Scripted::start().await.serve(OK);
    let key = Key::new("a", "acme", "regions = [\"edge\"]");
    let any = Key::new("b", "acme", "");
    let cluster = Cluster::new(&["edge", "core"]);
    let setup = Setup::new().table(&*key.block).table(&*any.block);
    let edge = cluster.start(0, setup).await;
    let open = Setup::new().replica("a", there.address);
    let core = cluster.start(1, open).await;
    knows(&edge, "core").await;
    let reply = ask(&edge, &key).await;
    assert_eq!((reply.status, there.requests.count()), (503, 0), "{}", reply.text());
    assert_eq!(ask(&edge, &any).await.status, 200);
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn a_nearer_region_that_is_not_among_a_key_s_is_passed_over() {
    let (near, far) = (Scripted::start().await.serve(OK), Scripted::start().await.serve(OK));
    let key = Key::new("a", "acme", "regions = [\"edge\", \"far\"]");
    let any = Key::new("b", "acme", "");
    let cluster = Cluster::new(&["edge", "near", "far"]);
    cluster.distance(0, 1, Duration::from_millis(2));
    cluster.distance(0, 2, Duration::from_millis(80));
    let setup = Setup::new().table(&*key.block).table(&*any.block);
    let edge = cluster.start(0, setup).await;
    let others = [
        cluster.start(1, Setup::new().replica("a", near.address)).await,
        cluster.start(2, Setup::new().replica("a", far.address)).await,
    ];
    for region in ["near", "far"] {
        knows(&edge, region).await;
    }
    for (key, region) in [(&any, "near"), (&key, "far"), (&key, "far")] {
        let reply = ask(&edge, key).await;
        assert_eq!((reply.status, reply.header("x-spillway-region")), (200, Some(region)));
    }
    assert_eq!((near.requests.count(), far.requests.count()), (1, 2));
    edge.stop().await;
    for node in others {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_tenant_that_is_isolated_is_so_in_other_regions() {
    let replica = Scripted::start().await.serve(OK);
    let key = Key::new("a", "acme", "");
    let isolated = "[[tenant]]\nname = \"acme\"\nisolate_prompts = true\n";
    let setup = || Setup::new().table(&*key.block).table(isolated);
    let cluster = Cluster::new(&["edge", "core"]);
    let edge = cluster.start(0, setup()).await;
    let url = format!("http://{}", replica.address);
    let core = setup().replica_with("a", &url, "kind = \"vllm\"\nmetrics = { scrape = false }");
    let core = cluster.start(1, core).await;
    knows(&edge, "core").await;
    let reply = ask(&edge, &key).await;
    assert_eq!((reply.status, reply.header("x-spillway-region")), (200, Some("core")));
    let sent = replica.requests.last().text();
    assert_eq!(sent.matches("\"cache_salt\":\"").count(), 1, "{sent}");
    edge.stop().await;
    core.stop().await;
}
