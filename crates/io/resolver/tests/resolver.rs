//! Tests of the resolver against a real DNS server and a real hosts file.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use spillway_resolver::{ConnectError, HostPort, LookupError, NameServers, Resolver, SystemFiles};
use spillway_testkit::{DnsServer, Mood, eventually};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

struct World {
    server: DnsServer,
    folder: TempDir,
    resolver: Resolver,
    tasks: TaskTracker,
    stop: DropGuard,
}

impl World {
    async fn start() -> Self {
        let server = DnsServer::start().await;
        let folder = tempfile::tempdir().unwrap();
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let hosts = folder.path().join("hosts");
        fs::write(&hosts, "").unwrap();
        let servers = NameServers::Fixed(vec![server.address]);
        let resolver = Resolver::start(SystemFiles { hosts, servers }, &tasks, &stop);
        Self { server, folder, resolver, tasks, stop: stop.drop_guard() }
    }

    fn hosts(&self, text: &str) {
        fs::write(self.folder.path().join("hosts"), text).unwrap();
    }
}

fn ips(addresses: &[&str]) -> Vec<IpAddr> {
    addresses.iter().map(|address| address.parse().unwrap()).collect()
}

async fn until(endpoint: &HostPort, addresses: &[&str]) {
    let expected = ips(addresses);
    eventually("the addresses", || endpoint.host().addresses() == expected).await;
}

#[tokio::test]
async fn a_name_has_the_addresses_of_both_families_for_the_time_of_its_ttl() {
    let world = World::start().await;
    world.server.addresses("gpu_a.test.", 1, &["10.0.0.1", "10.0.0.2"]);
    world.server.addresses("gpu_a.test.", 1, &["fd00::1"]);
    let endpoint = world.resolver.endpoint("gpu_a.test", 80);
    until(&endpoint, &["fd00::1", "10.0.0.1", "10.0.0.2"]).await;
    let version = world.resolver.version();
    world.server.addresses("gpu_a.test.", 1, &["10.0.0.3"]);
    until(&endpoint, &["fd00::1", "10.0.0.3"]).await;
    assert_ne!(world.resolver.version(), version);
    assert_eq!(endpoint.host().error(), None);
}

#[tokio::test]
async fn a_server_that_never_answers_for_one_family_hides_the_other_for_half_a_second_only() {
    let world = World::start().await;
    world.server.mood(Mood::SilentOnIpv6);
    world.server.addresses("gpu.test.", 30, &["10.0.0.1"]);
    let endpoint = world.resolver.endpoint("gpu.test", 80);
    let asked = Instant::now();
    endpoint.host().ready().await;
    assert_eq!(endpoint.host().addresses(), ips(&["10.0.0.1"]));
    assert_eq!(endpoint.host().error(), None);
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn one_cache_serves_all_who_use_a_name() {
    let world = World::start().await;
    world.server.addresses("gpu.test.", 30, &["10.0.0.1"]);
    let first = world.resolver.endpoint("gpu.test", 80);
    first.host().ready().await;
    for port in 1..100 {
        let again = world.resolver.endpoint("GPU.test", port);
        assert_eq!(again.host().addresses(), ips(&["10.0.0.1"]));
    }
    assert_eq!(world.server.questions(), 2, "one for each family");
}

/// Whatever a name resolves to: its owner may change that after a replica was registered.
#[tokio::test]
async fn no_connection_goes_to_the_own_admin_listener_or_a_link_local_address() {
    let world = World::start().await;
    let (admin, other) = (
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
    );
    let [admin, other_address] = [&admin, &other].map(|it| it.local_addr().unwrap());
    world.resolver.forbid(vec![admin]);
    world.server.addresses("gpu.test.", 30, &["127.0.0.1"]);
    world.server.addresses("cloud.test.", 30, &["169.254.169.254"]);
    let at = async |host: &str, port: u16| {
        let endpoint = world.resolver.endpoint(host, port);
        endpoint.host().ready().await;
        endpoint.connect().await.map(drop)
    };
    for (host, port) in
        [("gpu.test", admin.port()), ("127.0.0.1", admin.port()), ("cloud.test", 80)]
    {
        let refused = at(host, port).await.unwrap_err();
        assert!(refused.to_string().contains("admin listener"), "{host}: {refused}");
    }
    at("gpu.test", other_address.port()).await.unwrap();
}

#[tokio::test]
async fn an_outage_keeps_the_addresses_and_shows_why() {
    let world = World::start().await;
    world.server.addresses("gpu.test.", 1, &["10.0.0.1"]);
    let endpoint = world.resolver.endpoint("gpu.test", 80);
    until(&endpoint, &["10.0.0.1"]).await;
    world.server.mood(Mood::Failing);
    eventually("a failure", || matches!(endpoint.host().error(), Some(LookupError::NoAnswer(_))))
        .await;
    assert_eq!(endpoint.host().addresses(), ips(&["10.0.0.1"]));
    world.server.addresses("gpu.test.", 1, &["10.0.0.2"]);
    world.server.mood(Mood::Well);
    until(&endpoint, &["10.0.0.2"]).await;
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_told_from_servers_that_are_silent() {
    let world = World::start().await;
    let endpoint = world.resolver.endpoint("none.test", 80);
    endpoint.host().ready().await;
    assert!(matches!(endpoint.host().error(), Some(LookupError::NotFound(_))));
    let failed = endpoint.connect().await.unwrap_err();
    assert!(matches!(failed, ConnectError::Name(LookupError::NotFound(_))), "{failed}");

    world.server.mood(Mood::Silent);
    let endpoint = world.resolver.endpoint("silent.test", 80);
    let failed = endpoint.connect().await.unwrap_err();
    assert!(matches!(failed, ConnectError::Name(LookupError::Pending)), "{failed}");
    endpoint.host().ready().await;
    assert!(matches!(endpoint.host().error(), Some(LookupError::NoAnswer(_))));
}

#[tokio::test]
async fn the_hosts_file_is_read_again_when_it_changes() {
    let world = World::start().await;
    world.server.addresses("gpu.test.", 30, &["10.0.0.9"]);
    world.hosts("10.0.0.1 gpu.test\n");
    let stop = CancellationToken::new();
    let hosts = world.folder.path().join("hosts");
    let servers = NameServers::Fixed(vec![world.server.address]);
    let resolver = Resolver::start(SystemFiles { hosts, servers }, &world.tasks, &stop);
    let endpoint = resolver.endpoint("gpu.test", 80);
    assert_eq!(endpoint.host().addresses(), ips(&["10.0.0.1"]), "at once");
    assert_eq!(world.server.questions(), 0);
    world.hosts("10.0.0.2 gpu.test\n");
    until(&endpoint, &["10.0.0.2"]).await;
    world.hosts("# none\n");
    until(&endpoint, &["10.0.0.9"]).await;
    world.hosts("10.0.0.3 gpu.test # it outweighs DNS\n");
    until(&endpoint, &["10.0.0.3"]).await;
}

#[tokio::test]
async fn a_failed_connection_has_the_name_looked_up_again_but_not_all_the_time() {
    let world = World::start().await;
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    world.server.addresses("gpu.test.", 30, &["127.0.0.1"]);
    let endpoint = world.resolver.endpoint("gpu.test", listener.local_addr().unwrap().port());
    until(&endpoint, &["127.0.0.1"]).await;
    world.server.addresses("gpu.test.", 30, &["127.0.0.2"]);
    assert!(endpoint.connect().await.is_err(), "no server is there");
    let moved = Instant::now();
    until(&endpoint, &["127.0.0.2"]).await;
    assert!(moved.elapsed() < Duration::from_secs(20), "the TTL is far longer");
    let (_tcp, address) = endpoint.connect().await.unwrap();
    assert_eq!(address.ip(), ips(&["127.0.0.2"])[0]);

    drop(listener);
    let asked = world.server.questions();
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(1500) {
        assert!(endpoint.connect().await.is_err());
        tokio::task::yield_now().await;
    }
    // Two questions a look-up, and at most one look-up a second.
    let limit = 2 * (since.elapsed().as_secs() as usize + 2);
    assert!(world.server.questions() - asked <= limit);
}

#[tokio::test]
async fn a_connection_shows_that_its_address_was_removed() {
    let world = World::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.server.addresses("gpu.test.", 1, &["127.0.0.1"]);
    let endpoint = world.resolver.endpoint("gpu.test", listener.local_addr().unwrap().port());
    endpoint.host().ready().await;
    let (_tcp, address) = endpoint.connect().await.unwrap();
    world.server.addresses("gpu.test.", 1, &["127.0.0.1", "127.0.0.2"]);
    until(&endpoint, &["127.0.0.1", "127.0.0.2"]).await;
    assert!(address.is_current(), "another address is no reason to leave");
    world.server.addresses("gpu.test.", 1, &["127.0.0.2"]);
    timeout(Duration::from_secs(20), address.removed()).await.unwrap();
    assert!(!address.is_current());
}

#[tokio::test]
async fn the_next_connection_begins_where_the_last_one_worked() {
    let world = World::start().await;
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    world.server.addresses("gpu.test.", 30, &["127.0.0.1", "127.0.0.2"]);
    let endpoint = world.resolver.endpoint("gpu.test", listener.local_addr().unwrap().port());
    endpoint.host().ready().await;
    for _ in 0..2 {
        let (_tcp, address) = endpoint.connect().await.unwrap();
        assert_eq!(address.ip(), ips(&["127.0.0.2"])[0]);
    }
    // A server that accepts and then serves nothing is not the first choice any more.
    let other = TcpListener::bind(("127.0.0.1", endpoint.port())).await.unwrap();
    let (_tcp, address) = endpoint.connect().await.unwrap();
    assert_eq!(address.ip(), ips(&["127.0.0.2"])[0]);
    endpoint.avoid(address.ip());
    let (_tcp, address) = endpoint.connect().await.unwrap();
    assert_eq!(address.ip(), ips(&["127.0.0.1"])[0]);
    drop((listener, other));
}

#[tokio::test]
async fn names_that_no_server_answers_hold_up_neither_others_nor_the_end() {
    let world = World::start().await;
    world.server.mood(Mood::Silent);
    let silent: Vec<HostPort> =
        (0..600).map(|n| world.resolver.endpoint(&format!("silent-{n}.test"), 80)).collect();
    eventually("some questions", || world.server.questions() > 100).await;
    // They wait in the background, and addresses and names in the hosts file need no server.
    assert_eq!(world.resolver.endpoint("127.0.0.1", 80).addresses().len(), 1);
    world.hosts("10.0.0.1 gpu.test silent-599.test\n");
    let endpoint = world.resolver.endpoint("gpu.test", 80);
    until(&endpoint, &["10.0.0.1"]).await;
    until(&silent[599], &["10.0.0.1"]).await;
    assert!(silent[0].connect().await.is_err());

    let ended = Instant::now();
    drop(world.stop);
    world.tasks.close();
    timeout(Duration::from_secs(20), world.tasks.wait()).await.unwrap();
    assert!(ended.elapsed() < Duration::from_secs(4), "a look-up takes longer");
}
