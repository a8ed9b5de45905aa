//! Requests that are refused before they reach a replica, and parts of replies that never reach a
//! client.

use http::{HeaderValue, Method};
use spillway_node::Node;
use spillway_tests::{
    Client, OK, RAW_ROUTE, Reply, Scripted, Serving, Setup, Wire, both, chat, full, get, message,
    post,
};

/// Requests below /v1/predict go to /predictions/one of the replica.
const MAPPED: &str = "[[route]]\nname = \"mapped\"\npath_prefix = \"/v1/predict\"\n\
                      replace_prefix = \"/predictions/one\"\n";
const GRPC_ROUTE: &str =
    "[[route]]\nname = \"grpc\"\npath_prefix = \"/my.Service\"\nprotocol = \"grpc\"\n";
/// All in a chat's body that is needed.
const BODY: &str = "{\"model\":\"tiny\"}";

/// A node with both routes before a replica that always replies so.
async fn before(reply: impl Into<Vec<u8>>) -> (Serving, Node) {
    let replica = Scripted::start().await.serve(reply);
    let setup = Setup::new().replica("a", replica.address).table(RAW_ROUTE).table(MAPPED);
    (replica, setup.start().await)
}

/// Sends bytes of a client and reads the reply.
async fn raw(node: &Node, request: &str) -> spillway_tests::Message {
    let mut wire = Wire::connect(node.addresses()[0]).await;
    wire.send(request).await;
    wire.message().await
}

fn location(reply: &Reply) -> (u16, Option<&str>, Option<&str>) {
    (reply.status, reply.code(), reply.header("location"))
}

fn redirect(status: u16, location: &str) -> String {
    format!("HTTP/1.1 {status} Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n")
}

#[tokio::test]
async fn a_slash_at_the_end_of_a_known_path_goes_no_further() {
    let (replica, node) = before(OK).await;
    for client in &mut both(&node).await {
        for path in [
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/responses",
            "/v1/embeddings",
            "/v1/rerank",
            "/rerank",
            "/v1/audio/speech",
            "/tokenize",
            "/v2/models/tiny/infer",
            "/v2/models/tiny/versions/1/infer",
        ] {
            let reply = client.fetch(post(&format!("{path}/?a=b/"), BODY)).await;
            assert_eq!(reply.status, 200, "{path}");
            let line = format!("POST {path}?a=b/ HTTP/1.1");
            assert_eq!(replica.requests.last().first_line(), line);
        }
    }
    assert_eq!(Client::once(node.addresses()[0], post("/raw/x/", "")).await.status, 200);
    assert_eq!(replica.requests.last().first_line(), "POST /raw/x/ HTTP/1.1");
}

#[tokio::test]
async fn a_redirect_never_takes_a_client_past_the_gateway() {
    for status in [301, 302, 303, 307, 308] {
        for (place, expected) in [
            ("http://HOST/v1/chat/completions?a=b", Some("/v1/chat/completions?a=b")),
            ("//HOST/v1/chat/completions", Some("/v1/chat/completions")),
            ("/v1/models", Some("/v1/models")),
            ("other", Some("/v1/chat/other")),
            ("http://10.9.8.7/v1/chat/completions", None),
            ("//evil.example/", None),
            ("http://HOST//evil.example/", None),
            ("/\\evil.example", None),
            ("http://HOST@evil.example/", None),
        ] {
            let replica = Scripted::start().await;
            let place = place.replace("HOST", &replica.address.to_string());
            let replica = replica.serve(redirect(status, &place));
            let node = Setup::new().replica("a", replica.address).start().await;
            for client in &mut both(&node).await {
                let reply = client.fetch(chat("tiny", "")).await;
                let told = match expected {
                    Some(_) => (status, None, expected),
                    None => (502, Some("replica_redirect"), None),
                };
                assert_eq!(location(&reply), told, "{status} {place}");
            }
        }
    }
}

#[tokio::test]
async fn a_redirect_below_a_replaced_prefix_stays_below_it() {
    for (place, expected) in [
        ("/predictions/one/x/?a", Some("/v1/predict/x/?a")),
        ("y", Some("/v1/predict/a/y")),
        ("/predictions/two/x", None),
        ("/predictions/one/../two/x", None),
        ("/models", None),
    ] {
        let (_replica, node) = before(redirect(307, place)).await;
        for client in &mut both(&node).await {
            let reply = client.fetch(get("/v1/predict/a/x")).await;
            let told = match expected {
                Some(_) => (307, None, expected),
                None => (502, Some("replica_redirect"), None),
            };
            assert_eq!(location(&reply), told, "{place}");
        }
    }
}

#[tokio::test]
async fn orders_to_proxies_and_words_in_the_gateway_s_name_end_here() {
    let names = [
        "alt-svc",
        "content-location",
        "link",
        "refresh",
        "x-accel-redirect",
        "x-accel-expires",
        "x-sendfile",
        "x-lighttpd-send-file",
        "x-reproxy-url",
        "proxy-authenticate",
        "x-spillway-replica",
        "x-hop",
    ];
    let lines: String =
        names.iter().map(|name| format!("{name}: 0; url=http://evil/\r\n")).collect();
    let reply = format!(
        "HTTP/1.1 200 OK\r\n{lines}connection: x-hop\r\nx-accel-buffering: no\r\nset-cookie: a=b\r\n\
         content-length: 2\r\n\r\nok"
    );
    let (_replica, node) = before(reply).await;
    for client in &mut both(&node).await {
        let reply = client.fetch(get("/raw/x")).await;
        for name in names {
            assert_eq!(reply.header(name), None, "{name}");
        }
        assert_eq!(reply.header("x-accel-buffering"), Some("no"));
        assert_eq!(reply.header("set-cookie"), Some("a=b"));
    }
}

#[tokio::test]
async fn a_route_confines_its_requests_to_its_prefix() {
    let (replica, node) = before(OK).await;
    for below in [
        "/../two/x",
        "/%2e%2e/two/x",
        "/.%2E/two/x",
        "/%252e%252e/two/x",
        "/..%2ftwo/x",
        "/..%5ctwo/x",
        "/..\\two/x",
        "/..;/two/x",
        "/x;y=z",
        "//two/x",
        "/x//",
        "/./x",
        "/..",
        "/%00",
        "/x%0d%0ay",
        "/%2e%2e%20/x",
        "/%c0%ae%c0%ae/x",
        "/%zz",
    ] {
        for prefix in ["/v1/predict", "/raw"] {
            let path = format!("{prefix}{below}");
            let request = format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n");
            let reply = raw(&node, &request).await;
            assert_eq!(reply.status(), 400, "{path}");
            if !path.contains('\\') {
                let mut client = Client::http2(node.addresses()[0]).await;
                assert_eq!(client.fetch(get(&path)).await.status, 400, "{path}");
            }
        }
    }
    for outside in ["/v1/predictX/x", "/v1/predict%2fx", "/v1/%70redict/x", "//v1/predict/x"] {
        let reply = raw(&node, &format!("GET {outside} HTTP/1.1\r\nhost: h\r\n\r\n")).await;
        assert_eq!(reply.status(), 404, "{outside}");
    }
    assert_eq!(replica.requests.count(), 0);
    for (path, there) in [
        ("/v1/predict", "/predictions/one"),
        ("/v1/predict/", "/predictions/one/"),
        ("/v1/predict/a%20b/c.d:e?f=../g", "/predictions/one/a%20b/c.d:e?f=../g"),
    ] {
        assert_eq!(Client::once(node.addresses()[0], get(path)).await.status, 200, "{path}");
        assert_eq!(replica.requests.last().first_line(), format!("GET {there} HTTP/1.1"));
    }
}

#[tokio::test]
async fn an_escape_does_not_hide_the_prefix_of_a_stricter_route() {
    let replica = Scripted::start().await.serve(OK);
    let strict = "[[route]]\nname = \"strict\"\npath_prefix = \"/raw/admin\"\npool = \"other\"\n";
    let setup = Setup::new()
        .replica("a", replica.address)
        .replica_with("b", "http://127.0.0.1:1", "pool = \"other\"")
        .table("[[route]]\nname = \"raw\"\npath_prefix = \"/raw\"\npool = \"default\"\n")
        .table(strict);
    let node = setup.start().await;
    let reply = Client::once(node.addresses()[0], get("/raw/%61dmin/x")).await;
    assert_eq!((reply.status, replica.requests.count()), (400, 0));
}

#[tokio::test]
async fn a_call_below_a_grpc_route_is_confined_to_its_service() {
    let replica = Scripted::start().await;
    let lines = "protocol = \"http2\"";
    let url = format!("http://{}", replica.address);
    let setup = Setup::new().replica_with("a", &url, lines).table(GRPC_ROUTE);
    let node = setup.start().await;
    for path in ["/my.Service/../other/M", "/my.Service//M", "/my.Service/%2e%2e/M"] {
        let mut client = Client::http2(node.addresses()[0]).await;
        let call = message(Method::POST, path, "application/grpc", full(""));
        assert_eq!(client.fetch(call).await.header("grpc-status"), Some("3"), "{path}");
    }
    assert!(replica.is_alone().await);
}

#[tokio::test]
async fn methods_that_speak_to_proxies_are_refused_everywhere() {
    let (replica, node) = before(OK).await;
    for method in ["CONNECT", "TRACE", "TRACK", "FOO", "get"] {
        for (path, allowed) in [
            ("/raw/x", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
            ("/v1/predict/x", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
            ("/v1/chat/completions", "POST"),
            ("/v2/models/tiny/infer", "GET, HEAD, POST"),
        ] {
            let request =
                format!("{method} {path} HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n");
            let reply = raw(&node, &request).await;
            assert_eq!(reply.status(), 405, "{method} {path}");
            assert_eq!(reply.header("allow"), Some(allowed), "{method} {path}");
        }
    }
    let mut client = Client::http2(node.addresses()[0]).await;
    let reply = client.fetch(message(Method::TRACE, "/raw/x", "text/plain", full(""))).await;
    assert_eq!(reply.status, 405);
    assert_eq!(replica.requests.count(), 0);
}

#[tokio::test]
async fn a_head_that_may_be_read_in_two_ways_is_refused() {
    let (replica, node) = before(OK).await;
    for (status, line, headers) in [
        (400, "GET /raw/x", ""),
        (400, "GET /raw/x", "host: a\r\nhost: b\r\n"),
        (400, "GET http://b/raw/x", "host: a\r\n"),
        (400, "GET http://a@b/raw/x", "host: b\r\n"),
        (501, "POST /raw/x", "host: a\r\ntransfer-encoding: gzip, chunked\r\n"),
        (501, "POST /raw/x", "host: a\r\ntransfer-encoding: identity, chunked\r\n"),
        (
            501,
            "POST /raw/x",
            "host: a\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n",
        ),
        (501, "GET /raw/x", "host: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n"),
    ] {
        let request = format!("{line} HTTP/1.1\r\n{headers}\r\n0\r\n\r\n");
        let reply = raw(&node, &request).await;
        assert_eq!(reply.status(), status, "{request}");
    }
    assert_eq!(replica.requests.count(), 0);
    for request in [
        "GET /raw/x HTTP/1.0\r\n\r\n",
        "GET http://a/raw/x HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /raw/x HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
    ] {
        assert_eq!(raw(&node, request).await.status(), 200, "{request}");
    }
    let mut client = Client::http2(node.addresses()[0]).await;
    let mut other = get("/raw/x");
    other.headers_mut().insert("host", HeaderValue::from_static("other.example"));
    assert_eq!(client.fetch(other).await.status, 400);
}

#[tokio::test]
async fn every_content_encoding_is_looked_at() {
    let (replica, node) = before(OK).await;
    for codings in [&["gzip"][..], &["identity", "gzip"], &["identity, gzip"], &[""]] {
        let form = "--X\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ntiny\r\n--X--\r\n";
        let kind = "multipart/form-data; boundary=X";
        for mut request in [
            post("/v1/completions", BODY),
            message(Method::POST, "/v1/audio/transcriptions", kind, full(form)),
        ] {
            for coding in codings {
                let coding = HeaderValue::from_static(coding);
                request.headers_mut().append("content-encoding", coding);
            }
            let reply = Client::once(node.addresses()[0], request).await;
            assert_eq!(reply.status, 415, "{codings:?}");
        }
    }
    assert_eq!(replica.requests.count(), 0);
}

#[tokio::test]
async fn a_second_model_in_an_odd_spelling_reaches_no_replica() {
    let (replica, node) = before(OK).await;
    for second in ["name=\"x\"; name=\"model\"", "NAME=\"model\"", "name=model"] {
        let body = format!(
            "--X\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ntiny\r\n\
             --X\r\nContent-Disposition: form-data; {second}\r\n\r\nother\r\n--X--\r\n"
        );
        let kind = "multipart/form-data; boundary=X";
        let form = message(Method::POST, "/v1/audio/transcriptions", kind, full(body));
        let reply = Client::once(node.addresses()[0], form).await;
        assert_eq!((reply.status, reply.code()), (400, Some("bad_request")), "{second}");
    }
    assert_eq!(replica.requests.count(), 0);
}

#[tokio::test]
async fn a_replica_that_switches_protocols_unasked_has_failed() {
    let reply = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nrest";
    let (_replica, node) = before(reply).await;
    for client in &mut both(&node).await {
        let reply = client.fetch(get("/raw/x")).await;
        assert_eq!((reply.status, reply.code()), (502, Some("replica_bad_response")));
    }
}

#[tokio::test]
async fn a_reply_has_the_version_of_its_client() {
    let reply = "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let (_replica, node) = before(reply).await;
    for version in ["HTTP/1.1", "HTTP/1.0"] {
        let reply = raw(&node, &format!("GET /raw/x {version}\r\nhost: a\r\n\r\n")).await;
        assert_eq!(reply.first_line(), format!("{version} 200 OK"));
    }
}

#[tokio::test]
async fn trailers_that_are_headers_elsewhere_go_no_further() {
    let reply = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum, set-cookie\r\n\r\n\
                 2\r\nok\r\n0\r\nx-sum: 1\r\nset-cookie: a=b\r\ncontent-length: 9\r\nlocation: /x\r\n\r\n";
    let (_replica, node) = before(reply).await;
    let mut client = Client::http2(node.addresses()[0]).await;
    let reply = client.fetch(get("/raw/x")).await;
    let trailers = reply.trailers.expect("trailers");
    assert_eq!(trailers["x-sum"], "1");
    for name in ["set-cookie", "content-length", "location"] {
        assert!(!trailers.contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn what_overrides_path_or_address_at_some_servers_goes_no_further() {
    let (replica, node) = before(OK).await;
    for name in [
        "x-original-url",
        "x-rewrite-url",
        "x-http-method-override",
        "x_tenant_id",
        "x_forwarded_for",
        "x-forwarded-prefix",
        "x-real-ip",
    ] {
        let mut request = get("/raw/x");
        request.headers_mut().insert(name, HeaderValue::from_static("/admin"));
        assert_eq!(Client::once(node.addresses()[0], request).await.status, 200);
        assert_eq!(replica.requests.last().header(name), None, "{name}");
    }
}
