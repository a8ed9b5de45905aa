//! Generated workloads by name.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use super::system_prompts::SystemPrompts;
use super::{Demand, Session, chats, documents, hot};

/// Generated workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadKind {
    /// Single questions after 30 system prompts of 1,200 tokens, used after Zipf, in all regions.
    SystemPrompts,
    /// Conversations of five turns on average.
    Chats,
    /// Questions about documents of 5,000 tokens.
    Documents,
    /// System prompts, with three times as many requests in one region for 5 of every 20 seconds.
    Bursts,
    /// Requests of which nine in ten begin with one prefix of 1,536 tokens.
    Hot,
}

impl WorkloadKind {
    /// All workloads.
    pub const ALL: [Self; 5] =
        [Self::SystemPrompts, Self::Chats, Self::Documents, Self::Bursts, Self::Hot];

    /// Returns the name as in commands, e.g. `system_prompts`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SystemPrompts => "system_prompts",
            Self::Chats => "chats",
            Self::Documents => "documents",
            Self::Bursts => "bursts",
            Self::Hot => "hot",
        }
    }

    /// Returns the sessions in no order; equal demand gives equal sessions.
    #[must_use]
    pub fn sessions(self, demand: &Demand) -> Vec<Session> {
        match self {
            Self::SystemPrompts => SYSTEM_PROMPTS.sessions(demand),
            Self::Bursts => {
                SystemPrompts { burst_every_s: 20.0, ..SYSTEM_PROMPTS }.sessions(demand)
            }
            Self::Chats => chats::sessions(demand),
            Self::Documents => documents::sessions(demand),
            Self::Hot => hot::sessions(demand),
        }
    }
}

/// Together 36,000 tokens: nearly the whole cache of one replica, which has 40,000.
const SYSTEM_PROMPTS: SystemPrompts = SystemPrompts {
    prompts: 30,
    exponent: 1.0,
    prompt_tokens: 1_200,
    question_tokens: 120,
    reply_tokens: 100,
    burst_every_s: 0.0,
};

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WorkloadKind {
    type Err = UnknownWorkloadError;

    fn from_str(text: &str) -> Result<Self, UnknownWorkloadError> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| UnknownWorkloadError(text.to_owned()))
    }
}

/// Error for a name that no workload has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown workload `{0}`: expected system_prompts, chats, documents, bursts or hot")]
pub struct UnknownWorkloadError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_each_workload_has_about_the_rate_asked_for() {
        let demand = Demand { rates_per_s: vec![4.0, 2.0], seconds: 500.0, seed: 3 };
        for kind in WorkloadKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            let sessions = kind.sessions(&demand);
            assert_eq!(sessions, kind.sessions(&demand), "{kind}: the same for the same seed");
            for (region, rate) in [(0, 4.0), (1, 2.0)] {
                let own = sessions.iter().filter(|session| session.region == region);
                let requests: usize = own.map(|session| session.turns.len()).sum();
                // Bursts add requests; half a period of them may be missing.
                let expected = if kind == WorkloadKind::Bursts { 1.0 + 2.0 / 8.0 } else { 1.0 };
                let ratio = requests as f64 / (rate * 500.0);
                assert!((ratio / expected - 1.0).abs() < 0.15, "{kind}: {ratio}");
            }
        }
        assert!("none".parse::<WorkloadKind>().is_err());
    }

    #[test]
    fn a_conversation_repeats_all_that_was_said() {
        let demand = Demand { rates_per_s: vec![5.0], seconds: 50.0, seed: 1 };
        let sessions = WorkloadKind::Chats.sessions(&demand);
        let long = sessions.iter().find(|session| session.turns.len() > 2).unwrap();
        for pair in long.turns.windows(2) {
            let before = pair[0].prompt.with(pair[0].reply).engine_chain();
            assert!(pair[1].prompt.engine_chain().starts_with(&before));
        }
    }
}
