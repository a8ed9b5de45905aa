//! Requests that are parts of one: several answers to a prompt, or several prompts.

use super::engine_test::{config, known, micros, run};
use super::*;

fn ends(events: &[(Duration, EngineEvent)]) -> Vec<(u64, u32)> {
    let end = |event: &(Duration, EngineEvent)| match event.1 {
        EngineEvent::Finished { id, cached_tokens } => Some((id.0, cached_tokens)),
        _ => None,
    };
    events.iter().filter_map(end).collect()
}

fn answers(engine: &mut Engine, prompt: &[u32], count: u64) -> Result<(), RejectedError> {
    let answer = |id| known(id, prompt, &[1000 + u32::try_from(id).unwrap(); 3]);
    engine.submit_together(Duration::ZERO, (0..count).map(answer).collect())
}

#[test]
fn several_answers_to_a_prompt_share_its_full_blocks_in_the_very_same_step() {
    let mut engine = Engine::new(config(100));
    let prompt: Vec<u32> = (0..18).collect();
    answers(&mut engine, &prompt, 3).unwrap();
    let started = engine.step(Duration::ZERO).started.unwrap();
    // The first request computes 18 tokens; the others only lack the two that fill no block.
    assert_eq!((started.prefill_tokens, started.sequences), (18 + 2 + 2, 3));
    assert_eq!(engine.stats().kv_blocks_used, 4 + 3);
    let events = run(&mut engine);
    let first = micros(1000 + 22);
    let begun = events
        .iter()
        .filter(|(at, event)| *at == first && matches!(event, EngineEvent::FirstToken { .. }));
    assert_eq!(begun.count(), 3);
    assert_eq!(ends(&events), [(0, 0), (1, 16), (2, 16)]);
    assert_eq!(engine.stats().prefix_cache_hits_tokens, 32);
    assert_eq!(engine.stats().prompt_tokens, 3 * 18);
}

#[test]
fn a_prompt_longer_than_a_step_is_computed_once_too() {
    let mut engine = Engine::new(config(100));
    let prompt: Vec<u32> = (0..150).collect();
    answers(&mut engine, &prompt, 2).unwrap();
    let mut prefilled = 0;
    while let Some(at) = engine.next_step_at() {
        prefilled += engine.step(at).started.map_or(0, |started| started.prefill_tokens);
        engine.check();
    }
    assert_eq!(prefilled, 150 + 150 % 4);
}

#[test]
fn requests_that_came_one_by_one_each_compute_what_they_meet_in_the_same_step() {
    let mut engine = Engine::new(config(100));
    let prompt: Vec<u32> = (0..18).collect();
    for id in 0..2 {
        engine.submit(Duration::ZERO, known(id, &prompt, &[7, 8])).unwrap();
    }
    assert_eq!(engine.step(Duration::ZERO).started.unwrap().prefill_tokens, 36);
}

#[test]
fn all_parts_find_room_in_the_queue_or_none_does() {
    let mut engine = Engine::new(config(100));
    assert_eq!(answers(&mut engine, &[1, 2], 17), Err(RejectedError::QueueFull { waiting: 0 }));
    assert_eq!(engine.stats().waiting, 0);
    assert_eq!(engine.next_step_at(), None);
    answers(&mut engine, &[1, 2], 16).unwrap();
    assert_eq!(engine.stats().waiting, 16);
}

#[test]
fn a_part_that_is_aborted_leaves_the_others_what_they_share() {
    let mut engine = Engine::new(config(100));
    let prompt: Vec<u32> = (0..18).collect();
    answers(&mut engine, &prompt, 2).unwrap();
    assert!(engine.step(Duration::ZERO).started.is_some());
    assert!(engine.abort(RequestId(0)));
    engine.check();
    assert_eq!(ends(&run(&mut engine)), [(1, 16)]);
}
