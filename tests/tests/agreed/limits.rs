//! Limits that an operator sets hold in all regions together.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::HeaderValue;
use spillway_cluster_state::{Item, LEASE_MS, Limit, LimitScope};
use spillway_node::Node;
use spillway_rate_limit::{LimitKind, QuotaAsk, Scope, Units};
use spillway_tests::{Client, PATIENCE, Reply, chat, eventually, post};

use crate::join::{Growing, make_token};
use crate::world::{REGIONS, TOKENS, World, ask, put, remove, state};

fn limit(limit: Limit) -> Item {
    Item::Limit(LimitScope::Global, limit)
}

/// Returns how much of a limit one node holds.
fn held(node: &Node, kind: LimitKind) -> u64 {
    let usage = node.gateway().clients.quotas.usage(&Scope::Global, Instant::now());
    usage.unwrap_or_default().held[kind]
}

/// Returns how much of a limit all running nodes hold together.
fn held_by_all(world: &World, kind: LimitKind) -> u64 {
    world.running().map(|node| held(node, kind)).sum()
}

fn floor(node: &Node, name: &str) -> Units {
    let state = state(node);
    state.shares().pool(&Scope::Global).map(|pool| pool.floor(&name.into())).unwrap_or_default()
}

async fn is_divided(world: &World, kind: LimitKind, whole: u64) {
    eventually("the whole limit is divided", || {
        let now = Instant::now();
        let is_known = |node: &Node| {
            let quotas = &node.gateway().clients.quotas;
            quotas.usage(&Scope::Global, now).is_some() && !quotas.is_open(&Scope::Global, now)
        };
        world.running().all(is_known) && held_by_all(world, kind) == whole
    })
    .await;
}

/// Asks a node again and again until it has refused `refusals` times in a row; the replies that
/// were no refusal.
async fn use_up(node: &Node, refusals: usize) -> (usize, Reply) {
    let (mut admitted, mut refused) = (0, 0);
    loop {
        let reply = ask(node).await;
        match reply.status {
            200 => (admitted, refused) = (admitted + 1, 0),
            429 => refused += 1,
            other => panic!("{other}: {}", reply.text()),
        }
        if refused == refusals {
            return (admitted, reply);
        }
    }
}

#[tokio::test]
async fn a_limit_of_tokens_is_spent_once_in_all_regions_together() {
    let world = World::started(&REGIONS).await;
    let node = |index: usize| world.node(index);
    let whole = 60 * TOKENS;
    put(node(0), limit(Limit { tokens_per_min: Some(whole), ..Limit::default() })).await;
    is_divided(&world, LimitKind::TokenRate, whole).await;
    let mut admitted = 0;
    // Each in turn takes as much as it can get.
    for index in 0..REGIONS.len() {
        let by = Instant::now() + Duration::from_secs(9);
        while Instant::now() < by && held(node(index), LimitKind::TokenRate) > 0 {
            let (more, refusal) = use_up(node(index), 20).await;
            admitted += more;
            assert_eq!(refusal.header("x-spillway-shed-reason"), Some("token_rate"));
            let seconds: u64 = refusal.header("retry-after").unwrap().parse().unwrap();
            // A window and a step of it, rounded up.
            assert!((1..=62).contains(&seconds), "{seconds}");
        }
        assert!(held_by_all(&world, LimitKind::TokenRate) <= whole);
    }
    assert!(admitted as u64 * TOKENS <= whole, "{admitted} requests");
    assert!(admitted >= 50, "{admitted} of 60 requests: most of the limit was used");
}

#[tokio::test]
async fn one_busy_client_gets_what_idle_regions_do_not_need_when_it_is_told_to_come_again() {
    let world = World::started(&REGIONS).await;
    let (rate, node) = (LimitKind::RequestRate, world.node(0));
    put(node, limit(Limit { requests_per_min: Some(60), ..Limit::default() })).await;
    is_divided(&world, rate, 60).await;
    eventually("all have the same", || world.running().all(|node| held(node, rate) == 20)).await;
    let begin = Instant::now();
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..60 {
        let address = node.addresses()[0];
        asking.spawn(async move { Client::once(address, chat("tiny", "")).await });
    }
    let (mut served, mut told) = (0, Vec::new());
    while let Some(reply) = asking.join_next().await {
        let reply = reply.unwrap();
        match reply.status {
            200 => served += 1,
            429 => told.push(reply.header("retry-after").unwrap().parse::<u64>().unwrap()),
            other => panic!("{other}: {}", reply.text()),
        }
    }
    // Two units are the floor of each other region. Those who find no room in the rest wait for
    // charges to leave the window of a minute.
    let soon = told.iter().filter(|seconds| **seconds <= 30).count();
    assert!(served >= 20 && served + soon >= 56, "{served} served, then {told:?}");
    eventually("the rest is here", || held(node, rate) == 56).await;
    // On a busy machine the others get a part of it back between two requests, which comes again.
    while served < 56 {
        served += use_up(node, 3).await.0;
        assert!(begin.elapsed() < Duration::from_secs(50), "{served} in most of a window");
    }
    assert_eq!(held_by_all(&world, rate), 60);
}

#[tokio::test]
async fn places_that_idle_regions_do_not_need_move_to_one_that_does() {
    let world = World::started(&REGIONS).await;
    let places = LimitKind::Concurrency;
    put(world.node(0), limit(Limit { concurrency: Some(4), ..Limit::default() })).await;
    is_divided(&world, places, 4).await;
    for place in [0, 1, 2] {
        let quotas = &world.node(place).gateway().clients.quotas;
        let admit = || {
            let now = Instant::now();
            let (tokens, said) = (1, 1);
            quotas.admit(&QuotaAsk { key: None, tenant: None, model: None, tokens, said, now })
        };
        let mut requests = Vec::new();
        eventually("one node has all places", || {
            requests.extend(admit());
            requests.len() == 4
        })
        .await;
        assert!(admit().is_err());
        assert!(held_by_all(&world, places) <= 4);
    }
}

#[tokio::test]
async fn a_region_that_is_cut_off_keeps_its_floor_and_others_the_rest() {
    let world = World::started(&REGIONS).await;
    let rate = LimitKind::RequestRate;
    put(world.node(0), Item::Setting(LEASE_MS.to_owned(), "6000".to_owned())).await;
    put(world.node(0), limit(Limit { requests_per_s: Some(30), ..Limit::default() })).await;
    is_divided(&world, rate, 30).await;
    for other in [0, 1] {
        world.cluster.cut(2, other, true);
        world.cluster.cut(other, 2, true);
    }
    let kept = floor(world.node(2), "n2")[rate];
    assert_eq!(kept, 1, "a tenth of the limit is divided for ever");
    let by = Instant::now() + PATIENCE;
    let has_shrunk = || held(world.node(2), rate) == kept;
    // More than the other nodes hold without its part: they get that part as soon as one of them
    // needs it.
    let have_grown = || held(world.node(0), rate) > 21;
    let mut most = 0;
    while !(has_shrunk() && have_grown()) {
        assert!(
            Instant::now() < by,
            "{} and {}",
            held(world.node(2), rate),
            held_by_all(&world, rate)
        );
        most = most.max(held_by_all(&world, rate));
        // More than its even part, so that it needs the others'.
        ask(world.node(0)).await;
    }
    assert!(most <= 30, "{most} a second were allowed at a time");
    let (served, refusal) = use_up(world.node(2), 3).await;
    assert!(served >= 1, "the floor is served on");
    assert_eq!(refusal.header("x-spillway-shed-reason"), Some("request_rate"));
    for other in [0, 1] {
        world.cluster.cut(2, other, false);
        world.cluster.cut(other, 2, false);
    }
    // A node returns units unasked up to half of an even part. For less, other nodes are not asked.
    eventually("the region has half of its part again", || held(world.node(2), rate) >= 5).await;
    let by = Instant::now() + PATIENCE;
    while held(world.node(2), rate) <= 10 {
        assert!(Instant::now() < by, "{} of 30 for who needs them", held(world.node(2), rate));
        ask(world.node(2)).await;
    }
    assert!(held_by_all(&world, rate) <= 30);
}

#[tokio::test]
async fn a_limit_outlives_restarts_and_ends_with_its_record() {
    let mut world = World::started(&["one"]).await;
    let whole = 100 * TOKENS;
    put(world.node(0), limit(Limit { tokens_per_min: Some(whole), ..Limit::default() })).await;
    is_divided(&world, LimitKind::TokenRate, whole).await;
    let charged = |world: &World| {
        let usage = world.node(0).gateway().clients.quotas.usage(&Scope::Global, Instant::now());
        usage.unwrap_or_default().in_use[LimitKind::TokenRate]
    };
    for _ in 0..5 {
        assert_eq!(ask(world.node(0)).await.status, 200);
    }
    let before = charged(&world);
    assert!(before >= 5 * TOKENS, "{before}");
    let stopped = world.nodes[0].take().unwrap().stop().await;
    assert!(stopped.is_whole());
    world.start(0).await;
    assert_eq!(charged(&world), before, "what was charged counts on");
    // Unused leases were returned, so everything is available again except what was charged.
    eventually("the rest is divided anew", || {
        held_by_all(&world, LimitKind::TokenRate) >= whole - before
    })
    .await;
    assert_eq!(ask(world.node(0)).await.status, 200);
    remove(world.node(0), spillway_cluster_state::RecordKey::Limit(LimitScope::Global)).await;
    eventually("nothing is limited", || {
        world.node(0).gateway().clients.quotas.usage(&Scope::Global, Instant::now()).is_none()
    })
    .await;
    eventually("nothing is held", || state(world.node(0)).shares().pools().is_empty()).await;
}

#[tokio::test]
async fn what_is_owed_to_a_limit_is_owed_after_a_restart_too() {
    let mut world = World::started(&["one"]).await;
    put(world.node(0), limit(Limit { tokens_per_min: Some(1_000), ..Limit::default() })).await;
    is_divided(&world, LimitKind::TokenRate, 1_000).await;
    let owe = |world: &World, tokens: u64| {
        world.node(0).gateway().clients.quotas.owe(&Scope::Global, Units([0, tokens, 0]));
    };
    let file = world.cluster.data(0).join("limits_owed");
    owe(&world, 3_000_000);
    eventually("it is written down while the node runs", || file.exists()).await;
    owe(&world, 4_000_000);
    world.nodes[0].take().expect("a node").stop().await;
    world.start(0).await;
    let owed = || {
        let usage = world.node(0).gateway().clients.quotas.usage(&Scope::Global, Instant::now());
        usage.unwrap_or_default().debt[LimitKind::TokenRate]
    };
    eventually("all but what was paid is owed", || owed() > 6_900_000).await;
    assert_eq!(ask(world.node(0)).await.status, 429);
}

/// Sends a request that would use 900 tokens, and declares so in a field that the engine may or may
/// not read.
async fn lie(address: SocketAddr, fields: &str) -> Reply {
    let fields = format!(",\"ignore_eos\":true,{fields}");
    Client::once(address, chat("tiny", &fields)).await
}

#[tokio::test]
async fn who_lies_in_one_field_uses_no_more_than_the_limit() {
    let world = World::started(&["one"]).await;
    let (node, whole) = (world.node(0), 3_000);
    put(node, limit(Limit { tokens_per_min: Some(whole), ..Limit::default() })).await;
    is_divided(&world, LimitKind::TokenRate, whole).await;
    let lies = [
        r#""max_tokens":900,"max_output_tokens":1"#,
        r#""max_tokens":900,"max_completion_tokens":null,"max_output_tokens":1"#,
        r#""max_output_tokens":1,"n_predict":1,"max_tokens":900"#,
    ];
    let mut asking = tokio::task::JoinSet::new();
    for index in 0..60 {
        let (address, fields) = (node.addresses()[0], lies[index % lies.len()]);
        asking.spawn(async move { lie(address, fields).await });
    }
    // The replica reports no usage, so each admitted request counts with the most that it may use.
    let mut used = 0;
    while let Some(reply) = asking.join_next().await {
        let reply = reply.unwrap();
        match reply.status {
            200 => used += 900,
            429 => {}
            other => panic!("{other}: {}", reply.text()),
        }
    }
    assert!((900..=whole).contains(&used), "{used} tokens of {whole}");
    // Engines convert the first two. The tokens that they read are charged, which uses up the
    // limit.
    for (fields, status) in
        [(r#""max_tokens":"900""#, 429), (r#""max_tokens":9e2"#, 429), (r#""max_tokens":-1"#, 400)]
    {
        let reply = lie(node.addresses()[0], fields).await;
        assert_eq!(reply.status, status, "{fields}: {}", reply.text());
    }
}

#[tokio::test]
async fn no_way_around_a_limit_of_tokens_is_free() {
    let world = World::started(&["one"]).await;
    let node = world.node(0);
    put(node, limit(Limit { tokens_per_min: Some(2_000), ..Limit::default() })).await;
    is_divided(&world, LimitKind::TokenRate, 2_000).await;
    let quotas = &node.gateway().clients.quotas;
    let ask = QuotaAsk {
        key: None,
        tenant: None,
        model: Some("tiny"),
        tokens: 2_000,
        said: 2_000,
        now: Instant::now(),
    };
    let _all = quotas.admit(&ask).unwrap();
    let tensor = r#"{"inputs":[{"name":"a","shape":[1],"datatype":"INT32","data":[1]}]}"#;
    for (path, body) in [
        ("/v2/models/tiny/infer", tensor),
        ("/v2/models/tiny/generate", r#"{"text_input":"x","parameters":{"max_tokens":9}}"#),
        ("/v1/embeddings", r#"{"model":"tiny","input":["a","b"]}"#),
        ("/v1/rerank", r#"{"model":"tiny","query":"q","documents":["a"]}"#),
        ("/v1/score", r#"{"model":"tiny","text_1":"q","text_2":["a"]}"#),
        ("/v1/completions", r#"{"model":"tiny","prompt_embeds":"abcd"}"#),
        ("/v1/responses", r#"{"model":"tiny","input":"x"}"#),
        ("/tokenize", r#"{"model":"tiny","prompt":"x"}"#),
        ("/v1/chat/completions/batch", r#"{"model":"tiny","messages":[[],[]]}"#),
        ("/invocations", r#"{"model":"tiny","prompt":"x"}"#),
        ("/generative_scoring", r#"{"model":"tiny","query":"q","items":["a"]}"#),
        ("/v2/embed", r#"{"model":"tiny","texts":["a"]}"#),
    ] {
        let reply = Client::once(node.addresses()[0], post(path, body)).await;
        assert_eq!(reply.status, 429, "{path}: {}", reply.text());
        assert_eq!(reply.header("x-spillway-shed-reason"), Some("token_rate"), "{path}");
    }
    let mut packed = post("/v2/models/tiny/infer", tensor);
    packed.headers_mut().insert("content-encoding", HeaderValue::from_static("gzip"));
    let reply = Client::once(node.addresses()[0], packed).await;
    assert_eq!(reply.status, 400, "nobody knows what it asks for: {}", reply.text());
}

/// Asks once every few milliseconds for so long; the first reply that is no 200.
async fn first_refusal(node: &Node, each: Duration, during: Duration) -> Option<Reply> {
    let by = Instant::now() + during;
    while Instant::now() < by {
        let reply = ask(node).await;
        if reply.status != 200 {
            return Some(reply);
        }
        // wait: a client that stays within its limit asks no faster
        tokio::time::sleep(each).await;
    }
    None
}

#[tokio::test]
async fn a_new_limit_refuses_nobody_who_stays_within_it() {
    for regions in [&["one"][..], &REGIONS] {
        let world = World::started(regions).await;
        let whole = Limit {
            requests_per_s: Some(40),
            tokens_per_min: Some(4_000_000),
            concurrency: Some(40),
            ..Limit::default()
        };
        put(world.node(0), limit(whole)).await;
        let slow = Duration::from_millis(250);
        let refused = first_refusal(world.node(0), slow, Duration::from_secs(7)).await;
        assert!(refused.is_none(), "{regions:?}: {}", refused.unwrap().text());
        if regions.len() == 1 {
            assert_eq!(held(world.node(0), LimitKind::RequestRate), 40, "it is alone");
        }
    }
}

#[tokio::test]
async fn a_node_that_joins_may_use_no_limit_as_a_whole_that_others_have_divided() {
    let mut world = Growing::started(&["one", "three", "two", "four"], 1).await;
    let whole = 30;
    put(world.node(0), limit(Limit { requests_per_min: Some(whole), ..Limit::default() })).await;
    let (begin, is_open) = (Instant::now(), |node: &Node| {
        let quotas = &node.gateway().clients.quotas;
        let now = Instant::now();
        quotas.usage(&Scope::Global, now).is_none() || quotas.is_open(&Scope::Global, now)
    });
    eventually("it is divided", || !world.running().any(is_open)).await;
    let mut admitted = 0;
    for index in 0..3 {
        admitted += use_up(world.node(index), 5).await.0;
    }
    let token = make_token(world.node(1), "good", |token| token).await;
    world.cluster.give_token(3, &token);
    world.start(3).await;
    let joiner = world.node(3);
    // Before, it is in no cluster, and knows of no limit.
    let knows = || joiner.gateway().clients.quotas.usage(&Scope::Global, Instant::now()).is_some();
    eventually("it knows the limit", knows).await;
    admitted += use_up(joiner, 5).await.0;
    let is_one_window = begin.elapsed() < Duration::from_secs(50);
    assert!(admitted <= whole as usize || !is_one_window, "{admitted} in {:?}", begin.elapsed());
}

#[tokio::test]
async fn a_node_is_ready_when_it_holds_its_shares_and_refuses_nobody_from_then_on() {
    let mut world = World::started(&["one"]).await;
    let whole = Limit {
        requests_per_min: Some(600),
        tokens_per_min: Some(600 * 1_100),
        concurrency: Some(40),
        ..Limit::default()
    };
    put(world.node(0), limit(whole)).await;
    let slow = Duration::from_millis(100);
    assert!(first_refusal(world.node(0), slow, Duration::from_secs(2)).await.is_none());
    for is_crash in [false, true] {
        let node = world.nodes[0].take().unwrap();
        let used = |node: &Node| {
            let usage = node.gateway().clients.quotas.usage(&Scope::Global, Instant::now());
            usage.unwrap_or_default().in_use
        };
        let before = used(&node);
        let files = ["limits", "limits_spent"].map(|name| world.cluster.data(0).join(name));
        // One more charge, so that every later file includes the earlier usage.
        let spent = || std::fs::read(&files[1]).ok();
        let earlier = spent();
        assert_eq!(ask(&node).await.status, 200);
        eventually("it writes down what is used", || spent() != earlier).await;
        let crashed = files.clone().map(|file| std::fs::read(file).unwrap());
        assert!(node.stop().await.is_whole());
        if is_crash {
            // Files as a crashed process leaves them.
            for (file, bytes) in files.iter().zip(crashed) {
                std::fs::write(file, bytes).unwrap();
            }
        }
        world.start(0).await;
        let node = world.node(0);
        let is_ready = || node.gateway().clients.quotas.is_ready();
        eventually("it holds its shares", is_ready).await;
        let held = [LimitKind::RequestRate, LimitKind::TokenRate].map(|kind| held(node, kind));
        assert_eq!(held, [600, 600 * 1_100], "crashed: {is_crash}");
        let after = used(node);
        assert!(after.0[0] >= before.0[0] && after.0[1] >= before.0[1], "{before:?} {after:?}");
        let refused = first_refusal(node, slow, Duration::from_secs(2)).await;
        assert!(refused.is_none(), "crashed: {is_crash}: {}", refused.unwrap().text());
        let ready = Client::once(node.addresses()[0], spillway_tests::get("/readyz")).await;
        assert_eq!(ready.status, 200);
    }
}

#[tokio::test]
async fn what_is_larger_than_the_whole_limit_is_refused_for_good() {
    let world = World::started(&["one"]).await;
    put(world.node(0), limit(Limit { tokens_per_min: Some(900), ..Limit::default() })).await;
    eventually("the limit is known", || held(world.node(0), LimitKind::TokenRate) == 900).await;
    let address = world.node(0).addresses()[0];
    let reply = Client::once(address, chat("tiny", ",\"max_tokens\":901")).await;
    assert_eq!((reply.status, reply.code()), (400, Some("request_exceeds_limit")));
    assert_eq!(reply.header("retry-after"), None, "it would never be served");
    assert!(
        reply.text().contains("the limit is 900 tokens/min for everything"),
        "{}",
        reply.text()
    );
}
