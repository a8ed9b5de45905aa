use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use spillway_emulator::Fault;
use spillway_replicas::{
    ActiveCheck, CheckKind, CheckResult, DeepCheck, DeepRequest, Expectation, FactKind, Mapping,
    MetricsPage, NoticeCheck, Probe, ReplicaTarget, RequestError, Scrape, warm_up,
};
use spillway_testkit::eventually;
use tokio::net::TcpListener;

use crate::scripted::Scripted;
use crate::support::{DEADLINE, Watching, active, deep, emulator, target};

const GOOD: CheckResult = CheckResult::Good;

fn failed(failure: RequestError) -> CheckResult {
    CheckResult::Failed(failure)
}

#[tokio::test]
async fn an_active_check_follows_a_server_through_its_troubles() {
    let emulator = emulator().await;
    let replica = emulator.replica(0);
    let mut watching =
        Watching::of(ReplicaTarget { active: Some(active()), ..target(replica.address().port()) });
    watching.until_check(CheckKind::Active, GOOD).await;
    for (fault, expected) in [
        (Fault::Crash, RequestError::Refused),
        (Fault::Hang, RequestError::TimedOut),
        (Fault::Garbage, RequestError::Broken),
        (Fault::Refuse, RequestError::Refused),
    ] {
        replica.set_fault(fault).await.unwrap();
        watching.until_check(CheckKind::Active, failed(expected)).await;
        replica.set_fault(Fault::None).await.unwrap();
        watching.until_check(CheckKind::Active, GOOD).await;
    }
    watching.monitors.shutdown().await;
}

#[tokio::test]
async fn a_check_takes_no_longer_than_its_limit_and_says_how_long() {
    let emulator = emulator().await;
    let replica = emulator.replica(0);
    replica.set_fault(Fault::Hang).await.unwrap();
    let check = ActiveCheck { timeout: Duration::from_millis(200), ..active() };
    let mut watching =
        Watching::of(ReplicaTarget { active: Some(check), ..target(replica.address().port()) });
    let fact = watching.next().await;
    let age = fact.at.elapsed();
    let FactKind::Check { result, took, .. } = fact.kind else { panic!("{fact:?}") };
    assert_eq!(result, failed(RequestError::TimedOut));
    assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(5), "{took:?}");
    assert!(age < DEADLINE);
}

#[tokio::test]
async fn statuses_and_bodies_tell_ready_from_not_ready_and_broken() {
    let server = Scripted::start(503, "").await;
    let probe = |not_ready: &[u16], expect: Option<Expectation>| Probe::Http {
        path: "/v1/models/{model}".to_owned(),
        port: None,
        not_ready: not_ready.to_vec(),
        expect,
    };
    let watch = |probe| {
        let check = ActiveCheck { probe, ..active() };
        Watching::of(ReplicaTarget {
            active: Some(check),
            models: vec!["org/m 1".into()],
            ..target(server.port)
        })
    };
    watch(probe(&[503], None)).until_check(CheckKind::Active, CheckResult::NotReady).await;
    watch(probe(&[400], None))
        .until_check(CheckKind::Active, failed(RequestError::Status(503)))
        .await;
    server.reply(302, "");
    watch(probe(&[503], None))
        .until_check(CheckKind::Active, failed(RequestError::Status(302)))
        .await;

    let available = Some(Expectation::Contains("\"AVAILABLE\"".to_owned()));
    let mut loading = watch(probe(&[], available));
    server.reply(200, r#"{"model_version_status":[{"state":"LOADING"}]}"#);
    loading.until_check(CheckKind::Active, CheckResult::NotReady).await;
    server.reply(200, r#"{"model_version_status":[{"state":"AVAILABLE"}]}"#);
    loading.until_check(CheckKind::Active, GOOD).await;
    assert!(server.heads()[0].starts_with("GET /v1/models/org%2Fm%201 HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_tcp_check_needs_only_a_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let check = ActiveCheck { probe: Probe::Tcp { port: Some(port) }, ..active() };
    let mut watching = Watching::of(ReplicaTarget { active: Some(check), ..target(1) });
    watching.until_check(CheckKind::Active, GOOD).await;
    drop(listener);
    watching.until_check(CheckKind::Active, failed(RequestError::Refused)).await;
}

#[tokio::test]
async fn a_name_without_an_address_fails_as_such() {
    let unknown = ReplicaTarget {
        active: Some(ActiveCheck { timeout: Duration::from_secs(10), ..active() }),
        host: "no-such-host.invalid".to_owned(),
        ..target(80)
    };
    Watching::of(unknown).until_check(CheckKind::Active, failed(RequestError::NameServer)).await;
}

#[tokio::test]
async fn a_deep_check_sees_what_health_does_not_show() {
    let emulator = emulator().await;
    let replica = emulator.replica(0);
    let status = |code| Fault::Status { code, retry_after_s: None, probability: 1.0 };
    let mut watching = Watching::of(ReplicaTarget {
        active: Some(active()),
        deep: Some(DeepCheck { timeout: Duration::from_secs(1), ..deep() }),
        ..target(replica.address().port())
    });
    watching.until_check(CheckKind::Deep, GOOD).await;
    for (fault, expected) in [
        (status(500), failed(RequestError::Status(500))),
        (status(503), CheckResult::Busy),
        (status(429), CheckResult::Busy),
        (status(404), failed(RequestError::Status(404))),
        (
            Fault::Cut { after_events: 0, close: spillway_emulator::Close::Fin },
            failed(RequestError::Broken),
        ),
        (Fault::Stall { after_events: 0 }, failed(RequestError::TimedOut)),
    ] {
        replica.set_fault(fault).await.unwrap();
        watching.until_check(CheckKind::Deep, expected).await;
        // The health endpoint keeps answering that the server is well.
        watching.until_check(CheckKind::Active, GOOD).await;
        replica.set_fault(Fault::None).await.unwrap();
        watching.until_check(CheckKind::Deep, GOOD).await;
    }
}

#[tokio::test]
async fn a_deep_check_costs_one_token() {
    let emulator = emulator().await;
    let replica = emulator.replica(0);
    let mut watching =
        Watching::of(ReplicaTarget { deep: Some(deep()), ..target(replica.address().port()) });
    watching.until_check(CheckKind::Deep, GOOD).await;
    watching.monitors.shutdown().await;
    eventually("the end of the last check", || {
        let stats = replica.stats();
        stats.received == stats.finished + stats.aborted + stats.rejected
    })
    .await;
    let stats = replica.stats();
    assert!(stats.finished >= 1);
    assert!(stats.engine.generation_tokens <= stats.received, "{stats:?}");
}

#[tokio::test]
async fn a_known_answer_tells_a_right_server_from_a_wrong_one() {
    let emulator = emulator().await;
    let body = json!({
        "inputs": [{ "name": "x", "shape": [2], "datatype": "FP32", "data": [1.5, 2.5] }]
    });
    let known = |value| DeepCheck {
        request: DeepRequest::infer(&"tiny".into(), Bytes::from(body.to_string())),
        expect: Some(Expectation::Json {
            pointer: "/outputs/0/data".to_owned(),
            value: Some(value),
        }),
        ..deep()
    };
    let watch = |check| {
        Watching::of(ReplicaTarget {
            deep: Some(check),
            ..target(emulator.replica(0).address().port())
        })
    };
    watch(known(json!([1.5, 2.5]))).until_check(CheckKind::Deep, GOOD).await;
    let wrong = failed(RequestError::WrongAnswer);
    watch(known(json!([1.5, 2.6]))).until_check(CheckKind::Deep, wrong).await;
}

#[tokio::test]
async fn full_gpus_are_told_from_the_last_scrape_and_only_while_it_works() {
    let emulator = emulator().await;
    let page =
        |used: u32| format!("DCGM_FI_DEV_FB_USED {used}\nDCGM_FI_DEV_FB_FREE {}\n", 100 - used);
    let exporter = Scripted::start(200, &page(99)).await;
    let metrics =
        MetricsPage { port: Some(exporter.port), path: "/metrics", mapping: Mapping::dcgm() };
    let mut watching = Watching::of(ReplicaTarget {
        deep: Some(DeepCheck { gpu_memory_use_max: Some(0.95), ..deep() }),
        scrapes: vec![Scrape { period: Some(Duration::from_millis(20)), ..Scrape::new(metrics) }],
        ..target(emulator.replica(0).address().port())
    });
    watching.until_check(CheckKind::Deep, CheckResult::MemoryFull).await;
    exporter.reply(200, &page(94));
    watching.until_check(CheckKind::Deep, GOOD).await;
    exporter.reply(200, &page(99));
    watching.until_check(CheckKind::Deep, CheckResult::MemoryFull).await;
    exporter.reply(500, "");
    watching.until_check(CheckKind::Deep, GOOD).await;
}

#[tokio::test]
async fn a_notice_is_told_while_it_stands_and_when_it_is_withdrawn() {
    let service = Scripted::start(404, "").await;
    let check = NoticeCheck {
        headers: vec![("metadata-flavor".parse().unwrap(), "Google".parse().unwrap())],
        interval: Duration::from_millis(10),
        ..NoticeCheck::new("127.0.0.1".to_owned(), service.port, "/spot/action".to_owned())
    };
    let mut watching = Watching::of(ReplicaTarget { notice: Some(check), ..target(1) });
    eventually("three checks without a notice", || service.heads().len() >= 3).await;
    assert!(watching.facts.try_recv().is_err(), "there is none yet");
    service.reply(200, "{}");
    for _ in 0..2 {
        assert_eq!(watching.next().await.kind, FactKind::Notice);
    }
    // A status without a meaning here is neither a notice nor its end.
    service.reply(500, "");
    let asked = service.heads().len();
    eventually("further checks", || service.heads().len() >= asked + 2).await;
    watching.drain();
    service.reply(404, "");
    assert_eq!(watching.next().await.kind, FactKind::NoticeWithdrawn);
    assert!(service.heads()[0].contains("metadata-flavor: Google\r\n"));
}

#[tokio::test]
async fn a_notice_may_be_told_by_the_body_alone() {
    let service = Scripted::start(200, "FALSE").await;
    let check = NoticeCheck {
        expect: Some(Expectation::Equals("TRUE".to_owned())),
        interval: Duration::from_millis(10),
        ..NoticeCheck::new("127.0.0.1".to_owned(), service.port, "/preempted".to_owned())
    };
    let mut watching = Watching::of(ReplicaTarget { notice: Some(check), ..target(1) });
    eventually("three checks without a notice", || service.heads().len() >= 3).await;
    assert!(watching.facts.try_recv().is_err());
    service.reply(200, "TRUE");
    assert_eq!(watching.next().await.kind, FactKind::Notice);
}

#[tokio::test]
async fn warming_up_sends_every_prompt_and_stops_at_the_first_that_fails() {
    let emulator = emulator().await;
    let replica = emulator.replica(0);
    let prompts: Vec<String> = ["one", "two", "three"].map(|word| word.repeat(50)).to_vec();
    let target = target(replica.address().port());
    let bound = Duration::from_secs(10);
    warm_up(&target, &prompts, bound).await.unwrap();
    let stats = replica.stats();
    assert_eq!((stats.finished, stats.engine.generation_tokens), (3, 3));
    assert!(stats.engine.prompt_tokens > 3 * 30, "{stats:?}");

    let unknown = ReplicaTarget { models: vec!["tiny".into(), "other".into()], ..target.clone() };
    let error = warm_up(&unknown, &prompts, bound).await.unwrap_err();
    assert_eq!((error.model.as_str(), error.prompt), ("other", 0));
    assert_eq!(error.failure, RequestError::Status(404));
    assert_eq!(replica.stats().finished, 6);

    replica.set_fault(Fault::Hang).await.unwrap();
    let started = Instant::now();
    let error = warm_up(&target, &prompts, Duration::from_millis(100)).await.unwrap_err();
    assert_eq!((error.prompt, error.failure), (0, RequestError::TimedOut));
    assert!(started.elapsed() < DEADLINE);
}
