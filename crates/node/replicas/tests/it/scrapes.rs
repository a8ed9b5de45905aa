use std::time::Duration;

use spillway_emulator::Fault;
use spillway_replicas::{CheckKind, CheckResult, FactKind, ReplicaTarget, RequestError, Scrape};
use spillway_testkit::eventually;
use spillway_types::LoadReport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::scripted::Scripted;
use crate::support::{Watching, active, emulator, scrape, target};

fn report(fact: &FactKind) -> Option<LoadReport> {
    match fact {
        FactKind::Report { report, .. } => Some(*report),
        _ => None,
    }
}

fn failure(fact: &FactKind) -> Option<RequestError> {
    match fact {
        FactKind::ScrapeFailed { failure, .. } => Some(*failure),
        _ => None,
    }
}

#[tokio::test]
async fn reports_follow_what_the_server_really_does() {
    let emulator = emulator().await;
    let replica = emulator.replica(0);
    let mut watching =
        Watching::of(ReplicaTarget { scrapes: vec![scrape()], ..target(replica.address().port()) });
    let idle = watching.until(report).await;
    assert_eq!((idle.queued, idle.running, idle.kv_use), (Some(0.0), Some(0.0), Some(0.0)));
    assert_eq!((idle.gpu_use, idle.pending), (None, None));

    let body =
        r#"{"model":"tiny","prompt":"a b c","max_tokens":30000,"ignore_eos":true,"stream":true}"#;
    let mut client = TcpStream::connect(replica.address()).await.unwrap();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    client.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    let busy = watching.until(|fact| report(fact).filter(|load| load.running == Some(1.0))).await;
    assert!(busy.kv_use > Some(0.0), "{busy:?}");
    drop(client);
    watching.until(|fact| report(fact).filter(|load| load.running == Some(0.0))).await;
}

#[tokio::test]
async fn a_page_nearby_is_read_about_every_100_ms_over_one_connection() {
    let server = Scripted::start(200, "vllm:num_requests_waiting 1\n").await;
    let mut watching =
        Watching::of(ReplicaTarget { scrapes: vec![scrape()], ..target(server.port) });
    let first = watching.next().await;
    let mut times = vec![first.at];
    for _ in 0..10 {
        times.push(watching.next().await.at);
    }
    let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Timers never fire early, but a scrape may end late and the next begin on time.
    assert!(times[10] - times[0] >= Duration::from_millis(900), "{gaps:?}");
    let mut sorted = gaps.clone();
    sorted.sort();
    assert!(sorted[2] < Duration::from_millis(400), "{gaps:?}");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_fixed_period_is_kept() {
    let server = Scripted::start(200, "vllm:num_requests_waiting 1\n").await;
    let scrape = Scrape { period: Some(Duration::from_millis(10)), ..scrape() };
    let mut watching = Watching::of(ReplicaTarget { scrapes: vec![scrape], ..target(server.port) });
    let first = watching.next().await.at;
    let mut last = first;
    for _ in 0..10 {
        last = watching.next().await.at;
    }
    assert!(last - first >= Duration::from_millis(90) && last - first < Duration::from_millis(900));
}

#[tokio::test]
async fn scraping_goes_on_over_the_kept_connection_when_new_ones_are_refused() {
    let emulator = emulator().await;
    let replica = emulator.replica(0);
    let mut watching = Watching::of(ReplicaTarget {
        active: Some(active()),
        scrapes: vec![scrape()],
        ..target(replica.address().port())
    });
    watching.until(report).await;
    replica.set_fault(Fault::Refuse).await.unwrap();
    let refused = CheckResult::Failed(RequestError::Refused);
    watching.until_check(CheckKind::Active, refused).await;
    watching.drain();
    watching.until(report).await;
}

#[tokio::test]
async fn a_failed_scrape_is_told_and_a_healed_server_reports_again() {
    let emulator = emulator().await;
    let replica = emulator.replica(0);
    let mut watching = Watching::of(ReplicaTarget {
        scrapes: vec![Scrape { timeout: Duration::from_millis(200), ..scrape() }],
        ..target(replica.address().port())
    });
    watching.until(report).await;
    for (fault, expected) in [
        (Fault::Hang, RequestError::TimedOut),
        (Fault::Crash, RequestError::Refused),
        (Fault::Garbage, RequestError::Broken),
    ] {
        replica.set_fault(fault).await.unwrap();
        watching.until(|fact| failure(fact).filter(|failure| *failure == expected)).await;
        replica.set_fault(Fault::None).await.unwrap();
        watching.drain();
        watching.until(report).await;
    }
}

#[tokio::test]
async fn a_page_without_any_of_the_numbers_is_a_failure_not_an_idle_server() {
    let server = Scripted::start(200, "python_gc_objects_collected_total 3\n").await;
    let mut watching =
        Watching::of(ReplicaTarget { scrapes: vec![scrape()], ..target(server.port) });
    assert_eq!(watching.until(failure).await, RequestError::WrongAnswer);
    server.reply(404, "vllm:num_requests_waiting 1\n");
    watching
        .until(|fact| failure(fact).filter(|failure| *failure == RequestError::Status(404)))
        .await;
}

#[tokio::test]
async fn pages_are_told_apart_and_only_the_api_gets_the_credential() {
    let api = Scripted::start(200, "vllm:num_requests_waiting 1\n").await;
    let other = Scripted::start(200, "vllm:num_requests_waiting 2\n").await;
    let mut watching = Watching::of(ReplicaTarget {
        headers: vec![("authorization".parse().unwrap(), "Bearer secret".parse().unwrap())],
        scrapes: vec![scrape(), Scrape { port: Some(other.port), ..scrape() }],
        ..target(api.port)
    });
    for (wanted, queued) in [(0, 1.0), (1, 2.0), (0, 1.0)] {
        let told = watching.until(|fact| match fact {
            FactKind::Report { page, report, .. } if *page == wanted => Some(report.queued),
            _ => None,
        });
        assert_eq!(told.await, Some(queued));
    }
    eventually("both pages to be read", || !api.heads().is_empty() && !other.heads().is_empty())
        .await;
    assert!(api.heads()[0].contains("authorization: Bearer secret"));
    assert!(!other.heads()[0].contains("secret"));
}
