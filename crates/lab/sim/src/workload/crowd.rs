//! Crowd that asks about one long document for a while, as when news break.

use super::chance::{arrivals, new_text};
use super::{Session, Turn};
use crate::text::mix;
use crate::{Piece, Text, Time};

/// Length of the document in tokens.
pub(crate) const DOCUMENT_TOKENS: u32 = 30_000;
/// Beginning and length of the crowd in seconds, and its questions a second in each region.
const BEGIN_S: f64 = 120.0;
const SECONDS: f64 = 30.0;
const RATE_PER_S: f64 = 6.0;
/// Mean lengths of a question and of its answer.
const QUESTION_TOKENS: u32 = 100;
const REPLY_TOKENS: u32 = 140;

/// Returns the sessions of a crowd in each region: single questions of different clients.
pub(crate) fn sessions(regions: usize, seed: u64) -> Vec<Session> {
    let mut rng = fastrand::Rng::with_seed(mix(seed, 0x6372_6F77));
    let document = Piece { id: mix(60, 0), tokens: DOCUMENT_TOKENS };
    let mut sessions = Vec::new();
    for region in 0..regions {
        let mut times = fastrand::Rng::with_seed(rng.u64(..));
        for at_s in arrivals(&mut times, RATE_PER_S, SECONDS) {
            let prompt = Text::new(vec![document, new_text(&mut rng, QUESTION_TOKENS)]);
            let reply = new_text(&mut rng, REPLY_TOKENS);
            sessions.push(Session {
                start: Time::from_s(BEGIN_S + at_s),
                region,
                affinity: rng.u64(..),
                turns: vec![Turn { after: None, think_us: 0, prompt, reply }],
            });
        }
    }
    sessions
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_crowd_asks_about_one_document_in_all_regions_for_half_a_minute() {
        let all = sessions(3, 1);
        assert_eq!(all, sessions(3, 1));
        for region in 0..3 {
            let own = all.iter().filter(|one| one.region == region).count();
            assert!(own.abs_diff(180) < 45, "{own} questions");
        }
        let heads: BTreeSet<u64> =
            all.iter().map(|one| one.turns[0].prompt.engine_chain()[1_800]).collect();
        assert_eq!(heads.len(), 1);
        let in_time =
            |one: &Session| (120.0..150.0).contains(&one.start.since_start().as_secs_f64());
        assert!(all.iter().all(in_time));
        let clients: BTreeSet<u64> = all.iter().map(|one| one.affinity).collect();
        assert_eq!(clients.len(), all.len());
    }
}
