//! SMetric: later turns stay where their conversation is, unless that would be too late.

use std::collections::{BTreeSet, VecDeque};

use super::rule::{News, Rule};
use super::view::{Choice, View};

/// Part of what earlier turns should have left in a cache from which on a turn follows it:
/// `HIT_RATIO` of the example.
const HIT_RATIO: f64 = 0.1;

/// Milliseconds to the first token that a turn may be predicted to take, and how often the time to
/// read its whole prompt it may take besides: the stricter one of the objectives of the contest,
/// since the code leaves the calibration to its users (`TTFT_SLO_BASE`, `TTFT_SLO_PER_CHAR`).
const FIRST_TOKEN_MS: f64 = 500.0;
const PROMPT_TIMES: f64 = 2.0;

/// Speeds that each replica is judged by, the smallest useful number, and their quantile: those of
/// the code.
const SPEEDS_MAX: usize = 64;
const SPEEDS_MIN: usize = 8;
const SPEED_QUANTILE: f64 = 0.9;

/// Rule of SMetric (arXiv 2607.08565; vllm-project/router, `src/policies/smetric.rs`).
///
/// A first turn goes to the least product of the prompt tokens to be read, with this request's, and
/// of the requests in flight. A later turn goes to the replica that has most of its prompt, if that
/// is more than a tenth of what earlier turns left there, and if the tokens to be read there are read
/// within an objective at the replica's speed. If no replica keeps the objective, the turn stays
/// where its prompt is.
///
/// The code finds later turns by the roles of the messages. Here a turn is a later one if it repeats
/// an earlier prompt with its reply; the ends of these are not forgotten. Engines here take the same
/// time for each token of a prompt, so that the code's term for attention is 0. The request itself
/// counts as one in flight, unlike in the code: otherwise all idle replicas would be equal, whatever
/// they have cached.
#[derive(Debug)]
pub(super) struct SMetric {
    /// Tokens a millisecond of the last prompts that each replica read.
    speeds: Vec<VecDeque<f64>>,
    /// Last blocks of prompts with their replies.
    ends: BTreeSet<u64>,
}

impl SMetric {
    pub(super) fn new(replicas: usize) -> Self {
        Self { speeds: vec![VecDeque::new(); replicas], ends: BTreeSet::new() }
    }

    /// Returns the blocks of a prompt that earlier turns have; 0 for a first turn.
    fn said(&self, chain: &[u64]) -> usize {
        chain.iter().rposition(|block| self.ends.contains(block)).map_or(0, |at| at + 1)
    }

    fn speed(&self, replica: usize) -> Option<f64> {
        let mut speeds: Vec<f64> = self.speeds[replica].iter().copied().collect();
        speeds.sort_unstable_by(f64::total_cmp);
        let at = (speeds.len().saturating_sub(1) as f64 * SPEED_QUANTILE).round() as usize;
        speeds.get(at).copied().filter(|_| speeds.len() >= SPEEDS_MIN)
    }

    /// Returns true if a request is predicted to begin in time at a replica.
    fn is_in_time(&self, view: &View<'_>, replica: usize) -> bool {
        self.speed(replica).is_none_or(|speed| {
            let prompt_ms = f64::from(view.ask.prompt_tokens) / speed;
            tokens(view, replica) / speed <= FIRST_TOKEN_MS + PROMPT_TIMES * prompt_ms
        })
    }

    /// Returns the replica at which a turn stays, if it is a later one and may stay.
    fn home(&self, view: &View<'_>) -> Option<usize> {
        let said = self.said(view.chain());
        let home = view.cheapest(view.open(), |replica| -f64::from(view.cached[replica]))?;
        let is_there = said > 0 && f64::from(view.cached[home]) > HIT_RATIO * said as f64;
        let may_stay = || {
            self.is_in_time(view, home) || !view.open().any(|other| self.is_in_time(view, other))
        };
        (is_there && may_stay()).then_some(home)
    }
}

/// Returns the prompt tokens that a replica would have to read, with those of this request.
fn tokens(view: &View<'_>, replica: usize) -> f64 {
    f64::from(view.pending_tokens(replica) + view.uncached_tokens(replica))
}

impl Rule for SMetric {
    fn choose(&mut self, view: &View<'_>, _rng: &mut fastrand::Rng) -> Choice {
        let work = |replica| tokens(view, replica) * f64::from(view.load(replica) + 1);
        let replica = self.home(view).or_else(|| view.cheapest(view.open(), work));
        replica.map_or(Choice::Stay, Choice::Replica)
    }

    fn note(&mut self, news: &News<'_>) {
        match news {
            News::Replied(replied) => {
                let read = replied.prompt_tokens.saturating_sub(replied.cached_tokens);
                let speeds = &mut self.speeds[replied.replica];
                if speeds.len() == SPEEDS_MAX {
                    speeds.pop_front();
                }
                speeds.push_back(f64::from(read.max(1)) / replied.first_token_ms.max(1.0));
            }
            // A short reply may end within the last block of the prompt, which others may begin with.
            News::Ended(ended) if ended.chain.len() > ended.prompt_blocks => {
                self.ends.extend(ended.chain.last());
            }
            News::Ended(_) | News::Sent(_) | News::Forwarded(_) | News::Left(_) => {}
        }
    }
}
