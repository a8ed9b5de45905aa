//! Workload of long documents, with several questions about each.

use super::chance::{Zipf, arrivals, exponential, length};
use super::{Demand, Session, Turn};
use crate::text::mix;
use crate::{Piece, Text, Time};

/// Number of documents.
const DOCUMENTS: usize = 200;
/// Exponent of the Zipf distribution over the documents.
const EXPONENT: f64 = 0.8;
const DOCUMENT_TOKENS: u32 = 5_000;
const DOCUMENT_TOKENS_MAX: u32 = 12_000;
const QUESTION_TOKENS: u32 = 60;
const REPLY_TOKENS: u32 = 80;
/// Mean and largest number of questions that a client has about a document.
const QUESTIONS: f64 = 4.0;
const QUESTIONS_MAX: usize = 12;
/// Mean seconds from a reply to the next question.
const THINK_S: f64 = 6.0;

pub(super) fn sessions(demand: &Demand) -> Vec<Session> {
    let mut rng = fastrand::Rng::with_seed(demand.seed);
    // The documents are equal for all seeds.
    let mut fixed = fastrand::Rng::with_seed(13);
    let documents: Vec<Piece> = (0..DOCUMENTS as u64)
        .map(|id| {
            let tokens = length(&mut fixed, DOCUMENT_TOKENS).min(DOCUMENT_TOKENS_MAX);
            Piece { id: mix(4, id), tokens }
        })
        .collect();
    let zipf = Zipf::new(DOCUMENTS, EXPONENT);
    let mut sessions = Vec::new();
    for (region, &rate) in demand.rates_per_s.iter().enumerate() {
        let mut times = fastrand::Rng::with_seed(rng.u64(..));
        for start in arrivals(&mut times, rate / QUESTIONS, demand.seconds) {
            let document = documents[zipf.draw(&mut rng)];
            sessions.push(Session {
                start: Time::from_s(start),
                region,
                affinity: document.id,
                turns: questions(document, &mut rng),
            });
        }
    }
    sessions
}

/// Returns questions that each follow the document alone, without the earlier questions.
fn questions(document: Piece, rng: &mut fastrand::Rng) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    loop {
        let question = Piece { id: rng.u64(..), tokens: length(rng, QUESTION_TOKENS) };
        let reply = Piece { id: rng.u64(..), tokens: length(rng, REPLY_TOKENS) };
        let think_us = if turns.is_empty() { 0.0 } else { exponential(rng, THINK_S) * 1e6 };
        let prompt = Text::new(vec![document, question]);
        let after = turns.len().checked_sub(1);
        turns.push(Turn { after, think_us: think_us as u64, prompt, reply });
        if turns.len() >= QUESTIONS_MAX || rng.f64() < 1.0 / QUESTIONS {
            return turns;
        }
    }
}
