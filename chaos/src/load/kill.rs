//! A random replica is killed every two seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use spillway_harness::{
    AttemptEnd, LoadAttempt, LoadGenerator, LoadRecord, LoadSource, good_ms, kinds,
};
use tokio::time::sleep;

use super::request;
use super::stage::{LoadStage, Setting};
use crate::plan::TrialPlan;
use crate::trial::TrialReport;

const LIMIT: Duration = Duration::from_secs(30);
const REPLICAS: u16 = 4;
/// Interval between two kills; a killed replica starts again after `DOWN`.
const EVERY: Duration = Duration::from_secs(2);
const DOWN: Duration = Duration::from_secs(1);
const LASTS: Duration = Duration::from_secs(60);
/// Requests a second: well below what three replicas serve.
const RATE: f64 = 25.0;
const STREAM_RATE: f64 = 8.0;
/// Tokens of a stream, which takes about a second.
const STREAM_TOKENS: u32 = 96;
/// Share of streams that must be whole, in percent.
const AIM: f64 = 99.0;
/// Health checks every 200 ms and a slow start of 1 s, so that a node quickly notices a killed
/// replica and one that came back.
const TABLES: &str = "
[health]
interval_ms = 200
slow_start_ms = 1000
[[route]]
name = \"llm\"
";
const CONTINUE: &str = "continue_streams = true\n";

pub(crate) async fn run(plan: &TrialPlan) -> anyhow::Result<TrialReport> {
    let mut report = TrialReport::default();
    let (mut failed, mut sent, mut took) = (0, 0, Vec::new());
    let (mut whole, mut wrong, mut compared) = (Vec::new(), 0, 0);
    for round in 1..=plan.trials {
        let mut setting = Setting::usual(REPLICAS);
        setting.tables = format!("{TABLES}{CONTINUE}");
        let mut stage = LoadStage::new(plan, setting).await?;
        let texts = texts(&stage).await?;
        let seed = plan.seed + round as u64;
        let unary = LoadSource::new(|number| request::chat(number, LIMIT));
        let streams =
            LoadSource::new(|number| request::stream(number % TEXTS, STREAM_TOKENS, LIMIT));
        let unary = LoadGenerator::open(&stage.data, unary, RATE, seed);
        let streams = LoadGenerator::open(&stage.data, streams, STREAM_RATE, seed + 1);
        let kills = reap(plan, &mut stage, seed).await?;
        let patience = request::patience(LIMIT);
        let (unary, streams) = (unary.end(patience).await, streams.end(patience).await);
        let attempts: Vec<&LoadAttempt> =
            unary.iter().flat_map(|record| &record.attempts).collect();
        plan.say(&format!(
            "round {round}: {kills} kills; unary: {}",
            kinds(attempts.iter().copied())
        ));
        failed += attempts.iter().filter(|attempt| !attempt.is_good()).count();
        sent += attempts.len();
        took.push(good_ms(attempts.iter().copied(), 0.99));
        let (good, other) = judge(&streams, &texts);
        plan.say(&format!("streams: {good} of {} whole, {other} with another text", streams.len()));
        let attempts = streams.iter().flat_map(|record| &record.attempts);
        plan.say(&format!("streams: {}", kinds(attempts)));
        let page = stage.page().await?;
        let continued = page.sum("spillway_stream_continuations_total", &[]);
        let retries = page.sum("spillway_retries_total", &[]);
        plan.say(&format!("{retries} retries, {continued} continuations"));
        whole.push(100.0 * good as f64 / streams.len().max(1) as f64);
        wrong += other;
        compared += good + other;
        stage.done(plan);
    }
    report.check("unary requests are served while replicas are killed", failed, sent);
    report.figure("p99 of unary requests that are served", None, took);
    report.rate(
        "streams that are whole, with the text of an undisturbed run",
        "%",
        Some(AIM),
        whole,
    );
    report.check("no stream that ends well has another text", wrong, compared);
    Ok(report)
}

/// Number of different prompts of streams.
const TEXTS: u64 = 40;

/// Asks an undisturbed replica for the reply to each prompt.
async fn texts(stage: &LoadStage) -> anyhow::Result<BTreeMap<u64, String>> {
    let replica = stage.replica(0)?;
    let mut texts = BTreeMap::new();
    for number in 0..TEXTS {
        let request = request::stream(number, STREAM_TOKENS, LIMIT);
        let attempt = replica.send(&request, Instant::now()).await;
        let AttemptEnd::Whole(reply) = attempt.end else {
            anyhow::bail!("an undisturbed run: {attempt:?}")
        };
        let stream = reply.stream();
        let says = stream.is_whole() && !stream.text.is_empty();
        anyhow::ensure!(says, "an undisturbed run says nothing");
        texts.insert(number, stream.text);
    }
    Ok(texts)
}

/// Kills one replica after the other, each for `DOWN`, and returns the number of kills.
async fn reap(plan: &TrialPlan, stage: &mut LoadStage, seed: u64) -> anyhow::Result<usize> {
    let mut random = fastrand::Rng::with_seed(seed);
    let start = Instant::now();
    let mut kills = 0;
    while start.elapsed() < plan.time(LASTS) {
        // wait: requests are under way
        sleep(EVERY - DOWN).await;
        let victim = random.usize(..usize::from(REPLICAS));
        stage.kill_replica(victim)?;
        kills += 1;
        // wait: the replica is gone for this long
        sleep(DOWN).await;
        stage.start_replica(victim)?;
    }
    Ok(kills)
}

/// Counts the whole streams with the right text, and those with another text.
fn judge(streams: &[LoadRecord], texts: &BTreeMap<u64, String>) -> (usize, usize) {
    let (mut good, mut other) = (0, 0);
    for record in streams {
        // Streams that broke off have no whole text to compare; they count as not good already.
        let Some(AttemptEnd::Whole(reply)) = record.attempts.last().map(|attempt| &attempt.end)
        else {
            continue;
        };
        let stream = reply.stream();
        if reply.status != 200 || !stream.is_whole() {
            continue;
        }
        let is_same = texts.get(&(record.number % TEXTS)) == Some(&stream.text);
        good += usize::from(is_same);
        other += usize::from(!is_same);
    }
    (good, other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use spillway_harness::LoadReply;

    use super::*;

    #[test]
    fn a_stream_is_whole_only_with_the_undisturbed_text() {
        let texts = BTreeMap::from([(0, "ab".to_owned())]);
        let record = |text: &str, end: &str| {
            let event = json!({ "choices": [{ "delta": { "content": text } }] });
            let body = format!("data: {event}\n\n{end}").into();
            let reply = LoadReply { status: 200, body, ..LoadReply::default() };
            let now = Instant::now();
            let attempt = LoadAttempt::at_once(now, AttemptEnd::Whole(reply));
            LoadRecord { number: TEXTS, attempts: vec![attempt] }
        };
        let done = "data: [DONE]\n\n";
        assert_eq!(judge(&[record("ab", done)], &texts), (1, 0));
        assert_eq!(judge(&[record("aab", done)], &texts), (0, 1));
        assert_eq!(judge(&[record("ab", "")], &texts), (0, 0));
        assert_eq!(judge(&[record("ab", "data: {\"error\":{}}\n\n")], &texts), (0, 0));
    }
}
