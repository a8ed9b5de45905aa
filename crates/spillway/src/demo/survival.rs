//! Scene of the demo: a stream whose replica dies in the middle, and that another one continues.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use spillway_emulator::{Fault, ReplicaHandle};
use spillway_harness::{LoadAttempt, LoadClient, spawn, wait_for};
use tokio::task::JoinHandle;

use crate::demo::region::DemoRegion;
use crate::demo::workload::long_stream;
use crate::demo::world::DemoWorld;

/// Region whose replica dies.
const REGION: DemoRegion = DemoRegion::UsEast;
/// Tokens of the stream, and those after which its replica dies.
const TOKENS: u32 = 160;
const TOKENS_BEFORE: u64 = 50;
/// Longest wait for each step, and for the whole stream.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two looks: shorter than a token takes.
const LOOK: Duration = Duration::from_millis(2);

/// Results of the stream.
#[derive(Debug, Serialize)]
pub(crate) struct Survival {
    region: &'static str,
    /// Replica that died, and the one that continued the stream.
    died: String,
    continued_by: String,
    /// Tokens that the first replica had generated.
    tokens_before: u64,
    /// Time from the death of the first replica to the next token of the other one.
    pause_ms: f64,
    /// True if the client got the stream to its end, without an error.
    is_whole: bool,
}

/// Lets a replica die in the middle of a stream.
pub(crate) async fn show(world: &DemoWorld) -> Result<Survival> {
    let replicas = world.replicas(REGION);
    let tokens = |it: &ReplicaHandle| it.stats().engine.generation_tokens;
    until(|| replicas.iter().all(|it| it.stats().running == 0), "calm").await?;
    let before: Vec<u64> = replicas.iter().map(tokens).collect();
    let stream = ask(world);
    let grown = |index: usize| tokens(&replicas[index]).saturating_sub(before[index]);
    let place = || (0..replicas.len()).find(|index| grown(*index) >= TOKENS_BEFORE);
    until(|| place().is_some() || stream.is_finished(), "the stream").await?;
    let died = place().context("the stream ended early")?;
    let tokens_before = grown(died);
    replicas[died].set_fault(Fault::Crash).await.context("the replica does not die")?;

    let dead_at = Instant::now();
    let follower = || (0..replicas.len()).find(|index| *index != died && grown(*index) > 0);
    until(|| follower().is_some() || stream.is_finished(), "the next token").await?;
    let pause = dead_at.elapsed();
    let attempt = stream.await.context("the client failed")?;
    replicas[died].set_fault(Fault::None).await.context("the replica does not come back")?;
    let name = |index: usize| format!("replica-{index}");
    Ok(Survival {
        region: REGION.name(),
        died: name(died),
        continued_by: follower().map_or_else(|| "another region".to_owned(), name),
        tokens_before,
        pause_ms: pause.as_secs_f64() * 1e3,
        is_whole: attempt.reply().is_some_and(|reply| reply.stream().is_whole()),
    })
}

/// Sends the request.
fn ask(world: &DemoWorld) -> JoinHandle<LoadAttempt> {
    let client = LoadClient::new(world.doors()[REGION.index()]);
    let request = long_stream(TOKENS, PATIENCE);
    spawn(async move { client.send(&request, Instant::now()).await })
}

async fn until(is_so: impl Fn() -> bool, what: &str) -> Result<()> {
    let look = async || is_so().then_some(()).ok_or("in vain");
    wait_for(&format!("waited {PATIENCE:?} for {what}"), PATIENCE, LOOK, look).await
}

impl Survival {
    /// Returns what happens, for people.
    pub(crate) fn story() -> String {
        format!(
            "A client of {} reads a stream of {TOKENS} tokens. Its replica crashes after {TOKENS_BEFORE}. \
             The node has another replica continue from the text that the client already has.",
            REGION.name(),
        )
    }

    /// Checks that the client got the whole stream.
    ///
    /// # Errors
    /// Returns an error if the stream broke off.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(self.is_whole, "the stream did not survive its replica");
        Ok(())
    }

    /// Returns the result in one line.
    pub(crate) fn headline(&self) -> String {
        let Self { tokens_before, pause_ms, is_whole, .. } = self;
        let end = if *is_whole { "the client got all" } else { "the stream broke off" };
        format!(
            "replica died after {tokens_before} of {TOKENS} tokens; {end}, {pause_ms:.0} ms later"
        )
    }

    pub(crate) fn text(&self) -> String {
        let Self { region, died, continued_by, tokens_before, pause_ms, is_whole } = self;
        let end = if *is_whole { "one whole stream" } else { "a stream that broke off" };
        format!(
            "{died} of {region} crashed after {tokens_before} tokens of a stream; {continued_by}\n\
             continued it {pause_ms:.0} ms later. The client got {end} of {TOKENS} tokens.\n"
        )
    }
}

#[cfg(test)]
impl Survival {
    /// Returns an example.
    pub(crate) fn sample() -> Self {
        Self {
            region: REGION.name(),
            died: "replica-0".to_owned(),
            continued_by: "replica-1".to_owned(),
            tokens_before: 50,
            pause_ms: 40.0,
            is_whole: true,
        }
    }
}
