use std::time::{Duration, Instant};

use spillway_replicas::discovery::{
    DiscoveredEndpoint, DnsQuestion, DnsSource, Findings, SourceState,
};
use spillway_testkit::{DnsServer, Mood, eventually};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::support::DEADLINE;

type Set = Option<Vec<DiscoveredEndpoint>>;

struct Asking {
    sets: watch::Receiver<Findings<Vec<DiscoveredEndpoint>>>,
    tasks: TaskTracker,
    _stop: DropGuard,
}

impl Asking {
    /// Makes a source with times that suit a test.
    fn start(server: &DnsServer, question: DnsQuestion) -> Self {
        Self::start_as(DnsSource {
            resolver: Some(server.address),
            timeout: Duration::from_millis(400),
            refresh_min: Duration::from_millis(50),
            refresh_max: Duration::from_millis(200),
            retry_max: Duration::from_millis(200),
            empty_grace: Duration::from_millis(600),
            ..DnsSource::new(question)
        })
    }

    fn start_as(source: DnsSource) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let sets = source.watch(&tasks, 7, stop.clone());
        Self { sets, tasks, _stop: stop.drop_guard() }
    }

    async fn until(&mut self, mut is_so: impl FnMut(&Set) -> bool) -> Vec<DiscoveredEndpoint> {
        let found = timeout(DEADLINE, self.sets.wait_for(|it| is_so(&it.found))).await;
        found.expect("the set did not come").unwrap().found.clone().unwrap()
    }

    fn now(&self) -> Set {
        self.sets.borrow().found.clone()
    }

    fn state(&self) -> SourceState {
        self.sets.borrow().state.clone()
    }
}

fn by_address() -> DnsQuestion {
    DnsQuestion::Address { name: "models.test.".to_owned(), port: 8000 }
}

fn at(host: &str, address: &str, port: u16, weight: u32) -> DiscoveredEndpoint {
    let address = Some(address.parse().unwrap());
    DiscoveredEndpoint { host: host.to_owned(), address, port, weight }
}

#[tokio::test]
async fn each_address_is_an_endpoint_and_a_change_is_noticed() {
    let server = DnsServer::start().await;
    server.addresses("models.test.", 60, &["10.0.0.2", "10.0.0.1"]);
    let mut asking = Asking::start(&server, by_address());
    let first = asking.until(Option::is_some).await;
    let expected = [at("models.test", "10.0.0.1", 8000, 1), at("models.test", "10.0.0.2", 8000, 1)];
    assert_eq!(first, expected);
    // A TTL of a minute does not hide a change for longer than `refresh_max`.
    server.addresses("models.test.", 60, &["10.0.0.2", "10.0.0.3", "10.0.0.4"]);
    let second = asking.until(|set| set.as_ref().is_some_and(|set| set.len() == 3)).await;
    assert_eq!(second[0].address, Some("10.0.0.2".parse().unwrap()));
}

#[tokio::test]
async fn the_ttl_says_when_to_ask_again() {
    let server = DnsServer::start().await;
    server.addresses("models.test.", 1, &["10.0.0.1"]);
    let mut asking = Asking::start_as(DnsSource {
        resolver: Some(server.address),
        ..DnsSource::new(by_address())
    });
    asking.until(Option::is_some).await;
    let started = Instant::now();
    assert_eq!(server.questions(), 1);
    eventually("the second question", || server.questions() == 2).await;
    let pause = started.elapsed();
    assert!(pause >= Duration::from_millis(850) && pause < Duration::from_secs(10), "{pause:?}");
}

#[tokio::test]
async fn ipv6_is_asked_for_where_there_is_no_ipv4() {
    let server = DnsServer::start().await;
    server.addresses("models.test.", 60, &["fd00::1"]);
    let mut asking = Asking::start(&server, by_address());
    let set = asking.until(Option::is_some).await;
    assert_eq!(set, [at("models.test", "fd00::1", 8000, 1)]);
    server.addresses("models.test.", 60, &["10.0.0.1"]);
    let set =
        asking.until(|set| set.as_ref().is_some_and(|set| set[0].address.unwrap().is_ipv4())).await;
    assert_eq!(set, [at("models.test", "10.0.0.1", 8000, 1)]);
}

#[tokio::test]
async fn an_outage_keeps_the_set_and_its_end_is_noticed_soon() {
    let server = DnsServer::start().await;
    server.addresses("models.test.", 60, &["10.0.0.1"]);
    let mut asking = Asking::start(&server, by_address());
    let set = asking.until(Option::is_some).await;
    for mood in [Mood::Silent, Mood::Failing] {
        server.mood(mood);
        // Two questions each time, longer than the grace, and often enough that pauses without a
        // limit would grow longer than this test.
        let (asked, since) = (server.questions(), Instant::now());
        eventually("eight failures", || {
            server.questions() >= asked + 16 && since.elapsed() > Duration::from_millis(900)
        })
        .await;
        assert_eq!(asking.now().as_ref(), Some(&set));
        let other = if mood == Mood::Silent { "10.0.0.7" } else { "10.0.0.8" };
        server.addresses("models.test.", 60, &[other]);
        server.mood(Mood::Well);
        let healed = Instant::now();
        let other = at("models.test", other, 8000, 1);
        asking.until(|set| set.as_deref() == Some(std::slice::from_ref(&other))).await;
        // retry_max + timeout is 600 ms; the rest allows for a busy machine.
        assert!(healed.elapsed() < Duration::from_secs(3), "{:?}", healed.elapsed());
        server.addresses("models.test.", 60, &["10.0.0.1"]);
        asking.until(|now| now.as_ref() == Some(&set)).await;
    }
}

#[tokio::test]
async fn a_server_that_is_down_at_the_start_is_found_when_it_comes() {
    let server = DnsServer::start().await;
    server.mood(Mood::Silent);
    server.addresses("models.test.", 60, &["10.0.0.1"]);
    let mut asking = Asking::start(&server, by_address());
    eventually("some questions", || server.questions() >= 4).await;
    assert_eq!(asking.now(), None, "unknown is not empty");
    server.mood(Mood::Well);
    asking.until(|set| set.as_ref().is_some_and(|set| set.len() == 1)).await;
}

#[tokio::test]
async fn an_empty_answer_empties_the_set_only_after_the_grace() {
    let server = DnsServer::start().await;
    server.addresses("models.test.", 60, &["10.0.0.1"]);
    let mut asking = Asking::start(&server, by_address());
    asking.until(Option::is_some).await;
    server.addresses("models.test.", 60, &[]);
    let emptied = Instant::now();
    asking.until(|set| set.as_ref().is_some_and(Vec::is_empty)).await;
    assert!(emptied.elapsed() >= Duration::from_millis(600), "{:?}", emptied.elapsed());
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_an_empty_set() {
    let server = DnsServer::start().await;
    let mut asking = Asking::start(&server, by_address());
    asking.until(|set| set.as_ref().is_some_and(Vec::is_empty)).await;
}

#[tokio::test]
async fn services_tell_names_ports_and_weights() {
    let server = DnsServer::start().await;
    let name = "_http._tcp.models.test.";
    server.addresses("a.test.", 60, &["10.0.0.1"]);
    server.addresses("b.test.", 60, &["10.0.0.3", "10.0.0.2"]);
    server.services(name, 60, &[(5, 8000, "a.test."), (0, 8001, "b.test."), (7, 8002, "c.test.")]);
    let question = DnsQuestion::Service { name: name.to_owned() };
    let mut asking = Asking::start(&server, question);
    let set = asking.until(Option::is_some).await;
    let unknown =
        DiscoveredEndpoint { host: "c.test".to_owned(), address: None, port: 8002, weight: 7 };
    assert_eq!(
        set,
        [at("a.test", "10.0.0.1", 8000, 5), at("b.test", "10.0.0.2", 8001, 1), unknown]
    );

    server.services(name, 60, &[(0, 0, ".")]);
    asking.until(|set| set.as_ref().is_some_and(Vec::is_empty)).await;
}

#[tokio::test]
async fn an_answer_too_large_for_udp_comes_over_tcp() {
    let server = DnsServer::start().await;
    let addresses: Vec<String> =
        (0..400).map(|n| format!("10.0.{}.{}", n / 200, n % 200)).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    server.addresses("models.test.", 60, &addresses);
    server.mood(Mood::Truncating);
    let mut asking = Asking::start(&server, by_address());
    assert_eq!(asking.until(Option::is_some).await.len(), 400);
}

#[tokio::test]
async fn asking_ends_when_nobody_listens() {
    let server = DnsServer::start().await;
    server.addresses("models.test.", 60, &["10.0.0.1"]);
    let Asking { mut sets, tasks, _stop } = Asking::start(&server, by_address());
    sets.wait_for(|it| it.found.is_some()).await.unwrap();
    drop(sets);
    tasks.close();
    assert!(timeout(DEADLINE, tasks.wait()).await.is_ok());
}

#[tokio::test]
async fn names_with_underscores_are_asked_for() {
    let server = DnsServer::start().await;
    server.addresses("tasks.stack_worker.", 60, &["10.0.0.1"]);
    let question = DnsQuestion::Address { name: "tasks.stack_worker".to_owned(), port: 8000 };
    let set = Asking::start(&server, question).until(Option::is_some).await;
    assert_eq!(set, [at("tasks.stack_worker", "10.0.0.1", 8000, 1)]);

    let name = "_http._tcp.my_workers.internal.";
    server.services(name, 60, &[(1, 8001, "gpu_a.internal.")]);
    server.addresses("gpu_a.internal.", 60, &["10.0.0.2"]);
    let question = DnsQuestion::Service { name: name.to_owned() };
    let set = Asking::start(&server, question).until(Option::is_some).await;
    assert_eq!(set, [at("gpu_a.internal", "10.0.0.2", 8001, 1)]);
}

#[tokio::test]
async fn the_state_shows_answers_and_failures() {
    let server = DnsServer::start().await;
    server.mood(Mood::Silent);
    let mut asking = Asking::start(&server, by_address());
    eventually("a failure", || asking.state().failure.is_some()).await;
    assert_eq!((asking.state().answered_at, asking.now()), (None, None));
    server.addresses("models.test.", 60, &["10.0.0.1"]);
    server.mood(Mood::Well);
    asking.until(Option::is_some).await;
    let state = asking.state();
    assert!(state.answered_at.is_some() && state.failure.is_none(), "{state:?}");
    server.mood(Mood::Failing);
    eventually("a failure", || asking.state().failure.is_some()).await;
    assert!(asking.state().answered_at.is_some());
    server.addresses("models.test.", 60, &[]);
    server.mood(Mood::Well);
    eventually("an empty answer", || asking.state().empty_since.is_some()).await;
    assert!(asking.now().is_some());
}
