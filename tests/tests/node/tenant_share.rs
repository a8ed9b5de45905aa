//! Shares of tenants: the capacity that a tenant with many requests leaves to others.

use std::time::Duration;

use spillway_node::Node;
use spillway_tests::{Reply, Setup, eventually};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::gate::Gate;
use crate::shedding::{CLAIMS, ask, of_class, with};

const CLASS: u8 = 2;

/// Way in which a request shows its tenant.
#[derive(Clone, Copy)]
enum Named {
    Tenant,
    /// By the address that a trusted proxy forwards.
    Address,
    /// Not at all: they come from a trusted proxy that names no client.
    Never,
}

/// Four replicas of two places, of which requests take turns.
struct Pool {
    named: Named,
    gates: Vec<Gate>,
    node: Node,
    clients: Vec<JoinHandle<Reply>>,
}

impl Pool {
    async fn new(room: &str) -> Self {
        Self::named_by(Named::Tenant, room).await
    }

    async fn named_by(named: Named, room: &str) -> Self {
        let mut gates = Vec::new();
        let mut setup = Setup::new().listener(match named {
            Named::Tenant => CLAIMS,
            Named::Address | Named::Never => "trusted_proxies = [\"127.0.0.0/8\"]",
        });
        for name in ["a", "b", "c", "d"] {
            let gate = Gate::start().await;
            setup = setup.replica_with(name, &gate.url(), "connections_max = 2");
            gates.push(gate);
        }
        if !room.is_empty() {
            setup = setup.set(room);
        }
        let route = "[[route]]\nname = \"llm\"\npolicy = \"round_robin\"\n";
        let node = setup.table(route).start().await;
        Self { named, gates, node, clients: Vec::new() }
    }

    fn come(&mut self, tenant: &str) {
        let mut request = of_class(CLASS, tenant);
        let headers = request.headers_mut();
        headers.remove("x-spillway-tenant");
        headers.remove("x-spillway-priority");
        let address = if tenant == "calm" { "10.0.0.1" } else { "10.0.0.2" };
        let request = match self.named {
            Named::Tenant => with(of_class(CLASS, tenant), "x-spillway-tenant", tenant),
            Named::Address => with(request, "x-forwarded-for", address),
            Named::Never => request,
        };
        self.clients.push(ask(&self.node, request));
    }

    /// A request comes, and gets a place.
    async fn place(&mut self, tenant: &str) {
        let before = self.held(tenant);
        self.come(tenant);
        eventually("it has a place", || self.held(tenant) == before + 1).await;
    }

    fn held(&self, tenant: &str) -> usize {
        self.gates.iter().map(|gate| gate.held(tenant)).sum()
    }

    fn free(&self) -> usize {
        8 - self.held("")
    }

    /// Creates a tenant that was active lately and has no place, and one that has more than its
    /// share: five of eight places, and one more now that the first is known.
    async fn crowded(room: &str) -> Self {
        Self::crowded_by(Named::Tenant, room).await
    }

    async fn crowded_by(named: Named, room: &str) -> Self {
        let mut pool = Self::named_by(named, room).await;
        pool.place("calm").await;
        let gate = pool.gates.iter().find(|gate| gate.held("calm") == 1);
        gate.expect("it is at one").release("calm", 1);
        eventually("it is served", || pool.held("calm") == 0).await;
        for _ in 0..5 {
            pool.place("wild").await;
        }
        // wait: who has much is found out ten times a second, by the next request
        sleep(Duration::from_millis(150)).await;
        pool.place("wild").await;
        pool
    }
}

#[tokio::test]
async fn who_has_much_waits_while_a_place_is_left_for_others() {
    let mut pool = Pool::crowded("").await;
    for _ in 0..6 {
        pool.come("wild");
    }
    let waiting = |pool: &Pool| pool.node.gateway().routing.waiting.count() + pool.held("wild");
    eventually("all have come", || waiting(&pool) == 12).await;
    eventually("it has all but what is left", || pool.free() == 1).await;
    assert_eq!(pool.gates[3].held(""), 1, "that is the last replica's");
    pool.place("calm").await;
    assert_eq!(pool.gates[3].held("calm"), 1, "nobody who waits goes before it");
    assert_eq!(pool.free(), 0);
    // Places that become free elsewhere go to waiting requests.
    let before = pool.held("wild");
    pool.gates[0].release("wild", 1);
    eventually("the next has its place", || pool.gates[0].held("wild") == 2).await;
    assert_eq!(pool.held("wild"), before);
}

#[tokio::test]
async fn clients_without_a_name_are_told_apart_by_their_addresses() {
    for (named, left) in [(Named::Address, 1), (Named::Never, 0)] {
        let mut pool = Pool::crowded_by(named, "").await;
        for _ in 0..6 {
            pool.come("wild");
        }
        let all =
            |pool: &Pool| pool.node.gateway().routing.waiting.count() + pool.held("wild") == 12;
        eventually("all have come", || all(&pool)).await;
        eventually("it has all but what is left", || pool.free() == left).await;
        if left > 0 {
            pool.place("calm").await;
        }
    }
}

#[tokio::test]
async fn a_burst_leaves_places_to_who_was_there_before() {
    let mut pool = Pool::new("").await;
    pool.place("calm").await;
    let gate = pool.gates.iter().find(|gate| gate.held("calm") == 1);
    gate.expect("it is at one").release("calm", 1);
    eventually("it is served", || pool.held("calm") == 0).await;
    for _ in 0..20 {
        pool.come("wild");
    }
    let waiting = |pool: &Pool| pool.node.gateway().routing.waiting.count() + pool.held("wild");
    eventually("all have come", || waiting(&pool) == 20).await;
    // Four of eight are its part, of whichever replica.
    assert!(pool.free() >= 1, "{} have places", pool.held("wild"));
    pool.place("calm").await;
    assert_eq!(pool.gates[3].held("calm"), 1);
}

#[tokio::test]
async fn nothing_is_left_where_the_operator_says_so() {
    let mut pool = Pool::crowded("spill.tenant_room_percent = 0").await;
    for _ in 0..2 {
        pool.place("wild").await;
    }
    assert_eq!(pool.free(), 0);
}

#[tokio::test]
async fn alone_a_tenant_has_all_places() {
    let mut pool = Pool::new("").await;
    for number in 0..8 {
        pool.place("wild").await;
        if number == 5 {
            // wait: who has much is found out ten times a second
            sleep(Duration::from_millis(150)).await;
        }
    }
    assert_eq!(pool.free(), 0);
}
