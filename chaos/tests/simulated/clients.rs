//! Clients that play the simulator's sessions against real nodes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use spillway_harness::{LoadAttempt, LoadClient, LoadRequest, spawn};
use spillway_sim::{BYTES_PER_TOKEN, Fate, Record, Session, Text, Turn};
use tokio::time::sleep_until;

use super::cluster::{MODEL, client, region};

/// Time that a client gives a whole reply. The first token has the limit of the objective.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause of the task that looks how late the clients' tasks are.
const TICK: Duration = Duration::from_millis(10);

/// Result of all clients.
#[derive(Debug, Default)]
pub(crate) struct LiveRun {
    /// Fate of each request; which region served one is not kept.
    pub(crate) records: Vec<Record>,
    /// Requests that failed, in words.
    pub(crate) failures: Vec<String>,
    /// Milliseconds by which a task of this process ran late, each [`TICK`].
    pub(crate) lags_ms: Vec<f64>,
}

/// Client in the middle of its session.
struct Player {
    client: LoadClient,
    region: usize,
    /// Texts of replies, by the ids of their pieces: later prompts contain them.
    replies: BTreeMap<u64, String>,
}

/// Plays all sessions until `end`; requests that have begun come to their end.
pub(crate) async fn play(sessions: Vec<Session>, end: Duration) -> LiveRun {
    let begin = Instant::now();
    let lags = spawn(lags(begin + end));
    let clients = sessions.into_iter().map(|session| {
        let client = client(session.region);
        let player = Player { client, region: session.region, replies: BTreeMap::new() };
        spawn(player.play(session, begin, end))
    });
    let mut run = LiveRun::default();
    for client in clients.collect::<Vec<_>>() {
        let (records, failures) = client.await.expect("a client does not panic");
        run.records.extend(records);
        run.failures.extend(failures);
    }
    run.lags_ms = lags.await.expect("it does not panic");
    run
}

/// Returns how late a task of this process runs, in milliseconds.
async fn lags(until: Instant) -> Vec<f64> {
    let mut lags_ms = Vec::new();
    let mut due = Instant::now() + TICK;
    while due < until {
        sleep_until(due.into()).await;
        lags_ms.push(due.elapsed().as_secs_f64() * 1e3);
        due = Instant::now() + TICK;
    }
    lags_ms
}

impl Player {
    async fn play(
        mut self,
        session: Session,
        begin: Instant,
        end: Duration,
    ) -> (Vec<Record>, Vec<String>) {
        let (mut records, mut failures) = (Vec::new(), Vec::new());
        let mut due = begin + session.start.since_start();
        for (number, turn) in session.turns.iter().enumerate() {
            assert!(turn.after.is_none_or(|after| after + 1 == number), "turns follow each other");
            due += Duration::from_micros(turn.think_us);
            if due >= begin + end {
                break;
            }
            sleep_until(due.into()).await;
            let (record, ended) = self.ask(turn, begin, &mut failures).await;
            records.push(record);
            due = ended;
        }
        (records, failures)
    }

    /// Sends the request of a turn. Returns its fate, and when it ended.
    async fn ask(
        &mut self,
        turn: &Turn,
        begin: Instant,
        failures: &mut Vec<String>,
    ) -> (Record, Instant) {
        let body = json!({
            "model": MODEL, "prompt": self.text_of(&turn.prompt), "max_tokens": turn.reply.tokens,
            "ignore_eos": true, "stream": true, "stream_options": { "include_usage": true },
        });
        let sent = Instant::now();
        let request = LoadRequest::post("/v1/completions", body, PATIENCE);
        let attempt = self.client.send(&request, sent).await;
        let reply = Reply::of(&attempt);
        let is_whole = attempt.is_good() && reply.tokens == turn.reply.tokens;
        if !is_whole {
            let body = attempt.reply().map(|reply| String::from_utf8_lossy(&reply.body));
            failures.push(format!("{}: {}", attempt.kind(), body.unwrap_or_default()));
        }
        let record = self.record(turn, (begin, &attempt), &reply, is_whole);
        self.replies.insert(turn.reply.id, reply.text);
        (record, attempt.ended)
    }

    fn record(
        &self,
        turn: &Turn,
        (begin, attempt): (Instant, &LoadAttempt),
        reply: &Reply,
        is_whole: bool,
    ) -> Record {
        let since_ms = |at: Instant| (at - attempt.sent).as_secs_f64() * 1e3;
        let is_forwarded = reply.region != region(self.region);
        Record {
            region: self.region,
            served_by: None,
            arrived_s: (attempt.sent - begin).as_secs_f64(),
            first_token_ms: attempt.first_byte.filter(|_| is_whole).map(since_ms),
            ended_ms: is_whole.then(|| since_ms(attempt.ended)),
            prompt_tokens: turn.prompt.tokens(),
            cached_tokens: reply.cached_tokens,
            reply_tokens: turn.reply.tokens,
            is_forwarded,
            fate: if is_whole { Fate::Answered } else { Fate::Failed },
            returns: 0,
            asked_again_ms: 0.0,
        }
    }

    /// Returns the words of a prompt: replies as they arrived, all other pieces by their ids.
    fn text_of(&self, prompt: &Text) -> String {
        let mut words = String::new();
        for piece in prompt.pieces() {
            match self.replies.get(&piece.id) {
                Some(reply) => words.push_str(reply),
                None => write_piece(piece.id, piece.tokens, &mut words),
            }
        }
        words
    }
}

/// Appends so many tokens of the text with this id: equal ids have equal texts, as far as both reach.
fn write_piece(id: u64, tokens: u32, words: &mut String) {
    let mut letters = fastrand::Rng::with_seed(id);
    words.extend((0..tokens * BYTES_PER_TOKEN).map(|_| letters.lowercase()));
}

/// Facts of a streamed completion.
#[derive(Debug, Default)]
struct Reply {
    text: String,
    tokens: u32,
    cached_tokens: u32,
    region: String,
}

impl Reply {
    fn of(attempt: &LoadAttempt) -> Self {
        let Some(reply) = attempt.reply() else { return Self::default() };
        let mut facts = Self { region: reply.region.clone(), ..Self::default() };
        let body = String::from_utf8_lossy(&reply.body);
        let events = body.lines().filter_map(|line| line.strip_prefix("data: "));
        for event in events.filter_map(|data| serde_json::from_str::<Value>(data).ok()) {
            facts.text.push_str(event["choices"][0]["text"].as_str().unwrap_or_default());
            let usage = &event["usage"];
            if !usage.is_null() {
                let count =
                    |value: &Value| value.as_u64().and_then(|count| u32::try_from(count).ok());
                facts.tokens = count(&usage["completion_tokens"]).unwrap_or_default();
                let cached = &usage["prompt_tokens_details"]["cached_tokens"];
                facts.cached_tokens = count(cached).unwrap_or_default();
            }
        }
        facts
    }
}
