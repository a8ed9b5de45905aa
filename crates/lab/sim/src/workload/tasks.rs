//! Workload of clients who begin a new task whenever they have done with one: a closed loop.

use serde::Deserialize;

use super::chance::{Zipf, exponential, length, new_text};
use super::{Session, Turn, agents, trees};
use crate::text::mix;
use crate::{Piece, Text, Time};

/// Task that a client does again and again.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Task {
    /// Conversation of several turns after the system prompt of an application.
    Conversation,
    /// Single question without anything that another one has.
    Alone,
    /// Several questions about a document.
    Documents {
        /// Share of the documents that all regions ask about, 0 to 1; the others are known in one
        /// region only.
        shared: f64,
    },
    /// Tree of thought: each reply but the last ones is followed by so many requests at once.
    Tree {
        /// Requests that follow each reply.
        branches: usize,
    },
    /// Agent in a loop of calls of tools, with sub-agents.
    Agent,
}

/// Seconds within which all clients begin.
const BEGIN_S: f64 = 10.0;
/// Mean seconds from a reply to the next request.
const THINK_S: f64 = 3.0;
/// Seconds that a token of a reply takes at least, on any engine: bounds what can be asked in a
/// run.
const TOKEN_S_MIN: f64 = 0.03;

/// Number of turns of a conversation on average and at most.
const TURNS: f64 = 5.5;
const TURNS_MAX: usize = 14;
/// Number of applications, and the mean length of their system prompts.
const APPLICATIONS: usize = 8;
const SYSTEM_TOKENS: u32 = 500;
const QUESTION_TOKENS: u32 = 210;
const REPLY_TOKENS: u32 = 140;

/// Kinds of agents.
const AGENTS: usize = 4;

const ALONE_TOKENS: u32 = 1_450;
const ALONE_REPLY_TOKENS: u32 = 135;

/// Documents of each region, and as many that all regions share; and how unequally they are asked
/// about.
const DOCUMENTS: usize = 45;
const DOCUMENTS_EXPONENT: f64 = 0.8;
const DOCUMENT_TOKENS: u32 = 3_200;
const DOCUMENT_QUESTION_TOKENS: u32 = 100;
const DOCUMENT_REPLY_TOKENS: u32 = 140;
const QUESTIONS: f64 = 3.0;
const QUESTIONS_MAX: usize = 8;

/// Returns the session of each client, whose task and number are given region by region.
pub(crate) fn sessions(clients: &[(usize, Task)], end_s: f64, seed: u64) -> Vec<Session> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let libraries = Libraries::new(clients.len());
    let mut sessions = Vec::new();
    for (region, &(count, task)) in clients.iter().enumerate() {
        for _ in 0..count {
            let mut own = fastrand::Rng::with_seed(rng.u64(..));
            let start_s = own.f64() * BEGIN_S;
            sessions.push(Session {
                start: Time::from_s(start_s),
                region,
                affinity: own.u64(..),
                turns: turns(task, end_s - start_s, &mut (&libraries, region, own)),
            });
        }
    }
    sessions
}

/// Texts that requests have in common, equal for all seeds.
#[derive(Debug)]
struct Libraries {
    systems: Vec<Piece>,
    popular_systems: Zipf,
    /// Documents of each region, and then those of all.
    documents: Vec<Vec<Piece>>,
    popular_documents: Zipf,
    /// Instructions of agents, and then those of their sub-agents.
    agents: Vec<Piece>,
}

impl Libraries {
    fn new(regions: usize) -> Self {
        let mut rng = fastrand::Rng::with_seed(17);
        let mut texts = |kind: u64, count: usize, tokens: u32| -> Vec<Piece> {
            let text = |id| Piece { id: mix(kind, id), tokens: length(&mut rng, tokens) };
            (0..count as u64).map(text).collect()
        };
        let systems = texts(20, APPLICATIONS, SYSTEM_TOKENS);
        let of_region = |region| texts(30 + region, DOCUMENTS, DOCUMENT_TOKENS);
        Self {
            systems,
            popular_systems: Zipf::new(APPLICATIONS, 1.0),
            documents: (0..=regions as u64).map(of_region).collect(),
            popular_documents: Zipf::new(DOCUMENTS, DOCUMENTS_EXPONENT),
            agents: (0..2 * AGENTS as u64)
                .map(|id| Piece { id: mix(25, id), tokens: agents::AGENT_TOKENS })
                .collect(),
        }
    }
}

/// Client that draws its requests: common texts, region, random numbers.
type Client<'a> = (&'a Libraries, usize, fastrand::Rng);

/// Returns at least as many turns as a client can ask for within so many seconds.
fn turns(task: Task, seconds: f64, client: &mut Client<'_>) -> Vec<Turn> {
    let mut turns = Vec::new();
    let mut least_s = 0.0;
    while least_s < seconds {
        let first = turns.len();
        match task {
            Task::Conversation => conversation(&mut turns, client),
            Task::Alone => alone(&mut turns, &mut client.2),
            Task::Documents { shared } => documents(&mut turns, shared, client),
            Task::Agent => agent(&mut turns, client),
            Task::Tree { branches } => trees::tree(&mut turns, branches, &mut client.2),
        }
        if first > 0 {
            turns[first].think_us = think_us(&mut client.2);
        }
        least_s += least_task_s(&turns, first);
    }
    turns
}

/// Returns the seconds that the task from this turn on takes at least: those of its longest path.
fn least_task_s(turns: &[Turn], first: usize) -> f64 {
    let mut ends_s: Vec<f64> = Vec::with_capacity(turns.len() - first);
    for turn in &turns[first..] {
        let before = turn.after.and_then(|after| ends_s.get(after - first)).copied();
        let own_s = turn.think_us as f64 / 1e6 + f64::from(turn.reply.tokens) * TOKEN_S_MIN;
        ends_s.push(before.unwrap_or(0.0) + own_s);
    }
    ends_s.into_iter().fold(0.0, f64::max)
}

fn think_us(rng: &mut fastrand::Rng) -> u64 {
    (exponential(rng, THINK_S) * 1e6) as u64
}

/// Adds a conversation, each turn of which repeats everything before it.
fn conversation(turns: &mut Vec<Turn>, (libraries, _, rng): &mut Client<'_>) {
    let first = turns.len();
    let mut said = Text::new(vec![libraries.systems[libraries.popular_systems.draw(rng)]]);
    loop {
        let prompt = said.with(new_text(rng, QUESTION_TOKENS));
        let reply = new_text(rng, REPLY_TOKENS);
        said = prompt.with(reply);
        push(turns, first, prompt, reply, rng);
        if turns.len() - first >= TURNS_MAX || rng.f64() < 1.0 / TURNS {
            return;
        }
    }
}

fn agent(turns: &mut Vec<Turn>, (libraries, _, rng): &mut Client<'_>) {
    let kind = rng.usize(..AGENTS);
    let [own, sub] = [kind, AGENTS + kind].map(|at| libraries.agents[at]);
    agents::agent(turns, [own, sub], rng);
}

fn alone(turns: &mut Vec<Turn>, rng: &mut fastrand::Rng) {
    let prompt = Text::new(vec![new_text(rng, ALONE_TOKENS)]);
    let reply = new_text(rng, ALONE_REPLY_TOKENS);
    turns.push(Turn { after: None, think_us: 0, prompt, reply });
}

/// Adds questions about one document, each of which follows the document alone.
fn documents(turns: &mut Vec<Turn>, shared: f64, (libraries, region, rng): &mut Client<'_>) {
    let first = turns.len();
    let common = libraries.documents.len() - 1;
    let shelf = if rng.f64() < shared { common } else { *region };
    let document = libraries.documents[shelf][libraries.popular_documents.draw(rng)];
    loop {
        let prompt = Text::new(vec![document, new_text(rng, DOCUMENT_QUESTION_TOKENS)]);
        let reply = new_text(rng, DOCUMENT_REPLY_TOKENS);
        push(turns, first, prompt, reply, rng);
        if turns.len() - first >= QUESTIONS_MAX || rng.f64() < 1.0 / QUESTIONS {
            return;
        }
    }
}

/// Adds a turn that follows the one before it, if that one belongs to the same task.
fn push(turns: &mut Vec<Turn>, first: usize, prompt: Text, reply: Piece, rng: &mut fastrand::Rng) {
    let after = turns.len().checked_sub(1).filter(|&before| before >= first);
    let think_us = if after.is_some() { think_us(rng) } else { 0 };
    turns.push(Turn { after, think_us, prompt, reply });
}

#[cfg(test)]
mod tasks_test;
