//! Usage of clients is counted to the token, exactly once, whatever path their requests take.

use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http::{HeaderValue, Method};
use http_body_util::{BodyExt, Empty};
use serde_json::{Value, json};
use spillway_emulator::{Emulator, Fault};
use spillway_link::{ForwardAnswer, ForwardHead, PeerRoom};
use spillway_node::Node;
use spillway_tests::{
    Client, Cluster, Reply, Scripted, Setup, chat, emulator, eventually, get, knows, post, within,
};

/// A millionth for each prompt token that is read, ten for each that is generated.
const PRICES: &str = "[[price]]\nprompt_per_million = 1\ncached_per_million = 0.5\n\
                      completion_per_million = 10\n";
/// Usage of streams is requested even if clients do not ask for it.
const ROUTE: &str = "[[route]]\nname = \"llm\"\npolicy = \"round_robin\"\ninject_usage = true\n\
                     hedge = { after_ms = 200, budget_percent = 100 }\n";

/// A node without replicas, and two regions that serve.
struct World {
    cluster: Cluster,
    emulators: [Emulator; 2],
    scripted: Scripted,
    nodes: Vec<Option<Node>>,
}

impl World {
    async fn started() -> Self {
        let emulators = [emulator(2).await, emulator(2).await];
        let cluster = Cluster::new(&["edge", "one", "two"]).agreeing();
        let scripted = Scripted::start().await;
        let mut world = Self { cluster, emulators, scripted, nodes: Vec::new() };
        for index in 0..3 {
            world.nodes.push(None);
            world.start(index).await;
        }
        for region in ["one", "two"] {
            knows(world.node(0), region).await;
        }
        world
    }

    async fn start(&mut self, index: usize) {
        let mut setup = Setup::new()
            .with(|config| config.gateway.retry.budget_min_per_second = 100)
            .set("retry.attempts_max = 3")
            .table(PRICES)
            .table(ROUTE);
        if index > 0 {
            setup = setup.emulated(&self.emulators[index - 1]);
        }
        if index == 2 {
            let url = format!("http://{}", self.scripted.address);
            setup = setup.replica_with("scripted", &url, "models = [\"scripted\"]");
        }
        self.nodes[index] = Some(self.cluster.start(index, setup).await);
    }

    fn node(&self, index: usize) -> &Node {
        self.nodes[index].as_ref().expect("a node that runs")
    }

    fn address(&self, index: usize) -> SocketAddr {
        self.node(index).addresses()[0]
    }

    /// Returns prompt, cached and generated tokens, as the engines counted them.
    fn engines(&self) -> [u64; 3] {
        let replicas = self.emulators.iter().flat_map(|emulator| emulator.replicas());
        replicas.fold([0; 3], |sum, replica| {
            let engine = replica.stats().engine;
            let counts =
                [engine.prompt_tokens, engine.prefix_cache_hits_tokens, engine.generation_tokens];
            std::array::from_fn(|at| sum[at] + counts[at])
        })
    }

    async fn usage(&self, index: usize, query: &str) -> Value {
        let address = self.node(index).admin_address().expect("an admin listener");
        let reply = Client::once(address, get(&format!("/v1/usage{query}"))).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// Asks a node for usage until the answer is as it should be.
    async fn usage_when(&self, query: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let asking = async {
            loop {
                let answer = self.usage(0, query).await;
                if is_so(&answer) {
                    return answer;
                }
            }
        };
        within("the usage", asking).await
    }

    /// Asks a node so often, with and without streams, and is always answered.
    async fn ask(&self, index: usize, count: usize) {
        let mut client = Client::http1(self.address(index)).await;
        for number in 0..count {
            let is_stream = number % 2 == 0;
            let body = json!({
                "model": "tiny", "max_tokens": 3 + number, "stream": is_stream,
                // Long enough for a cache to find it again.
                "messages": [{ "role": "user", "content": "so many words ".repeat(40) }],
            });
            let reply = client.fetch(post("/v1/chat/completions", body.to_string())).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
    }
}

fn tokens(answer: &Value) -> [u64; 3] {
    ["prompt_tokens", "cached_tokens", "completion_tokens"]
        .map(|name| answer["total"][name].as_u64().expect("a number"))
}

/// Returns what so many tokens cost, in millionths.
fn cost([prompt, cached, completion]: [u64; 3]) -> String {
    let halves = 2 * (prompt - cached) + cached + 20 * completion;
    // Six digits and a half: the amount has seven digits after the point.
    let text = format!("{}.{:07}", halves * 5 / 10_000_000, halves * 5 % 10_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Simulates a client that disconnects in the middle of a stream, after the usage of two tokens was
/// reported.
async fn leave_in_the_middle(world: &World) {
    let mut client = Client::http1(world.address(2)).await;
    let event = |generated: u64| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"x\"}}}}],\"usage\":\
             {{\"prompt_tokens\":7,\"completion_tokens\":{generated},\"total_tokens\":9}}}}\n\n"
        )
    };
    let ask = ",\"stream\":true,\"stream_options\":\
               {\"include_usage\":true,\"continuous_usage_stats\":true}";
    let (reply, wire) = tokio::join!(client.send(chat("scripted", ask)), async {
        let (mut wire, _) = world.scripted.request().await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        wire.send(format!("{head}{}{}", event(1), event(2))).await;
        wire
    });
    let mut body = reply.expect("a reply").into_body();
    let mut seen = String::new();
    while !seen.contains("\"completion_tokens\":2") {
        let frame = within("an event", body.frame()).await.expect("a frame").expect("whole");
        seen.push_str(std::str::from_utf8(frame.data_ref().expect("data")).expect("text"));
    }
    drop((client, body, wire));
}

#[tokio::test]
async fn the_usage_of_all_nodes_is_what_the_engines_counted_to_the_token() {
    let mut world = World::started().await;
    // Served at home, and forwarded.
    for index in 0..3 {
        world.ask(index, 8).await;
    }
    // Retried: one replica refuses, another one serves.
    let refuses = Fault::Status { code: 503, retry_after_s: None, probability: 1.0 };
    world.emulators[0].replica(0).set_fault(refuses).await.expect("a fault");
    world.ask(1, 8).await;
    world.ask(0, 8).await;
    world.emulators[0].replica(0).set_fault(Fault::None).await.expect("heals");
    // Hedged: one replica never answers, and the second attempt wins.
    world.emulators[1].replica(1).set_fault(Fault::Hang).await.expect("a fault");
    world.ask(2, 8).await;
    let metrics: String = (0..3).map(|index| world.node(index).metrics()).collect();
    for (what, line) in [
        ("a forwarded request", "spillway_guest_requests_total{status=\"2xx\"}"),
        ("a retry", "spillway_retries_total{cause=\"unsent\"}"),
        ("a hedge that won", "spillway_hedges_total{route=\"llm\",result=\"won\"}"),
    ] {
        assert!(metrics.contains(line), "{what} was part of it");
    }
    let engines = world.engines();
    assert!(engines.iter().all(|count| *count > 0), "{engines:?}");
    for index in 0..3 {
        let answer = world.usage(index, "").await;
        assert_eq!(answer["is_complete"], true, "{answer}");
        assert_eq!(tokens(&answer), engines, "asked of any node: {answer}");
        assert_eq!(answer["total"]["requests"], 48);
        assert_eq!(answer["total"]["cost"], cost(engines).as_str());
    }
    leave_in_the_middle(&world).await;
    let has_ended = |answer: &Value| answer["total"]["requests"] == 1;
    let answer = world.usage_when("?model=scripted", has_ended).await;
    assert_eq!(tokens(&answer), [7, 0, 2], "what the stream told until then: {answer}");
    check_restart(&mut world, engines).await;
}

/// A node that is stopped is named, and when it runs again nothing is lost.
async fn check_restart(world: &mut World, engines: [u64; 3]) {
    let whole = [engines[0] + 7, engines[1], engines[2] + 2];
    let stopped = world.nodes[2].take().expect("a node that runs");
    stopped.stop().await;
    eventually("the others know", || {
        let regions = world.node(0).gateway().routing.regions();
        regions.others.iter().any(|other| other.name.as_str() == "two" && !other.is_heard)
    })
    .await;
    let answer = world.usage(0, "").await;
    assert_eq!(answer["is_complete"], false, "{answer}");
    let nodes = answer["nodes"].as_array().expect("a list");
    let missing: Vec<&Value> = nodes.iter().filter(|node| !node["fault"].is_null()).collect();
    assert_eq!(missing.len(), 1, "{answer}");
    assert_eq!(missing[0]["name"], "n2");
    assert!(tokens(&answer)[0] < whole[0]);
    world.start(2).await;
    let answer = world.usage_when("?by=day", |answer| answer["is_complete"] == true).await;
    assert_eq!(tokens(&answer), whole, "{answer}");
    let days = answer["usage"].as_array().expect("a list");
    // Midnight may pass while this runs.
    assert!((1..=2).contains(&days.len()), "{answer}");
}

/// A budget of a dozen requests.
const BUDGET: &str = "[[tenant]]\nname = \"acme\"\nbudget_per_month = 0.0005\n";
const BY_HEADERS: &str = "auth = \"headers\"\ntrusted_proxies = [\"127.0.0.1\"]";

async fn start_with_budget(cluster: &Cluster, emulator: &Emulator, index: usize) -> Node {
    let setup = Setup::new().emulated(emulator).table(PRICES).table(BUDGET).listener(BY_HEADERS);
    cluster.start(index, setup).await
}

async fn ask_as(node: &Node, tenant: &'static str) -> Reply {
    let mut request = chat("tiny", ",\"max_tokens\":3");
    request.headers_mut().insert("x-spillway-tenant", HeaderValue::from_static(tenant));
    Client::once(node.addresses()[0], request).await
}

/// Asks as a tenant until it is refused. Returns how often it was served, and the refusal.
async fn spend_all(node: &Node, tenant: &'static str) -> (usize, Reply) {
    let asking = async {
        let mut served = 0;
        loop {
            let reply = ask_as(node, tenant).await;
            match reply.status {
                200 => served += 1,
                429 => return (served, reply),
                other => panic!("{other}: {}", reply.text()),
            }
        }
    };
    within("a refusal", asking).await
}

fn check_refusal(refusal: &Reply) {
    assert_eq!(refusal.code(), Some("budget_spent"), "{}", refusal.text());
    assert_eq!(refusal.header("x-spillway-shed-reason"), Some("budget"));
    let seconds: u64 = refusal.header("retry-after").expect("a time").parse().expect("seconds");
    assert!((1..=31 * 24 * 3_600).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn a_budget_is_spent_once_by_all_nodes_together_and_outlives_restarts() {
    let emulators = [emulator(1).await, emulator(1).await];
    let cluster = Cluster::new(&["one", "two"]).agreeing();
    let first = start_with_budget(&cluster, &emulators[0], 0).await;
    let second = start_with_budget(&cluster, &emulators[1], 1).await;
    for (node, region) in [(&first, "two"), (&second, "one")] {
        knows(node, region).await;
    }
    let (served, refusal) = spend_all(&first, "acme").await;
    assert!(served > 0, "there was a budget");
    check_refusal(&refusal);
    assert_eq!(ask_as(&first, "other").await.status, 200, "others have none");
    let (_, refusal) = spend_all(&second, "acme").await;
    check_refusal(&refusal);
    let address = first.admin_address().expect("an admin listener");
    let answer = Client::once(address, get("/v1/usage?by=tenant")).await.json();
    let budget = &answer["budgets"][0];
    assert_eq!(
        (&budget["tenant"], &budget["budget_per_month"]),
        (&"acme".into(), &"0.0005".into())
    );
    assert!(budget["refused_until"].is_string(), "{answer}");
    // The node that spent the whole budget is gone, and the other one has restarted.
    first.stop().await;
    second.stop().await;
    let second = start_with_budget(&cluster, &emulators[1], 1).await;
    check_refusal(&ask_as(&second, "acme").await);
    second.stop().await;
}

#[tokio::test]
async fn only_nodes_are_told_of_usage_whatever_path_a_client_names() {
    let emulator = emulator(1).await;
    let cluster = Cluster::new(&["one", "two"]);
    // Every path leads to a replica.
    let all = "[[route]]\nname = \"all\"\npath_prefix = \"/\"\nmodel = \"tiny\"\n";
    let node = cluster.start(0, Setup::new().emulated(&emulator).table(all)).await;
    let link = cluster.bare_link(1, 0).await;
    let days = "%7B%22since%22:%222026-11-01%22,%22until%22:%222026-11-27%22,%22by%22:%5B%5D%7D";
    let heard = "%7B%22process%22:0,%22change%22:0%7D";
    for (path, query) in [("usage", days), ("spending", heard)] {
        for (client, is_told) in [(None, true), (Some(Ipv4Addr::LOCALHOST.into()), false)] {
            let uri = format!("/.spillway/{path}?{query}").parse().expect("an address");
            let head = ForwardHead { client, ..ForwardHead::new(Method::GET, uri) };
            let body = Empty::<Bytes>::new();
            let answer = link.forward(&"n0".into(), head, body, PeerRoom::Unknown).await;
            let told = match answer.expect("an answer") {
                ForwardAnswer::Reply(reply) => {
                    let body = reply.into_body().collect().await.expect("a whole reply");
                    String::from_utf8_lossy(&body.to_bytes()).contains("\"rows\"")
                }
                ForwardAnswer::Refused(_) => false,
            };
            assert_eq!(told, is_told, "{path} for {client:?}");
        }
    }
    node.stop().await;
}
