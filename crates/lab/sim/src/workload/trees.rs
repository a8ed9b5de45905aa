//! Trees of thought: each reply is followed by several requests at once, which repeat the path to
//! it.

use super::Turn;
use super::chance::new_text;
use crate::text::mix;
use crate::{Piece, Text};

/// Requests on the path from the root to a leaf: trees of two branches have 15 requests, trees of
/// four have 85.
const DEPTH: usize = 4;
/// Instruction that all trees begin with.
const INSTRUCTION_TOKENS: u32 = 300;
/// Mean lengths of the problem, of the part that each request adds to the path, and of a reply.
const PROBLEM_TOKENS: u32 = 100;
const STEP_TOKENS: u32 = 30;
const REPLY_TOKENS: u32 = 120;

/// Adds the requests of one tree, each after the one whose reply it follows.
pub(super) fn tree(turns: &mut Vec<Turn>, branches: usize, rng: &mut fastrand::Rng) {
    let instruction = Piece { id: mix(40, 0), tokens: INSTRUCTION_TOKENS };
    let problem = Text::new(vec![instruction, new_text(rng, PROBLEM_TOKENS)]);
    let mut level = turns.len()..turns.len() + 1;
    turns.push(thought(None, &problem, rng));
    for _ in 1..DEPTH {
        let next = turns.len();
        for parent in level {
            let path = turns[parent].prompt.with(turns[parent].reply);
            for _ in 0..branches {
                turns.push(thought(Some(parent), &path, rng));
            }
        }
        level = next..turns.len();
    }
}

fn thought(after: Option<usize>, path: &Text, rng: &mut fastrand::Rng) -> Turn {
    let prompt = path.with(new_text(rng, STEP_TOKENS));
    Turn { after, think_us: 0, prompt, reply: new_text(rng, REPLY_TOKENS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_as_many_requests_as_published_and_children_repeat_the_path_with_its_replies() {
        for (branches, requests) in [(2, 15), (4, 85)] {
            let mut turns = Vec::new();
            tree(&mut turns, branches, &mut fastrand::Rng::with_seed(1));
            assert_eq!(turns.len(), requests);
            for (at, turn) in turns.iter().enumerate().skip(1) {
                let parent = turn.after.unwrap();
                assert!(parent < at);
                let path = turns[parent].prompt.with(turns[parent].reply).engine_chain();
                assert!(turn.prompt.engine_chain().starts_with(&path));
            }
            let leaves = (0..requests).filter(|&at| turns.iter().all(|one| one.after != Some(at)));
            assert_eq!(leaves.count(), branches.pow(3));
        }
    }
}
