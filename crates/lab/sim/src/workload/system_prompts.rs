//! Workload of single questions after system prompts that all regions share, some used far more
//! often.

use super::chance::{Zipf, arrivals, length};
use super::{Demand, Session, Turn};
use crate::text::mix;
use crate::{Piece, Text, Time};

/// Settings of the workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SystemPrompts {
    /// Number of system prompts.
    pub(super) prompts: usize,
    /// Exponent of the Zipf distribution over the system prompts.
    pub(super) exponent: f64,
    /// Mean length of a system prompt in tokens.
    pub(super) prompt_tokens: u32,
    /// Mean length of a question in tokens.
    pub(super) question_tokens: u32,
    /// Mean length of a reply in tokens.
    pub(super) reply_tokens: u32,
    /// Seconds between two bursts, which hit one region after the other; 0 for no bursts.
    pub(super) burst_every_s: f64,
}

/// Length of a burst in seconds, and factor of the rate during a burst.
const BURST_S: f64 = 5.0;
const BURST_FACTOR: f64 = 3.0;

impl SystemPrompts {
    pub(super) fn sessions(&self, demand: &Demand) -> Vec<Session> {
        let mut rng = fastrand::Rng::with_seed(demand.seed);
        // The prompts are equal for all seeds.
        let mut fixed = fastrand::Rng::with_seed(7);
        let prompts: Vec<Piece> = (0..self.prompts as u64)
            .map(|id| Piece { id: mix(1, id), tokens: length(&mut fixed, self.prompt_tokens) })
            .collect();
        let zipf = Zipf::new(self.prompts, self.exponent);
        let mut sessions = Vec::new();
        for (region, &rate) in demand.rates_per_s.iter().enumerate() {
            let mut times = fastrand::Rng::with_seed(rng.u64(..));
            // Requests come at the peak rate all the time, and are thinned out between bursts.
            let peak = if self.burst_every_s > 0.0 { rate * BURST_FACTOR } else { rate };
            for start in arrivals(&mut times, peak, demand.seconds) {
                let share = self.share(start, region, demand.rates_per_s.len());
                if share < 1.0 && rng.f64() >= share {
                    continue;
                }
                let prompt = prompts[zipf.draw(&mut rng)];
                sessions.push(self.session(start, region, prompt, &mut rng));
            }
        }
        sessions
    }

    /// Returns the part of the peak rate at this time.
    fn share(&self, at_s: f64, region: usize, regions: usize) -> f64 {
        if self.burst_every_s <= 0.0 {
            return 1.0;
        }
        let round = (at_s / self.burst_every_s) as usize;
        let is_burst = at_s % self.burst_every_s < BURST_S && round % regions == region;
        if is_burst { 1.0 } else { 1.0 / BURST_FACTOR }
    }

    fn session(
        &self,
        start: f64,
        region: usize,
        prompt: Piece,
        rng: &mut fastrand::Rng,
    ) -> Session {
        let question = Piece { id: rng.u64(..), tokens: length(rng, self.question_tokens) };
        let reply = Piece { id: rng.u64(..), tokens: length(rng, self.reply_tokens) };
        let turn =
            Turn { after: None, think_us: 0, prompt: Text::new(vec![prompt, question]), reply };
        Session { start: Time::from_s(start), region, affinity: prompt.id, turns: vec![turn] }
    }
}
