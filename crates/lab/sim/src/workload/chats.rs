//! Workload of conversations: each request repeats everything before it.

use super::chance::{Zipf, arrivals, exponential, length};
use super::{Demand, Session, Turn};
use crate::text::mix;
use crate::{Piece, Text, Time};

/// Mean and largest number of turns of a conversation.
const TURNS: f64 = 5.0;
const TURNS_MAX: usize = 20;
/// Number of system prompts that conversations begin with, and their mean length.
const APPLICATIONS: usize = 8;
const SYSTEM_TOKENS: u32 = 400;
const QUESTION_TOKENS: u32 = 120;
const REPLY_TOKENS: u32 = 120;
/// Mean seconds from a reply to the next question.
const THINK_S: f64 = 10.0;

pub(super) fn sessions(demand: &Demand) -> Vec<Session> {
    let mut rng = fastrand::Rng::with_seed(demand.seed);
    // The system prompts are equal for all seeds.
    let mut fixed = fastrand::Rng::with_seed(11);
    let systems: Vec<Piece> = (0..APPLICATIONS as u64)
        .map(|id| Piece { id: mix(3, id), tokens: length(&mut fixed, SYSTEM_TOKENS) })
        .collect();
    let zipf = Zipf::new(APPLICATIONS, 1.0);
    let mut sessions = Vec::new();
    for (region, &rate) in demand.rates_per_s.iter().enumerate() {
        // Times have random numbers of their own: those of the contents don't depend on how many
        // were drawn.
        let mut times = fastrand::Rng::with_seed(rng.u64(..));
        for start in arrivals(&mut times, rate / TURNS, demand.seconds) {
            let system = systems[zipf.draw(&mut rng)];
            sessions.push(Session {
                start: Time::from_s(start),
                region,
                affinity: rng.u64(..),
                turns: turns(system, &mut rng),
            });
        }
    }
    sessions
}

fn turns(system: Piece, rng: &mut fastrand::Rng) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    let mut said = Text::new(vec![system]);
    loop {
        let question = Piece { id: rng.u64(..), tokens: length(rng, QUESTION_TOKENS) };
        let prompt = said.with(question);
        let reply = Piece { id: rng.u64(..), tokens: length(rng, REPLY_TOKENS) };
        said = prompt.with(reply);
        let think_us = if turns.is_empty() { 0.0 } else { exponential(rng, THINK_S) * 1e6 };
        let after = turns.len().checked_sub(1);
        turns.push(Turn { after, think_us: think_us as u64, prompt, reply });
        if turns.len() >= TURNS_MAX || rng.f64() < 1.0 / TURNS {
            return turns;
        }
    }
}
