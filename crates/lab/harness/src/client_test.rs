//! Tests of the HTTP client against listeners that misbehave.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// Serves connections one after the other, each with one `answer`, then closes it.
async fn serve(listener: TcpListener, answer: &'static str) {
    let mut buffer = vec![0; 65_536];
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _length = stream.read(&mut buffer).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

async fn ask(answer: &'static str, count: usize) -> Vec<LoadAttempt> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = LoadClient::new(listener.local_addr().unwrap());
    let asking = async {
        let mut attempts = Vec::new();
        for _ in 0..count {
            attempts.push(client.send(&LoadRequest::get("/"), Instant::now()).await);
        }
        attempts
    };
    tokio::select! {
        attempts = asking => attempts,
        () = serve(listener, answer) => unreachable!("it serves for ever"),
    }
}

#[tokio::test]
async fn a_reply_is_recorded_with_what_the_gateway_says_of_it() {
    let answer = "HTTP/1.1 503 Busy\r\nx-spillway-replica: replica-3\r\nretry-after: 2\r\n\
                  x-spillway-code: overloaded\r\ncontent-length: 2\r\n\r\n{}";
    for attempt in ask(answer, 3).await {
        let AttemptEnd::Whole(reply) = &attempt.end else { panic!("{attempt:?}") };
        assert_eq!((reply.status, reply.replica.as_str()), (503, "replica-3"));
        assert_eq!((reply.code.as_str(), reply.retry_after.unwrap().as_secs()), ("overloaded", 2));
        let first_byte = attempt.first_byte.unwrap();
        assert!(attempt.sent <= first_byte && first_byte <= attempt.ended);
    }
}

#[tokio::test]
async fn a_connection_that_closes_without_a_reply_leaves_nothing() {
    for attempt in ask("", 2).await {
        assert!(matches!(attempt.end, AttemptEnd::Nothing(AttemptError::Broken(_))), "{attempt:?}");
    }
}

#[tokio::test]
async fn a_reply_that_breaks_off_is_cut_and_one_without_end_is_late() {
    let attempts = ask("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", 1).await;
    assert!(matches!(&attempts[0].end, AttemptEnd::Cut(reply, _) if reply.body == "abc"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = LoadClient::new(listener.local_addr().unwrap());
    let request = LoadRequest { patience: Duration::from_millis(5), ..LoadRequest::get("/") };
    let attempt = client.send(&request, Instant::now()).await;
    assert!(matches!(attempt.end, AttemptEnd::Nothing(AttemptError::TooLate)), "{attempt:?}");
}

#[tokio::test]
async fn an_address_that_refuses_is_passed_over() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = listener.local_addr().unwrap();
    let way = Duration::from_millis(30);
    let client = LoadClient::new(closed).or(LoadClient::at_distance(open, way));
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let attempt = tokio::select! {
        attempt = async { client.send(&LoadRequest::get("/"), Instant::now()).await } => attempt,
        () = serve(listener, answer) => unreachable!("it serves for ever"),
    };
    assert!(attempt.is_good() && attempt.address == open, "{attempt:?}");
    assert!(attempt.one_way == way && attempt.took() >= way, "{attempt:?}");
}
