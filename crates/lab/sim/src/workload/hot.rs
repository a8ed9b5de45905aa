//! Workload with one prefix in nine of ten requests.

use super::chance::{arrivals, length};
use super::{Demand, Session, Turn};
use crate::text::mix;
use crate::{Piece, Text, Time};

/// Tokens of the hot prefix.
const PREFIX_TOKENS: u32 = 1_536;
/// Share of the requests that have the hot prefix.
const SHARE: f64 = 0.9;

pub(super) fn sessions(demand: &Demand) -> Vec<Session> {
    let mut rng = fastrand::Rng::with_seed(demand.seed);
    let hot = Piece { id: mix(2, 0), tokens: PREFIX_TOKENS };
    let mut sessions = Vec::new();
    for (region, &rate) in demand.rates_per_s.iter().enumerate() {
        let mut times = fastrand::Rng::with_seed(rng.u64(..));
        for start in arrivals(&mut times, rate, demand.seconds) {
            // The others have prefixes of the same length, so that only the sharing differs.
            let prefix = if rng.f64() < SHARE { hot } else { Piece { id: rng.u64(..), ..hot } };
            let question = Piece { id: rng.u64(..), tokens: length(&mut rng, 150) };
            let reply = Piece { id: rng.u64(..), tokens: length(&mut rng, 100) };
            sessions.push(Session {
                start: Time::from_s(start),
                region,
                affinity: prefix.id,
                turns: vec![Turn {
                    after: None,
                    think_us: 0,
                    prompt: Text::new(vec![prefix, question]),
                    reply,
                }],
            });
        }
    }
    sessions
}
