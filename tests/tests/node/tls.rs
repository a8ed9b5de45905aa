//! TLS on both sides.

use std::time::Duration;

use http::Method;
use hyper_util::rt::{TokioExecutor, TokioIo};
use spillway_node::Node;
use spillway_tests::{
    Client, Closed, OK, Page, Scripted, Serving, Setup, Wire, chat, eventually, spawn, within,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::certificates::Certificates;
use crate::reload::{File, reloads};

/// A replica behind TLS; returns its URL.
async fn encrypted(certificates: &Certificates, replica: &Serving) -> String {
    behind_tls(certificates.acceptor(), replica).await
}

/// Puts a server with TLS before a replica; returns its URL.
async fn behind_tls(acceptor: TlsAcceptor, replica: &Serving) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("https://{}", listener.local_addr().expect("a bound socket"));
    let behind = replica.address;
    spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            spawn(async move {
                // A client that does not trust us breaks off, as the test means it to.
                let Ok(mut tls) = acceptor.accept(tcp).await else { return };
                let mut plain = TcpStream::connect(behind).await.expect("connects");
                drop(copy_bidirectional(&mut tls, &mut plain).await);
            });
        }
    });
    url
}

#[tokio::test]
async fn a_replica_with_a_private_ca_and_another_name_is_reached() {
    let certificates = Certificates::for_name("replica.test");
    let replica = Scripted::start().await.serve(OK);
    let url = encrypted(&certificates, &replica).await;
    let ca = certificates.ca_file().display().to_string();
    let lines = format!("tls = {{ ca = \"{ca}\", server_name = \"replica.test\" }}");
    let node = Setup::new().replica_with("a", &url, &lines).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for _ in 0..3 {
        assert_eq!(client.fetch(chat("tiny", "")).await.body, "ok");
    }
    assert_eq!(Page::of(&node).sum("spillway_replica_connections", &[]), 1.0);
}

#[tokio::test]
async fn a_replica_that_can_t_prove_itself_is_not_asked() {
    let certificates = Certificates::for_name("replica.test");
    let others = Certificates::for_name("replica.test");
    let replica = Scripted::start().await.serve(OK);
    let url = encrypted(&certificates, &replica).await;
    let wrong_ca = format!(
        "tls = {{ ca = \"{}\", server_name = \"replica.test\" }}",
        others.ca_file().display()
    );
    let wrong_name = format!("tls = {{ ca = \"{}\" }}", certificates.ca_file().display());
    for lines in [wrong_ca, wrong_name, String::new()] {
        let node = Setup::new().replica_with("a", &url, &lines).start().await;
        let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
        assert_eq!((reply.status, reply.code()), (502, Some("replica_connect")), "{lines:?}");
    }
    assert_eq!(replica.requests.count(), 0);
}

#[tokio::test]
async fn a_replica_that_demands_a_certificate_is_shown_one_by_requests_checks_and_scrapes() {
    let certificates = Certificates::for_name("replica.test");
    let clients = Certificates::for_name("gateway.test");
    let page = "vllm:num_requests_waiting 0\n";
    let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{page}", page.len());
    let replica = Scripted::start().await.serve(reply);
    let url = behind_tls(certificates.acceptor_for(&clients), &replica).await;
    let ca =
        format!("ca = \"{}\", server_name = \"replica.test\"", certificates.ca_file().display());
    let setup = Setup::new().set("health.check = \"http\"");
    let more = "kind = \"vllm\"\nhealth.interval_ms = 20";
    let shown = format!("tls = {{ {ca}, {} }}\n{more}", clients.pair());
    let node = setup.clone().replica_with("a", &url, &shown).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    assert_eq!(client.fetch(chat("tiny", "")).await.status, 200);
    eventually("checks and scrapes reach it", || {
        let all = replica.requests.all();
        ["/health", "/metrics"].iter().all(|page| {
            all.iter().any(|request| request.first_line().contains(&format!(" {page} ")))
        })
    })
    .await;

    let node = setup.replica_with("a", &url, &format!("tls = {{ {ca} }}")).start().await;
    let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
    assert_eq!(reply.status, 502, "it shows none: {}", reply.text());
}

#[tokio::test]
async fn a_renewed_client_certificate_is_shown_without_a_restart() {
    let certificates = Certificates::for_name("replica.test");
    let (clients, others) =
        (Certificates::for_name("gateway.test"), Certificates::for_name("gateway.test"));
    let replica = Scripted::start().await.serve(OK);
    let url = behind_tls(certificates.acceptor_for(&clients), &replica).await;
    let ca = certificates.ca_file().display().to_string();
    let lines =
        format!("tls = {{ ca = \"{ca}\", server_name = \"replica.test\", {} }}", others.pair());
    let file = File::new(&Setup::new().replica_with("a", &url, &lines));
    let node = file.start().await;
    let status = async || Client::once(node.addresses()[0], chat("tiny", "")).await.status;
    assert_eq!(status().await, 502, "another CA has signed it");
    // One after the other: in between, the key is another certificate's.
    std::fs::copy(clients.certificate_file(), others.certificate_file()).expect("copies");
    eventually("the pair that does not fit is refused", || reloads(&node, "refused") >= 1.0).await;
    std::fs::copy(clients.key_file(), others.key_file()).expect("copies");
    eventually("the new pair is taken", || reloads(&node, "applied") >= 1.0).await;
    assert_eq!(status().await, 200);
}

#[tokio::test]
async fn a_renewed_certificate_of_a_listener_is_shown_without_a_restart() {
    let mut certificates = Certificates::for_name("localhost");
    let file = File::new(&Setup::new().listener(&certificates.listener()));
    let node = file.start().await;
    let connect = async |certificates: &Certificates| {
        let tcp = TcpStream::connect(node.addresses()[0]).await.expect("connects");
        certificates.connect(tcp, "localhost", &["http/1.1"]).await.is_ok()
    };
    assert!(connect(&certificates).await);
    certificates.renew("localhost");
    eventually("the new pair is taken", || reloads(&node, "applied") >= 1.0).await;
    assert!(connect(&certificates).await, "it is signed by the new CA");
}

#[tokio::test]
async fn clients_choose_their_version_in_the_handshake() {
    let certificates = Certificates::for_name("localhost");
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().listener(&certificates.listener()).replica("a", replica.address);
    let node = setup.start().await;
    let tcp = || async { TcpStream::connect(node.addresses()[0]).await.expect("connects") };

    let tls = certificates.connect(tcp().await, "localhost", &["h2", "http/1.1"]).await;
    let tls = tls.expect("a handshake");
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tls))
            .await
            .expect("a handshake");
    spawn(connection);
    let mut request = chat("tiny", "");
    *request.uri_mut() = "https://localhost/v1/chat/completions".parse().expect("a URI");
    *request.method_mut() = Method::POST;
    assert_eq!(
        within("a reply", sender.send_request(request)).await.expect("a reply").status(),
        200
    );
    assert_eq!(replica.requests.last().header("x-forwarded-proto"), Some("https"));
    assert_eq!(replica.requests.last().header("x-forwarded-host"), Some("localhost"));

    for protocols in [vec!["http/1.1"], vec![]] {
        let tls = certificates.connect(tcp().await, "localhost", &protocols).await;
        let mut tls = tls.expect("a handshake");
        let body = r#"{"model":"tiny"}"#;
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        tls.write_all(head.as_bytes()).await.expect("takes it");
        let mut start = [0; 12];
        within("a reply", tls.read_exact(&mut start)).await.expect("a reply");
        assert_eq!(&start, b"HTTP/1.1 200");
    }
}

#[tokio::test]
async fn who_speaks_no_tls_to_a_tls_listener_is_cut_off_and_counted() {
    let certificates = Certificates::for_name("localhost");
    let node = Setup::new().listener(&certificates.listener()).start().await;
    let mut wire = Wire::connect(node.addresses()[0]).await;
    wire.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let (answer, _) = wire.end().await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    let closed = || {
        Page::of(&node).sum("spillway_client_connections_closed_total", &[("reason", "handshake")])
    };
    eventually("it is counted", || closed() == 1.0).await;
}

#[tokio::test]
async fn a_tls_client_that_leaves_is_noticed() {
    let certificates = Certificates::for_name("localhost");
    let replica = Scripted::start().await;
    let setup = Setup::new().listener(&certificates.listener()).replica("a", replica.address);
    let node = setup.start().await;
    let tcp = TcpStream::connect(node.addresses()[0]).await.expect("connects");
    let mut tls = certificates.connect(tcp, "localhost", &[]).await.expect("a handshake");
    let body = r#"{"model":"tiny"}"#;
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    tls.write_all(head.as_bytes()).await.expect("takes it");
    let (mut wire, _) = replica.request().await;
    drop(tls);
    assert!(matches!(wire.end().await.1, Closed::Fin | Closed::Reset));
}

#[tokio::test]
async fn a_client_may_ask_again_after_any_pause_encrypted_or_not() {
    const REQUEST: &[u8] = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n";
    let certificates = Certificates::for_name("localhost");
    // A silent connection is at rest after 50 to 100 ms.
    let limit = "limits.idle_timeout_ms = 100000\nlimits.stall_timeout_ms = 100";
    let plain = Setup::new().set(limit).start().await;
    let tls = Setup::new().set(limit).listener(&certificates.listener()).start().await;
    let tcp = |node: &Node| TcpStream::connect(node.addresses()[0]);
    let mut plain = tcp(&plain).await.expect("connects");
    let stream = tcp(&tls).await.expect("connects");
    let mut tls = certificates.connect(stream, "localhost", &[]).await.expect("a handshake");
    for pause_ms in (0..240).step_by(20) {
        let mut replies = [vec![0; 4096], vec![0; 4096]];
        plain.write_all(REQUEST).await.expect("is taken");
        tls.write_all(REQUEST).await.expect("is taken");
        let [of_plain, of_tls] = &mut replies;
        let lengths = [plain.read(of_plain).await, tls.read(of_tls).await];
        for (reply, length) in replies.iter().zip(lengths) {
            let reply = &reply[..length.expect("a reply")];
            assert!(reply.starts_with(b"HTTP/1.1 200 OK\r\n"), "after {pause_ms} ms: {reply:?}");
        }
        // wait: the pause that this test is about.
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
}
