//! One name, several models: which client gets which, and stays with it.

use std::collections::{BTreeMap, BTreeSet};

use http::{HeaderValue, Method, Request};
use serde_json::json;
use spillway_emulator::{Emulator, EmulatorConfig};
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, OK, Page, Reply, Scripted, Setup, both, chat, check_record, eventually,
    full, get, message, newest_record, post,
};

use crate::reload::{File, reloads};

/// Starts one replica that serves these models a thousand times faster than a machine would.
pub(crate) async fn serving(models: &[&str]) -> Emulator {
    let models = models.iter().map(|model| (*model).to_owned()).collect();
    let config = EmulatorConfig { models, time_scale: 0.001, ..EmulatorConfig::default() };
    Emulator::start(config).await.expect("an emulator")
}

/// Returns a node that exposes its routing in headers, over one replica of these models.
pub(crate) fn over(emulator: &Emulator, models: &str) -> Setup {
    let url = format!("http://{}", emulator.addresses()[0]);
    let models = format!("models = {models}");
    Setup::new().set("node.expose_routing = true").replica_with("r0", &url, &models)
}

/// The split `chat` between `old` and `new`, in the words of `lines`.
fn split(lines: &str, weights: (u32, u32)) -> String {
    let (old, new) = weights;
    format!(
        "[[split]]\nmodel = \"chat\"\n{lines}\narms = [\n\
         {{ name = \"stable\", model = \"old\", weight = {old} }},\n\
         {{ name = \"canary\", model = \"new\", weight = {new} }} ]\n"
    )
}

pub(crate) fn with_header(
    mut request: Request<ClientBody>,
    name: &'static str,
    value: &str,
) -> Request<ClientBody> {
    let value = HeaderValue::from_str(value).expect("a value");
    request.headers_mut().insert(name, value);
    request
}

fn ask() -> Request<ClientBody> {
    chat("chat", ",\"max_tokens\":1")
}

/// The arm that served, and that it was the arm's model.
#[track_caller]
fn arm_of(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let arm = reply.header("x-spillway-arm").expect("an arm").to_owned();
    let model = if arm == "stable" { "old" } else { "new" };
    assert_eq!(reply.header("x-spillway-model"), Some(model));
    assert_eq!(reply.json()["model"], model);
    arm
}

/// The arm of each of 120 users.
async fn arms_of_users(node: &Node) -> BTreeMap<String, String> {
    let mut client = Client::http1(node.addresses()[0]).await;
    let mut arms = BTreeMap::new();
    for user in 0..120 {
        let user = format!("user-{user}");
        let reply = client.fetch(with_header(ask(), "x-user", &user)).await;
        arms.insert(user, arm_of(&reply));
    }
    arms
}

/// The cookies that a reply sets.
pub(crate) fn cookies(reply: &Reply) -> Vec<String> {
    let all = reply.headers.get_all("set-cookie").iter();
    all.map(|value| value.to_str().expect("text").to_owned()).collect()
}

#[tokio::test]
async fn requests_are_shared_in_proportion_to_weight() {
    const REQUESTS: u32 = 2_000;
    let emulator = serving(&["old", "new"]).await;
    let setup = over(&emulator, "[\"old\", \"new\"]").table(split("", (90, 10)));
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let mut canary = 0;
    for _ in 0..REQUESTS {
        let reply = client.fetch(ask()).await;
        canary += u32::from(arm_of(&reply) == "canary");
        assert_eq!(cookies(&reply), [""; 0]);
    }
    // 200 expected, and 5 standard deviations either way: missed once in a million runs.
    assert!((133..=267).contains(&canary), "{canary} of {REQUESTS}");
    let counted = |arm: &str| {
        let labels = [("split", "chat"), ("arm", arm), ("status", "2xx")];
        Page::of(&node).sum("spillway_split_requests_total", &labels)
    };
    eventually("all are counted", || counted("canary") == f64::from(canary)).await;
    assert_eq!(counted("stable"), f64::from(REQUESTS - canary));
    let by_model = Page::of(&node).sum("spillway_requests_total", &[("model", "new")]);
    assert_eq!(by_model, f64::from(canary));
    let listed = client.fetch(get("/v1/models")).await.json();
    let ids: Vec<_> = listed["data"].as_array().expect("a list").iter().map(|m| &m["id"]).collect();
    assert_eq!(ids, ["new", "old", "chat"]);
    assert_eq!(client.fetch(get("/v1/models/chat")).await.status, 200);
}

#[tokio::test]
async fn a_user_has_the_same_arm_on_every_node() {
    let emulator = serving(&["old", "new"]).await;
    let setup =
        over(&emulator, "[\"old\", \"new\"]").table(split("by = \"header:x-user\"", (50, 50)));
    let (one, other) = (setup.start().await, setup.start().await);
    let arms = arms_of_users(&one).await;
    assert_eq!(arms_of_users(&other).await, arms);
    assert_eq!(arms_of_users(&one).await, arms);
    let canaries = arms.values().filter(|arm| *arm == "canary").count();
    // The hash has no secret, so this number is the same in every run.
    assert!((45..=75).contains(&canaries), "{canaries} of 120");
}

#[tokio::test]
async fn a_key_comes_from_the_header_the_cookie_or_the_body() {
    let emulator = serving(&["old", "new"]).await;
    let setup = |by: &str| {
        let by = format!("by = \"{by}\"");
        over(&emulator, "[\"old\", \"new\"]").table(split(&by, (50, 50)))
    };
    let nodes = [
        setup("header:x-user").start().await,
        setup("cookie:user").start().await,
        setup("user").start().await,
    ];
    for user in 0..20 {
        let user = format!("user-{user}");
        let body = chat("chat", &format!(",\"max_tokens\":1,\"user\":\"{user}\""));
        let asked = [
            with_header(ask(), "x-user", &user),
            with_header(ask(), "cookie", &format!("a=b; user={user}")),
            body,
        ];
        let mut arms = BTreeSet::new();
        for (node, request) in nodes.iter().zip(asked) {
            arms.insert(arm_of(&Client::once(node.addresses()[0], request).await));
        }
        assert_eq!(arms.len(), 1, "one user has one arm, whatever names the user");
    }
}

#[tokio::test]
async fn testers_force_an_arm_even_one_without_traffic() {
    let emulator = serving(&["old", "new"]).await;
    for (by, name, value) in [("header:x-user", "x-user", ""), ("cookie:who", "cookie", "who=")] {
        let lines = format!("by = \"{by}\"");
        let node = over(&emulator, "[\"old\", \"new\"]").table(split(&lines, (1, 0))).start().await;
        for client in &mut both(&node).await {
            for arm in ["canary", "stable"] {
                let value = format!("{value}{arm}");
                let reply = client.fetch(with_header(ask(), name, &value)).await;
                assert_eq!(arm_of(&reply), arm);
            }
            let nobody = format!("{value}somebody");
            let reply = client.fetch(with_header(ask(), name, &nobody)).await;
            assert_eq!(arm_of(&reply), "stable", "it gets no other traffic");
            assert_eq!(arm_of(&client.fetch(ask()).await), "stable");
        }
    }
}

#[tokio::test]
async fn a_reload_with_more_weight_moves_users_to_that_arm_only() {
    let emulator = serving(&["old", "new"]).await;
    let setup = |weights| {
        let lines = "by = \"header:x-user\"";
        over(&emulator, "[\"old\", \"new\"]").table(split(lines, weights))
    };
    let file = File::new(&setup((90, 10)));
    let node = file.start().await;
    let before = arms_of_users(&node).await;
    file.replace(&setup((80, 20)).text());
    eventually("it is applied", || reloads(&node, "applied") >= 1.0).await;
    let after = arms_of_users(&node).await;
    let moved: Vec<_> = before.keys().filter(|user| before[*user] != after[*user]).collect();
    assert!(moved.iter().all(|user| after[*user] == "canary"), "{moved:?}");
    // About 12 of 120, and by an unkeyed hash the same ones in every run.
    assert!((4..=22).contains(&moved.len()), "{moved:?}");
}

#[tokio::test]
async fn a_record_has_the_reason_for_the_arm() {
    let emulator = serving(&["old", "new"]).await;
    let table = split("by = \"header:x-user\"\nsticky_cookie = \"spillway-arm\"", (50, 50));
    let node = over(&emulator, "[\"old\", \"new\"]").table(table).start().await;
    for (header, value, reason) in [
        ("x-user", "canary", "named"),
        ("x-user", "ann", "hashed"),
        ("cookie", "spillway-arm=stable", "remembered"),
        ("x-other", "ann", "drawn"),
    ] {
        let request = with_header(with_header(ask(), header, value), "x-request-id", reason);
        let arm = arm_of(&Client::once(node.addresses()[0], request).await);
        let record = newest_record(&node, &format!("id={reason}")).await;
        check_record(&record, &json!({ "arm": format!("chat/{arm}"), "arm_reason": reason }));
    }
}

#[tokio::test]
async fn a_drawn_arm_is_kept_by_a_cookie_until_it_gets_no_more_traffic() {
    let emulator = serving(&["old", "new"]).await;
    let setup = |weights| {
        let lines = "by = \"random\"\nsticky_cookie = \"spillway-arm\"";
        over(&emulator, "[\"old\", \"new\"]").table(split(lines, weights))
    };
    let file = File::new(&setup((50, 50)));
    let node = file.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let mut arms = Vec::new();
    for _ in 0..24 {
        let first = client.fetch(ask()).await;
        let arm = arm_of(&first);
        let attributes = "Path=/; Max-Age=2592000; HttpOnly; SameSite=Lax";
        assert_eq!(cookies(&first), [format!("spillway-arm={arm}; {attributes}")]);
        arms.push(arm);
    }
    // All alike in one of four million runs.
    assert_eq!(arms.iter().collect::<BTreeSet<_>>().len(), 2, "{arms:?}");
    let cookie = |arm: &str| with_header(ask(), "cookie", &format!("spillway-arm={arm}"));
    for arm in &arms {
        let again = client.fetch(cookie(arm)).await;
        assert_eq!((arm_of(&again), cookies(&again).len()), (arm.clone(), 0));
    }
    // An error of the client's brings no cookie, and a stream brings its own with its head.
    let refused = client.fetch(chat("nobody", "")).await;
    assert_eq!((refused.status, cookies(&refused).len()), (404, 0));
    let stream = client.fetch(chat("chat", ",\"max_tokens\":3,\"stream\":true")).await;
    assert_eq!((stream.status, cookies(&stream).len()), (200, 1));
    assert!(stream.header("x-spillway-arm").is_some());

    file.replace(&setup((100, 0)).text());
    eventually("it is applied", || reloads(&node, "applied") >= 1.0).await;
    let taken_down = client.fetch(cookie("canary")).await;
    assert_eq!(arm_of(&taken_down), "stable");
    assert!(cookies(&taken_down)[0].starts_with("spillway-arm=stable; "));
}

#[tokio::test]
async fn a_request_is_made_to_name_its_arm_s_model_and_nothing_else_changes() {
    let replica = Scripted::start().await.serve(OK);
    let arms = "arms = [{ name = \"only\", model = \"a b\", weight = 1, version = \"2\" }]";
    let lines = "models = [\"a b\"]\nversions = { \"a b\" = [\"2\"] }";
    let node = Setup::new()
        .set("aliases.other = \"chat\"")
        .table(format!("[[split]]\nmodel = \"chat\"\n{arms}"))
        .table("[[route]]\nname = \"raw\"\npath_prefix = \"/raw\"\nmodel = \"chat\"\n")
        .replica_with("a", &format!("http://{}", replica.address), lines)
        .start()
        .await;
    for client in &mut both(&node).await {
        for name in ["chat", "other"] {
            let body = format!(" {{\"note\":\"{name}\",\"model\" : \"{name}\" }}\n");
            let reply = client.fetch(post("/v1/completions", body)).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            assert_eq!(reply.header("x-spillway-arm"), None, "only where routing is exposed");
            let expected = format!(" {{\"note\":\"{name}\",\"model\" : \"a b\" }}\n");
            assert_eq!(replica.requests.last().text(), expected);
            let path = |rest: &str| format!("/v2/models/{name}{rest}");
            for (sent, seen) in [
                (path("/infer"), "POST /v2/models/a%20b/versions/2/infer HTTP/1.1"),
                (path("?x=/y"), "POST /v2/models/a%20b/versions/2?x=/y HTTP/1.1"),
            ] {
                assert_eq!(client.fetch(post(&sent, "{}")).await.status, 200);
                assert_eq!(replica.requests.last().first_line(), seen);
            }
            let versioned = client.fetch(post(&path("/versions/2/infer"), "{}")).await;
            assert_eq!((versioned.status, versioned.code()), (404, Some("model_not_found")));
        }
        assert_eq!(client.fetch(get("/raw/x")).await.status, 200);
        assert_eq!(replica.requests.last().first_line(), "GET /raw/x HTTP/1.1");
    }
}

#[tokio::test]
async fn a_split_may_have_a_model_s_name_and_uploads_and_versions_mean_the_model() {
    let replica = Scripted::start().await.serve(OK);
    let models = "models = [\"old\", \"new\"]\nversions = { old = [\"1\"], new = [\"1\"] }";
    let node = Setup::new()
        .table(split("", (0, 1)).replace("\"chat\"", "\"old\""))
        .table(
            "[[split]]\nmodel = \"chat\"\n\
             arms = [{ name = \"a\", model = \"new\", weight = 1 }]\n",
        )
        .replica_with("a", &format!("http://{}", replica.address), models)
        .start()
        .await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let body = r#"{"model":"old"}"#;
    assert_eq!(client.fetch(post("/v1/completions", body)).await.status, 200);
    assert_eq!(replica.requests.last().text(), r#"{"model":"new"}"#);
    for path in ["/v2/models/old/versions/1/infer", "/v2/models/old@1/infer"] {
        assert_eq!(client.fetch(post(path, "{}")).await.status, 200);
        let seen = "POST /v2/models/old/versions/1/infer HTTP/1.1";
        assert_eq!(replica.requests.last().first_line(), seen);
    }
    let upload = |model: &str| {
        let part = format!("content-disposition: form-data; name=\"model\"\r\n\r\n{model}");
        let body = full(format!("--X\r\n{part}\r\n--X--\r\n"));
        let kind = "multipart/form-data; boundary=X";
        message(Method::POST, "/v1/audio/transcriptions", kind, body)
    };
    assert_eq!(client.fetch(upload("old")).await.status, 200);
    assert!(replica.requests.last().text().contains("\r\nold\r\n"));
    let refused = client.fetch(upload("chat")).await;
    assert_eq!((refused.status, refused.code()), (400, Some("bad_request")));
}

#[tokio::test]
async fn a_conversation_stays_with_the_arm_that_stores_it() {
    let (old, new) = (serving(&["old"]).await, serving(&["new"]).await);
    let url = format!("http://{}", new.addresses()[0]);
    let node = over(&old, "[\"old\"]")
        .replica_with("r1", &url, "models = [\"new\"]")
        .table(split("", (50, 50)))
        .start()
        .await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let mut seen = BTreeSet::new();
    for round in 0..24 {
        let fields = r#""model":"chat","max_output_tokens":2"#;
        let body = format!(r#"{{{fields},"input":"round {round}"}}"#);
        let first = client.fetch(post("/v1/responses", body)).await;
        let arm = arm_of(&first);
        let id = first.json()["id"].as_str().expect("an id").to_owned();
        let body = format!(r#"{{{fields},"input":"more","previous_response_id":"{id}"}}"#);
        let second = client.fetch(post("/v1/responses", body)).await;
        assert_eq!(arm_of(&second), arm);
        seen.insert(arm);
    }
    // One arm alone in one of eight million runs.
    assert_eq!(seen.len(), 2);
}
