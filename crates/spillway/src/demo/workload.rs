//! Requests of clients and their times, drawn before the load begins so that two phases get equal
//! ones.

use std::time::Duration;

use serde_json::{Value, json};
use spillway_emulator::{EngineConfig, Profile};
use spillway_harness::{LoadRequest, exponential_gap};

use crate::demo::region::DemoRegion;

/// The model that the replicas serve.
pub(crate) const MODEL: &str = "qwen3-32b";
/// Machine that each replica models. It runs at its real speed, so that the network's delay has its
/// real share of the time to first token.
const PROFILE: Profile = Profile::H100;
/// Replicas of a region.
pub(crate) const REPLICAS: u16 = 2;
/// Requests that a replica works on at once. A real one takes some hundreds; with so few, replicas
/// are full at a load that two cores can generate.
pub(crate) const PLACES: u32 = 6;

/// Tokens of a reply.
const TOKENS_MIN: u32 = 24;
const TOKENS_MAX: u32 = 72;
/// Longest wait for a reply of one token.
const SHORT_PATIENCE: Duration = Duration::from_secs(20);
/// Number of requests of which one does not stream.
const UNARY_ONE_IN: u32 = 10;
/// Assistants whose chats share a system prompt each.
const ASSISTANTS: [&str; 3] = ["billing", "travel", "support"];
/// Sentences of a system prompt: about 600 tokens.
const SENTENCES: usize = 18;

/// Request of a client, with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DemoArrival {
    /// Time after the begin of the load.
    pub(crate) at: Duration,
    /// Region of the client.
    pub(crate) home: DemoRegion,
    pub(crate) chat: Chat,
}

/// Content of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chat {
    assistant: usize,
    question: u32,
    tokens: u32,
    pub(crate) is_stream: bool,
}

/// Load of each region, in percent of what its replicas can serve.
pub(crate) type Loads = [u32; 3];

/// Returns the config of the modelled machine, which works on few requests at once.
pub(crate) fn engine() -> EngineConfig {
    let places = std::num::NonZeroU32::new(PLACES).unwrap_or(std::num::NonZeroU32::MIN);
    EngineConfig { running_max: places, ..EngineConfig::from_profile(PROFILE) }
}

/// Returns the requests per second that a region can serve, by the engine's cost model.
pub(crate) fn capacity_per_s() -> f64 {
    let cost = engine().cost;
    let tokens = f64::from(TOKENS_MIN + TOKENS_MAX) / 2.0;
    let prompt = prompt_tokens();
    let sequences = u64::from(PLACES);
    let step = cost.duration(0, sequences, sequences * u64::from(prompt)).as_secs_f64();
    // While one request runs, each of the other slots begins a new one once.
    let fresh = u64::from(FRESH_TOKENS) * sequences;
    let prefill = Duration::from_nanos(cost.prefill_token_ns * fresh).as_secs_f64();
    f64::from(REPLICAS) * f64::from(PLACES) / (tokens * step + prefill)
}

/// Prompt tokens that no cache has: the question and what completes the last shared block.
const FRESH_TOKENS: u32 = 24;

/// Returns the tokens of a prompt. A token is four bytes to the emulator.
fn prompt_tokens() -> u32 {
    u32::try_from(system_prompt(0).len() / 4).unwrap_or(u32::MAX).saturating_add(FRESH_TOKENS)
}

/// Draws all requests of a load, in the order of their times. Each region has a Poisson process of
/// its own, so that its requests do not depend on another region's load.
pub(crate) fn arrivals(seed: u64, loads: Loads, length: Duration) -> Vec<DemoArrival> {
    let mut all: Vec<DemoArrival> = DemoRegion::ALL
        .into_iter()
        .zip(loads)
        .flat_map(|(region, percent)| of_region(seed, region, percent, length))
        .collect();
    all.sort_by_key(|arrival| arrival.at);
    all
}

fn of_region(seed: u64, home: DemoRegion, percent: u32, length: Duration) -> Vec<DemoArrival> {
    let mut dice =
        fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(home.index() as u64));
    let per_second = capacity_per_s() * f64::from(percent) / 100.0;
    let mut at = Duration::ZERO;
    let mut arrivals = Vec::new();
    loop {
        at += exponential_gap(&mut dice, per_second);
        if at >= length {
            return arrivals;
        }
        let chat = Chat::by_chance(&mut dice);
        arrivals.push(DemoArrival { at, home, chat });
    }
}

impl Chat {
    fn by_chance(dice: &mut fastrand::Rng) -> Self {
        Self {
            assistant: dice.usize(..ASSISTANTS.len()),
            question: dice.u32(..),
            tokens: dice.u32(TOKENS_MIN..=TOKENS_MAX),
            is_stream: dice.u32(..UNARY_ONE_IN) > 0,
        }
    }

    /// Returns a request that may be sent again: its idempotency key marks repeats as harmless.
    pub(crate) fn request(&self, patience: Duration) -> LoadRequest {
        LoadRequest::post("/v1/chat/completions", self.body(), patience)
            .header("idempotency-key", format!("chat-{}", self.question))
    }

    fn body(&self) -> Value {
        json!({
            "model": MODEL,
            "messages": [
                {"role": "system", "content": system_prompt(self.assistant)},
                {"role": "user", "content": format!("Question number {}.", self.question)},
            ],
            "max_tokens": self.tokens,
            "stream": self.is_stream,
        })
    }
}

/// Returns a request for one token.
pub(crate) fn short_request(number: u32) -> LoadRequest {
    let body = json!({
        "model": MODEL,
        "messages": [{"role": "user", "content": format!("Short question number {number}.")}],
        "max_tokens": 1,
    });
    LoadRequest::post("/v1/chat/completions", body, SHORT_PATIENCE)
}

/// Returns a request for a stream of exactly that many tokens.
pub(crate) fn long_stream(tokens: u32, patience: Duration) -> LoadRequest {
    let body = json!({
        "model": MODEL,
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "max_tokens": tokens,
        "ignore_eos": true,
        "temperature": 0,
        "stream": true,
    });
    LoadRequest::post("/v1/chat/completions", body, patience)
}

fn system_prompt(assistant: usize) -> String {
    let name = ASSISTANTS[assistant % ASSISTANTS.len()];
    let sentence = format!(
        "You are the {name} assistant of a company with offices on three continents: answer \
         briefly, name your sources, say so when you do not know. "
    );
    sentence.repeat(SENTENCES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADS: Loads = [120, 40, 40];
    const LONG: Duration = Duration::from_secs(1_000);

    #[test]
    fn the_same_seed_gives_the_same_requests_and_another_one_others() {
        assert_eq!(arrivals(1, LOADS, LONG), arrivals(1, LOADS, LONG));
        assert_ne!(arrivals(1, LOADS, LONG), arrivals(2, LOADS, LONG));
    }

    #[test]
    fn one_regions_requests_do_not_depend_on_anothers_load() {
        let of_eu = |loads| {
            let all = arrivals(1, loads, LONG).into_iter();
            all.filter(|arrival| arrival.home == DemoRegion::EuCentral).collect::<Vec<_>>()
        };
        assert_eq!(of_eu(LOADS), of_eu([10, 40, 90]));
        let times = |region| {
            let all = arrivals(1, [40; 3], LONG).into_iter();
            all.filter(|arrival| arrival.home == region)
                .map(|arrival| arrival.at)
                .collect::<Vec<_>>()
        };
        assert_ne!(
            times(DemoRegion::EuCentral),
            times(DemoRegion::ApNortheast),
            "each has its own chances"
        );
    }

    #[test]
    fn each_region_gets_its_share_of_the_capacity_in_order_of_time() {
        let all = arrivals(7, LOADS, LONG);
        assert!(all.is_sorted_by_key(|arrival| arrival.at));
        for (region, percent) in DemoRegion::ALL.into_iter().zip(LOADS) {
            let count = all.iter().filter(|arrival| arrival.home == region).count() as f64;
            let expected = capacity_per_s() * f64::from(percent) / 100.0 * LONG.as_secs_f64();
            assert!((count / expected - 1.0).abs() < 0.05, "{count} of {expected}");
        }
    }

    #[test]
    fn most_chats_stream_a_few_do_not_and_assistants_share_their_prompts() {
        let all = arrivals(3, LOADS, LONG);
        let unary = all.iter().filter(|arrival| !arrival.chat.is_stream).count();
        let one_in = all.len() as f64 / unary as f64;
        assert!((9.0..11.0).contains(&one_in), "one in {one_in}");
        let prompt = |arrival: &DemoArrival| arrival.chat.body()["messages"][0].to_string();
        let mut prompts: Vec<String> = all.iter().take(100).map(prompt).collect();
        prompts.sort_unstable();
        prompts.dedup();
        assert_eq!(prompts.len(), ASSISTANTS.len());
    }
}
