//! /v1/responses: a stored response can only be found again at the replica that stored it.

use std::collections::BTreeSet;

use http::Method;
use spillway_tests::{Client, Setup, emulator, full, get, message, post};

const RANDOM: &str = "[[route]]\nname = \"llm\"\npolicy = \"random\"\n";

#[tokio::test]
async fn a_stored_response_is_found_again_wherever_it_is() {
    let emulator = emulator(4).await;
    let setup = Setup::new().set("node.expose_routing = true").table(RANDOM).emulated(&emulator);
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let mut replicas = BTreeSet::new();
    for round in 0..16 {
        let stream = round % 2 == 0;
        let body = format!(
            r#"{{"model":"tiny","input":"round {round}","stream":{stream},"max_output_tokens":3}}"#
        );
        let first = client.fetch(post("/v1/responses", body)).await;
        assert_eq!(first.status, 200, "{}", first.text());
        let place = first.header("x-spillway-replica").expect("routing").to_owned();
        let id = response_id(first.text());

        let body = format!(
            r#"{{"model":"tiny","input":"more","previous_response_id":"{id}","max_output_tokens":3}}"#
        );
        let second = client.fetch(post("/v1/responses", body)).await;
        assert_eq!(second.status, 200, "{}", second.text());
        assert_eq!(second.header("x-spillway-replica"), Some(place.as_str()));

        let path = format!("/v1/responses/{id}");
        let found = client.fetch(get(&path)).await;
        assert_eq!(found.json()["id"], id);
        assert_eq!(found.header("x-spillway-replica"), Some(place.as_str()));
        let delete = message(Method::DELETE, &path, "application/json", full(""));
        assert_eq!(client.fetch(delete).await.json()["deleted"], true);
        assert_eq!(client.fetch(get(&path)).await.status, 404, "the replica's own answer");
        replicas.insert(place);
    }
    assert!(replicas.len() > 1, "a single replica proves nothing");
}

#[tokio::test]
async fn an_unknown_response_is_a_404_in_openai_s_words() {
    let emulator = emulator(2).await;
    let node = Setup::new().emulated(&emulator).start().await;
    let reply = Client::once(node.addresses()[0], get("/v1/responses/resp_nothing")).await;
    assert_eq!((reply.status, reply.code()), (404, Some("response_not_found")));
    let message = reply.json()["error"]["message"].as_str().expect("a message").to_owned();
    assert!(message.contains("resp_nothing"), "{message}");
}

/// The id in a reply, be it an object or a stream of events.
fn response_id(text: &str) -> String {
    let at = text.find("\"resp_").expect("an id") + 1;
    let end = text[at..].find('"').expect("the id's end");
    text[at..at + end].to_owned()
}
