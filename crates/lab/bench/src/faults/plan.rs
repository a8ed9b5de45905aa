//! Plan of requests: an open loop with Poisson arrivals, the same for the same seed.

use std::time::Duration;

use serde_json::json;
use spillway_harness::{LoadRequest, exponential_gap};

use crate::request::{MODEL, PATH};

/// Number of users, each with a fixed group. Hashing policies hash the user.
const USERS: u32 = 64;

/// Range of tokens of an answer.
const TOKENS: std::ops::RangeInclusive<u32> = 12..=24;

/// Numbers in a V2 tensor.
const TENSOR_ITEMS: u32 = 64;

/// Whole chats among 10 requests; the next constant is the number of streams, and the rest are V2.
const UNARY_OF_10: u32 = 5;
const STREAMS_OF_10: u32 = 3;

/// Time after which a client gives up; the budget in its header is shorter.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Time budget of a request in milliseconds; the gateway must answer by then.
const BUDGET_MS: u64 = 8_000;

/// Filler text of prompts.
const FILLER: &str = "answer briefly, name your sources, and say so when you do not know; ";

/// Kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// Chat with a whole reply.
    Unary,
    /// Chat with a streamed reply.
    Stream,
    /// V2 inference with a tensor.
    Infer,
}

/// Load of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Workload {
    /// Seed of all randomness.
    pub(crate) seed: u64,
    /// Mean number of requests per second.
    pub(crate) rate_per_s: f64,
    /// Time in which requests become due.
    pub(crate) length: Duration,
    /// Number of shared prompts.
    pub(crate) prefixes: u32,
    /// Size of each shared prompt in bytes.
    pub(crate) prefix_bytes: usize,
}

/// Planned request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    /// Place in the order of arrival.
    pub(crate) number: u32,
    /// Due time from the start of the load.
    pub(crate) at: Duration,
    /// Kind of request.
    pub(crate) kind: FaultKind,
    user: u32,
    tokens: u32,
    question: u64,
}

impl Workload {
    /// Returns all requests in order.
    pub(crate) fn plan(&self) -> Vec<Planned> {
        let mut dice = fastrand::Rng::with_seed(self.seed);
        let mut at = Duration::ZERO;
        let mut planned = Vec::new();
        for number in 0.. {
            at += exponential_gap(&mut dice, self.rate_per_s);
            if at >= self.length {
                break;
            }
            planned.push(Planned {
                number,
                at,
                kind: kind(dice.u32(0..10)),
                user: dice.u32(0..USERS),
                tokens: dice.u32(TOKENS),
                question: dice.u64(..),
            });
        }
        planned
    }

    /// Returns the request to send.
    pub(crate) fn request(&self, planned: &Planned) -> LoadRequest {
        let (path, body) = match planned.kind {
            FaultKind::Infer => (format!("/v2/models/{MODEL}/infer"), tensor(planned)),
            FaultKind::Unary | FaultKind::Stream => (PATH.to_owned(), self.chat(planned)),
        };
        LoadRequest::post(path, body, DEADLINE)
            .header("x-request-id", planned.id())
            .header("x-request-timeout-ms", BUDGET_MS)
            .header("x-user", format!("user-{}", planned.user))
    }

    fn chat(&self, planned: &Planned) -> serde_json::Value {
        let group = planned.user % self.prefixes;
        // The group comes first, so that prompts of two groups share no prefix.
        let mut system = format!("group {group}: ");
        system.extend(FILLER.chars().cycle().take(self.prefix_bytes.saturating_sub(system.len())));
        let question = format!("user {} asks {:016x}", planned.user, planned.question);
        json!({
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": question},
            ],
            "model": MODEL,
            "max_tokens": planned.tokens,
            "ignore_eos": true,
            "stream": planned.kind == FaultKind::Stream,
        })
    }
}

impl Planned {
    /// Returns the `x-request-id`, which the replicas' ledgers contain.
    pub(crate) fn id(&self) -> String {
        id(self.number)
    }
}

/// Returns the `x-request-id` of request `number`.
pub(crate) fn id(number: u32) -> String {
    format!("fault-{number:07}")
}

/// Returns the number of the request with this id; `None` for requests outside the plan.
pub(crate) fn number(id: &str) -> Option<u32> {
    id.strip_prefix("fault-")?.parse().ok()
}

fn kind(of_10: u32) -> FaultKind {
    match of_10 {
        n if n < UNARY_OF_10 => FaultKind::Unary,
        n if n < UNARY_OF_10 + STREAMS_OF_10 => FaultKind::Stream,
        _ => FaultKind::Infer,
    }
}

fn tensor(planned: &Planned) -> serde_json::Value {
    let start = planned.question % 1_000;
    let data: Vec<u64> = (start..start + u64::from(TENSOR_ITEMS)).collect();
    json!({"inputs": [
        {"name": "INPUT0", "datatype": "INT64", "shape": [TENSOR_ITEMS], "data": data},
    ]})
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKLOAD: Workload = Workload {
        seed: 3,
        rate_per_s: 100.0,
        length: Duration::from_secs(100),
        prefixes: 8,
        prefix_bytes: 600,
    };

    #[test]
    fn arrivals_keep_the_rate_and_are_not_even() {
        let planned = WORKLOAD.plan();
        // 10,000 expected, with a deviation of 100.
        assert!((9_600..10_400).contains(&planned.len()), "{}", planned.len());
        assert!(planned.is_sorted_by_key(|request| request.at));
        let short =
            planned.windows(2).filter(|pair| pair[1].at - pair[0].at < Duration::from_millis(1));
        // With even gaps of 10 ms there would be none; with exponential ones it is 9.5 %.
        let share = short.count() as f64 / planned.len() as f64;
        assert!((0.08..0.11).contains(&share), "{share}");
        let of = |kind| planned.iter().filter(|request| request.kind == kind).count();
        assert!(
            of(FaultKind::Unary) > 4_700
                && of(FaultKind::Stream) > 2_700
                && of(FaultKind::Infer) > 1_700
        );
    }

    #[test]
    fn the_seed_decides_everything() {
        assert_eq!(WORKLOAD.plan(), WORKLOAD.plan());
        assert_ne!(WORKLOAD.plan(), Workload { seed: 4, ..WORKLOAD }.plan());
    }

    #[test]
    fn prompts_of_one_group_share_all_of_the_prefix_and_those_of_two_nothing() {
        let prompt = |user| {
            let at = Duration::ZERO;
            let planned =
                Planned { number: 0, at, kind: FaultKind::Stream, user, tokens: 12, question: 5 };
            let body = WORKLOAD.chat(&planned);
            assert_eq!((&body["stream"], &body["max_tokens"]), (&true.into(), &12.into()));
            body["messages"][0]["content"].as_str().unwrap().to_owned()
        };
        assert_eq!(prompt(1), prompt(9));
        assert_eq!(prompt(1).len(), 600);
        let (one, two) = (prompt(1), prompt(2));
        assert_ne!(one.as_bytes()[..8], two.as_bytes()[..8]);
    }

    #[test]
    fn ids_lead_back_to_their_request() {
        let planned = WORKLOAD.plan()[17];
        assert_eq!(number(&planned.id()), Some(17));
        assert_eq!(number("ready"), None);
        let request = WORKLOAD.request(&planned);
        assert!(request.headers.contains(&("x-request-id", planned.id())), "{request:?}");
    }
}
