//! Who says whose a request is: the credential, or a proxy that the config trusts.

use spillway_tests::{Client, OK, Scripted, Setup, chat, get};

use crate::keys::{Key, with};

const CLAIMS: [&str; 5] =
    ["x-spillway-tenant", "x-spillway-priority", "x-spillway-regions", "x-tenant-id", "x-priority"];

#[tokio::test]
async fn claims_of_clients_go_no_further() {
    let replica = Scripted::start().await.serve(OK);
    let key = Key::new("a", "acme", "");
    let open = Setup::new().replica("a", replica.address);
    for (setup, key) in [(open.clone(), None), (open.table(&*key.block), Some(key))] {
        let node = setup.start().await;
        let request =
            CLAIMS.iter().fold(chat("tiny", ""), |request, name| with(request, name, "1"));
        let request = key.iter().fold(request, |request, key| key.sign(request));
        let reply = Client::once(node.addresses()[0], request).await;
        assert_eq!(reply.status, 200);
        for name in CLAIMS {
            assert_eq!(replica.requests.last().header(name), None, "{name}");
        }
    }
}

#[tokio::test]
async fn a_trusted_proxy_is_believed_and_nobody_else() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new()
        .replica("a", replica.address)
        .replica_with("b", "http://127.0.0.1:1", "models = [\"huge\"]")
        .table("[[tenant]]\nname = \"gone\"\nsuspended = true\n");
    let trusted = "auth = \"headers\"\ntrusted_proxies = [\"127.0.0.0/8\"]";
    let node = setup.clone().listener(trusted).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let claimed = |tenant| with(chat("tiny", ""), "x-spillway-tenant", tenant);
    assert_eq!(client.fetch(claimed("acme")).await.status, 200);
    assert_eq!(replica.requests.last().header("x-spillway-tenant"), Some("acme"));
    assert_eq!(client.fetch(chat("tiny", "")).await.status, 401);
    assert_eq!(client.fetch(claimed("gone")).await.status, 401);
    let limited = || with(claimed("acme"), "x-spillway-models", "huge, other");
    assert_eq!(client.fetch(limited()).await.status, 403);
    let list = with(get("/v1/models"), "x-spillway-tenant", "acme");
    let list = client.fetch(with(list, "x-spillway-models", "huge")).await.json();
    assert_eq!(list["data"].as_array().expect("a list").len(), 1);
    let elsewhere = with(claimed("acme"), "x-spillway-regions", "mars");
    let reply = client.fetch(elsewhere).await;
    assert_eq!((reply.status, reply.code()), (403, Some("region_not_allowed")));
    assert_eq!(client.fetch(get("/livez")).await.status, 200);

    let other = trusted.replace("127.0.0.0/8", "10.0.0.0/8");
    let node = setup.listener(&other).start().await;
    let reply = Client::once(node.addresses()[0], claimed("acme")).await;
    assert_eq!((reply.status, reply.code()), (401, Some("missing_api_key")));
}
