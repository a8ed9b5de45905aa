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
    for (model, status) in [("tiny", 200), ("short", 200), ("huge", 404), ("large", 404)] {
        let reply = client.fetch(key.sign(chat(model, ""))).await;
        assert_eq!(reply.status, status, "{model}: {}", reply.text());
        if status == 404 {
            assert_eq!(reply.code(), Some("model_not_found"));
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

/// A model outside a key's rights is answered like a model that does not exist: same status,
/// headers and body, except for the name.
#[tokio::test]
async fn models_of_others_are_answered_like_models_that_do_not_exist() {
    let (setup, _replicas) = two_models().await;
    let split = "[[split]]\nmodel = \"both\"\narms = [\n\
                 { name = \"x\", model = \"tiny\", weight = 1 },\n\
                 { name = \"y\", model = \"huge\", weight = 1 } ]\n";
    let (setup, key) = with_models(setup.table(split), "[\"tiny\"]");
    let node = setup.set("aliases = { fast = \"huge\" }").start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let asked = |model: &str| {
        let v2 = |end: &str| format!("/v2/models/{model}{end}");
        let json = format!("{{\"model\":\"{model}\",\"input\":\"x\",\"prompt\":\"x\"}}");
        let form = format!(
            "--X\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n--X--\r\n"
        );
        let mut upload = post("/v1/audio/transcriptions", form);
        let kind = http::HeaderValue::from_static("multipart/form-data; boundary=X");
        upload.headers_mut().insert("content-type", kind);
        vec![
            chat(model, ""),
            chat(&format!("{model}@2"), ""),
            post("/v1/completions", json.clone()),
            post("/v1/embeddings", json.clone()),
            post("/v1/responses", json.clone()),
            post("/v1/rerank", json),
            upload,
            get(&format!("/v1/models/{model}")),
            get(&v2("")),
            get(&v2("/ready")),
            get(&v2("/versions/1")),
            post(&v2("/infer"), "{}"),
            post(&v2("/versions/1/infer"), "{}"),
        ]
    };
    // Names of equal length, so that lengths are equal too.
    for model in ["huge", "both", "fast"] {
        for (theirs, nobodys) in asked(model).into_iter().zip(asked("none")) {
            let path = theirs.uri().path().to_owned();
            let theirs = client.fetch(key.sign(theirs)).await;
            let nobodys = client.fetch(key.sign(nobodys)).await;
            let seen = |reply: &spillway_tests::Reply, model: &str| {
                let names: Vec<String> = reply.headers.keys().map(ToString::to_string).collect();
                (reply.status, names, reply.text().replace(model, "NAME"))
            };
            assert_eq!(theirs.status, 404, "{path}: {}", theirs.text());
            assert_eq!(seen(&theirs, model), seen(&nobodys, "none"), "{path}");
        }
    }
    node.stop().await;
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
        assert_eq!(client.fetch(key.sign(chat(model, ""))).await.status, 404, "{model}");
    }
}

#[tokio::test]
async fn a_key_for_one_model_needs_no_name_and_gets_no_other_model() {
    let replica = Scripted::start().await.serve(OK);
    let url = format!("http://{}", replica.address);
    let setup = Setup::new().set("aliases = { short = \"tiny\" }");
    let setup = setup.replica_with("a", &url, "models = [\"tiny\", \"huge\"]");
    let (any, alias) = (Key::new("b", "acme", ""), Key::new("c", "acme", "models = [\"short\"]"));
    let (setup, key) = with_models(setup.table(&*any.block).table(&*alias.block), "[\"tiny\"]");
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for (key, status) in [(&key, 200), (&alias, 200), (&any, 400)] {
        let before = replica.requests.count();
        let reply = client.fetch(key.sign(post("/rerank", "{\"query\":\"q\"}"))).await;
        assert_eq!(reply.status, status, "{}", reply.text());
        if status == 200 {
            // The replica serves two models, and would choose one itself.
            let body = String::from_utf8(replica.requests.last().body).expect("text");
            assert_eq!(body, "{\"model\":\"tiny\",\"query\":\"q\"}");
        } else {
            assert!(reply.text().contains("name one of huge, tiny, short"), "{}", reply.text());
            assert_eq!(replica.requests.count(), before);
        }
        // Nothing can be added to an upload.
        let mut upload = post("/v1/audio/transcriptions", "--X--\r\n");
        let kind = http::HeaderValue::from_static("multipart/form-data; boundary=X");
        upload.headers_mut().insert("content-type", kind);
        let before = replica.requests.count();
        let reply = client.fetch(key.sign(upload)).await;
        assert_eq!((reply.status, replica.requests.count()), (400, before), "{}", reply.text());
    }
    node.stop().await;
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
