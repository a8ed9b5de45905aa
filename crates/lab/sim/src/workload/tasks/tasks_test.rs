use std::collections::BTreeSet;

use super::{Task, sessions};
use crate::{Session, Text};

const END_S: f64 = 100.0;

/// Returns the hash of the first block of each task's first prompt, with the region.
fn begins(sessions: &[Session]) -> Vec<(usize, u64)> {
    let of = |session: &Session| {
        let first = session.turns.iter().filter(|turn| turn.after.is_none());
        let region = session.region;
        first.map(move |turn| (region, turn.prompt.engine_chain()[0])).collect::<Vec<_>>()
    };
    sessions.iter().flat_map(of).collect()
}

/// Returns the share of tasks that begin with a text that another region's tasks begin with, too.
fn shared(task: Task) -> f64 {
    let begins = begins(&sessions(&[(40, task), (40, task), (40, task)], END_S, 5));
    let of = |region| -> BTreeSet<u64> {
        begins.iter().filter(|(at, _)| *at == region).map(|(_, hash)| *hash).collect()
    };
    let known = [0, 1, 2].map(of);
    let is_shared = |(region, hash): &&(usize, u64)| {
        (0..3).any(|other| other != *region && known[other].contains(hash))
    };
    begins.iter().filter(is_shared).count() as f64 / begins.len() as f64
}

#[test]
fn as_much_is_shared_between_regions_as_asked_for() {
    for share in [0.025, 0.1, 0.5] {
        let seen = shared(Task::Documents { shared: share });
        // A rare text may come up in one region only.
        assert!(seen > 0.5 * share && seen < 1.2 * share + 0.01, "{seen} instead of {share}");
    }
    assert_eq!(shared(Task::Alone), 0.0);
    assert!(shared(Task::Conversation) > 0.99, "applications are used everywhere");
}

#[test]
fn clients_have_enough_to_ask_and_little_more() {
    let tree = Task::Tree { branches: 2 };
    let documents = Task::Documents { shared: 0.1 };
    for task in [Task::Conversation, Task::Alone, documents, tree, Task::Agent] {
        let all = sessions(&[(5, task), (2, task)], END_S, 3);
        assert_eq!(all, sessions(&[(5, task), (2, task)], END_S, 3), "{task:?}: equal seeds");
        assert_ne!(all, sessions(&[(5, task), (2, task)], END_S, 4), "{task:?}: other seeds");
        assert_eq!(all.iter().filter(|session| session.region == 0).count(), 5);
        for session in &all {
            assert_eq!(session.turns[0].after, None);
            let mut ends_s: Vec<f64> = Vec::new();
            let mut done_s = session.start.since_start().as_secs_f64();
            for turn in &session.turns {
                // Ten milliseconds a token are more than any engine here can do.
                let own_s = turn.think_us as f64 / 1e6 + f64::from(turn.reply.tokens) * 0.01;
                let before_s = turn.after.map_or(done_s, |after| ends_s[after]);
                ends_s.push(before_s + own_s);
                done_s = ends_s.iter().copied().fold(done_s, f64::max);
            }
            assert!(done_s > 0.3 * END_S, "{task:?}: {done_s} s");
            assert!(session.turns.len() < 400, "{task:?}: {} turns", session.turns.len());
        }
    }
}

#[test]
fn a_conversation_repeats_all_that_was_said_and_ends_some_time() {
    let all = sessions(&[(10, Task::Conversation)], END_S, 1);
    let turns = || all.iter().flat_map(|session| &session.turns);
    for session in &all {
        for (at, turn) in session.turns.iter().enumerate() {
            let Some(after) = turn.after else { continue };
            assert_eq!(after + 1, at);
            let before = &session.turns[after];
            let said: Text = before.prompt.with(before.reply);
            assert!(turn.prompt.engine_chain().starts_with(&said.engine_chain()));
        }
    }
    let (tasks, all) = (turns().filter(|turn| turn.after.is_none()).count(), turns().count());
    let mean = all as f64 / tasks as f64;
    assert!((3.5..6.5).contains(&mean), "{mean} turns");
}
