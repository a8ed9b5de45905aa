//! Loads of benchmarks, run on the engine in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use spillway_engine::{Engine, EngineConfig, EngineEvent, EngineRequest, RequestId};

/// Prompt tokens of ShareGPT prompts: the means of the tenths of the benchmark's first 100 prompts,
/// by their characters, scaled to the mean of 256 tokens that its results give.
const CHAT_PROMPTS: [u32; 10] = [34, 86, 101, 128, 171, 222, 298, 378, 484, 663];
/// Output tokens of chats: spread evenly so that the mean is the 346 of the results and the longest
/// is near the benchmark's limit of 512. The true spread is not published.
const CHAT_OUTPUTS: [u32; 10] = [197, 230, 263, 296, 329, 363, 396, 429, 462, 495];
/// Tokens of each prompt of the long-context suite, the mean of its results.
const LONG_PROMPT: u32 = 28_640;
/// Tokens of each output of the long-context suite.
const LONG_OUTPUT: u32 = 256;

/// Load of a benchmark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Limits and cost of the engine.
    pub(crate) config: EngineConfig,
    /// Number of requests.
    pub(crate) requests: u32,
    /// Most requests in flight; the next one is sent when one is done.
    pub(crate) in_flight_max: u32,
    /// Requests that arrive in a second, with the gaps of a Poisson process; None if all are there
    /// from the beginning.
    pub(crate) arrivals_per_s: Option<f64>,
    /// Lengths of the requests.
    pub(crate) lengths: Lengths,
    /// Content of prompts, as the prefix cache sees it.
    pub(crate) prompts: Prompts,
}

/// Lengths of prompts and outputs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lengths {
    /// Chats of the ShareGPT suite.
    Chat,
    /// Prompts of 28,640 tokens and outputs of 256.
    Long,
    /// A fixed prompt and output.
    Fixed { prompt_tokens: u32, output_tokens: u32 },
}

/// Content of prompts, as the prefix cache sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prompts {
    /// No prompt comes twice.
    New,
    /// An earlier, unmeasured run sent the same prompts.
    Seen,
}

/// Times of one request, in seconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    sent: f64,
    first: f64,
    last: f64,
    tokens: u32,
}

/// Result of a load.
#[derive(Debug)]
pub(crate) struct Outcome(Vec<Times>);

impl Load {
    /// Makes a load of chats that are sent all at once.
    pub(crate) fn chats(config: EngineConfig, requests: u32) -> Self {
        Self {
            config,
            requests,
            in_flight_max: u32::MAX,
            arrivals_per_s: None,
            lengths: Lengths::Chat,
            prompts: Prompts::New,
        }
    }

    /// Makes a load of prompts of 28,640 tokens, `in_flight_max` at a time.
    pub(crate) fn long(config: EngineConfig, requests: u32, in_flight_max: u32) -> Self {
        Self { in_flight_max, lengths: Lengths::Long, ..Self::chats(config, requests) }
    }

    /// Makes a load of equal requests that are sent all at once.
    pub(crate) fn equal(config: EngineConfig, requests: u32, prompt_tokens: u32) -> Self {
        let lengths = Lengths::Fixed { prompt_tokens, output_tokens: 64 };
        Self { lengths, ..Self::chats(config, requests) }
    }

    /// Makes one request.
    pub(crate) fn single(config: EngineConfig, prompt_tokens: u32, output_tokens: u32) -> Self {
        let lengths = Lengths::Fixed { prompt_tokens, output_tokens };
        Self { lengths, ..Self::chats(config, 1) }
    }

    /// Sends `in_flight_max` requests at a time.
    pub(crate) fn at_a_time(self, in_flight_max: u32) -> Self {
        Self { in_flight_max, ..self }
    }

    /// Sends requests at random moments.
    pub(crate) fn per_s(self, rate: f64) -> Self {
        Self { arrivals_per_s: Some(rate), ..self }
    }

    /// Sends prompts that the engine has seen before.
    pub(crate) fn seen(self) -> Self {
        Self { prompts: Prompts::Seen, ..self }
    }

    /// Runs the load on an engine with an empty cache.
    pub(crate) fn run(&self) -> Outcome {
        let mut engine = Engine::new(self.config);
        let mut start = Duration::ZERO;
        if self.prompts == Prompts::Seen {
            start = self.run_on(&mut engine, start).1;
        }
        self.run_on(&mut engine, start).0
    }

    /// Runs the load from `start` on; returns also the time when all was done.
    fn run_on(&self, engine: &mut Engine, start: Duration) -> (Outcome, Duration) {
        let arrivals = self.arrivals();
        let mut times = BTreeMap::new();
        let (mut now, mut next, mut in_flight) = (start, 0, 0);
        loop {
            let arrival = (in_flight < self.in_flight_max)
                .then(|| arrivals.get(next))
                .flatten()
                .map(|arrival| now.max(start + *arrival));
            let step = engine.next_step_at();
            let Some(at) = arrival.into_iter().chain(step).min() else { break };
            now = at;
            if arrival == Some(at) {
                let request = self.request(next as u64);
                times.insert(request.id, Times::sent(at - start));
                engine.submit(at, request).unwrap();
                (next, in_flight) = (next + 1, in_flight + 1);
                continue;
            }
            for event in engine.step(at).events {
                match event {
                    EngineEvent::FirstToken { id, .. } | EngineEvent::Token { id } => {
                        times.get_mut(&id).unwrap().token(at - start);
                    }
                    EngineEvent::Finished { .. } => in_flight -= 1,
                    EngineEvent::Preempted { .. } => {}
                }
            }
        }
        (Outcome(times.into_values().collect()), now)
    }

    /// Returns when each request arrives, in order. The gaps are the quantiles of the exponential
    /// distribution, each once, in an order without pattern but always the same.
    fn arrivals(&self) -> Vec<Duration> {
        let Some(rate) = self.arrivals_per_s else {
            return vec![Duration::ZERO; self.requests as usize];
        };
        let count = f64::from(self.requests);
        // 37 has no factor in common with the numbers of requests used here, 100 and 300.
        let quantile = |i: u32| (f64::from(i * 37 % self.requests) + 0.5) / count;
        let gap = |i: u32| Duration::from_secs_f64(-(1.0 - quantile(i)).ln() / rate);
        let sum = |at: &mut Duration, gap: Duration| {
            *at += gap;
            Some(*at)
        };
        (0..self.requests).map(gap).scan(Duration::ZERO, sum).collect()
    }

    fn request(&self, index: u64) -> EngineRequest {
        let tenth = |of: u64| usize::try_from(of % 10).unwrap();
        let (prompt_tokens, output_tokens) = match self.lengths {
            // The second index passes over all pairs within 100 requests.
            Lengths::Chat => {
                (CHAT_PROMPTS[tenth(index)], CHAT_OUTPUTS[tenth(3 * index + index / 10)])
            }
            Lengths::Long => (LONG_PROMPT, LONG_OUTPUT),
            Lengths::Fixed { prompt_tokens, output_tokens } => (prompt_tokens, output_tokens),
        };
        let full_blocks = match self.prompts {
            Prompts::New => 0,
            Prompts::Seen => u64::from(prompt_tokens / self.config.block_tokens),
        };
        let blocks = (0..full_blocks).map(|block| (index << 32) | block).collect();
        EngineRequest { id: RequestId(index), prompt_tokens, output_tokens, blocks }
    }
}

impl Times {
    fn sent(at: Duration) -> Self {
        Self { sent: at.as_secs_f64(), first: 0.0, last: 0.0, tokens: 0 }
    }

    fn token(&mut self, at: Duration) {
        self.last = at.as_secs_f64();
        if self.tokens == 0 {
            self.first = self.last;
        }
        self.tokens += 1;
    }
}

impl Outcome {
    /// Returns the median time to the first token, in ms.
    pub(crate) fn first_token_ms(&self) -> f64 {
        self.median(|times| (times.first - times.sent) * 1e3)
    }

    /// Returns the median time from token to token, each request's mean, in ms.
    pub(crate) fn token_gap_ms(&self) -> f64 {
        self.median(|times| (times.last - times.first) * 1e3 / f64::from(times.tokens - 1))
    }

    /// Returns the output tokens in a second.
    pub(crate) fn tokens_per_s(&self) -> f64 {
        self.0.iter().map(|times| f64::from(times.tokens)).sum::<f64>() / self.seconds()
    }

    /// Returns the seconds until the last token of all.
    pub(crate) fn seconds(&self) -> f64 {
        self.0.iter().map(|times| times.last).fold(0.0, f64::max)
    }

    fn median(&self, of: impl Fn(&Times) -> f64) -> f64 {
        let mut values: Vec<f64> = self.0.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
    }
}
