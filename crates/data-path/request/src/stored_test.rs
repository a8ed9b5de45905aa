use std::time::Instant;

use spillway_types::TenantName;

use super::*;
use crate::test_around::{Around, Asked, Served, guest, model, run};

fn here(replica: &str) -> Home {
    Home::Replica(replica.into())
}

fn there(region: &str, node: Option<&str>, replica: Option<&str>) -> Home {
    let (node, replica) = (node.map(Into::into), replica.map(Into::into));
    Home::Elsewhere { region: region.into(), node, replica }
}

/// Returns a node that knows the response `resp_1`.
fn knowing(home: Home, tenant: Option<&str>, model: &str) -> Around {
    let served = Served::models(&["a", "b"]).with_alias("best", "b");
    let around = Around::new(served);
    let tenant = tenant.map(TenantName::from);
    let stored = StoredResponse { home, tenant, model: model.into() };
    around.gateway.homes.responses.keep("resp_1", stored, Instant::now()).unwrap();
    around
}

fn of_tenant(mut around: Around, tenant: &str) -> Around {
    around.grant.tenant = Some(tenant.into());
    around
}

fn ask(around: &Around) -> Result<Prepared, ErrorKind> {
    let asked = Asked::get("/v1/responses/resp_1");
    run(around.prepare(asked)).map_err(|error| error.kind)
}

#[test]
fn a_stored_response_is_asked_for_where_it_is() {
    let prepared = ask(&knowing(here("replica-of-b"), None, "best")).unwrap();
    assert_eq!(prepared.pinned.map(ReplicaSlot::index), Some(1));
    assert_eq!((model(&prepared), &prepared.target.home), (Some("b"), &None));
    let prepared = ask(&knowing(there("eu", Some("n2"), Some("replica-of-a")), None, "a")).unwrap();
    assert_eq!(
        prepared.pinned.map(ReplicaSlot::index),
        Some(0),
        "a replica that this node has too"
    );
    let prepared = ask(&knowing(there("us", Some("n9"), Some("far")), None, "a")).unwrap();
    let home = prepared.target.home.unwrap();
    assert_eq!((home.region.as_str(), home.node.unwrap().as_str()), ("us", "n9"));
    assert!(prepared.pinned.is_none());
}

#[test]
fn a_response_of_another_tenant_is_like_one_that_never_was() {
    let not_found = Err(ErrorKind::ResponseNotFound);
    let found = |around: &Around| ask(around).map(|_| ());
    for (owner, tenant, expected) in [
        (Some("acme"), Some("acme"), Ok(())),
        (Some("acme"), Some("other"), not_found),
        (Some("acme"), None, not_found),
        (None, Some("acme"), not_found),
        (None, None, Ok(())),
    ] {
        let around = knowing(here("replica-of-a"), owner, "a");
        let around = match tenant {
            Some(tenant) => of_tenant(around, tenant),
            None => around,
        };
        assert_eq!(found(&around), expected, "of {owner:?} for {tenant:?}");
    }
    let message = |around: &Around, id: &str| {
        let asked = Asked::get(&format!("/v1/responses/{id}"));
        run(around.prepare(asked)).unwrap_err().message.replace(id, "ID")
    };
    let around = of_tenant(knowing(here("replica-of-a"), Some("acme"), "a"), "other");
    assert_eq!(message(&around, "resp_1"), message(&around, "resp_2"));
}

#[test]
fn a_key_that_lacks_the_model_may_not_have_its_responses_either() {
    for (allowed, named, is_found) in [
        (&["a"][..], "a", true),
        (&["b"], "a", false),
        (&["b"], "best", true),
        (&["best"], "best", true),
        (&["best"], "b", false),
    ] {
        let around = knowing(here("replica-of-b"), None, named).allow(allowed);
        assert_eq!(ask(&around).is_ok(), is_found, "{named} for {allowed:?}");
    }
}

#[test]
fn a_response_whose_home_is_gone_is_not_found() {
    for home in [
        here("gone"),
        // Of this region, but neither here nor at a node that is known.
        there("eu", None, None),
        there("eu", None, Some("gone")),
    ] {
        let found = ask(&knowing(home.clone(), None, "a")).map(|_| ());
        assert_eq!(found, Err(ErrorKind::ResponseNotFound), "{home:?}");
    }
}

#[test]
fn a_node_that_still_learns_asks_to_try_again_instead_of_denying() {
    let around = Around::new(Served::models(&["a"]));
    assert_eq!(ask(&around).map(|_| ()), Err(ErrorKind::ResponseNotFound));
    around.gateway.homes.responses.set_learning(true);
    let error = run(around.prepare(Asked::get("/v1/responses/resp_1"))).unwrap_err();
    assert_eq!((error.kind, error.retry_after), (ErrorKind::NoReplica, Some(LEARNING_RETRY)));
    // The node that sent a guest knows where the response is.
    let around = Around { guest: Some(guest(Some("a"))), ..around };
    assert_eq!(ask(&around).map(|_| ()), Err(ErrorKind::ResponseNotFound));
}

#[test]
fn a_guest_is_not_sent_on_to_a_third_node() {
    let home = there("us", Some("n9"), None);
    let around = Around { guest: Some(guest(Some("a"))), ..knowing(home, None, "a") };
    assert_eq!(ask(&around).map(|_| ()), Err(ErrorKind::ResponseNotFound));
}

#[test]
fn an_answer_to_a_stored_response_goes_to_its_replica_alone() {
    let asking = |around: &Around, id: &str| {
        let body = format!(r#"{{"model":"a","input":"x","previous_response_id":"{id}"}}"#);
        run(around.prepare(Asked::post("/v1/responses", body)))
    };
    let mut served = Served::models(&["a", "b"]).with_fallback("a", &["b"]);
    served.replicas[1].models.push("a".into());
    let around = Around::new(served);
    let stored = StoredResponse { home: here("replica-of-b"), tenant: None, model: "a".into() };
    around.gateway.homes.responses.keep("resp_1", stored, Instant::now()).unwrap();
    let prepared = asking(&around, "resp_1").unwrap();
    assert_eq!(prepared.pinned.map(ReplicaSlot::index), Some(1));
    assert!(prepared.target.fallback.is_none(), "another model has not got the response");
    assert_eq!(prepared.stored_for.as_ref().map(ModelName::as_str), Some("a"));
    // Without keys the engine judges ids that are unknown.
    let prepared = asking(&around, "resp_2").unwrap();
    assert!(prepared.pinned.is_none() && prepared.target.fallback.is_some());
    let around = of_tenant(around, "acme");
    assert_eq!(asking(&around, "resp_2").unwrap_err().kind, ErrorKind::ResponseNotFound);
}

#[test]
fn a_reply_that_is_not_to_be_stored_is_not_remembered() {
    let around = Around::new(Served::models(&["b"]).with_alias("best", "b"));
    for (path, extra, expected) in [
        ("/v1/responses", "", Some("best")),
        ("/v1/responses", r#","store":true"#, Some("best")),
        ("/v1/responses", r#","store":false"#, None),
        ("/v1/chat/completions", "", None),
    ] {
        let body = format!(r#"{{"model":"best","input":"x"{extra}}}"#);
        let prepared = around.prepared(Asked::post(path, body));
        let stored_for = prepared.stored_for.as_ref().map(ModelName::as_str);
        assert_eq!(stored_for, expected, "{path} {extra}");
    }
}
