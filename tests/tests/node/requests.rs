//! Records of requests that ended, in memory and in the access log.

use std::net::SocketAddr;
use std::path::Path;

use http::HeaderValue;
use serde_json::Value;
use spillway_tests::{Client, Scripted, Setup, chat, emulator, eventually, get};

use crate::reload::{File, reloads};

async fn remembered(admin: SocketAddr, query: &str) -> Vec<Value> {
    let reply = Client::once(admin, get(&format!("/v1/requests{query}"))).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answer: Value = serde_json::from_str(reply.text()).expect("JSON");
    answer["requests"].as_array().expect("a list").clone()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[tokio::test]
async fn a_request_is_found_by_its_id_with_what_was_decided_and_came_of_it() {
    let emulator = emulator(2).await;
    let node = Setup::new().emulated(&emulator).start().await;
    let admin = node.admin_address().expect("one");
    let mut request = chat("tiny", r#","max_tokens":5"#);
    request.headers_mut().insert("x-request-id", HeaderValue::from_static("mine-7"));
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    request.headers_mut().insert("traceparent", HeaderValue::from_static(trace));
    assert_eq!(Client::once(node.addresses()[0], request).await.status, 200);
    assert_eq!(Client::once(node.addresses()[0], chat("nothing", "")).await.status, 404);

    let found = remembered(admin, "?id=mine-7").await;
    let [entry] = &found[..] else { panic!("{found:?}") };
    assert_eq!(entry["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!((&entry["model"], &entry["status"]), (&"tiny".into(), &200.into()));
    assert!(entry["replica"].as_str().is_some_and(|name| name.starts_with('r')), "{entry}");
    assert_eq!((&entry["end"], &entry["completion_tokens"]), (&"complete".into(), &5.into()));
    assert!(entry["prompt_tokens"].as_u64() > Some(0), "{entry}");
    assert!(entry["first_token_ms"].as_f64() <= entry["duration_ms"].as_f64(), "{entry}");
    assert!(entry["expected"]["first_token_ms"].is_number(), "the policy predicts: {entry}");

    let failed = remembered(admin, "?failed=true").await;
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["status"], 404);
    let all = remembered(admin, "").await;
    assert_eq!(
        all.iter().map(|it| it["number"].clone()).collect::<Vec<_>>(),
        [2, 1],
        "newest first"
    );
    assert_eq!(remembered(admin, "?after=1").await.len(), 1);
    assert_eq!(remembered(admin, "?status=2xx&model=tiny").await.len(), 1);
    assert_eq!(remembered(admin, "?tenant=acme").await.len(), 0);
    let wrong = Client::once(admin, get("/v1/requests?prompt=x")).await;
    assert_eq!(wrong.status, 400, "no filter looks at prompts");
}

#[tokio::test]
async fn the_access_log_has_what_it_is_told_to_and_follows_a_reload() {
    let emulator = emulator(1).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let with = |requests: &str| {
        let log = format!("[access_log]\nrequests = \"{requests}\"\nfile = {path:?}");
        Setup::new().emulated(&emulator).table(log)
    };
    let file = File::new(&with("errors"));
    let node = file.start().await;
    let secret = "the words of a prompt";
    let mut client = Client::http1(node.addresses()[0]).await;
    let fields = format!(r#","max_tokens":2,"user":"{secret}""#);
    assert_eq!(client.fetch(chat("tiny", &fields)).await.status, 200);
    assert_eq!(client.fetch(chat("nothing", "")).await.status, 404);
    eventually("the error is written", || !lines(&path).is_empty()).await;
    let statuses =
        |lines: &[Value]| lines.iter().map(|it| it["status"].clone()).collect::<Vec<_>>();
    assert_eq!(statuses(&lines(&path)), [404], "errors alone");

    file.replace(&with("all").text());
    eventually("it is taken", || reloads(&node, "applied") >= 1.0).await;
    assert_eq!(client.fetch(chat("tiny", &fields)).await.status, 200);
    eventually("all are written", || lines(&path).len() == 2).await;
    assert_eq!(statuses(&lines(&path)), [404, 200]);
    let text = std::fs::read_to_string(&path).expect("reads");
    assert!(!text.contains(secret), "{text}");

    file.replace(&with("off").text());
    eventually("it is taken", || reloads(&node, "applied") >= 2.0).await;
    assert_eq!(client.fetch(chat("nothing", "")).await.status, 404);
    node.stop().await;
    assert_eq!(lines(&path).len(), 2, "none since");
}

#[tokio::test]
async fn a_share_of_nothing_leaves_errors_alone() {
    let replica = Scripted::start().await.serve(spillway_tests::OK);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let log = format!("[access_log]\nrequests = \"all\"\nshare_percent = 0\nfile = {path:?}");
    let node = Setup::new().replica("a", replica.address).table(log).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for _ in 0..20 {
        assert_eq!(client.fetch(chat("tiny", "")).await.status, 200);
    }
    assert_eq!(client.fetch(chat("nothing", "")).await.status, 404);
    node.stop().await;
    let written = lines(&path);
    assert_eq!(written.len(), 1, "{written:?}");
    assert_eq!(written[0]["status"], 404);
}
