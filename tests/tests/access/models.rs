//! A key is for the models that it names.

use spillway_tests::{Client, OK, Scripted, Setup, chat, get, post};

use crate::keys::Key;

fn with_models(setup: Setup, models: &str) -> (Setup, Key) {
    let key = Key::new("a", "acme", &format!("models = {models}"));
    (setup.table(&*key.block), key)
}

async fn two_models() -> (Setup, [spillway_tests::Serving; 2]) {
    let replicas = [Scripted::start().await.serve(OK), Scripted::start().await.serve(OK)];
    let url = |index: usize| format!("http://{}", replicas[index].address);
    let setup = Setup::new().replica_with("a", &url(0), "models = [\"tiny\"]").replica_with(
        "b",
        &url(1),
        "models = [\"huge\"]",
    );
    (setup, replicas)
}

#[tokio::test]
async fn other_models_are_refused_and_not_listed() {
    let (setup, replicas) = two_models().await;
    let (setup, key) = with_models(setup, "[\"tiny\"]");
    let node = setup.set("aliases = { short = \"tiny\", large = \"huge\" }").start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for (model, status) in [("tiny", 200), ("short", 200), ("huge", 403), ("large", 403)] {
        let reply = client.fetch(key.sign(chat(model, ""))).await;
        assert_eq!(reply.status, status, "{model}: {}", reply.text());
        if status == 403 {
            assert_eq!(reply.code(), Some("model_not_allowed"));
            assert_eq!(reply.json()["error"]["param"], "model");
            assert_eq!(reply.header("www-authenticate"), None, "the key is good");
        }
        let card = client.fetch(key.sign(get(&format!("/v1/models/{model}")))).await;
        assert_eq!(card.status, status, "{model}");
        let v2 = client.fetch(key.sign(post(&format!("/v2/models/{model}/infer"), "{}"))).await;
        assert_eq!(v2.status, status, "{model}");
    }
    assert_eq!(replicas[1].requests.count(), 0);
    let list = client.fetch(key.sign(get("/v1/models"))).await.json();
    let ids: Vec<_> = list["data"].as_array().expect("a list").iter().map(|m| &m["id"]).collect();
    assert_eq!(ids, ["tiny", "short"]);
    let unknown = client.fetch(key.sign(chat("none", ""))).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("tiny") && !unknown.text().contains("huge"));
}

#[tokio::test]
async fn a_key_may_be_for_an_alias_or_a_split_without_what_is_behind() {
    let (setup, _replicas) = two_models().await;
    let split = "[[split]]\nmodel = \"mixed\"\narms = [\n\
                 { name = \"x\", model = \"tiny\", weight = 1 },\n\
                 { name = \"y\", model = \"huge\", weight = 1 } ]\n";
    let setup = setup.set("aliases = { short = \"tiny\", both = \"mixed\" }").table(split);
    let (setup, key) = with_models(setup, "[\"short\", \"mixed\"]");
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for _ in 0..8 {
        for model in ["short", "mixed", "both"] {
            assert_eq!(client.fetch(key.sign(chat(model, ""))).await.status, 200, "{model}");
        }
    }
    for model in ["tiny", "huge"] {
        assert_eq!(client.fetch(key.sign(chat(model, ""))).await.status, 403, "{model}");
    }
}

#[tokio::test]
async fn a_stand_in_serves_only_whose_key_is_for_it_too() {
    let refusing = format!("http://{}", Scripted::refusing());
    let replica = Scripted::start().await.serve(OK);
    let url = format!("http://{}", replica.address);
    let (one, both) = (Key::new("a", "acme", "models = [\"huge\"]"), Key::new("b", "acme", ""));
    let node = Setup::new()
        .set("fallback.huge = [\"tiny\"]")
        .replica_with("a", &refusing, "models = [\"huge\"]")
        .replica_with("b", &url, "models = [\"tiny\"]")
        .table(&*one.block)
        .table(&*both.block)
        .start()
        .await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let reply = client.fetch(one.sign(chat("huge", ""))).await;
    assert_eq!((reply.status, replica.requests.count()), (502, 0), "{}", reply.text());
    assert_eq!(client.fetch(both.sign(chat("huge", ""))).await.status, 200);
}

#[tokio::test]
async fn a_key_for_models_is_not_for_paths_that_name_none() {
    let replica = Scripted::start().await.serve(OK);
    let route = "[[route]]\nname = \"raw\"\npath_prefix = \"/raw\"\nprotocol = \"raw\"\n";
    let named = "[[route]]\nname = \"named\"\npath_prefix = \"/tiny\"\nprotocol = \"raw\"\n\
                 model = \"tiny\"\n";
    let any = Key::new("b", "acme", "");
    let setup = Setup::new().replica("a", replica.address).table(route).table(named);
    let (setup, key) = with_models(setup.table(&*any.block), "[\"tiny\"]");
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let reply = client.fetch(key.sign(post("/raw/x", "{}"))).await;
    assert_eq!((reply.status, reply.code()), (403, Some("model_not_allowed")));
    assert_eq!(client.fetch(any.sign(post("/raw/x", "{}"))).await.status, 200);
    assert_eq!(client.fetch(key.sign(post("/tiny/x", "{}"))).await.status, 200);
}
