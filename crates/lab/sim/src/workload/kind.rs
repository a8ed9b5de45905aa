//! Generated workloads by name.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workload_has_about_the_rate_asked_for() {
        let demand = Demand { rates_per_s: vec![4.0, 2.0], seconds: 500.0, seed: 3 };
        let kinds = [
            WorkloadKind::SystemPrompts,
            WorkloadKind::Chats,
            WorkloadKind::Documents,
            WorkloadKind::Bursts,
            WorkloadKind::Hot,
        ];
        for kind in kinds {
            let sessions = kind.sessions(&demand);
            assert_eq!(sessions, kind.sessions(&demand), "{kind:?}: the same for the same seed");
            for (region, rate) in [(0, 4.0), (1, 2.0)] {
                let own = sessions.iter().filter(|session| session.region == region);
                let requests: usize = own.map(|session| session.turns.len()).sum();
                // Bursts add requests; half a period of them may be missing.
                let expected = if kind == WorkloadKind::Bursts { 1.0 + 2.0 / 8.0 } else { 1.0 };
                let ratio = requests as f64 / (rate * 500.0);
                assert!((ratio / expected - 1.0).abs() < 0.15, "{kind:?}: {ratio}");
            }
        }
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
