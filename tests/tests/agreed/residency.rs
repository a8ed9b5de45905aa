//! Regions where requests may be served, as operators change them while nodes run: by tenants and
//! routes, and by the countries that nodes report for their regions.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use spillway_cluster_state::{Command, Expect, Item, Region, ResidencyRule, Route, Tenant};
use spillway_node::Node;
use spillway_tests::{
    Client, Cluster, OK, Page, Reply, Scripted, Serving, Setup, chat, eventually, full, knows,
    message, spawn,
};
use spillway_types::Residency;

use crate::world::{order, state};

const REGIONS: [&str; 3] = ["one", "three", "two"];
const COUNTRIES: [&str; 3] = ["DE", "US", "FR"];
const TENANTS: [&str; 3] = ["acme", "beta", "gamma"];

/// A node for each region, each with one place, in a country of its own. None declares the
/// countries of the others.
struct Trial {
    cluster: Cluster,
    replicas: Vec<Serving>,
    nodes: Vec<Node>,
}

impl Trial {
    async fn started() -> Self {
        let cluster = Cluster::new(&REGIONS).agreeing();
        let cluster = cluster.set("spill.reserve_percent = 0").set("spill.queue_ms = 200");
        let mut trial = Self { cluster, replicas: Vec::new(), nodes: Vec::new() };
        for (index, country) in COUNTRIES.iter().enumerate() {
            let replica = Scripted::start().await.serve(OK);
            let url = format!("http://{}", replica.address);
            let setup = Setup::new()
                .set(format!("node.country = {country:?}"))
                .listener("auth = \"headers\"\ntrusted_proxies = [\"127.0.0.0/8\"]")
                .replica_with("a", &url, "connections_max = 1");
            trial.nodes.push(trial.cluster.start(index, setup).await);
            trial.replicas.push(replica);
        }
        trial.all_know_all().await;
        trial
    }

    /// Each node can reach each region, and knows where it is.
    async fn all_know_all(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            for (other, region) in REGIONS.iter().enumerate().filter(|(other, _)| *other != index) {
                knows(node, region).await;
                let is_known = || country_of(node, region) == Some(COUNTRIES[other].to_owned());
                eventually("the country is known", is_known).await;
            }
        }
    }

    async fn stop(self) {
        for node in self.nodes {
            node.stop().await;
        }
    }
}

#[tokio::test]
async fn until_countries_are_known_a_client_is_asked_to_come_again() {
    let cluster = Cluster::new(&REGIONS).agreeing();
    let replica = Scripted::start().await.serve(OK);
    let setup = |index: usize| {
        let country = format!("node.country = {:?}", COUNTRIES[index]);
        Setup::new().set(country).replica("a", replica.address)
    };
    let bound = "[[route]]\nname = \"bound\"\ncountries = [\"FR\"]";
    let asked = cluster.start(0, setup(0).table(bound)).await;
    let refused = async || {
        let reply = Client::once(asked.addresses()[0], chat("tiny", "")).await;
        if reply.status == 503 {
            assert_eq!(reply.header("retry-after"), Some("1"), "{}", reply.text());
        } else {
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
        reply.status == 503
    };
    assert!(refused().await, "the cluster is yet to be formed");
    let others = [cluster.start(1, setup(1)).await, cluster.start(2, setup(2)).await];
    while refused().await {
        assert_ne!(own_country(&asked), None);
    }
    asked.stop().await;
    for node in others {
        node.stop().await;
    }
}

/// Returns the country in which a node believes another region to be.
fn country_of(node: &Node, region: &str) -> Option<String> {
    let regions = node.gateway().routing.regions();
    let other = regions.others.iter().find(|other| other.name.as_str() == region)?;
    other.country.map(|country| country.to_string())
}

fn own_country(node: &Node) -> Option<String> {
    node.gateway().routing.regions().own_country.map(|country| country.to_string())
}

/// Returns the residency of a tenant, as a node applies it.
fn of_tenant(node: &Node, tenant: &str) -> Residency {
    node.gateway().clients.authenticator.table().terms(tenant).residency
}

fn of_route(node: &Node) -> Residency {
    node.gateway().routing.view().residency_of(&"default".into()).cloned().unwrap_or_default()
}

async fn ask(node: &Node, tenant: &'static str) -> Reply {
    let mut request = chat("tiny", "");
    let value = http::HeaderValue::from_static(tenant);
    request.headers_mut().insert("x-spillway-tenant", value);
    Client::once(node.addresses()[0], request).await
}

/// A record over the admin API of a node.
async fn put(node: &Node, path: &str, record: String) -> Reply {
    let address = node.admin_address().expect("an admin API");
    let request = message(Method::PUT, path, "application/json", full(record));
    Client::once(address, request).await
}

fn refusals(node: &Node, at: &str) -> u64 {
    Page::of(node).sum("spillway_residency_refusals_total", &[("at", at)]) as u64
}

#[tokio::test]
async fn a_region_s_country_reaches_all_nodes_and_two_countries_are_none() {
    let trial = Trial::started().await;
    let known = state(&trial.nodes[0]);
    let country = |name: &str| known.records().regions.get(&name.into()).unwrap().country.clone();
    assert_eq!(REGIONS.map(country), COUNTRIES.map(str::to_owned));
    let rule = |codes: &str| format!("{{\"countries\": [{codes}]}}");
    let done = put(&trial.nodes[0], "/v1/tenants/acme", rule("\"FR\"")).await;
    assert_eq!(done.status, 200, "{}", done.text());
    for node in &trial.nodes {
        eventually("the rule is known", || !of_tenant(node, "acme").is_anywhere()).await;
    }
    for node in &trial.nodes {
        let reply = ask(node, "acme").await;
        assert_eq!((reply.status, reply.header("x-spillway-region")), (200, Some("two")));
    }

    // An operator sets another country for the region than its own node does. The region then
    // serves no request that has to stay in either country.
    let region = Region { country: "IT".to_owned(), ..Region::default() };
    let item = Item::Region("two".into(), region);
    order(&trial.nodes[0], Command::Put { item, expect: Expect::Any }).await;
    let in_two = &trial.nodes[2];
    eventually("it contradicts", || own_country(in_two).is_none()).await;
    eventually("it is heard", || country_of(&trial.nodes[0], "two") == Some("IT".into())).await;
    let served = trial.replicas[2].requests.count();
    for codes in ["\"FR\"", "\"IT\""] {
        let done = put(&trial.nodes[1], "/v1/tenants/acme", rule(codes)).await;
        assert_eq!(done.status, 200, "{}", done.text());
        let country = codes.trim_matches('"').parse().expect("a country");
        let wanted = Residency::new([], [country]);
        for node in &trial.nodes {
            eventually("the rule is known", || of_tenant(node, "acme") == wanted).await;
        }
        for node in &trial.nodes {
            let reply = ask(node, "acme").await;
            assert!(matches!(reply.status, 403 | 503), "{codes} {}", reply.text());
        }
    }
    assert_eq!(trial.replicas[2].requests.count(), served);
    // The first order is reversed: the region's country is again the one that its node reports.
    let item = Item::Region("two".into(), Region::default());
    order(&trial.nodes[0], Command::Put { item, expect: Expect::Any }).await;
    trial.all_know_all().await;
    eventually("it agrees", || own_country(&trial.nodes[2]) == Some("FR".into())).await;
    trial.stop().await;
}

#[tokio::test]
async fn what_a_route_and_a_tenant_allow_changes_while_nodes_serve() {
    let trial = Trial::started().await;
    let [one, three, _] = &trial.nodes[..] else { unreachable!("three nodes") };
    for tenant in TENANTS {
        assert_eq!(ask(one, tenant).await.header("x-spillway-region"), Some("one"));
    }
    let in_countries = |codes: &[&str]| ResidencyRule {
        countries: codes.iter().map(|code| code.parse().expect("a country")).collect(),
        ..ResidencyRule::default()
    };
    // The route allows Germany and France, the tenant France and the United States: both hold.
    let residency = in_countries(&["DE", "FR"]);
    let item = Item::Route("default".into(), Route { residency, ..Route::default() });
    order(one, Command::Put { item, expect: Expect::Any }).await;
    let residency = in_countries(&["FR", "US"]);
    let item = Item::Tenant("acme".into(), Tenant { residency, ..Tenant::default() });
    order(three, Command::Put { item, expect: Expect::Any }).await;
    for node in &trial.nodes {
        let both = || !of_tenant(node, "acme").is_anywhere() && !of_route(node).is_anywhere();
        eventually("both rules are known", both).await;
    }
    for node in &trial.nodes {
        let reply = ask(node, "acme").await;
        assert_eq!((reply.status, reply.header("x-spillway-region")), (200, Some("two")));
        let reply = ask(node, "beta").await;
        assert!(reply.status == 200 && reply.header("x-spillway-region") != Some("three"));
    }
    // Taken back, at all nodes.
    for path in ["/v1/tenants/acme", "/v1/routes/default"] {
        assert_eq!(put(one, path, "{}".to_owned()).await.status, 200);
    }
    for node in &trial.nodes {
        let both = || of_tenant(node, "acme").is_anywhere() && of_route(node).is_anywhere();
        eventually("none is known", both).await;
    }
    assert_eq!(ask(three, "acme").await.header("x-spillway-region"), Some("three"));
    let refused: u64 = trial.nodes.iter().map(|node| refusals(node, "receiving")).sum();
    assert_eq!(refused, 0, "who sent knew as much as who received");
    trial.stop().await;
}

/// Returns the rules that a node applies to a tenant's requests.
fn rules(node: &Node, tenant: &str) -> [Residency; 2] {
    [of_tenant(node, tenant), of_route(node)]
}

fn all_allow(rules: &[Residency; 2], index: usize) -> bool {
    let country = COUNTRIES[index].parse().ok();
    rules.iter().all(|rule| rule.may_serve(REGIONS[index], country))
}

/// A rule that was never there before: one of its regions is no region.
fn any_rule(dice: &mut fastrand::Rng, least: usize, serial: usize) -> String {
    let chosen = |dice: &mut fastrand::Rng, names: &[&str; 3]| {
        let count = dice.usize(least..=3);
        let names = dice.choose_multiple(names, count);
        names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>()
    };
    let mut regions = chosen(dice, &REGIONS);
    regions.push(format!("\"mark-{serial}\""));
    let countries = if dice.u8(0..3) == 0 { chosen(dice, &COUNTRIES) } else { Vec::new() };
    format!("{{\"regions\": [{}], \"countries\": [{}]}}", regions.join(","), countries.join(","))
}

/// Links between regions are cut and restored at random, and operators change, at random and over
/// any node, where tenants and all requests may be served. The node that received a request and the
/// one that served it are each checked if their rules stayed the same during the request: those
/// rules must allow the place. Every rule is unique, so a rule that was changed and restored is not
/// taken for one that stayed.
#[tokio::test]
async fn no_rule_that_is_in_effect_at_both_ends_is_broken_whatever_is_cut_off() {
    let mut dice = fastrand::Rng::with_seed(11);
    let trial = Trial::started().await;
    let (mut judged, mut abroad, mut changes) = (BTreeMap::new(), 0, Vec::new());
    let mut seen = BTreeSet::new();
    for round in 0..120 {
        if round % 4 == 0 {
            let (from, to) = (dice.usize(0..3), dice.usize(0..3));
            trial.cluster.cut(from, to, dice.u8(0..5) == 0);
        }
        if round % 3 == 0 {
            let admin = trial.nodes[dice.usize(0..3)].admin_address().expect("an admin API");
            // Seldom, and mostly wide: or next to nothing could be served.
            let (path, least) = match dice.usize(0..8) {
                0 => ("/v1/routes/default".to_owned(), 2),
                tenant => (format!("/v1/tenants/{}", TENANTS[tenant % TENANTS.len()]), 1),
            };
            let rule = full(any_rule(&mut dice, least, round));
            let request = message(Method::PUT, &path, "application/json", rule);
            // It may wait for a majority that is not there.
            changes.push(spawn(Client::once(admin, request)));
        }
        let asked = (0..9).map(|_| {
            let (tenant, node) = (TENANTS[dice.usize(0..3)], dice.usize(0..3));
            let address = trial.nodes[node].addresses()[0];
            let mut request = chat("tiny", "");
            let value = http::HeaderValue::from_static(tenant);
            request.headers_mut().insert("x-spillway-tenant", value);
            let before: Vec<_> = trial.nodes.iter().map(|node| rules(node, tenant)).collect();
            (tenant, node, before, spawn(Client::once(address, request)))
        });
        for (tenant, asked, before, reply) in asked.collect::<Vec<_>>() {
            let reply = reply.await.expect("a reply");
            let Some(region) = reply.header("x-spillway-region").filter(|_| reply.status == 200)
            else {
                assert!(matches!(reply.status, 403 | 502 | 503 | 504), "{}", reply.text());
                continue;
            };
            let serving = REGIONS.iter().position(|name| *name == region).expect("a region");
            for end in [asked, serving] {
                if before[end] == rules(&trial.nodes[end], tenant) {
                    let is_allowed = all_allow(&before[end], serving);
                    assert!(is_allowed, "round {round}: {tenant} in {region}: {:?}", before[end]);
                    *judged.entry(tenant).or_insert(0) += 1;
                    seen.insert(format!("{:?}", before[end]));
                }
            }
            abroad += u32::from(asked != serving);
        }
    }
    for (from, to) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        trial.cluster.cut(from, to, false);
    }
    let mut changed = 0;
    for change in changes {
        changed += u32::from(change.await.expect("an answer").status == 200);
    }
    let seen = seen.len();
    println!("{judged:?} judged by {seen} rules, {abroad} served elsewhere, {changed} changes");
    assert!(TENANTS.iter().all(|tenant| judged.get(tenant).is_some_and(|count| *count >= 20)));
    assert!(abroad >= 20 && seen >= 10, "{abroad} elsewhere, {seen} rules");
    for tenant in TENANTS {
        let same = || {
            let all: Vec<_> = trial.nodes.iter().map(|node| rules(node, tenant)).collect();
            all.windows(2).all(|two| two[0] == two[1])
        };
        eventually("all go by the same rules", same).await;
    }
    trial.stop().await;
}

#[tokio::test]
async fn what_waits_is_not_served_where_its_tenant_has_become_forbidden() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let cluster = Cluster::new(&["one"]).agreeing().set("spill.queue_ms = 30000");
    let setup = Setup::new()
        .listener("auth = \"headers\"\ntrusted_proxies = [\"127.0.0.0/8\"]")
        .replica_with("a", &url, "connections_max = 1");
    let node = cluster.start(0, setup).await;
    let asked = |tenant| {
        let mut request = chat("tiny", "");
        request.headers_mut().insert("x-spillway-tenant", http::HeaderValue::from_static(tenant));
        spawn(Client::once(node.addresses()[0], request))
    };
    eventually("the cluster is formed", || state(&node).cluster().is_some()).await;
    let first = asked("beta");
    let (mut wire, _) = replica.request().await;
    let (forbidden, allowed) = (asked("acme"), asked("gamma"));
    eventually("both wait", || node.gateway().routing.waiting.count() == 2).await;
    let regions = ["elsewhere".into()].into();
    let residency = ResidencyRule { regions, ..ResidencyRule::default() };
    let item = Item::Tenant("acme".into(), Tenant { residency, ..Tenant::default() });
    order(&node, Command::Put { item, expect: Expect::Any }).await;
    eventually("the rule is known", || !of_tenant(&node, "acme").is_anywhere()).await;
    // The connection closes, since later requests are served on connections of their own.
    wire.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").await;
    let replica = replica.serve(OK);
    assert_eq!(first.await.expect("a reply").status, 200);
    let refused = forbidden.await.expect("a reply");
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("region_not_allowed"), "{}", refused.text());
    assert_eq!(allowed.await.expect("a reply").status, 200);
    assert_eq!(replica.requests.count(), 1, "nothing of the forbidden one was sent");
    node.stop().await;
}
