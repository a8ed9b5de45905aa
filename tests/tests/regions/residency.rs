//! Requests are served only where they may be: by region and country, whatever else happens.

use std::collections::BTreeMap;
use std::time::Duration;

use spillway_geo::DatabaseWriter;
use spillway_node::Node;
use spillway_tests::{
    Client, Cluster, OK, Page, Reply, Scripted, Setup, chat, eventually, is_open, knows, spawn,
};

const REGIONS: [&str; 3] = ["one", "two", "three"];
const COUNTRIES: [&str; 3] = ["DE", "FR", "US"];

/// Configures the node of this index with the country of each region.
fn in_countries(mut setup: Setup, index: usize) -> Setup {
    setup = setup.set(format!("node.country = {:?}", COUNTRIES[index]));
    for (region, country) in REGIONS.iter().zip(COUNTRIES) {
        setup = setup.table(format!("[[region]]\nname = {region:?}\ncountry = {country:?}"));
    }
    setup
}

async fn ask(node: &Node) -> Reply {
    Client::once(node.addresses()[0], chat("tiny", "")).await
}

fn found(node: &Node, at: &str) -> u64 {
    Page::of(node).sum("spillway_residency_refusals_total", &[("at", at)]) as u64
}

/// A route for all models with these lines.
fn route(lines: &str) -> String {
    format!("[[route]]\nname = \"all\"\n{lines}")
}

#[tokio::test]
async fn a_route_s_countries_alone_serve_it_though_others_are_nearer() {
    let replicas = [Scripted::start().await.serve(OK), Scripted::start().await.serve(OK)];
    let cluster = Cluster::new(&REGIONS);
    cluster.distance(0, 1, Duration::from_millis(2));
    cluster.distance(0, 2, Duration::from_millis(60));
    let edge = in_countries(Setup::new(), 0).table(route("countries = [\"DE\", \"US\"]"));
    let edge = cluster.start(0, edge).await;
    let near = Setup::new().replica("a", replicas[0].address);
    let near = cluster.start(1, in_countries(near, 1)).await;
    let far = Setup::new().replica("a", replicas[1].address);
    let far = cluster.start(2, in_countries(far, 2)).await;
    knows(&edge, "two").await;
    knows(&edge, "three").await;
    for _ in 0..3 {
        let reply = ask(&edge).await;
        assert_eq!((reply.status, reply.header("x-spillway-region")), (200, Some("three")));
    }
    assert_eq!((replicas[0].requests.count(), replicas[1].requests.count()), (0, 3));
    assert_eq!(replicas[1].requests.last().header("x-spillway-residency"), None);
    far.stop().await;
    eventually("it is out", || !is_open(&edge, "three")).await;
    let reply = ask(&edge).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(reply.header("retry-after").is_some());
    assert_eq!(replicas[0].requests.count(), 0);
    edge.stop().await;
    near.stop().await;
}

#[tokio::test]
async fn who_is_refused_is_told_where_the_request_may_be_and_not_where_it_came_to() {
    let replica = Scripted::start().await.serve(OK);
    for (country, lines, told) in [
        (
            "node.country = \"FR\"",
            "countries = [\"DE\"]",
            "only in the countries DE, by its route all",
        ),
        ("", "countries = [\"DE\"]", "no region that could serve it is allowed"),
        ("", "regions = [\"mars\"]", "only in the regions mars"),
    ] {
        let setup = Setup::new().set(country).table(route(lines)).replica("a", replica.address);
        let node = setup.start().await;
        let reply = ask(&node).await;
        assert_eq!((reply.status, reply.code()), (403, Some("region_not_allowed")));
        assert!(reply.text().contains(told), "{} lacks {told:?}", reply.text());
        for secret in ["local", "FR"] {
            assert!(!reply.text().contains(secret), "{} has {secret}", reply.text());
        }
        assert_eq!(found(&node, "entry"), 1);
        node.stop().await;
    }
    let setup = Setup::new().set("node.country = \"DE\"").table(route("countries = [\"DE\"]"));
    let node = setup.replica("a", replica.address).start().await;
    assert_eq!(ask(&node).await.status, 200);
    assert_eq!(replica.requests.count(), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_region_that_knows_better_refuses_and_is_not_asked_again_and_again() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["edge", "core"]);
    let lines = "[[region]]\nname = \"core\"\ncountry = \"DE\"";
    let edge = Setup::new().table(lines).table(route("countries = [\"DE\"]"));
    let edge = cluster.start(0, edge).await;
    let core = Setup::new().set("node.country = \"FR\"").replica("a", replica.address);
    let core = cluster.start(1, core).await;
    knows(&edge, "core").await;
    let reply = ask(&edge).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!((found(&core, "receiving"), replica.requests.count()), (1, 0));
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn a_region_whose_own_route_forbids_it_refuses_a_guest() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["edge", "core"]);
    let edge = cluster.start(0, Setup::new()).await;
    let core = Setup::new().table(route("regions = [\"edge\"]")).replica("a", replica.address);
    let core = cluster.start(1, core).await;
    knows(&edge, "core").await;
    assert_eq!(ask(&edge).await.status, 503);
    assert_eq!((found(&core, "receiving"), replica.requests.count()), (1, 0));
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn a_stand_in_s_route_says_where_it_may_serve() {
    let tiny = Scripted::start().await.serve(OK);
    // No process listens there any more.
    let gone = Scripted::start().await.address;
    let setup = Setup::new()
        .table("[fallback]\nhuge = [\"tiny\"]")
        .table("[[route]]\nname = \"huge\"\nmodels = [\"huge\"]")
        .table("[[route]]\nname = \"tiny\"\nmodels = [\"tiny\"]\nregions = [\"mars\"]")
        .replica("a", tiny.address)
        .replica_with("b", &format!("http://{gone}"), "models = [\"huge\"]");
    let node = setup.start().await;
    for _ in 0..10 {
        let reply = Client::once(node.addresses()[0], chat("huge", "")).await;
        assert!(matches!(reply.status, 502 | 503), "{} {}", reply.status, reply.text());
    }
    assert_eq!(tiny.requests.count(), 0);
    node.stop().await;
}

/// Regions that each tenant allows.
const TENANTS: [(&str, &str, [bool; 3]); 4] = [
    ("anywhere", "", [true, true, true]),
    ("european", "countries = [\"DE\", \"FR\"]", [true, true, false]),
    ("there", "regions = [\"three\", \"two\"]", [false, true, true]),
    ("american", "countries = [\"US\"]", [false, false, true]),
];

/// Three regions with one place each, so that requests go everywhere. Links between them are cut
/// and restored at random, while tenants of all kinds send requests to each of them.
#[tokio::test]
async fn no_request_is_served_where_it_may_not_be_whatever_is_cut_off() {
    let mut dice = fastrand::Rng::with_seed(7);
    let cluster =
        Cluster::new(&REGIONS).set("spill.reserve_percent = 0").set("spill.queue_ms = 200");
    let mut replicas = Vec::new();
    let mut nodes = Vec::new();
    for index in 0..REGIONS.len() {
        let replica = Scripted::start().await.serve(OK);
        let url = format!("http://{}", replica.address);
        let mut setup =
            in_countries(Setup::new(), index).replica_with("a", &url, "connections_max = 1");
        setup = setup.listener("auth = \"headers\"\ntrusted_proxies = [\"127.0.0.0/8\"]");
        for (tenant, lines, _) in TENANTS {
            setup = setup.table(format!("[[tenant]]\nname = {tenant:?}\n{lines}"));
        }
        nodes.push(cluster.start(index, setup).await);
        replicas.push(replica);
    }
    for (from, to) in [(0, "two"), (1, "three"), (2, "one")] {
        knows(&nodes[from], to).await;
    }
    let mut served = BTreeMap::new();
    let mut asked = 0;
    for _ in 0..40 {
        let (from, to) = (dice.usize(0..3), dice.usize(0..3));
        cluster.cut(from, to, dice.bool());
        let replies = (0..12).map(|_| {
            let (tenant, node) = (dice.usize(0..TENANTS.len()), dice.usize(0..3));
            let mut request = chat("tiny", "");
            let value = http::HeaderValue::from_static(TENANTS[tenant].0);
            request.headers_mut().insert("x-spillway-tenant", value);
            let reply = spawn(Client::once(nodes[node].addresses()[0], request));
            (tenant, reply)
        });
        for (tenant, reply) in replies.collect::<Vec<_>>() {
            let reply = reply.await.expect("a reply");
            asked += 1;
            let Some(region) = reply.header("x-spillway-region").filter(|_| reply.status == 200)
            else {
                assert!(matches!(reply.status, 403 | 502 | 503 | 504), "{}", reply.text());
                continue;
            };
            let index = REGIONS.iter().position(|name| *name == region).expect("a region");
            let (name, _, allowed) = TENANTS[tenant];
            assert!(allowed[index], "{name} in {region}");
            *served.entry((name, index)).or_insert(0) += 1;
        }
    }
    assert_eq!(asked, 480);
    for (name, _, allowed) in TENANTS {
        let count: u32 = (0..3).filter_map(|index| served.get(&(name, index))).sum();
        assert!(count >= 10, "{name} was served {count} times, in {allowed:?}: {served:?}");
    }
    for node in nodes {
        assert_eq!((found(&node, "sending"), found(&node, "receiving")), (0, 0));
        node.stop().await;
    }
}

/// A client in Germany asks a region in France: where its client is decides before everything else, whatever is nearer.
#[tokio::test]
async fn a_client_s_country_decides_which_region_serves_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = folder.path().join("country.mmdb");
    let countries = DatabaseWriter::new("Test-Country")
        .country("203.0.113.0/24", "DE")
        .country("198.51.100.0/24", "US");
    std::fs::write(&database, countries.bytes()).expect("writes");
    let replicas = [Scripted::start().await.serve(OK), Scripted::start().await.serve(OK)];
    let cluster = Cluster::new(&["one", "two"]);
    let mut nodes = Vec::new();
    for (index, replica) in replicas.iter().enumerate() {
        let rules = "[[residency]]\nclients = [\"DE\"]\ncountries = [\"DE\"]\n\
                     [[residency]]\nclients = [\"US\"]\nregions = [\"mars\"]";
        // The second node has neither database nor rules: the first one's findings travel with the
        // request.
        let mut setup = Setup::new().replica("a", replica.address);
        for (region, country) in ["one", "two"].iter().zip(["FR", "DE"]) {
            setup = setup.table(format!("[[region]]\nname = {region:?}\ncountry = {country:?}"));
        }
        setup = setup.set(format!("node.country = {:?}", ["FR", "DE"][index]));
        if index == 0 {
            let listener = "trusted_proxies = [\"127.0.0.0/8\"]";
            let database =
                format!("geo.database = {database:?}\ngeo.unknown_clients = \"no_rule\"");
            setup = setup.set(database).table(rules).listener(listener);
        }
        nodes.push(cluster.start(index, setup).await);
    }
    knows(&nodes[0], "two").await;
    let address = nodes[0].addresses()[0];
    let from = async |client: &str| {
        let mut request = chat("tiny", "");
        let value = http::HeaderValue::from_str(client).expect("a header");
        request.headers_mut().insert("x-forwarded-for", value);
        Client::once(address, request).await
    };
    for _ in 0..3 {
        let reply = from("203.0.113.7").await;
        assert_eq!((reply.status, reply.header("x-spillway-region")), (200, Some("two")));
    }
    let anywhere = from("192.0.2.1").await;
    assert_eq!((anywhere.status, anywhere.header("x-spillway-region")), (200, Some("one")));
    let refused = from("198.51.100.1").await;
    assert_eq!((refused.status, refused.code()), (403, Some("region_not_allowed")));
    let told = "only in the regions mars, by the country of its client, US";
    assert!(refused.text().contains(told), "{}", refused.text());
    assert_eq!(found(&nodes[0], "entry"), 1);
    assert_eq!((replicas[0].requests.count(), replicas[1].requests.count()), (1, 3));
    // No other region may serve it, and this one may not either.
    let two = nodes.pop().expect("a node");
    assert_eq!((found(&two, "receiving"), found(&nodes[0], "sending")), (0, 0));
    two.stop().await;
    eventually("it is out", || !is_open(&nodes[0], "two")).await;
    assert_eq!(from("203.0.113.7").await.status, 503);
    assert_eq!(replicas[0].requests.count(), 1);
    nodes.remove(0).stop().await;
}
