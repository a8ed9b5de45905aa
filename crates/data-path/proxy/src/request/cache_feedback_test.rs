use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use spillway_prefix::{PrefixConfig, PrefixHasher};
use spillway_request::gateway::{Gateway, GatewayConfig};
use spillway_resolver::Resolver;
use spillway_route::Reason;
use spillway_transport::Limits;
use spillway_types::{Deadline, ReplicaSlot, Residency};
use spillway_upstream::ReplicaProtocol;
use spillway_view::{ReplicaSpec, Retry, UsageReports, View, WaitTotals};

use super::*;
use crate::worker::LEARNINGS_MAX;

fn worker() -> Arc<Worker> {
    let config = GatewayConfig {
        region: "mars".to_owned(),
        country: None,
        limits: Limits::default(),
        retry: Retry::default(),
        seed: 1,
        expose_routing: false,
        waiting: WaitTotals::default(),
    };
    let hasher = PrefixHasher::new([1; 4], PrefixConfig::default()).expect("a hasher");
    Arc::new(Worker::new(0, Arc::new(Gateway::new(config, hasher, View::empty(), 0))))
}

fn replica() -> Arc<Replica> {
    let spec = ReplicaSpec {
        name: "gpu-a".into(),
        host: "127.0.0.1".to_owned(),
        port: 1,
        base: None,
        tls: None,
        protocol: ReplicaProtocol::Http1,
        grpc: None,
        models: vec!["tiny".into()],
        versions: BTreeMap::new(),
        pool: String::new(),
        weight: 1,
        in_flight_max: 10,
        idle: Duration::from_secs(1),
        credential: None,
        overflow: None,
        continues_chats: false,
        salt_field: None,
        usage_reports: UsageReports::None,
        kv_events_port: None,
    };
    Arc::new(Replica::new(spec, 1, &Resolver::default()).expect("a replica"))
}

fn inquiry(chain: &[u64], prompt_bytes: u32) -> Inquiry {
    Inquiry {
        model: Some("tiny".into()),
        prefix: BlockHashes::new(chain.to_vec()),
        prompt_bytes,
        output_tokens_max: None,
        output_tokens: None,
        whole_tokens: None,
        answers: 1,
        affinity: None,
        session: None,
        client: Ipv4Addr::LOCALHOST.into(),
        deadline: Deadline::after(Instant::now(), Duration::from_secs(60)),
        hop: 0,
        tenant: None,
        priority: 0,
        residency: Residency::default(),
        is_isolated: false,
    }
}

fn attempt(prediction: Option<Prediction>) -> Attempt {
    Attempt { slot: ReplicaSlot(0), reason: Reason::Only, prediction }
}

/// Returns the feedback of a request that was sent to the replica.
fn sent(worker: &Arc<Worker>, replica: &Arc<Replica>, inquiry: &Inquiry) -> CacheFeedback {
    let mut feedback =
        CacheFeedback::begin(worker, replica, inquiry, &attempt(None)).expect("feedback");
    feedback.sent();
    feedback
}

fn learnings(worker: &Worker) -> Vec<Learning> {
    let mut learnings = Vec::new();
    worker.drain_learnings(|learning| learnings.push(learning));
    learnings
}

fn replied(learning: &Learning) -> &Replied {
    match learning {
        Learning::Replied(replied) => replied,
        Learning::Sent { .. }
        | Learning::Unread { .. }
        | Learning::Begun(_)
        | Learning::Forwarded { .. }
        | Learning::ForwardReplied(_) => panic!("{learning:?}"),
    }
}

#[test]
fn a_prompt_is_being_read_until_the_reply_begins() {
    let (worker, replica) = (worker(), replica());
    let prediction = Prediction { prompt_tokens: 100, cached_tokens: 40, ..Prediction::default() };
    let request = inquiry(&[1, 2], 512);
    let begin = || CacheFeedback::begin(&worker, &replica, &request, &attempt(Some(prediction)));
    let mut first = begin().expect("feedback");
    let second = begin().expect("feedback");
    assert_eq!(replica.pending_tokens(), 120);
    first.piece(Instant::now());
    first.piece(Instant::now());
    assert_eq!(replica.pending_tokens(), 60);
    drop(second);
    assert_eq!(replica.pending_tokens(), 0, "it came to nothing");
}

#[test]
fn a_whole_reply_teaches_what_it_told() {
    let (worker, replica) = (worker(), replica());
    let prediction = Prediction { first_token_ms: 5.0, ..Prediction::default() };
    let request = inquiry(&[1, 2], 600);
    let mut feedback =
        CacheFeedback::begin(&worker, &replica, &request, &attempt(Some(prediction)))
            .expect("feedback");
    assert!(learnings(&worker).is_empty(), "there is no connection yet");
    feedback.sent();
    feedback.sent();
    feedback.head(StatusCode::OK, true);
    feedback.piece(Instant::now());
    let usage = Usage { prompt_tokens: 150, completion_tokens: 9, cached_tokens: Some(128) };
    feedback.end(End::Complete, 9, Some(usage), BlockHashes::new(vec![3]));
    drop(feedback);
    let told = learnings(&worker);
    let identity = Candidate::identity_of(&"gpu-a".into());
    let sent = Learning::Sent { identity, chain: BlockHashes::new(vec![1, 2]), is_guest: false };
    assert_eq!((told.len(), &told[0]), (3, &sent), "one word on each");
    let reply = replied(&told[2]);
    assert_eq!(
        (reply.identity, reply.model.as_str(), reply.end),
        (identity, "tiny", End::Complete)
    );
    assert_eq!((reply.prompt_tokens, reply.cached_tokens), (Some(150), Some(128)));
    assert_eq!((reply.output_tokens, reply.prompt_bytes), (9, 600));
    assert_eq!(reply.written.as_slice(), [3]);
    assert!(reply.is_success && reply.is_stream && reply.first_byte.is_some());
    assert_eq!(reply.predicted, Some(prediction));
    assert!(reply.first_byte.is_some_and(|first_byte| first_byte <= reply.duration));
}

/// Feedback of a predicted request whose reply has this form and status, up to its first piece.
fn begun(worker: &Arc<Worker>, is_stream: bool, status: u16, predicts: bool) -> CacheFeedback {
    let prediction = predicts.then(|| Prediction { prompt_tokens: 150, ..Prediction::default() });
    let request = inquiry(&[1, 2], 600);
    let attempt = attempt(prediction);
    let mut feedback =
        CacheFeedback::begin(worker, &replica(), &request, &attempt).expect("feedback");
    feedback.sent();
    feedback.head(StatusCode::from_u16(status).expect("a status"), is_stream);
    feedback.piece(Instant::now() + Duration::from_millis(40));
    feedback
}

#[test]
fn the_first_token_of_a_stream_is_reported_when_it_comes() {
    let worker = worker();
    let mut feedback = begun(&worker, true, 200, true);
    let told = learnings(&worker);
    let [Learning::Sent { .. }, Learning::Begun(begun)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((begun.model.as_str(), begun.predicted.prompt_tokens), ("tiny", 150));
    assert!(begun.first_byte >= Duration::from_millis(40));
    feedback.piece(Instant::now());
    assert_eq!(learnings(&worker), [], "once");
    feedback.end(End::Complete, 9, None, BlockHashes::default());
    let told = learnings(&worker);
    assert_eq!(replied(&told[0]).begun.as_ref(), Some(begun));
    assert_eq!(replied(&told[0]).first_byte, Some(begun.first_byte));
}

#[test]
fn what_has_no_first_token_of_its_own_is_reported_at_its_end() {
    let worker = worker();
    for (is_stream, status, predicts) in [
        (false, 200, true),
        (true, 500, true),
        // How much there was to read is known at the end.
        (true, 200, false),
    ] {
        let feedback = begun(&worker, is_stream, status, predicts);
        let told = learnings(&worker);
        assert!(matches!(&told[..], [Learning::Sent { .. }]), "{is_stream} {status}: {told:?}");
        drop(feedback);
        learnings(&worker);
    }
}

#[test]
fn what_came_to_nothing_is_told_as_such() {
    let (worker, replica) = (worker(), replica());
    let request = inquiry(&[1], 300);
    let begin = || sent(&worker, &replica, &request);
    drop(begin());
    let mut left = begin();
    left.head(StatusCode::OK, false);
    left.piece(Instant::now());
    drop(left);
    let told = learnings(&worker);
    let ends: Vec<_> = told
        .iter()
        .filter_map(|told| match told {
            Learning::Replied(replied) => Some((replied.end, replied.is_success)),
            Learning::Sent { .. }
            | Learning::Unread { .. }
            | Learning::Begun(_)
            | Learning::Forwarded { .. }
            | Learning::ForwardReplied(_) => None,
        })
        .collect();
    assert_eq!(ends, [(End::CancelledBeforeReply, false), (End::CancelledInReply, true)]);
    assert_eq!(told.len(), 4, "each is told to have been sent");
}

#[test]
fn what_was_not_read_is_told_as_such_and_what_was_not_sent_not_at_all() {
    let (worker, replica) = (worker(), replica());
    let request = inquiry(&[1], 300);
    let identity = Candidate::identity_of(&"gpu-a".into());
    let chain = || BlockHashes::new(vec![1]);
    let expected = [
        Learning::Sent { identity, chain: chain(), is_guest: false },
        Learning::Unread { identity, chain: chain() },
    ];
    for status in [400, 429, 500, 503] {
        let mut refused = sent(&worker, &replica, &request);
        refused.head(StatusCode::from_u16(status).expect("a status"), false);
        refused.piece(Instant::now());
        refused.end(End::Complete, 0, None, BlockHashes::new(vec![3]));
        drop(refused);
        assert_eq!(learnings(&worker), expected, "{status}");
    }
    let mut broken = sent(&worker, &replica, &request);
    broken.unread();
    drop(broken);
    assert_eq!(learnings(&worker), expected);
    // A prompt without a full block was never reported as sent, so there is nothing to take back.
    sent(&worker, &replica, &inquiry(&[], 50)).unread();
    let mut unsent =
        CacheFeedback::begin(&worker, &replica, &request, &attempt(None)).expect("feedback");
    unsent.unread();
    drop(unsent);
    drop(CacheFeedback::begin(&worker, &replica, &request, &attempt(None)));
    assert_eq!(learnings(&worker), []);
}

#[test]
fn without_a_prompt_there_is_nothing_to_learn_and_without_a_full_block_no_cache() {
    let (worker, replica) = (worker(), replica());
    assert!(CacheFeedback::begin(&worker, &replica, &inquiry(&[], 0), &attempt(None)).is_none());
    let unnamed = Inquiry { model: None, ..inquiry(&[1], 300) };
    assert!(CacheFeedback::begin(&worker, &replica, &unnamed, &attempt(None)).is_none());
    drop(sent(&worker, &replica, &inquiry(&[], 50)));
    let told = learnings(&worker);
    assert_eq!(told.len(), 1);
    assert_eq!(replied(&told[0]).prompt_bytes, 50);
}

#[tokio::test]
async fn a_full_queue_loses_lessons_and_says_so_and_the_learner_is_woken_once() {
    let (worker, replica) = (worker(), replica());
    let request = inquiry(&[1], 300);
    let over = 10;
    for _ in 0..LEARNINGS_MAX as u64 / 2 + over {
        drop(sent(&worker, &replica, &request));
    }
    assert_eq!(worker.learnings_dropped(), 2 * over);
    worker.gateway.routing.knowledge.learned().await;
    assert_eq!(learnings(&worker).len(), LEARNINGS_MAX);
    let again =
        tokio::time::timeout(Duration::from_millis(1), worker.gateway.routing.knowledge.learned())
            .await;
    assert!(again.is_err(), "nothing was learned since");
}
