//! Requests with and without a key, and what becomes of the key.

use std::collections::BTreeSet;

use http::{HeaderValue, Request};
use spillway_cluster_state::{Key as Record, KeyId, KeyRole, KeyText};
use spillway_tests::{Client, ClientBody, OK, Page, Scripted, Setup, both, chat, get, post};

const SALT: [u8; 16] = [0x5a; 16];

/// A key with its text and its part of a config.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) block: String,
}

impl Key {
    /// The key `id` of a tenant, with more lines for its part of the config.
    pub(crate) fn new(id: &str, tenant: &str, lines: &str) -> Self {
        let secret = id.as_bytes().iter().fold([1; 32], |mut secret: [u8; 32], byte| {
            secret.rotate_left(1);
            secret[0] ^= byte;
            secret
        });
        let text = KeyText::write(&KeyId::from(id), &secret);
        let hash = KeyText::read(&text).expect("a key").hash(&SALT);
        let digits =
            |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let block = format!(
            "\n[[key]]\nid = \"{id}\"\nsalt = \"{}\"\nhash = \"{}\"\ntenant = \"{tenant}\"\n{lines}\n",
            digits(&SALT),
            digits(hash.reveal())
        );
        Self { text, block }
    }

    pub(crate) fn sign(&self, request: Request<ClientBody>) -> Request<ClientBody> {
        with(request, "authorization", &format!("Bearer {}", self.text))
    }
}

/// Record of a key, as the cluster keeps it.
pub(crate) fn record(text: &str, tenant: &str) -> Record {
    Record {
        role: KeyRole::Client,
        salt: SALT,
        hash: KeyText::read(text).expect("a key").hash(&SALT),
        tenant: Some(tenant.into()),
        models: BTreeSet::new(),
        regions: BTreeSet::new(),
        priority: 0,
        expires_ms: None,
        is_revoked: false,
    }
}

pub(crate) fn with(
    mut request: Request<ClientBody>,
    name: &'static str,
    value: &str,
) -> Request<ClientBody> {
    request.headers_mut().append(name, HeaderValue::try_from(value).expect("a value"));
    request
}

#[tokio::test]
async fn only_a_right_key_is_let_in_and_no_replica_sees_it() {
    let replica = Scripted::start().await.serve(OK);
    let key = Key::new("a", "acme", "");
    let node = Setup::new().replica("a", replica.address).table(&*key.block).start().await;
    let wrong = Key::new("b", "acme", "").text.replace("sw_b", "sw_a");
    for client in &mut both(&node).await {
        let before = replica.requests.count();
        let reply = client.fetch(chat("tiny", "")).await;
        assert_eq!((reply.status, reply.code()), (401, Some("missing_api_key")));
        assert_eq!(reply.header("www-authenticate"), Some("Bearer realm=\"spillway\""));
        assert_eq!(reply.json()["error"]["code"], "missing_api_key");
        for (name, value) in [
            ("authorization", format!("Bearer {wrong}")),
            ("authorization", "Bearer sk-something".to_owned()),
            ("authorization", "Basic dTpw".to_owned()),
            ("x-api-key", wrong.clone()),
        ] {
            let reply = client.fetch(with(chat("tiny", ""), name, &value)).await;
            assert_eq!((reply.status, reply.code()), (401, Some("invalid_api_key")), "{value}");
            let challenge = reply.header("www-authenticate").expect("a challenge");
            assert!(challenge.contains("invalid_token"), "{challenge}");
            assert!(!reply.text().contains(&value), "{}", reply.text());
        }
        assert_eq!(replica.requests.count(), before);
        for (name, value) in [
            ("authorization", format!("Bearer {}", key.text)),
            ("authorization", format!("bearer  {}", key.text)),
            ("x-api-key", key.text.clone()),
            ("api-key", key.text.clone()),
        ] {
            let reply = client.fetch(with(chat("tiny", ""), name, &value)).await;
            assert_eq!(reply.status, 200, "{name} {}", reply.text());
            let seen = replica.requests.last();
            for name in ["authorization", "x-api-key", "api-key"] {
                assert_eq!(seen.header(name), None, "{name}");
            }
        }
        assert_eq!(replica.requests.count(), before + 4);
    }
    assert!(!node.metrics().contains(&key.text), "nor do metrics have it");
}

#[tokio::test]
async fn errors_have_each_protocol_s_own_form() {
    let route = "[[route]]\nname = \"raw\"\npath_prefix = \"/raw\"\nprotocol = \"raw\"\n";
    let node = Setup::new().set("auth.mode = \"keys\"").table(route).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let v2 = client.fetch(post("/v2/models/tiny/infer", "{}")).await;
    assert_eq!((v2.status, &v2.json()["code"]), (401, &"missing_api_key".into()));
    assert!(v2.json()["error"].is_string(), "{}", v2.text());
    let raw = client.fetch(post("/raw/x", "{}")).await;
    assert_eq!((raw.status, &raw.json()["error"]["code"]), (401, &"missing_api_key".into()));
    let unknown = client.fetch(get("/nothing")).await;
    assert_eq!(unknown.status, 401, "not even what there is is told");
}

#[tokio::test]
async fn health_needs_no_key_unless_a_route_has_its_path() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().set("auth.mode = \"keys\"").replica("a", replica.address);
    let node = setup.clone().start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for path in ["/livez", "/readyz", "/v2/health/live", "/v2/health/ready"] {
        assert_eq!(client.fetch(get(path)).await.status, 200, "{path}");
    }
    for path in ["/v1/models", "/v1/models/tiny", "/v2", "/metrics"] {
        assert_eq!(client.fetch(get(path)).await.status, 401, "{path}");
    }
    let route = "[[route]]\nname = \"all\"\npath_prefix = \"/\"\nprotocol = \"raw\"\n";
    let node = setup.table(route).start().await;
    let reply = Client::once(node.addresses()[0], get("/livez")).await;
    assert_eq!((reply.status, replica.requests.count()), (401, 0), "it is the replica's here");
}

#[tokio::test]
async fn a_route_that_forwards_credentials_forwards_those_alone_that_are_not_ours() {
    let replica = Scripted::start().await.serve(OK);
    let key = Key::new("a", "acme", "");
    let route = "[[route]]\nname = \"llm\"\nforward_authorization = true\n";
    let setup = Setup::new().replica("a", replica.address).table(route).table(&*key.block);
    let node = setup.start().await;
    let theirs = with(chat("tiny", ""), "authorization", "Bearer sk-theirs");
    let reply = Client::once(node.addresses()[0], with(theirs, "x-api-key", &key.text)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let seen = replica.requests.last();
    assert_eq!(seen.header("authorization"), Some("Bearer sk-theirs"));
    assert_eq!(seen.header("x-api-key"), None);
    Client::once(node.addresses()[0], key.sign(chat("tiny", ""))).await;
    assert_eq!(replica.requests.last().header("authorization"), None);
}

#[tokio::test]
async fn requests_for_entry_are_counted_by_tenant_and_result() {
    let replica = Scripted::start().await.serve(OK);
    let (acme, old) = (
        Key::new("a", "acme", "models = [\"tiny\"]"),
        Key::new("b", "old", "expires = 2020-01-01T00:00:00Z"),
    );
    let setup = Setup::new().replica("a", replica.address).table(&*acme.block).table(&*old.block);
    let node = setup.replica_with("b", "http://127.0.0.1:1", "models = [\"huge\"]").start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for (request, status) in [
        (acme.sign(chat("tiny", "")), 200),
        (acme.sign(chat("tiny", "")), 200),
        (acme.sign(chat("huge", "")), 404),
        (old.sign(chat("tiny", "")), 401),
        (chat("tiny", ""), 401),
        (with(chat("tiny", ""), "x-api-key", "sw_other_tenant"), 401),
        (with(chat("tiny", ""), "x-api-key", "sw_made_up"), 401),
    ] {
        assert_eq!(client.fetch(request).await.status, status);
    }
    let page = Page::of(&node);
    for (tenant, result, total) in [
        ("acme", "ok", 3.0),
        ("acme", "model", 1.0),
        ("old", "expired", 1.0),
        ("", "missing", 1.0),
        ("", "unknown", 2.0),
    ] {
        let labels = [("tenant", tenant), ("result", result)];
        assert_eq!(page.sum("spillway_access_total", &labels), total, "{tenant} {result}");
    }
    assert_eq!(page.sum("spillway_access_total", &[]), 8.0, "nothing else");
}

#[tokio::test]
async fn a_suspended_tenant_and_an_ended_key_are_told_apart_from_an_unknown_one() {
    let (gone, old, void) = (
        Key::new("a", "gone", ""),
        Key::new("b", "acme", "expires = 2020-01-01T00:00:00Z"),
        Key::new("c", "acme", "revoked = true"),
    );
    let tenant = "[[tenant]]\nname = \"gone\"\nsuspended = true\n";
    let mut setup = Setup::new().table(tenant);
    for key in [&gone, &old, &void] {
        setup = setup.table(&*key.block);
    }
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for (key, message) in [(gone, "suspended"), (old, "expired"), (void, "revoked")] {
        let reply = client.fetch(key.sign(get("/v1/models"))).await;
        assert_eq!((reply.status, reply.code()), (401, Some("invalid_api_key")));
        assert!(reply.text().contains(message), "{}", reply.text());
    }
}

#[tokio::test]
async fn nobody_is_asked_where_the_config_says_so() {
    let replica = Scripted::start().await.serve(OK);
    let key = Key::new("a", "acme", "");
    let setup = Setup::new().replica("a", replica.address).table(&*key.block);
    for open in [
        setup.clone().set("auth.mode = \"none\""),
        setup.clone().set("auth.mode = \"keys\"").listener("auth = \"none\""),
    ] {
        let node = open.start().await;
        let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
        assert_eq!(reply.status, 200);
        // Even here a key of ours stays here.
        let reply = Client::once(node.addresses()[0], key.sign(chat("tiny", ""))).await;
        assert_eq!(reply.status, 200);
        assert_eq!(replica.requests.last().header("authorization"), None);
    }
}

#[tokio::test]
async fn of_several_keys_none_lets_in() {
    let replica = Scripted::start().await.serve(OK);
    let (own, other) = (Key::new("a", "acme", ""), Key::new("b", "other", ""));
    let setup = Setup::new().replica("a", replica.address);
    let node = setup.table(&*own.block).table(&*other.block).start().await;
    for (name, text) in [
        ("authorization", format!("Bearer {}", other.text)),
        ("authorization", "Bearer sk-other".to_owned()),
        ("x-api-key", other.text.clone()),
        ("api-key", other.text.clone()),
    ] {
        let mut request = own.sign(chat("tiny", ""));
        request.headers_mut().append(name, HeaderValue::try_from(&text).expect("a value"));
        let reply = Client::once(node.addresses()[0], request).await;
        assert_eq!((reply.status, reply.code()), (400, Some("bad_request")), "{name}");
    }
    assert_eq!(replica.requests.count(), 0);
    let twice = with(own.sign(chat("tiny", "")), "x-api-key", &own.text);
    assert_eq!(Client::once(node.addresses()[0], twice).await.status, 200);
}

#[tokio::test]
async fn a_limit_of_the_file_holds_on_this_node_from_the_first_request_on() {
    let replica = Scripted::start().await.serve(OK);
    let (one, other) = (Key::new("a", "acme", ""), Key::new("b", "acme", ""));
    let limit = "\n[[limit]]\nname = \"key:a\"\nrequests_per_min = 3\ntokens_per_min = 4000\n";
    let table = format!("{}{}{limit}", one.block, other.block);
    let node = Setup::new().replica("a", replica.address).table(&*table).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let small = || chat("tiny", ",\"max_tokens\":9");
    for remaining in ["2", "1", "0"] {
        let reply = client.fetch(one.sign(small())).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.header("x-ratelimit-limit-requests"), Some("3"));
        assert_eq!(reply.header("x-ratelimit-remaining-requests"), Some(remaining));
        // A minute and a step of it, less the time of the request.
        let reset = reply.header("x-ratelimit-reset-requests").expect("a time");
        assert!(reset.starts_with("1m") || reset.starts_with('5'), "{reset}");
        assert_eq!(reply.header("x-ratelimit-limit-tokens"), Some("4000"));
        let tokens: u64 =
            reply.header("x-ratelimit-remaining-tokens").expect("a number").parse().expect("one");
        assert!((3_000..4_000).contains(&tokens), "{tokens}");
    }
    let reply = client.fetch(one.sign(small())).await;
    assert_eq!((reply.status, reply.code()), (429, Some("rate_limited")));
    assert_eq!(reply.header("x-spillway-shed-reason"), Some("request_rate"));
    assert_eq!(reply.header("x-ratelimit-remaining-requests"), Some("0"));
    let after: u64 = reply.header("retry-after").expect("a time").parse().expect("seconds");
    assert!((55..=61).contains(&after), "{after}");
    let text = reply.text();
    assert!(text.contains("3 requests/min for key a: 3 used, again in "), "{text}");
    // A request that can never be served gets no retry time.
    let reply = client.fetch(one.sign(chat("tiny", ",\"max_tokens\":5000"))).await;
    assert_eq!(reply.status, 429, "its requests are used up first: {}", reply.text());
    // Other keys see no headers for limits that they don't have.
    let reply = client.fetch(other.sign(chat("tiny", ",\"max_tokens\":5000"))).await;
    assert_eq!((reply.status, reply.header("x-ratelimit-limit-requests")), (200, None));
}

/// Reads a config with this part.
fn load(part: &str) -> Result<(), String> {
    let text = format!("{}\n{part}\n", Setup::new().text());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("spillway.toml");
    std::fs::write(&file, text).expect("a file");
    spillway_config::Config::load(&file).map(drop).map_err(|error| error.to_string())
}

#[test]
fn a_limit_may_be_of_any_tenant_that_the_node_can_hear_of() {
    let of = |tenant: &str| format!("[[limit]]\nname = \"tenant:{tenant}\"\nconcurrency = 5\n");
    load(&of("any")).expect("a proxy in front names tenants");
    let key = Key::new("a", "acme", "").block;
    load(&format!("{key}{}", of("acme"))).expect("the tenant of a key");
    assert!(load(&format!("{key}{}", of("zeta"))).is_err());
    let section = "[[tenant]]\nname = \"zeta\"\n";
    load(&format!("{key}{section}{}", of("zeta"))).expect("a tenant with a section");
}

#[test]
fn a_file_has_so_many_limits_at_most() {
    let limit = |number| format!("[[limit]]\nname = \"model:m{number}\"\nconcurrency = 1\n");
    let many = |count: usize| load(&(0..count).map(limit).collect::<String>());
    many(32_768).expect("as many as a cluster can have");
    let error = many(32_769).expect_err("one more");
    assert!(error.contains("32768 limits at most"), "{error}");
}

#[test]
fn a_limit_of_nobody_or_of_nothing_is_found_before_the_node_starts() {
    let key = Key::new("a", "acme", "").block;
    let fault = |limit: &str| load(&format!("{key}\n[[limit]]\n{limit}"));
    for good in ["global", "tenant:acme", "model:any", "key:a"] {
        fault(&format!("name = \"{good}\"\nrequests_per_s = 5")).expect(good);
    }
    for (wrong, why) in [
        ("name = \"key:b\"\nconcurrency = 5", "there is no key b in this config"),
        ("name = \"tenant:other\"\nconcurrency = 5", "there is no tenant other"),
        ("name = \"key:\"\nconcurrency = 5", "can't be limited"),
        ("name = \"everybody\"\nconcurrency = 5", "can't be limited"),
        ("name = \"global\"", "limits nothing"),
        ("name = \"global\"\nrequests_per_s = 1\nrequests_per_min = 60", "limited twice"),
        (
            "name = \"global\"\nconcurrency = 1\n[[limit]]\nname = \"global\"\nconcurrency = 2",
            "a second",
        ),
    ] {
        let error = fault(wrong).expect_err(wrong);
        assert!(error.contains(why), "{error}");
    }
}
