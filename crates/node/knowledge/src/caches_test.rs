use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use spillway_gossip::{Sharing, SharingConfig, To};
use spillway_prefix::{FineIndex, HeatConfig, IndexConfig, IndexReader, Matches};
use spillway_replicas::{CacheReport, Mapping, ServerKind};
use spillway_resolver::Resolver;
use spillway_route::Candidate;
use spillway_types::{BlockHashes, End, Prediction, Speed};
use spillway_upstream::ReplicaProtocol;
use spillway_view::{BegunStream, Replica, ReplicaSpec, Replied, UsageReports};

use super::caches::Caches;
use super::speeds::Speeds;

/// A node that learns, and the index as requests read it.
struct Node {
    caches: Caches,
    reader: IndexReader,
    replicas: Vec<Arc<Replica>>,
}

impl Node {
    fn new() -> Self {
        let (index, reader) = FineIndex::new(IndexConfig::default());
        let mut caches = Caches::new(index, 256);
        caches.share(Sharing::new(SharingConfig::default(), 0));
        caches.keep_heat(HeatConfig::default());
        let replicas = replicas(&["a", "b"]);
        assert!(caches.reconcile(&replicas, Instant::now()).is_empty());
        Self { caches, reader, replicas }
    }

    fn blocks(&self, replica: usize, chain: &[u64]) -> u32 {
        let mut matches = Matches::new();
        self.reader.lookup(chain, &mut matches);
        matches.blocks(self.replicas[replica].holder().unwrap())
    }

    fn send(&mut self, replica: &str, chain: &[u64]) {
        self.caches.sent(identity(replica), chain, 0);
    }

    /// Hands the datagrams that are due to `other`.
    fn tell(&mut self, other: &mut Self) -> usize {
        let due = self.caches.sharing().unwrap().flush();
        for (to, datagram) in &due {
            assert_eq!(*to, To::All);
            other.caches.receive(&"n".into(), datagram, 0);
        }
        due.len()
    }
}

fn replicas(names: &[&str]) -> Vec<Arc<Replica>> {
    let replica = |name: &&str| {
        let spec = replica_spec(name);
        Arc::new(Replica::new(spec, 1, &Resolver::default()).unwrap())
    };
    names.iter().map(replica).collect()
}

fn replica_spec(name: &str) -> ReplicaSpec {
    ReplicaSpec {
        name: name.into(),
        host: "127.0.0.1".to_owned(),
        port: 1,
        base: None,
        tls: None,
        protocol: ReplicaProtocol::Http1,
        grpc: None,
        models: vec!["m".into()],
        versions: BTreeMap::new(),
        pool: "default".to_owned(),
        weight: 1,
        in_flight_max: 256,
        idle: Duration::from_secs(1),
        continues_chats: false,
        salt_field: None,
        usage_reports: UsageReports::None,
        kv_events_port: None,
        credential: None,
        overflow: None,
    }
}

fn identity(name: &str) -> u64 {
    Candidate::identity_of(&name.into())
}

fn replied(replica: &str, chain: &[u64], cached_tokens: Option<u64>) -> Replied {
    let prompt_tokens = 64 * chain.len() as u64;
    Replied {
        identity: identity(replica),
        model: "m".into(),
        chain: BlockHashes::new(chain.to_vec()),
        written: BlockHashes::default(),
        prompt_bytes: 256 * chain.len() as u32,
        prompt_tokens: Some(prompt_tokens),
        cached_tokens,
        output_tokens: 11,
        answers: 1,
        first_byte: Some(Duration::from_millis(100)),
        duration: Duration::from_millis(400),
        is_stream: true,
        begun: None,
        end: End::Complete,
        is_success: true,
        predicted: Some(Prediction {
            cached_tokens: prompt_tokens as u32,
            prompt_tokens: prompt_tokens as u32,
            ..Prediction::default()
        }),
        context_tokens: 0.0,
        read_tokens: 0,
        in_flight: 1,
    }
}

#[test]
fn a_prompt_is_known_where_it_was_sent_and_nowhere_else() {
    let mut node = Node::new();
    node.send("a", &[1, 2, 3]);
    node.send("nobody", &[7]);
    assert_eq!((node.blocks(0, &[1, 2, 3, 4]), node.blocks(1, &[1, 2, 3])), (3, 0));
    assert_eq!(node.blocks(0, &[7]), 0);
}

#[test]
fn a_whole_reply_is_known_behind_its_prompt_here_and_at_other_nodes() {
    let (mut one, mut other) = (Node::new(), Node::new());
    one.send("b", &[1, 2, 3]);
    let written = BlockHashes::new(vec![4, 5]);
    one.caches.replied(&Replied { written, ..replied("b", &[1, 2, 3], Some(0)) }, 0);
    let next = [1, 2, 3, 4, 5, 6];
    assert_eq!((one.blocks(1, &next), one.blocks(0, &next)), (5, 0));
    one.tell(&mut other);
    assert_eq!(other.blocks(1, &next), 5);
    // The reply is no second request for its prompt.
    assert!(other.caches.hot_delta(0).is_none());
    one.caches.replied(&replied("nobody", &[7], Some(0)), 0);
    assert_eq!(one.blocks(0, &[7]), 0);
}

#[test]
fn another_node_knows_it_too() {
    let (mut one, mut other) = (Node::new(), Node::new());
    one.send("b", &[1, 2, 3]);
    one.tell(&mut other);
    assert_eq!((other.blocks(1, &[1, 2, 3]), other.blocks(0, &[1])), (3, 0));
    assert!(other.caches.hot_delta(0).is_none(), "asked for once");
    for _ in 0..20 {
        one.send("b", &[1, 2, 3]);
        one.tell(&mut other);
    }
    let delta = other.caches.hot_delta(0).unwrap();
    assert_eq!(delta.enter.len(), 3, "hot in the region, whichever node is asked");
    assert!(other.caches.hot_delta(0).is_none(), "told");
    other.caches.adopt_heat(None);
    assert!(other.caches.hot_delta(0).is_some(), "the cluster does not have it");
}

#[test]
fn a_replica_that_counts_anew_has_nothing_any_more() {
    let mut node = Node::new();
    let page = |started_s| CacheReport { started_s: Some(started_s), ..CacheReport::default() };
    node.caches.reported(&"a".into(), &page(10.0));
    node.send("a", &[1, 2]);
    node.send("b", &[1, 2]);
    node.caches.reported(&"a".into(), &page(10.0));
    assert_eq!(node.blocks(0, &[1, 2]), 2);
    node.caches.reported(&"a".into(), &page(99.0));
    assert_eq!((node.blocks(0, &[1, 2]), node.blocks(1, &[1, 2])), (0, 2));
}

#[test]
fn one_that_was_down_has_nothing_unless_its_pages_would_tell() {
    let mut node = Node::new();
    let page = CacheReport { started_s: Some(10.0), ..CacheReport::default() };
    node.caches.reported(&"a".into(), &page);
    node.send("a", &[1]);
    node.send("b", &[1]);
    node.caches.returned(&"a".into());
    node.caches.returned(&"b".into());
    assert_eq!((node.blocks(0, &[1]), node.blocks(1, &[1])), (1, 0));
    node.caches.empty(&"a".into(), "test");
    assert_eq!(node.blocks(0, &[1]), 0);
}

#[test]
fn a_cache_holds_no_more_than_it_says() {
    let mut node = Node::new();
    let page = CacheReport { tokens: Some(640.0), ..CacheReport::default() };
    assert_eq!(node.caches.reported(&"a".into(), &page), Some(640.0));
    assert_eq!(node.caches.reported(&"a".into(), &page), None, "no news");
    node.caches.size(|_| 4.0);
    for chain in [[1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16]] {
        node.send("a", &chain);
        node.send("b", &chain);
    }
    let known = |replica| node.blocks(replica, &[1, 2, 3, 4, 5, 6]);
    assert!(known(0) < 6, "640 tokens are ten blocks");
    assert_eq!(known(1), 6);
    assert_eq!(node.blocks(0, &[11, 12, 13, 14, 15, 16]), 6);
}

#[test]
fn a_reply_that_had_less_cached_corrects_here_and_elsewhere() {
    let (mut one, mut other) = (Node::new(), Node::new());
    let chain: Vec<u64> = (1..=16).collect();
    one.send("a", &chain);
    one.tell(&mut other);
    // As predicted, or nearly: nothing is shared.
    one.caches.replied(&replied("a", &chain, Some(1_024)), 0);
    one.caches.replied(&replied("a", &chain, Some(1_000)), 0);
    assert_eq!(one.tell(&mut other), 0);
    one.caches.replied(&replied("a", &chain, Some(64)), 0);
    assert_eq!(one.tell(&mut other), 1);
    assert_eq!(one.blocks(0, &chain), other.blocks(0, &chain), "both draw the same conclusion");
    // Nothing is concluded about a prompt of unknown length, nor from a reply that failed.
    let unknown = Replied { prompt_tokens: None, ..replied("a", &chain, Some(0)) };
    let failed = Replied { is_success: false, ..replied("a", &chain, Some(0)) };
    one.caches.replied(&unknown, 0);
    one.caches.replied(&failed, 0);
    assert_eq!(one.tell(&mut other), 0);
}

#[test]
fn what_was_not_read_is_not_there_and_what_others_sent_meanwhile_is() {
    let mut node = Node::new();
    node.send("a", &[1, 2]);
    node.send("a", &[1, 2, 3, 4]);
    node.send("b", &[1, 2, 3, 4]);
    node.caches.unread(identity("a"), &[1, 2, 3, 4]);
    node.caches.unread(identity("nobody"), &[1, 2, 3, 4]);
    assert_eq!((node.blocks(0, &[1, 2, 3, 4]), node.blocks(1, &[1, 2, 3, 4])), (2, 4));
    node.send("a", &[7, 8]);
    node.send("a", &[7, 8, 9]);
    node.caches.unread(identity("a"), &[7, 8]);
    assert_eq!(node.blocks(0, &[7, 8, 9]), 3, "the second brings all of it");
}

#[test]
fn an_sglang_that_counts_fewer_hits_than_were_expected_is_taken_to_hold_less() {
    let mut node = Node::new();
    let mapping = Mapping::of(ServerKind::Sglang).unwrap();
    let page = |queries: u32, hits: u32| {
        let page = format!(
            "sglang:cache_hit_rate 1.0\nsglang:prompt_tokens_total {queries}\n\
             sglang:cached_tokens_total{{cache_source=\"device\"}} {hits}\n"
        );
        mapping.read(page.as_bytes()).1
    };
    // Forty blocks of each of these, the first the oldest.
    let chains: Vec<Vec<u64>> = (1..=4).map(|one| (one * 100..one * 100 + 40).collect()).collect();
    let known = |node: &Node| chains.iter().map(|chain| node.blocks(0, chain)).collect::<Vec<_>>();
    chains.iter().for_each(|chain| node.send("a", chain));
    node.caches.reported(&"a".into(), &page(10_000, 5_000));
    // All of 2,560 tokens were expected to be cached, of which nine tenths were.
    let reply = replied("a", &chains[0], None);
    node.caches.replied(&reply, 0);
    node.caches.reported(&"a".into(), &page(12_560, 7_304));
    assert_eq!(known(&node), [40; 4]);
    // And now a quarter less.
    node.caches.replied(&reply, 0);
    node.caches.reported(&"a".into(), &page(15_120, 9_224));
    assert_eq!(known(&node), [0, 40, 40, 40]);
    // The conclusion comes from the counts: without news of them nothing follows.
    node.caches.replied(&reply, 0);
    node.caches.reported(&"a".into(), &page(15_120, 9_224));
    assert_eq!(known(&node), [0, 40, 40, 40]);
}

#[test]
fn a_number_that_is_left_out_is_zero_where_it_was_told_before() {
    let (mut one, mut other) = (Node::new(), Node::new());
    let chain: Vec<u64> = (1..=16).collect();
    one.send("a", &chain);
    one.tell(&mut other);
    one.caches.replied(&replied("a", &chain, None), 0);
    assert_eq!(one.tell(&mut other), 0, "it may be one that never tells");
    one.caches.replied(&replied("a", &chain, Some(1_024)), 0);
    one.caches.replied(&replied("a", &chain, None), 0);
    assert_eq!(one.tell(&mut other), 1, "none was cached");
    one.caches.empty(&"a".into(), "test");
    one.caches.replied(&replied("a", &chain, None), 0);
    assert_eq!(one.tell(&mut other), 0, "it may be another program now");
}

#[test]
fn another_key_makes_everything_unknown() {
    let mut node = Node::new();
    for _ in 0..20 {
        node.send("a", &[1, 2]);
    }
    node.caches.set_epoch(1);
    assert_eq!(node.blocks(0, &[1, 2]), 0);
    assert!(node.caches.hot_delta(0).is_none());
    assert!(!node.caches.sharing().unwrap().is_due());
    node.send("a", &[1, 2]);
    assert_eq!(node.blocks(0, &[1, 2]), 2, "its number stays");
}

#[test]
fn a_replica_that_is_absent_for_long_is_forgotten_and_a_short_absence_changes_nothing() {
    let mut node = Node::new();
    node.send("a", &[1]);
    let start = Instant::now();
    let without = [Arc::clone(&node.replicas[1])];
    assert!(node.caches.reconcile(&without, start).is_empty());
    assert!(node.caches.forget_absent(start + Duration::from_secs(599)).is_empty());
    assert_eq!(node.blocks(0, &[1]), 1);
    let all = node.replicas.clone();
    node.caches.reconcile(&all, start + Duration::from_secs(599));
    assert!(node.caches.forget_absent(start + Duration::from_secs(5_000)).is_empty(), "it is back");
    node.caches.reconcile(&without, start + Duration::from_secs(5_000));
    let gone = node.caches.forget_absent(start + Duration::from_secs(5_600));
    assert_eq!(gone.iter().map(|known| known.name.as_str()).collect::<Vec<_>>(), ["a"]);
    node.send("a", &[1]);
    assert_eq!(node.blocks(0, &[1]), 0);
}

#[test]
fn speeds_are_learned_from_replies_that_went_well() {
    let replicas = replicas(&["a", "b"]);
    let mut speeds = Speeds::default();
    speeds.set_kv_tokens(&"b".into(), 5_000.0);
    let good = replied("a", &[1; 16], Some(0));
    for cut in [
        Replied { is_success: false, ..good.clone() },
        Replied { end: End::CancelledInReply, ..good.clone() },
        Replied { end: End::Cut, ..good.clone() },
    ] {
        speeds.learn(&"a".into(), &cut, 1_000);
    }
    assert_eq!(speeds.len(), 0);
    assert_eq!(speeds.at(&replicas, 1_000).of_replica(&"b".into()).kv_tokens, 5_000.0);
    for turn in 0..200 {
        // 1,024 tokens in 100 ms, 10 more in 300.
        speeds.learn(&"a".into(), &good, 1_000 + turn);
    }
    let published = speeds.at(&replicas, 1_200);
    let speed = published.of_replica(&"a".into());
    let predicted_ms = speed.floor_ms + 1_024.0 * speed.prefill_ms;
    assert!((90.0..115.0).contains(&predicted_ms), "{speed:?}");
    assert!((27.0..31.0).contains(&speed.decode_ms), "{speed:?}");
    assert!((3.9..4.1).contains(&speed.bytes_per_token), "{speed:?}");
    assert!(speed.trust > 0.9);
    assert_eq!(published.of_model(&"m".into()), speed, "the only one of its region");
    assert_eq!(published.of_model(&"other".into()), Speed::UNKNOWN);
}

/// A reply in one piece to a prompt of so many tokens, of 7 bytes each, by a replica that takes 20
/// ms, 0.2 ms for each of them, and 25 ms for each further token of `output`.
fn whole(replica: &str, prompt_tokens: u64, output_tokens: u64, slower: u64) -> Replied {
    let took_us = (20_000 + 200 * prompt_tokens + 25_000 * (output_tokens - 1)) * slower;
    let took = Duration::from_micros(took_us);
    Replied {
        prompt_bytes: 7 * prompt_tokens as u32,
        prompt_tokens: Some(prompt_tokens),
        output_tokens,
        first_byte: Some(took),
        duration: took,
        is_stream: false,
        ..replied(replica, &[1], Some(0))
    }
}

#[test]
fn replies_in_one_piece_teach_all_that_streams_do() {
    let replicas = replicas(&["a", "slow"]);
    let mut speeds = Speeds::default();
    for turn in 0..200_u64 {
        let (prompt, output) = (100 + turn * 37 % 4_000, 1 + turn * 13 % 60);
        speeds.learn(&"a".into(), &whole("a", prompt, output, 1), turn);
        speeds.learn(&"slow".into(), &whole("slow", prompt, output, 10), turn);
    }
    let published = speeds.at(&replicas, 200);
    for (name, slower) in [("a", 1.0), ("slow", 10.0)] {
        let speed = published.of_replica(&name.into());
        assert!((6.7..7.2).contains(&speed.bytes_per_token), "{speed:?}");
        assert!((22.0..28.0).contains(&(speed.decode_ms / slower)), "{name}: {speed:?}");
        let first_token_ms = speed.floor_ms + speed.reading_ms(7.0 * 2_000.0, 0.0);
        assert!((370.0..480.0).contains(&(first_token_ms / slower)), "{name}: {speed:?}");
        assert!(speed.trust > 0.9, "{speed:?}");
    }
}

#[test]
fn a_few_replies_in_one_piece_teach_the_bytes_of_a_token() {
    let mut speeds = Speeds::default();
    for turn in 0..3 {
        speeds.learn(&"a".into(), &whole("a", 600, 20, 1), turn);
    }
    let speed = speeds.at(&replicas(&["a"]), 3).of_replica(&"a".into());
    assert!((6.5..7.1).contains(&speed.bytes_per_token), "{speed:?}");
}

#[test]
fn a_reply_in_one_piece_that_does_not_tell_its_tokens_says_nothing_of_speed() {
    let mut speeds = Speeds::default();
    let silent = Replied { prompt_tokens: None, output_tokens: 0, ..whole("a", 600, 20, 1) };
    for turn in 0..50 {
        speeds.learn(&"a".into(), &silent, turn);
    }
    assert_eq!(speeds.at(&replicas(&["a"]), 50).of_replica(&"a".into()), Speed::UNKNOWN);
}

#[test]
fn several_answers_are_generated_side_by_side() {
    let mut speeds = Speeds::default();
    for turn in 0..100_u64 {
        let one = whole("a", 600, 2 + turn % 40, 1);
        let four = Replied { output_tokens: 4 * one.output_tokens, answers: 4, ..one };
        speeds.learn(&"a".into(), &four, turn);
    }
    let speed = speeds.at(&replicas(&["a"]), 100).of_replica(&"a".into());
    assert!((22.0..28.0).contains(&speed.decode_ms), "{speed:?}");
}

/// The report on the first token of a stream whose prompt was expected to be read in no time.
fn begun(first_byte_ms: u64) -> Arc<BegunStream> {
    Arc::new(BegunStream {
        identity: identity("a"),
        model: "m".into(),
        predicted: Prediction { prompt_tokens: 1_024, cached_tokens: 0, ..Prediction::default() },
        first_byte: Duration::from_millis(first_byte_ms),
        learned: OnceLock::new(),
    })
}

#[test]
fn a_stream_teaches_at_its_first_token_and_counts_once() {
    let replicas = replicas(&["a"]);
    let mut speeds = Speeds::default();
    let mut under_way = Vec::new();
    for turn in 0..20 {
        let begun = begun(800);
        speeds.begin(&"a".into(), &begun, turn);
        under_way.push(begun);
    }
    let early = speeds.at(&replicas, 20).of_replica(&"a".into());
    let predicted_ms = early.floor_ms + early.reading_ms(4_096.0, 0.0);
    assert!((700.0..900.0).contains(&predicted_ms), "none has ended: {early:?}");
    for (turn, begun) in (20..).zip(under_way) {
        // Half of the prompt was cached, so reading the rest took longer than was thought.
        let end = Replied {
            first_byte: Some(begun.first_byte),
            duration: Duration::from_millis(1_100),
            begun: Some(begun),
            ..replied("a", &[1; 16], Some(512))
        };
        speeds.learn(&"a".into(), &end, turn);
    }
    let late = speeds.at(&replicas, 40).of_replica(&"a".into());
    assert!((late.trust - early.trust).abs() < 0.01, "twenty replies, not forty");
    assert!((24.0..33.0).contains(&late.decode_ms), "{late:?}");
    let half_ms = |speed: &Speed| speed.floor_ms + 512.0 * speed.prefill_ms;
    assert!((700.0..900.0).contains(&half_ms(&late)), "{late:?}");
    assert!(half_ms(&early) < 600.0, "{early:?}");
}

#[test]
fn the_first_token_of_a_stream_that_broke_off_stays_learned() {
    let mut speeds = Speeds::default();
    for turn in 0..20 {
        let begun = begun(800);
        speeds.begin(&"a".into(), &begun, turn);
        let cut = Replied { end: End::Cut, begun: Some(begun), ..replied("a", &[1; 16], None) };
        speeds.learn(&"a".into(), &cut, turn);
    }
    let speed = speeds.at(&replicas(&["a"]), 20).of_replica(&"a".into());
    assert!(speed.floor_ms + speed.reading_ms(4_096.0, 0.0) > 700.0, "{speed:?}");
}

#[test]
fn what_was_learned_is_the_same_after_a_restart_and_goes_with_its_replica() {
    let replicas = replicas(&["a", "b"]);
    let mut speeds = Speeds::default();
    for turn in 0..50 {
        speeds.learn(&"a".into(), &replied("a", &[1; 16], Some(512)), turn);
        speeds.learn(&"b".into(), &replied("b", &[1; 8], Some(0)), turn);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = super::saved::path(folder.path());
    super::saved::save(&path, speeds.to_keep()).unwrap();
    let mut again = Speeds::restored(super::saved::load(&path).unwrap());
    assert_eq!(again.at(&replicas, 60), speeds.at(&replicas, 60));
    again.forget(&"a".into());
    assert_eq!((again.len(), speeds.len()), (1, 2));
}
