//! The metrics page: well-formed, and complete once each metric has a value.

use spillway_config::Config;
use spillway_geo::DatabaseWriter;
use spillway_node::Node;
use spillway_telemetry::GROUPS;
use spillway_tests::{Client, Page, Scripted, Setup, chat, emulator, eventually, get, post, spawn};

/// Parts of the names of metrics that only nodes of a cluster have, and of those of requests that
/// wait, are rejected, retried or continued. Other tests cover them.
const OF_CLUSTERS: [&str; 15] = [
    "_dns_",
    "_region_",
    "_residency_",
    "_continuations",
    "_sheds",
    "_hedges",
    "_spill_",
    "_link_",
    "_gossip_",
    "_certificate_",
    "_guest_",
    "_control_",
    "_hot_",
    "_limit_",
    "_prefix_shared",
];

#[tokio::test]
async fn every_metric_appears_and_the_page_is_well_formed() {
    let emulator = emulator(1).await;
    let hanging = Scripted::start().await;
    let route = "[[route]]\nname = \"llm\"\npolicy = \"round_robin\"\n\
        [[route]]\nname = \"smart\"\npath_prefix = \"/smart\"\nreplace_prefix = \"\"\nprotocol = \"openai\"\n";
    let names = "[fallback]\nlost = [\"tiny\"]\n[[split]]\nmodel = \"chat\"\nby = \"random\"\n\
        arms = [{ name = \"only\", model = \"tiny\", weight = 1 }]";
    // No other replica serves one of its models. While it is down, it is that model's last resort.
    let dead = "models = [\"tiny\", \"lost\"]\nhealth = { check = \"tcp\", interval_ms = 50 }";
    let away = "role = \"overflow\"\nmodels = { away = \"tiny\" }\n\
        price = { prompt_per_million = 1, completion_per_million = 1 }\n\
        overflow = { budget_per_day = 1 }";
    let folder = tempfile::tempdir().expect("a folder");
    let database = folder.path().join("city.mmdb");
    let cities = DatabaseWriter::new("Test-City").country("127.0.0.0/8", "DE");
    std::fs::write(&database, cities.bytes()).expect("writes");
    let listed = folder.path().join("replicas.toml");
    std::fs::write(&listed, "").expect("writes");
    let setup = Setup::new()
        .set(format!("geo.database = {database:?}"))
        .table(format!("[[discovery]]\nname = \"listed\"\nfile = {listed:?}"))
        .table(route)
        .table(names)
        .table("[[listener]]\naddress = \"127.0.0.1:0\"\nauth = \"keys\"")
        .replica_with("dead", &format!("http://{}", Scripted::refusing()), dead)
        .replica_with("r0", &format!("http://{}", emulator.addresses()[0]), "kind = \"vllm\"")
        .replica_with("away", &format!("http://{}/v1", emulator.addresses()[0]), away)
        .replica_with("hanging", &format!("http://{}", hanging.address), "models = [\"huge\"]");
    let path = folder.path().join("spillway.toml");
    std::fs::write(&path, setup.text()).expect("writes");
    let node = Node::start(Config::load_with(&path, []).expect("a config")).await.expect("a node");

    let mut client = Client::http1(node.addresses()[0]).await;
    for fields in [r#","max_tokens":5"#, r#","stream":true,"max_tokens":5"#] {
        for _ in 0..3 {
            assert_eq!(client.fetch(chat("tiny", fields)).await.status, 200);
        }
    }
    for fields in [r#""max_tokens":5"#, r#""max_tokens":5,"stream":true"#] {
        let body =
            format!(r#"{{"model":"tiny","messages":[{{"role":"user","content":"Hi"}}],{fields}}}"#);
        let reply = client.fetch(post("/smart/v1/chat/completions", body)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    for model in ["chat", "lost", "away"] {
        assert_eq!(client.fetch(chat(model, "")).await.status, 200, "{model}");
    }
    let streamed = r#","stream":true,"max_tokens":5"#;
    assert_eq!(client.fetch(chat("chat", streamed)).await.status, 200);
    assert_eq!(client.fetch(chat("no such model", "")).await.status, 404);
    assert_eq!(Client::once(node.addresses()[1], chat("tiny", "")).await.status, 401);
    let leaving = spawn(Client::once(node.addresses()[0], chat("huge", "")));
    let (mut wire, _) = hanging.request().await;
    leaving.abort();
    wire.end().await;
    std::fs::write(&path, setup.text()).expect("writes");

    let all: Vec<&str> = GROUPS.iter().flat_map(|it| it.metrics).map(|it| it.name).collect();
    let is_of_clusters = |name: &&str| {
        // The last ones are of tenants, and these clients have none.
        OF_CLUSTERS.iter().any(|part| name.contains(part))
            || *name == "spillway_waiting"
            || name.starts_with("spillway_tenant_")
    };
    let names: Vec<&str> = all.iter().copied().filter(|name| !is_of_clusters(name)).collect();
    assert!(names.len() >= 17, "{names:?}");
    let missing = || {
        let page = Page::of(&node);
        let is_missing =
            |name: &&&str| !page.samples.iter().any(|sample| sample.name.starts_with(**name));
        names.iter().filter(is_missing).map(ToString::to_string).collect::<Vec<_>>()
    };
    eventually("every metric is there", || missing().is_empty()).await;
    Page::of(&node).is_as_documented();
}

#[tokio::test]
async fn the_page_has_the_format_that_its_scraper_accepts() {
    let node = Setup::new().replica("a", Scripted::refusing()).start().await;
    assert_eq!(Client::once(node.addresses()[0], chat("other", "")).await.status, 404);
    let counted = || Page::of(&node).sum("spillway_requests_total", &[]) == 1.0;
    eventually("it is counted", counted).await;
    let scraped = async |accept: &'static str| {
        let mut request = get("/metrics");
        request.headers_mut().insert("accept", accept.parse().expect("a value"));
        Client::once(node.admin_address().expect("one"), request).await
    };
    let page = scraped("application/openmetrics-text; version=1.0.0, text/plain; q=0.5").await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(page.header("content-type"), Some(kind));
    Page::parse(page.text()).expect("a well-formed page");
    for accept in ["text/plain; version=0.0.4", "*/*"] {
        let page = scraped(accept).await;
        let kind = "text/plain; version=0.0.4; charset=utf-8";
        assert_eq!(page.header("content-type"), Some(kind), "{accept}");
        assert!(page.text().contains("\n# TYPE spillway_requests_total counter\n"));
        assert!(page.text().contains("# TYPE spillway_build_info gauge\n"));
        assert!(!page.text().contains("# EOF"), "the classic format has no end");
    }
}

#[tokio::test]
async fn requests_are_counted_by_route_model_status_and_end() {
    let emulator = emulator(1).await;
    let setup = Setup::new().set("aliases.other = \"tiny\"").emulated(&emulator);
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for _ in 0..4 {
        client.fetch(chat("other", r#","max_tokens":3"#)).await;
    }
    client.fetch(chat("unknown", "")).await;
    client.fetch(get("/livez")).await;
    let count = |labels: &[(&str, &str)]| Page::of(&node).sum("spillway_requests_total", labels);
    let labels = [("route", "default"), ("model", "tiny"), ("status", "200"), ("end", "complete")];
    eventually("four are complete", || count(&labels) == 4.0).await;
    let labels = [("model", "unknown"), ("status", "404"), ("end", "answered")];
    eventually("one is answered", || count(&labels) == 1.0).await;
    assert_eq!(count(&[]), 5.0, "health checks are not counted");
    let page = Page::of(&node);
    assert_eq!(page.sum("spillway_tokens_total", &[("kind", "completion")]), 12.0);
    assert_eq!(page.sum("spillway_request_duration_seconds_count", &[("model", "tiny")]), 4.0);
    let first_tokens = page.sum("spillway_time_to_first_token_seconds_count", &[]);
    let whole = page.sum("spillway_reply_seconds_count", &[]);
    assert_eq!((first_tokens, whole), (0.0, 4.0), "none was streamed");
}
