//! Agents in tool loops, which hand parts of their work to sub-agents.

use super::Turn;
use super::chance::{exponential, length, new_text};
use crate::{Piece, Text};

/// Instruction with the tools, which all agents of a kind begin with, in tokens.
pub(super) const AGENT_TOKENS: u32 = 6_000;
/// Fewest and most turns of an agent.
const TURNS: std::ops::RangeInclusive<u32> = 20..=60;
/// Longest context of an agent in tokens: it stops before.
const CONTEXT_TOKENS_MAX: u32 = 100_000;
/// Mean lengths of the task, of a call of a tool with the thoughts before, and of a tool's result.
const TASK_TOKENS: u32 = 500;
const CALL_TOKENS: u32 = 150;
const RESULT_TOKENS: u32 = 1_700;
/// Mean seconds that a tool takes.
const TOOL_S: f64 = 2.0;
/// Share of the turns that are followed by sub-agents, their number, and the turns of each.
const DELEGATES: f64 = 0.05;
const SUB_AGENTS: usize = 2;
const SUB_AGENT_TURNS: usize = 5;

/// Adds the turns of one agent. Delegated tasks begin with the instruction of sub-agents and run at
/// once. The agent's own next turn follows the last of them.
///
/// The numbers are made up. A context has 42,000 tokens on the mean over its turns. Those of 30 agents
/// together are a little more than the caches of four H100 replicas: 1.26 M against 1.21 M.
pub(super) fn agent(turns: &mut Vec<Turn>, [own, sub]: [Piece; 2], rng: &mut fastrand::Rng) {
    let mut said = Text::new(vec![own, new_text(rng, TASK_TOKENS)]);
    let mut after = None;
    for _ in 0..rng.u32(TURNS) {
        let turn = turn(after, &said, rng);
        said = turn.prompt.with(turn.reply).with(new_text(rng, RESULT_TOKENS));
        turns.push(turn);
        after = Some(turns.len() - 1);
        if said.tokens() > CONTEXT_TOKENS_MAX - 4 * (CALL_TOKENS + RESULT_TOKENS) {
            return;
        }
        if rng.f64() < DELEGATES {
            for _ in 0..SUB_AGENTS {
                sub_agent(turns, after, sub, rng);
            }
            // It waits for all of them.
            after = None;
        }
    }
}

fn sub_agent(turns: &mut Vec<Turn>, parent: Option<usize>, sub: Piece, rng: &mut fastrand::Rng) {
    let mut said = Text::new(vec![sub, new_text(rng, TASK_TOKENS)]);
    let mut after = parent;
    for _ in 0..SUB_AGENT_TURNS {
        let turn = turn(after, &said, rng);
        said = turn.prompt.with(turn.reply).with(new_text(rng, RESULT_TOKENS));
        turns.push(turn);
        after = Some(turns.len() - 1);
    }
}

fn turn(after: Option<usize>, said: &Text, rng: &mut fastrand::Rng) -> Turn {
    let think_us = (exponential(rng, TOOL_S) * 1e6) as u64;
    let reply = Piece { id: rng.u64(..), tokens: length(rng, CALL_TOKENS) };
    Turn { after, think_us, prompt: said.clone(), reply }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Piece = Piece { id: 1, tokens: AGENT_TOKENS };
    const SUB: Piece = Piece { id: 2, tokens: AGENT_TOKENS };

    fn agents() -> Vec<Vec<Turn>> {
        let mut rng = fastrand::Rng::with_seed(1);
        let one = |_| {
            let mut turns = Vec::new();
            agent(&mut turns, [OWN, SUB], &mut rng);
            turns
        };
        (0..40).map(one).collect()
    }

    fn is_sub(turn: &Turn) -> bool {
        turn.prompt.engine_chain()[0] == Text::new(vec![SUB]).engine_chain()[0]
    }

    #[test]
    fn each_turn_of_an_agent_repeats_the_one_before_with_its_reply() {
        for turns in agents() {
            for kind in [false, true] {
                let own: Vec<&Turn> = turns.iter().filter(|turn| is_sub(turn) == kind).collect();
                for pair in own.windows(2).filter(|pair| {
                    let is_next = pair[1].prompt.tokens() > pair[0].prompt.tokens();
                    is_next || !kind
                }) {
                    let said = pair[0].prompt.with(pair[0].reply).engine_chain();
                    let is_new_sub = kind && !pair[1].prompt.engine_chain().starts_with(&said);
                    assert!(!is_new_sub || pair[1].prompt.tokens() < 2 * AGENT_TOKENS);
                    assert!(kind || pair[1].prompt.engine_chain().starts_with(&said));
                }
            }
        }
    }

    #[test]
    fn contexts_grow_to_the_limit_and_are_as_long_as_documented_on_the_mean() {
        let all = agents();
        let own = || all.iter().flatten().filter(|turn| !is_sub(turn));
        let most = own().map(|turn| turn.prompt.tokens()).max().unwrap();
        assert!((80_000..=CONTEXT_TOKENS_MAX).contains(&most), "{most}");
        let sum: f64 = own().map(|turn| f64::from(turn.prompt.tokens())).sum();
        let mean = sum / own().count() as f64;
        assert!((39_000.0..45_000.0).contains(&mean), "{mean}");
    }

    #[test]
    fn an_agent_goes_on_once_both_sub_agents_are_done() {
        let all = agents();
        let delegating = all.iter().find(|turns| turns.iter().any(is_sub)).unwrap();
        let first = delegating.iter().position(is_sub).unwrap();
        let begins = |at: usize| delegating[at].after == Some(first - 1);
        assert!(begins(first) && begins(first + SUB_AGENT_TURNS));
        let next = &delegating[first + SUB_AGENTS * SUB_AGENT_TURNS];
        assert!(!is_sub(next) && next.after.is_none());
    }
}
