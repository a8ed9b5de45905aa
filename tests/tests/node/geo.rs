//! Locations of clients: found by address in a database that can be replaced, counted, and checked
//! against rules.

use std::path::PathBuf;

use http::HeaderValue;
use spillway_config::Config;
use spillway_geo::DatabaseWriter;
use spillway_node::{Node, StartError};
use spillway_tests::{Client, OK, Page, Reply, Scripted, Setup, Wire, chat, eventually};
use tempfile::TempDir;

use crate::reload::{File, reloads};

const REQUEST: &str = "POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: 16\r\n\r\n{\"model\":\"tiny\"}";
/// Trusts every peer's claims about the client's address.
const BEHIND_PROXY: &str = "trusted_proxies = [\"127.0.0.0/8\"]";

/// A database in a file, and how it is replaced.
struct Database(TempDir);

impl Database {
    fn new(writer: &DatabaseWriter) -> Self {
        let database = Self(tempfile::tempdir().expect("a folder"));
        database.replace(&writer.bytes());
        database
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("city.mmdb")
    }

    /// Replaces the file as programs do that fetch databases.
    fn replace(&self, bytes: &[u8]) {
        let beside = self.0.path().join("new");
        std::fs::write(&beside, bytes).expect("writes");
        std::fs::rename(beside, self.path()).expect("renames");
    }

    fn setting(&self) -> String {
        format!("geo.database = {:?}", self.path())
    }
}

fn german() -> DatabaseWriter {
    DatabaseWriter::new("Test-City").city("203.0.113.0/24", "DE", (50.1, 8.7))
}

fn french() -> DatabaseWriter {
    DatabaseWriter::new("Test-Country").country("203.0.113.0/24", "FR")
}

fn counted(node: &Node, country: &str) -> u64 {
    let labels = [("country", country)];
    Page::of(node).sum("spillway_client_country_requests_total", &labels) as u64
}

fn geo_reloads(node: &Node, result: &str) -> u64 {
    Page::of(node).sum("spillway_geo_reloads_total", &[("result", result)]) as u64
}

/// Asks as a client at this address would through a proxy.
async fn ask_from(node: &Node, address: &str) -> Reply {
    let mut request = chat("tiny", "");
    let value = HeaderValue::from_str(address).expect("a header");
    request.headers_mut().insert("x-forwarded-for", value);
    Client::once(node.addresses()[0], request).await
}

#[tokio::test]
async fn clients_are_counted_where_they_are_by_whoever_may_say_so() {
    let replica = Scripted::start().await.serve(OK);
    let database = Database::new(&german().country("2001:db8::/32", "JP"));
    let setup = Setup::new().set(database.setting()).replica("a", replica.address);
    let node = setup.clone().listener(BEHIND_PROXY).start().await;
    for address in ["203.0.113.7", "::ffff:203.0.113.7", "2001:db8::1", "198.51.100.1"] {
        assert_eq!(ask_from(&node, address).await.status, 200);
    }
    let by = ["DE", "JP", "unknown", "FR"].map(|country| counted(&node, country));
    assert_eq!(by, [2, 1, 1, 0]);
    let built = Page::of(&node)
        .sum("spillway_geo_database_built_timestamp_seconds", &[("database", "place")]);
    assert_eq!(built, 1_700_000_000.0);
    node.stop().await;

    // Addresses are believed only from trusted proxies.
    let node = setup.clone().start().await;
    assert_eq!(ask_from(&node, "203.0.113.7").await.status, 200);
    assert_eq!((counted(&node, "DE"), counted(&node, "unknown")), (0, 1));
    node.stop().await;

    let listener = format!("proxy_protocol = \"required\"\n{BEHIND_PROXY}");
    let node = setup.listener(&listener).start().await;
    let mut wire = Wire::connect(node.addresses()[0]).await;
    wire.send("PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\r\n").await;
    wire.send(REQUEST).await;
    assert_eq!(wire.message().await.status(), 200);
    assert_eq!(counted(&node, "DE"), 1);
    node.stop().await;
}

#[tokio::test]
async fn without_a_database_nobody_is_counted_by_country() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().replica("a", replica.address).start().await;
    assert_eq!(ask_from(&node, "203.0.113.7").await.status, 200);
    let page = Page::of(&node);
    assert!(!page.samples.iter().any(|sample| sample.name.contains("country")));
    node.stop().await;
}

#[tokio::test]
async fn another_database_is_used_at_once_and_a_damaged_one_never() {
    let replica = Scripted::start().await.serve(OK);
    let database = Database::new(&german());
    let setup = Setup::new()
        .set(database.setting())
        .set("node.country = \"DE\"")
        .listener(BEHIND_PROXY)
        .table("[[residency]]\nclients = [\"FR\"]\ncountries = [\"FR\"]")
        .replica("a", replica.address);
    let node = setup.start().await;
    assert_eq!(ask_from(&node, "203.0.113.7").await.status, 200);

    database.replace(&french().bytes());
    eventually("it is read", || geo_reloads(&node, "applied") >= 1).await;
    let reply = ask_from(&node, "203.0.113.7").await;
    assert_eq!((reply.status, reply.code()), (403, Some("region_not_allowed")));
    assert_eq!((counted(&node, "DE"), counted(&node, "FR")), (1, 1));

    let whole = german().bytes();
    let asns = DatabaseWriter::new("Test-ASN").asn("203.0.113.0/24", 1).bytes();
    for (number, bytes) in [&whole[..whole.len() / 2], &asns[..], &b""[..]].into_iter().enumerate()
    {
        database.replace(bytes);
        let refused = number as u64 + 1;
        eventually("it is refused", || geo_reloads(&node, "refused") >= refused).await;
        assert_eq!(ask_from(&node, "203.0.113.7").await.status, 403, "the old one stays");
    }
    std::fs::remove_file(database.path()).expect("removes");
    eventually("it is missed", || geo_reloads(&node, "refused") >= 4).await;
    assert_eq!(ask_from(&node, "203.0.113.7").await.status, 403);

    let applied = geo_reloads(&node, "applied");
    database.replace(&whole);
    eventually("it is read", || geo_reloads(&node, "applied") > applied).await;
    assert_eq!(ask_from(&node, "203.0.113.7").await.status, 200);
    node.stop().await;
}

#[tokio::test]
async fn rules_for_clients_change_with_the_config() {
    let replica = Scripted::start().await.serve(OK);
    let database = Database::new(&german());
    let setup = Setup::new()
        .set("node.country = \"FR\"")
        .set(database.setting())
        .listener(BEHIND_PROXY)
        .replica("a", replica.address);
    let file = File::new(&setup);
    let node = file.start().await;
    assert_eq!(ask_from(&node, "203.0.113.7").await.status, 200);

    let rule = "[[residency]]\nclients = [\"DE\"]\ncountries = [\"DE\"]\n";
    file.replace(&setup.clone().table(rule).text());
    eventually("it is applied", || reloads(&node, "applied") >= 1.0).await;
    let reply = ask_from(&node, "203.0.113.7").await;
    assert_eq!((reply.status, reply.code()), (403, Some("region_not_allowed")));
    let told = "only in the countries DE, by the country of its client, DE";
    assert!(reply.text().contains(told), "{}", reply.text());
    assert!(!reply.text().contains("FR"), "where the node is: {}", reply.text());
    // It may be in Germany as well.
    let reply = ask_from(&node, "198.51.100.1").await;
    assert_eq!(reply.status, 403);
    assert!(reply.text().contains("by the unknown country of its client"), "{}", reply.text());

    let open = setup.clone().set("geo.unknown_clients = \"no_rule\"").table(rule);
    file.replace(&open.text());
    eventually("it is applied", || reloads(&node, "applied") >= 2.0).await;
    assert_eq!(ask_from(&node, "198.51.100.1").await.status, 200);
    assert_eq!(ask_from(&node, "203.0.113.7").await.status, 403);

    file.replace(&setup.text());
    eventually("it is applied", || reloads(&node, "applied") >= 3.0).await;
    assert_eq!(ask_from(&node, "203.0.113.7").await.status, 200);
    node.stop().await;
}

/// The fault with which a node refuses to start.
async fn fault(setup: &Setup) -> String {
    let file = std::path::Path::new("test.toml");
    let config = Config::parse(&setup.text(), file, []).expect("a config");
    let error = Node::start(config).await.expect_err("a fault");
    let StartError::Geo(error) = error else { return error.to_string() };
    assert!(error.position().is_some());
    error.to_string()
}

#[tokio::test]
async fn a_node_does_not_start_without_the_database_that_its_config_names() {
    let database = Database::new(&german());
    let named = Setup::new().set(database.setting());
    let whole = german().bytes();
    database.replace(&whole[..whole.len() - 9]);
    let told = fault(&named).await;
    assert!(told.starts_with("test.toml:"), "{told}");
    assert!(told.contains("city.mmdb: not a whole location database"), "{told}");
    assert!(told.contains("help: download the file again"), "{told}");
    std::fs::remove_file(database.path()).expect("removes");
    assert!(fault(&named).await.contains("can't read it"));
}

#[test]
fn rules_that_nobody_can_follow_are_refused_with_their_line() {
    let rule = "[[residency]]\nclients = [\"DE\"]\ncountries = [\"DE\"]";
    let named = "geo.database = \"city.mmdb\"";
    for (lines, table, told) in [
        ("", rule, "where clients are is unknown without a location database"),
        (named, "[[residency]]\nclients = []\ncountries = [\"DE\"]", "for clients of no country"),
        (named, "[[residency]]\nclients = [\"DE\"]", "lets every region serve"),
        (named, "[[residency]]\nclients = [\"Germany\"]", "is no code of a country"),
        ("geo.asn_database = \"asn.mmdb\"", "", "no rule goes by autonomous systems"),
    ] {
        let text = Setup::new().set(lines).table(table).text();
        let error = Config::parse(&text, std::path::Path::new("c.toml"), []);
        let error = error.map_err(crate::config::sole).expect_err(told);
        assert!(error.message.contains(told) && error.position().is_some(), "{error}");
    }
}
