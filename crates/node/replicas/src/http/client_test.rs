use std::sync::Arc;
use std::time::Instant;

use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::ServerConfig;
use spillway_resolver::Resolver;
use spillway_types::TlsFault;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::super::TlsTarget;
use super::*;

const BOUND: Duration = Duration::from_secs(10);
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Starts a server that hands each connection to the test.
async fn listen() -> (u16, mpsc::Receiver<TcpStream>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, connections) = mpsc::channel(16);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if sender.send(stream).await.is_err() {
                return;
            }
        }
    });
    (port, connections, tasks)
}

fn client(port: u16) -> HttpClient {
    HttpClient::new(HttpServer {
        resolver: Resolver::default(),
        host: "127.0.0.1".to_owned(),
        port,
        base: None,
        tls: None,
        protocol: HttpProtocol::Http1,
        headers: Vec::new(),
    })
}

async fn get(
    client: &mut HttpClient,
    reuse: Reuse,
    bound: Duration,
) -> Result<HttpReply, RequestError> {
    let request = client.request(Method::GET, "/", None)?;
    client.send(request, reuse, bound).await
}

/// Returns the results of a request and of its server, which must both end.
async fn both<A, B>(request: impl Future<Output = A>, server: impl Future<Output = B>) -> (A, B) {
    let joined = Box::pin(async { tokio::join!(request, server) });
    timeout(2 * BOUND, joined).await.expect("the server got what it waits for")
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut head).await.unwrap() > 0, "closed");
    }
    String::from_utf8(head).unwrap()
}

/// Runs one exchange with a server that acts as given.
async fn exchange(
    client: &mut HttpClient,
    connections: &mut mpsc::Receiver<TcpStream>,
    reply: &[u8],
) -> (Result<HttpReply, RequestError>, TcpStream) {
    let serve = async {
        let mut stream = connections.recv().await.unwrap();
        read_head(&mut stream).await;
        // The client may stop reading before the server has written all.
        stream.write_all(reply).await.ok();
        stream
    };
    both(get(client, Reuse::Kept, BOUND), serve).await
}

#[tokio::test]
async fn a_kept_connection_is_used_again_and_a_closed_one_replaced() {
    let (port, mut connections, _tasks) = listen().await;
    let mut client = client(port);
    let (reply, mut stream) = exchange(&mut client, &mut connections, OK.as_bytes()).await;
    assert_eq!(&reply.unwrap().body[..], b"ok");

    let serve = async {
        read_head(&mut stream).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
    };
    let (reply, ()) = both(get(&mut client, Reuse::Kept, BOUND), serve).await;
    assert!(reply.is_ok());
    assert!(connections.try_recv().is_err(), "there was no second connection");

    drop(stream);
    let (reply, _stream) = exchange(&mut client, &mut connections, OK.as_bytes()).await;
    assert!(reply.is_ok());
}

#[tokio::test]
async fn a_kept_connection_that_breaks_under_the_request_is_replaced_too() {
    let (port, mut connections, _tasks) = listen().await;
    let mut client = client(port);
    let (_, mut first) = exchange(&mut client, &mut connections, OK.as_bytes()).await;
    let serve = async {
        read_head(&mut first).await;
        drop(first);
        let mut second = connections.recv().await.unwrap();
        read_head(&mut second).await;
        second.write_all(OK.as_bytes()).await.unwrap();
        second
    };
    let (reply, _second) = both(get(&mut client, Reuse::Kept, BOUND), serve).await;
    assert!(reply.is_ok());
}

#[tokio::test]
async fn a_fresh_request_has_a_connection_of_its_own_and_closes_it() {
    let (port, mut connections, _tasks) = listen().await;
    let mut client = client(port);
    let (_, _kept) = exchange(&mut client, &mut connections, OK.as_bytes()).await;
    let serve = async {
        let mut stream = connections.recv().await.unwrap();
        let head = read_head(&mut stream).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        head
    };
    let (reply, head) = both(get(&mut client, Reuse::Fresh, BOUND), serve).await;
    assert_eq!(reply.unwrap().status, 200);
    assert!(head.contains(&format!("host: 127.0.0.1:{port}\r\n")), "{head}");
}

#[tokio::test]
async fn a_request_that_is_given_up_closes_its_connection() {
    let (port, mut connections, _tasks) = listen().await;
    let mut client = client(port);
    let bound = Duration::from_millis(50);
    let serve = async {
        let mut stream = connections.recv().await.unwrap();
        read_head(&mut stream).await;
        stream.read(&mut [0]).await.unwrap()
    };
    let (reply, read) = both(get(&mut client, Reuse::Kept, bound), serve).await;
    assert_eq!(reply.unwrap_err(), RequestError::TimedOut);
    assert_eq!(read, 0, "the server sees the end");
}

#[tokio::test]
async fn a_reply_that_trickles_is_cut_off_by_the_time_limit() {
    let (port, mut connections, _tasks) = listen().await;
    let mut client = client(port);
    let started = Instant::now();
    let serve = async {
        let mut stream = connections.recv().await.unwrap();
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n").await.unwrap();
        while stream.write_all(b".").await.is_ok() {
            // wait: the server's own pace.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let bound = Duration::from_millis(150);
    let (reply, ()) = both(get(&mut client, Reuse::Fresh, bound), serve).await;
    assert_eq!(reply.unwrap_err(), RequestError::TimedOut);
    assert!(started.elapsed() < BOUND);
}

#[tokio::test]
async fn a_body_is_read_up_to_its_limit_and_no_further() {
    let (port, mut connections, _tasks) = listen().await;
    let mut client = client(port);
    let whole = |length: usize| {
        let mut reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").into_bytes();
        reply.resize(reply.len() + length, b'x');
        reply
    };
    let largest = whole(BODY_BYTES_MAX);
    let (reply, stream) = exchange(&mut client, &mut connections, &largest).await;
    assert_eq!(reply.unwrap().body.len(), BODY_BYTES_MAX);
    drop(stream);
    let (reply, _) = exchange(&mut client, &mut connections, &whole(BODY_BYTES_MAX + 1)).await;
    assert_eq!(reply.unwrap_err(), RequestError::TooLarge);
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20)).repeat(5);
    let chunked = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunk}0\r\n\r\n");
    let (reply, _) = exchange(&mut client, &mut connections, chunked.as_bytes()).await;
    assert_eq!(reply.unwrap_err(), RequestError::TooLarge);
}

#[tokio::test]
async fn what_is_no_reply_or_half_of_one_is_a_broken_connection() {
    let (port, mut connections, _tasks) = listen().await;
    for half in ["", "SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok"] {
        let mut client = client(port);
        let serve = async {
            let mut stream = connections.recv().await.unwrap();
            read_head(&mut stream).await;
            stream.write_all(half.as_bytes()).await.unwrap();
        };
        let (reply, ()) = both(get(&mut client, Reuse::Fresh, BOUND), serve).await;
        assert_eq!(reply.unwrap_err(), RequestError::Broken, "{half:?}");
    }
}

#[tokio::test]
async fn paths_and_hosts_that_make_no_request_are_refused() {
    let client = client(1);
    for path in ["", "x", "/a b", "http://other/"] {
        let request = client.request(Method::GET, path, None);
        assert_eq!(request.unwrap_err(), RequestError::BadRequest, "{path:?}");
    }
    let ipv6 = HttpServer { host: "::1".to_owned(), ..client.server };
    assert_eq!(ipv6.authority(), "[::1]:1");
}

/// Answers one request over TLS, in either protocol's ALPN.
async fn serve_tls(stream: TcpStream, config: Arc<ServerConfig>) {
    let Ok(mut stream) = TlsAcceptor::from(config).accept(stream).await else { return };
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut head).await.unwrap() > 0);
    }
    stream.write_all(OK.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
}

#[tokio::test]
async fn tls_is_spoken_with_servers_that_are_trusted_under_their_name() {
    let provider = || Arc::new(rustls::crypto::ring::default_provider());
    let made = rcgen::generate_simple_self_signed(["replica.test".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let mut server = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let server = Arc::new(server);
    let trusting = |roots| {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    };
    let mut own = RootCertStore::empty();
    own.add(made.cert.der().clone()).unwrap();
    let other = rcgen::generate_simple_self_signed(["replica.test".to_owned()]).unwrap();
    let mut others = RootCertStore::empty();
    others.add(other.cert.der().clone()).unwrap();

    let (port, mut connections, _tasks) = listen().await;
    for (config, name, expected) in [
        (trusting(own.clone()), "replica.test", Ok(())),
        (trusting(own), "other.test", Err(RequestError::Tls(TlsFault::WrongName))),
        (trusting(others), "replica.test", Err(RequestError::Tls(TlsFault::UnknownIssuer))),
    ] {
        let mut client = client(port);
        let server_name = name.try_into().unwrap();
        client.server.tls = Some(TlsTarget { config, server_name });
        let serve = async {
            let stream = connections.recv().await.unwrap();
            serve_tls(stream, Arc::clone(&server)).await;
        };
        let (reply, ()) = both(get(&mut client, Reuse::Fresh, BOUND), serve).await;
        assert_eq!(reply.map(|reply| assert_eq!(&reply.body[..], b"ok")), expected, "{name}");
    }
}

#[tokio::test]
async fn a_reply_may_have_hundreds_of_header_lines() {
    let (port, mut connections, _tasks) = listen().await;
    let mut client = client(port);
    let server = async {
        let mut stream = connections.recv().await.unwrap();
        read_head(&mut stream).await;
        let lines: String = (0..500).map(|number| format!("x-{number}: 1\r\n")).collect();
        let reply = format!("HTTP/1.1 200 OK\r\n{lines}content-length: 2\r\n\r\nok");
        stream.write_all(reply.as_bytes()).await.unwrap();
        stream
    };
    let (reply, _stream) = both(get(&mut client, Reuse::Fresh, BOUND), server).await;
    assert_eq!(reply.unwrap().headers.len(), 501);
}
