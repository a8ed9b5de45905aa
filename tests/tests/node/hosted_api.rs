//! Hosted APIs as replicas: base paths, credentials, and overflow.

use http::HeaderValue;
use http::header::AUTHORIZATION;
use serde_json::json;
use spillway_tests::{
    Client, OK, Page, Scripted, Serving, Setup, chat, eventually, get, post, spawn,
};

use crate::reload::{File, reloads};

/// Returns the paths that a replica was asked for.
fn paths(replica: &Serving) -> Vec<String> {
    let path = |line: &str| line.split(' ').nth(1).unwrap_or_default().to_owned();
    replica.requests.all().iter().map(|request| path(request.first_line())).collect()
}

#[tokio::test]
async fn requests_go_below_the_base_path_of_the_url() {
    for (base, expected) in [
        (
            "/openai/v1",
            ["/openai/v1/chat/completions", "/openai/v1/embeddings?a=b", "/openai/rerank"],
        ),
        ("/team/", ["/team/v1/chat/completions", "/team/v1/embeddings?a=b", "/team/rerank"]),
        ("", ["/v1/chat/completions", "/v1/embeddings?a=b", "/rerank"]),
    ] {
        let replica = Scripted::start().await.serve(OK);
        let url = format!("http://{}{base}", replica.address);
        let node = Setup::new().replica_with("a", &url, "").start().await;
        let mut client = Client::http1(node.addresses()[0]).await;
        let body = r#"{"model":"tiny","input":"x","query":"x","documents":["y"]}"#;
        for request in [chat("tiny", ""), post("/v1/embeddings?a=b", body), post("/rerank", body)] {
            assert_eq!(client.fetch(request).await.body, "ok");
        }
        assert_eq!(paths(&replica), expected, "{base}");
    }
}

#[tokio::test]
async fn checks_models_and_metrics_are_below_the_base_path() {
    let page = r#"{"object":"list","data":[{"id":"tiny","object":"model"}]}"#;
    let length = page.len();
    let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{page}");
    let replica = Scripted::start().await.serve(reply);
    let url = format!("http://{}/team/v1", replica.address);
    let text = "[[replica]]\nname = \"a\"\nkind = \"vllm\"\nhealth.interval_ms = 20\n\
                credential = { prefix = \"Bearer \", value = \"key\" }\n";
    let setup = Setup::new().set("health.check = \"http\"");
    let node = setup.table(format!("{text}url = \"{url}\"")).start().await;
    let expected = ["/team/health", "/team/metrics", "/team/v1/models"];
    eventually("all pages are read", || {
        expected.iter().all(|page| paths(&replica).iter().any(|path| path == page))
    })
    .await;
    for request in replica.requests.all() {
        assert_eq!(request.header("authorization"), Some("Bearer key"), "{}", request.head);
    }
    eventually("its model is served", || node.gateway().routing.view().models().len() == 1).await;
    let mut client = Client::http1(node.addresses()[0]).await;
    assert_eq!(client.fetch(get("/v1/models")).await.status, 200);
    assert!(paths(&replica).iter().all(|path| path.starts_with("/team/")), "{:?}", paths(&replica));
}

#[tokio::test]
async fn a_replicas_credential_replaces_all_those_of_the_client() {
    let hosted = Scripted::start().await.serve(OK);
    let other = Scripted::start().await.serve(OK);
    let credential = "credential = { header = \"x-api-key\", value = \"ours\" }\nmodels = [\"a\"]";
    let node = Setup::new()
        .replica_with("hosted", &format!("http://{}", hosted.address), credential)
        .replica_with("other", &format!("http://{}", other.address), "models = [\"b\"]")
        .table("[[route]]\nname = \"r\"\nmodels = [\"a\", \"b\"]\nforward_authorization = true")
        .start()
        .await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for model in ["a", "b"] {
        let mut request = chat(model, "");
        request.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static("Bearer client"));
        assert_eq!(client.fetch(request).await.status, 200);
    }
    let (to_hosted, to_other) = (hosted.requests.last(), other.requests.last());
    assert_eq!(to_hosted.header("x-api-key"), Some("ours"));
    assert_eq!(to_hosted.header("authorization"), None, "the client's own stays here");
    assert_eq!(to_other.header("x-api-key"), None, "no other replica gets it");
    assert_eq!(to_other.header("authorization"), Some("Bearer client"));
}

#[tokio::test]
async fn a_renewed_credential_is_used_without_a_restart_and_an_empty_one_is_not() {
    let replica = Scripted::start().await.serve(OK);
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("api.key");
    std::fs::write(&secret, "first\n").expect("writes");
    let credential =
        format!("credential = {{ prefix = \"Bearer \", value_file = \"{}\" }}", secret.display());
    let url = format!("http://{}/v1", replica.address);
    let file = File::new(&Setup::new().replica_with("a", &url, &credential));
    let node = file.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    client.fetch(chat("tiny", "")).await;
    assert_eq!(replica.requests.last().header("authorization"), Some("Bearer first"));
    let started = node.gateway().routing.view().replicas()[0].started();

    std::fs::write(&secret, "").expect("writes");
    eventually("it is refused", || reloads(&node, "refused") >= 1.0).await;
    client.fetch(chat("tiny", "")).await;
    assert_eq!(replica.requests.last().header("authorization"), Some("Bearer first"));

    // As Kubernetes and most tools replace a file.
    let beside = folder.path().join("new");
    std::fs::write(&beside, "second").expect("writes");
    std::fs::rename(beside, &secret).expect("renames");
    eventually("it is taken", || reloads(&node, "applied") >= 1.0).await;
    client.fetch(chat("tiny", "")).await;
    assert_eq!(replica.requests.last().header("authorization"), Some("Bearer second"));
    let view = node.gateway().routing.view();
    assert_eq!(view.replicas()[0].started(), started + 2, "what is known of the server is kept");
}

/// An answer of a hosted API, with its own name of the model, usage, and headers of the account.
fn hosted_reply(prompt: u64, completion: u64) -> String {
    let body = format!(
        r#"{{"id":"c","object":"chat.completion","model":"org/tiny-instruct","choices":[{{"index":0,"message":{{"role":"assistant","content":"hi"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{}}}}}"#,
        prompt + completion
    );
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nopenai-organization: us\r\n\
         set-cookie: a=b\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Returns the section of an overflow replica with the model `tiny`.
fn overflow(replica: &Serving, caps: &str) -> String {
    format!(
        "[[replica]]\nname = \"hosted\"\nurl = \"http://{}/openai/v1\"\nrole = \"overflow\"\n\
         models = {{ tiny = \"org/tiny-instruct\" }}\n\
         credential = {{ prefix = \"Bearer \", value = \"ours\" }}\n\
         price = {{ prompt_per_million = 2, completion_per_million = 10 }}\n{caps}\n",
        replica.address
    )
}

#[tokio::test]
async fn a_hosted_api_serves_only_what_no_other_replica_can() {
    let own = Scripted::start().await.serve(OK);
    let hosted = Scripted::start().await.serve(hosted_reply(100, 10));
    let setup = Setup::new().table(overflow(&hosted, ""));
    let node = setup.clone().replica("own", own.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for _ in 0..10 {
        assert_eq!(client.fetch(chat("tiny", "")).await.body, "ok");
    }
    assert_eq!((own.requests.count(), hosted.requests.count()), (10, 0));

    let node = setup.replica("own", Scripted::refusing()).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let reply = client.fetch(chat("tiny", "")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(reply.text().contains("hi"), "{}", reply.text());
    let of = |name: &str, labels: &[(&str, &str)]| {
        let labels: Vec<_> = [&[("replica", "hosted")][..], labels].concat();
        Page::of(&node).sum(name, &labels)
    };
    let served = [("reason", "failed"), ("result", "served")];
    let count = || of("spillway_overflow_requests_total", &served);
    eventually("it is counted", || count() == 1.0).await;
    assert_eq!(of("spillway_overflow_tokens_total", &[("kind", "prompt")]), 100.0);
    assert_eq!(of("spillway_overflow_tokens_total", &[("kind", "completion")]), 10.0);
    let cost = of("spillway_overflow_cost_total", &[]);
    assert!((cost - 0.0003).abs() < 1e-9, "{cost}");
    assert_eq!(of("spillway_replica_requests_total", &[("reason", "overflow")]), 1.0);
}

#[tokio::test]
async fn a_hosted_api_gets_its_own_name_of_the_model_and_nothing_of_the_client() {
    let hosted = Scripted::start().await.serve(hosted_reply(1, 1));
    let table = overflow(&hosted, "") + "[aliases]\nshort = \"tiny\"\n";
    let node = Setup::new().table(table).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let mut request = chat("short", ",\"temperature\":0.5");
    for (name, value) in [
        ("authorization", "Bearer client"),
        ("x-api-key", "client"),
        ("cookie", "session=1"),
        ("x-forwarded-for", "192.0.2.7"),
        ("x-tenant", "acme"),
    ] {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let reply = client.fetch(request).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let sent = hosted.requests.last();
    assert_eq!(paths(&hosted), ["/openai/v1/chat/completions"]);
    assert!(sent.text().contains(r#""model":"org/tiny-instruct""#), "{}", sent.text());
    assert!(sent.text().contains(r#""temperature":0.5"#), "{}", sent.text());
    assert_eq!(sent.header("authorization"), Some("Bearer ours"));
    for name in ["x-api-key", "cookie", "x-forwarded-for", "x-tenant", "via", "traceparent"] {
        assert_eq!(sent.header(name), None, "{name}: {}", sent.head);
    }
    for name in ["openai-organization", "set-cookie"] {
        assert_eq!(reply.header(name), None, "{name}");
    }
}

#[tokio::test]
async fn without_success_of_the_hosted_api_the_client_gets_its_own_refusal() {
    for status in ["401 Unauthorized", "400 Bad Request", "429 Too Many Requests", "500 Oops"] {
        let reply = format!("HTTP/1.1 {status}\r\ncontent-length: 6\r\n\r\nsecret");
        let hosted = Scripted::start().await.serve(reply);
        let setup = Setup::new().table(overflow(&hosted, ""));
        let node = setup.replica("own", Scripted::refusing()).start().await;
        let mut client = Client::http1(node.addresses()[0]).await;
        let reply = client.fetch(chat("tiny", "")).await;
        assert_eq!((reply.status, reply.code()), (502, Some("replica_connect")), "{status}");
        assert!(!reply.text().contains("secret"), "{}", reply.text());
        assert_eq!(hosted.requests.count(), 1, "{status}");
        let failed = [("replica", "hosted"), ("result", "failed")];
        let count = || Page::of(&node).sum("spillway_overflow_requests_total", &failed);
        eventually("it is counted", || count() == 1.0).await;
    }
}

#[tokio::test]
async fn caps_of_share_and_money_keep_requests_from_the_hosted_api() {
    // A request costs 0.0003: after the second one the budget is spent.
    let money = "overflow = { budget_per_day = 0.0005 }";
    let share = "overflow = { share_percent_max = 1 }";
    for (caps, cap, served) in [(money, "day", 2), (share, "share", 10)] {
        let hosted = Scripted::start().await.serve(hosted_reply(100, 10));
        let node = Setup::new().table(overflow(&hosted, caps)).start().await;
        let mut client = Client::http1(node.addresses()[0]).await;
        for number in 0..served {
            assert_eq!(client.fetch(chat("tiny", "")).await.status, 200, "{caps} {number}");
            // A request's spending counts once the request has ended.
            let count = || {
                Page::of(&node).sum("spillway_overflow_requests_total", &[("replica", "hosted")])
            };
            eventually("it is counted", || count() == number as f64 + 1.0).await;
        }
        let reply = client.fetch(chat("tiny", "")).await;
        assert_eq!(reply.status, 503, "{caps}: {}", reply.text());
        assert_eq!(hosted.requests.count(), served, "{caps}");
        let capped = [("replica", "hosted"), ("cap", cap)];
        assert_eq!(Page::of(&node).sum("spillway_overflow_capped_total", &capped), 1.0);
    }
}

#[tokio::test]
async fn spent_money_outlives_a_restart_and_operators_see_the_replica() {
    let hosted = Scripted::start().await.serve(hosted_reply(100, 10));
    let folder = tempfile::tempdir().expect("a folder");
    let caps = "overflow = { budget_per_month = 0.0002 }";
    let setup = Setup::new().set(format!("usage.folder = {:?}", folder.path()));
    let setup = setup.table(overflow(&hosted, caps));
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let order = r#"{"body":{"model":"tiny","messages":[]}}"#;
    let admin = node.admin_address().expect("one");
    let told = Client::once(admin, post("/v1/explain", order)).await.json();
    assert_eq!((&told["decision"], &told["overflow"]), (&json!("refuse"), &json!("hosted")));
    let told = Client::once(admin, get("/replicas")).await.json();
    assert_eq!(
        (&told[0]["kind"], &told[0]["pool"]),
        (&json!("overflow"), &json!("default (overflow)"))
    );
    let url = format!("http://{}/openai/v1", hosted.address);
    assert_eq!(told[0]["url"], json!(url));
    assert_eq!(client.fetch(chat("tiny", "")).await.status, 200);
    let spent = [("replica", "hosted"), ("period", "month")];
    let used = || Page::of(&node).sum("spillway_overflow_budget_used", &spent);
    eventually("it is counted", || used() > 1.4).await;
    let told = Client::once(admin, get("/usage")).await;
    assert!(!told.text().contains("overflow"), "no tenant: {}", told.text());
    node.stop().await;

    let node = setup.start().await;
    let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
    assert_eq!((reply.status, hosted.requests.count()), (503, 1));
    let capped = [("replica", "hosted"), ("cap", "month")];
    assert_eq!(Page::of(&node).sum("spillway_overflow_capped_total", &capped), 1.0);
}

#[tokio::test]
async fn a_full_queue_overflows_and_a_route_may_forbid_it() {
    for (route, status) in [("", 200), ("overflow = false", 503)] {
        let busy = Scripted::start().await;
        let hosted = Scripted::start().await.serve(hosted_reply(1, 1));
        let route = format!("[[route]]\nname = \"r\"\nmodels = [\"tiny\"]\nqueue_max = 0\n{route}");
        let url = format!("http://{}", busy.address);
        let setup = Setup::new().replica_with("own", &url, "connections_max = 1");
        let node = setup.table(overflow(&hosted, "")).table(route).start().await;
        let mut first = Client::http1(node.addresses()[0]).await;
        let running = spawn(async move { first.send(chat("tiny", "")).await });
        let _held = busy.request().await;
        let mut second = Client::http1(node.addresses()[0]).await;
        let reply = second.fetch(chat("tiny", "")).await;
        assert_eq!(reply.status, status, "{}", reply.text());
        running.abort();
    }
}

#[tokio::test]
async fn a_replica_that_is_full_overflows_also_without_a_budget_of_retries() {
    for budget in [0, 15] {
        let full = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nfull";
        let own = Scripted::start().await.serve(full);
        let hosted = Scripted::start().await.serve(hosted_reply(1, 1));
        let setup = Setup::new()
            .set(format!("retry.budget_percent = {budget}"))
            .table(overflow(&hosted, ""))
            .replica("own", own.address);
        let node = setup.start().await;
        let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
        assert_eq!(reply.status, 200, "{budget}: {}", reply.text());
        assert_eq!((own.requests.count(), hosted.requests.count()), (1, 1), "{budget}");
        let refused = [("replica", "hosted"), ("reason", "refused"), ("result", "served")];
        let count = || Page::of(&node).sum("spillway_overflow_requests_total", &refused);
        eventually("it is counted", || count() == 1.0).await;
    }
    let refusing =
        |body: &str| format!("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\n{body}");
    let own = Scripted::start().await.serve(refusing("full"));
    let hosted = Scripted::start().await.serve(refusing("away"));
    let setup = Setup::new().set("retry.budget_percent = 0").table(overflow(&hosted, ""));
    let setup = setup.replica("own", own.address);
    let reply = Client::once(setup.start().await.addresses()[0], chat("tiny", "")).await;
    assert_eq!((reply.status, reply.text()), (503, "full"), "its own replica's");
}

#[tokio::test]
async fn a_request_that_waits_for_long_overflows_and_waits_on_where_that_fails() {
    for (hosted_reply, served) in [(hosted_reply(1, 1), 1.0), (OK.replace("200", "500"), 0.0)] {
        let busy = Scripted::start().await;
        let hosted = Scripted::start().await.serve(hosted_reply);
        let url = format!("http://{}", busy.address);
        let setup = Setup::new().replica_with("own", &url, "connections_max = 1");
        let node = setup.table(overflow(&hosted, "overflow.after_ms = 50")).start().await;
        let mut first = Client::http1(node.addresses()[0]).await;
        let running = spawn(async move { first.fetch(chat("tiny", "")).await.status });
        let (mut held, _) = busy.request().await;
        let mut second = Client::http1(node.addresses()[0]).await;
        let waiting = spawn(async move { second.fetch(chat("tiny", "")).await.status });
        eventually("the hosted API is asked", || hosted.requests.count() == 1).await;
        if served == 0.0 {
            held.send(OK).await;
            held.message().await;
            held.send(OK).await;
        }
        assert_eq!(waiting.await.expect("a reply"), 200);
        let waited = [("replica", "hosted"), ("reason", "waiting"), ("result", "served")];
        let count = || Page::of(&node).sum("spillway_overflow_requests_total", &waited);
        eventually("it is counted", || count() == served).await;
        running.abort();
    }
}

#[tokio::test]
async fn what_must_stay_does_not_overflow() {
    let hosted = Scripted::start().await.serve(hosted_reply(1, 1));
    for (rule, caps, status) in [
        ("countries = [\"DE\"]", "", 503),
        ("countries = [\"DE\"]", "overflow = { country = \"US\" }", 503),
        ("countries = [\"DE\"]", "overflow = { country = \"DE\" }", 200),
        ("regions = [\"default\"]", "overflow = { country = \"DE\" }", 503),
        ("", "", 200),
    ] {
        let route = format!("[[route]]\nname = \"r\"\nmodels = [\"tiny\"]\n{rule}");
        let setup = Setup::new().set("node.country = \"DE\"").set("node.region = \"default\"");
        let node = setup.table(overflow(&hosted, caps)).table(route).start().await;
        let mut client = Client::http1(node.addresses()[0]).await;
        let reply = client.fetch(chat("tiny", "")).await;
        assert_eq!(reply.status, status, "{rule} {caps}: {}", reply.text());
    }
    // A response that is stored there could not be continued here.
    let body = r#"{"id":"r","object":"response","status":"completed","output":[]}"#;
    let length = body.len();
    let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
    let hosted = Scripted::start().await.serve(reply);
    let node = Setup::new().table(overflow(&hosted, "")).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let body = r#"{"model":"tiny","input":"x"}"#;
    assert_eq!(client.fetch(post("/v1/responses", body)).await.status, 503);
    let body = r#"{"model":"tiny","input":"x","store":false}"#;
    assert_eq!(client.fetch(post("/v1/responses", body)).await.status, 200);
}

#[tokio::test]
async fn a_stream_of_a_hosted_api_reports_its_usage_and_a_default_check_costs_nothing() {
    let events = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n\
                  data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\n\
                  data: [DONE]\n\n";
    let reply = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{events}",
        events.len()
    );
    let hosted = Scripted::start().await.serve(reply);
    let setup = Setup::new().set("health.check = \"by_kind\"");
    let node = setup.table(overflow(&hosted, "health.interval_ms = 20")).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    eventually("its check is good", || {
        let open = [("replica", "hosted"), ("admission", "open")];
        Page::of(&node).sum("spillway_replica_admission", &open) == 1.0
    })
    .await;
    assert_eq!(hosted.requests.count(), 0, "a connection is enough");
    let reply = client.fetch(chat("tiny", ",\"stream\":true")).await;
    assert!(reply.text().contains("hi") && !reply.text().contains("usage"), "{}", reply.text());
    let sent = hosted.requests.last().text();
    assert!(sent.contains("include_usage"), "{sent}");
    let prompt = [("replica", "hosted"), ("kind", "prompt")];
    let tokens = || Page::of(&node).sum("spillway_overflow_tokens_total", &prompt);
    eventually("its usage is counted", || tokens() == 7.0).await;
}
