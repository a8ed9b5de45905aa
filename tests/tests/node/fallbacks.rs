//! Other models for requests whose own model can't serve them.

use http::Request;
use spillway_emulator::{Emulator, Fault};
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, OK, Page, Reply, Scripted, Setup, both, chat, eventually, get, post,
};

use crate::reload::{File, reloads};
use crate::splits::{serving, with_header};

const FALLBACK: &str = "fallback.big = [\"small\", \"tiny\"]";

/// A node over one replica of each model, of which `big` falls back on the others.
fn setup(emulators: &[(&str, &Emulator)]) -> Setup {
    let base = Setup::new()
        .set("node.expose_routing = true")
        .set(FALLBACK)
        .with(|config| config.gateway.retry.budget_min_per_second = 1000);
    emulators.iter().fold(base, |setup, (model, emulator)| {
        let url = format!("http://{}", emulator.addresses()[0]);
        setup.replica_with(model, &url, &format!("models = [\"{model}\"]"))
    })
}

fn ask() -> Request<ClientBody> {
    chat("big", ",\"max_tokens\":2")
}

/// The model that served, by the gateway's and by the replica's word.
#[track_caller]
fn served(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let model = reply.header("x-spillway-model").expect("a model").to_owned();
    assert_eq!(reply.json()["model"], model.as_str());
    model
}

fn fallbacks(node: &Node, model: &str) -> f64 {
    Page::of(node).sum("spillway_fallbacks_total", &[("model", "big"), ("served", model)])
}

#[tokio::test]
async fn models_are_asked_in_order_as_their_replicas_crash() {
    let models = ["big", "small", "tiny"];
    let emulators = [serving(&["big"]).await, serving(&["small"]).await, serving(&["tiny"]).await];
    let node = setup(&models.into_iter().zip(&emulators).collect::<Vec<_>>()).start().await;
    let address = node.addresses()[0];
    for mut client in [Client::http1(address).await, Client::http2(address).await] {
        assert_eq!(served(&client.fetch(ask()).await), "big");
        emulators[0].replica(0).set_fault(Fault::Crash).await.expect("crashes");
        assert_eq!(served(&client.fetch(ask()).await), "small");
        emulators[1].replica(0).set_fault(Fault::Crash).await.expect("crashes");
        let stream = client.fetch(chat("big", ",\"max_tokens\":2,\"stream\":true")).await;
        assert_eq!((stream.status, stream.header("x-spillway-model")), (200, Some("tiny")));
        assert!(stream.text().contains("\"model\":\"tiny\""), "{}", stream.text());
        emulators[2].replica(0).set_fault(Fault::Crash).await.expect("crashes");
        let reply = client.fetch(ask()).await;
        assert!((500..600).contains(&reply.status), "{}", reply.text());
        assert!(reply.code().is_some());
        for emulator in &emulators {
            emulator.replica(0).set_fault(Fault::None).await.expect("heals");
        }
    }
    eventually("they are counted", || fallbacks(&node, "small") == 2.0).await;
    assert_eq!(fallbacks(&node, "tiny"), 2.0);
    let by_model = |model| {
        let labels = [("model", model), ("status", "200")];
        Page::of(&node).sum("spillway_requests_total", &labels)
    };
    assert_eq!((by_model("big"), by_model("small"), by_model("tiny")), (2.0, 2.0, 2.0));
}

#[tokio::test]
async fn a_model_whose_replicas_are_all_busy_is_stood_in_for_at_once() {
    let (big, small) = (Scripted::start().await, Scripted::start().await.serve(OK));
    let url = |address| format!("http://{address}");
    let node = Setup::new()
        .set("fallback.big = [\"small\"]")
        .set("retry.attempts_max = 1")
        .replica_with("a", &url(big.address), "models = [\"big\"]\nconnections_max = 1")
        .replica_with("b", &url(small.address), "models = [\"small\"]")
        .start()
        .await;
    let address = node.addresses()[0];
    let (held, ()) = tokio::join!(Client::once(address, ask()), async {
        let (mut wire, _) = big.request().await;
        let body = " { \"x\" : [ 1 ] , \"model\" : \"big\" }";
        let reply = Client::once(address, post("/v1/completions", body)).await;
        assert_eq!((reply.status, reply.text()), (200, "ok"));
        let expected = " { \"x\" : [ 1 ] , \"model\" : \"small\" }";
        assert_eq!(small.requests.last().text(), expected, "no other byte is changed");
        wire.send(OK).await;
    });
    assert_eq!(held.status, 200);
    // Nothing failed, so nothing was retried.
    assert_eq!(Page::of(&node).sum("spillway_retries_total", &[]), 0.0);
    assert_eq!(small.requests.count(), 1);
}

#[tokio::test]
async fn a_model_without_any_replica_left_is_still_served() {
    let (big, small) = (serving(&["big"]).await, serving(&["small", "tiny"]).await);
    let file = File::new(&setup(&[("big", &big), ("small", &small), ("tiny", &small)]));
    let node = file.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    assert_eq!(served(&client.fetch(ask()).await), "big");
    file.replace(&setup(&[("small", &small), ("tiny", &small)]).text());
    eventually("it is applied", || reloads(&node, "applied") >= 1.0).await;
    assert_eq!(served(&client.fetch(ask()).await), "small");
    assert_eq!(client.fetch(get("/v1/models/big")).await.status, 200);
    assert_eq!(client.fetch(chat("huge", "")).await.status, 404);
}

#[tokio::test]
async fn a_replica_s_own_answer_is_the_answer() {
    let (big, small) = (serving(&["big"]).await, serving(&["small", "tiny"]).await);
    let node = setup(&[("big", &big), ("small", &small), ("tiny", &small)]).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let fault = Fault::Status { code: 500, retry_after_s: None, probability: 1.0 };
    big.replica(0).set_fault(fault).await.expect("a fault");
    assert_eq!(client.fetch(ask()).await.status, 500);
    big.replica(0).set_fault(Fault::Hang).await.expect("a fault");
    let late = with_header(ask(), "x-request-timeout-ms", "150");
    let reply = client.fetch(late).await;
    assert_eq!((reply.status, reply.code()), (504, Some("deadline_exceeded")));
    assert_eq!(fallbacks(&node, "small"), 0.0);
}

#[tokio::test]
async fn one_attempt_is_kept_for_a_stand_in_and_the_budget_holds_over_all() {
    let small = Scripted::start().await.serve(OK);
    let setup = |budget: &str| {
        let dead = |setup: Setup, number: u32| {
            let url = format!("http://{}", Scripted::refusing());
            setup.replica_with(&format!("dead-{number}"), &url, "models = [\"big\"]")
        };
        let base = Setup::new().set("fallback.big = [\"small\"]").set(budget);
        let url = format!("http://{}", small.address);
        (0..5).fold(base, dead).replica_with("b", &url, "models = [\"small\"]")
    };
    let node = setup("retry.attempts_max = 3").start().await;
    let reply = Client::once(node.addresses()[0], ask()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let retries = |node: &Node| Page::of(node).sum("spillway_retries_total", &[]);
    eventually("two are counted", || retries(&node) == 2.0).await;

    let none = "retry.budget_percent = 0";
    let node = setup(none).start().await;
    let reply = Client::once(node.addresses()[0], ask()).await;
    assert_eq!((reply.status, reply.code()), (502, Some("replica_connect")));
    assert_eq!(small.requests.count(), 1);
}

#[tokio::test]
async fn a_v2_path_is_made_to_name_the_stand_in_and_a_version_is_never_stood_in_for() {
    let small = Scripted::start().await.serve(OK);
    let dead = format!("http://{}", Scripted::refusing());
    let arm = "arms = [{ name = \"only\", model = \"big\", weight = 1, version = \"2\" }]";
    let node = Setup::new()
        .set("fallback.big = [\"a small one\"]")
        .set("node.expose_routing = true")
        .table(format!("[[split]]\nmodel = \"chat\"\n{arm}"))
        .replica_with("a", &dead, "models = [\"big\"]\nversions = { big = [\"2\"] }")
        .replica_with("b", &format!("http://{}", small.address), "models = [\"a small one\"]")
        .start()
        .await;
    for client in &mut both(&node).await {
        for path in ["/v2/models/big/infer?x=1", "/v2/models/chat/infer?x=1"] {
            let reply = client.fetch(post(path, "{}")).await;
            assert_eq!(reply.header("x-spillway-model"), Some("a small one"), "{}", reply.text());
            let seen = "POST /v2/models/a%20small%20one/infer?x=1 HTTP/1.1";
            assert_eq!(small.requests.last().first_line(), seen);
        }
        for path in ["/v2/models/big/versions/2/infer", "/v2/models/big@2/infer"] {
            let reply = client.fetch(post(path, "{}")).await;
            assert_eq!((reply.status, reply.code()), (502, Some("replica_connect")), "{path}");
        }
    }
}

#[tokio::test]
async fn what_stands_in_for_an_arm_is_no_success_of_the_arm() {
    let small = serving(&["small"]).await;
    let dead = format!("http://{}", Scripted::refusing());
    let arms = "arms = [{ name = \"canary\", model = \"big\", weight = 1 }]";
    let node = Setup::new()
        .set("fallback.big = [\"small\"]")
        .table(format!("[[split]]\nmodel = \"chat\"\n{arms}"))
        .replica_with("a", &dead, "models = [\"big\"]")
        .replica_with("b", &format!("http://{}", small.addresses()[0]), "models = [\"small\"]")
        .start()
        .await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for fields in ["", ",\"stream\":true"] {
        assert_eq!(client.fetch(chat("chat", fields)).await.status, 200);
    }
    let count = |name: &str, label: (&str, &str)| {
        let labels = [("split", "chat"), ("arm", "canary"), label];
        Page::of(&node).sum(&format!("spillway_split_{name}"), &labels)
    };
    let fallbacks = || count("errors_total", ("reason", "fallback"));
    eventually("both are counted", || fallbacks() == 2.0).await;
    assert_eq!(count("requests_total", ("status", "fallback")), 2.0);
    assert_eq!(count("requests_total", ("status", "2xx")), 0.0);
    for name in ["reply_seconds_count", "time_to_first_token_seconds_count", "tokens_total"] {
        assert_eq!(count(name, ("arm", "canary")), 0.0, "{name}");
    }
}

#[tokio::test]
async fn a_stand_in_s_own_route_decides_about_its_replicas_and_credentials() {
    let small = Scripted::start().await.serve(OK);
    let dead = format!("http://{}", Scripted::refusing());
    let route = |name: &str, lines: &str| format!("[[route]]\nname = \"{name}\"\n{lines}\n");
    let node = Setup::new()
        .set("fallback.big = [\"small\"]")
        .table(route("big", "models = [\"big\"]\npool = \"gpu\"\nforward_authorization = true"))
        .table(route("small", "models = [\"small\"]\npool = \"cpu\"\ninject_usage = true"))
        .replica_with("a", &dead, "models = [\"big\"]\npool = \"gpu\"")
        .replica_with(
            "b",
            &format!("http://{}", small.address),
            "models = [\"small\"]\npool = \"cpu\"",
        )
        .start()
        .await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let secret = |model| with_header(chat(model, ",\"stream\":true"), "authorization", "Bearer sk");
    assert_eq!(client.fetch(secret("big")).await.status, 200);
    let seen = small.requests.last();
    assert_eq!(seen.header("authorization"), None);
    assert!(!seen.text().contains("include_usage"), "it was not asked for: {}", seen.text());
    let served = || Page::of(&node).sum("spillway_requests_total", &[("route", "small")]);
    eventually("it counts for the route that served", || served() == 1.0).await;
}

#[tokio::test]
async fn a_model_taken_for_broken_is_asked_after_its_stand_ins_but_before_giving_up() {
    let (big, small) = (serving(&["big"]).await, serving(&["small", "tiny"]).await);
    let node = setup(&[("big", &big), ("small", &small), ("tiny", &small)])
        .set("health.eject_after = 2")
        .set("health.eject_ms = 60000")
        .start()
        .await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let retries = || Page::of(&node).sum("spillway_retries_total", &[]);
    big.replica(0).set_fault(Fault::Crash).await.expect("crashes");
    for _ in 0..2 {
        assert_eq!(served(&client.fetch(ask()).await), "small");
    }
    let stands = |replica, admission| {
        let labels = [("replica", replica), ("admission", admission)];
        Page::of(&node).sum("spillway_replica_admission", &labels) == 1.0
    };
    eventually("it is ejected", || stands("big", "ejected")).await;
    eventually("both retries are counted", || retries() == 2.0).await;
    assert_eq!(served(&client.fetch(ask()).await), "small");
    eventually("it is counted", || fallbacks(&node, "small") == 3.0).await;
    assert_eq!(retries(), 2.0, "nobody was asked in vain");

    big.replica(0).set_fault(Fault::None).await.expect("heals");
    small.replica(0).set_fault(Fault::Crash).await.expect("crashes");
    assert_eq!(served(&client.fetch(ask()).await), "big", "better than no answer");
    assert!(stands("big", "ejected"), "it was still taken for broken");
    eventually("they are counted", || retries() > 2.0).await;
    assert_eq!(fallbacks(&node, "small"), 3.0);
}
