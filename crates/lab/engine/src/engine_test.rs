use std::num::NonZeroU32;

use super::*;
use crate::batch::blocks_for;
use crate::block_hashes;
use crate::profile::{Profile, StepCost};

pub(super) fn nonzero(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).unwrap()
}

/// Limits with blocks of 4 tokens; a step costs 1 ms, a prompt token 1 µs, the rest nothing.
pub(super) fn config(kv_blocks: u32) -> EngineConfig {
    EngineConfig {
        cost: StepCost {
            base_ns: 1_000_000,
            prefill_token_ns: 1_000,
            sequence_ns: 0,
            kv_token_ns: 0,
        },
        block_tokens: nonzero(4),
        kv_blocks: nonzero(kv_blocks),
        step_tokens_max: nonzero(64),
        running_max: nonzero(8),
        waiting_max: 16,
        context_tokens_max: 10_000,
        watermark_blocks: 0,
    }
}

fn request(id: u64, prompt_tokens: u32, output_tokens: u32) -> EngineRequest {
    EngineRequest { id: RequestId(id), prompt_tokens, output_tokens, blocks: Vec::new() }
}

/// Makes a request whose prompt is `prompt`, with all blocks known.
pub(super) fn known(id: u64, prompt: &[u32], output: &[u32]) -> EngineRequest {
    EngineRequest::from_tokens(RequestId(id), prompt, output, nonzero(4))
}

/// Steps until no work is left; returns the events with their times.
pub(super) fn run(engine: &mut Engine) -> Vec<(Duration, EngineEvent)> {
    let mut events = Vec::new();
    while let Some(at) = engine.next_step_at() {
        let report = engine.step(at);
        events.extend(report.events.into_iter().map(|event| (at, event)));
        engine.check();
    }
    events
}

pub(super) fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

impl Engine {
    /// Asserts that every block is accounted for and nothing exceeds its limit.
    pub(super) fn check(&self) {
        let held: Vec<_> = self.batch.running.iter().map(|one| &one.blocks[..]).collect();
        self.batch.pool.check(&held);
        assert!(self.batch.waiting.iter().all(|sequence| sequence.blocks.is_empty()));
        assert!(self.batch.running.len() <= self.config.running_max.get() as usize);
        assert_eq!(self.ids.len(), self.batch.running.len() + self.batch.waiting.len());
        let stats = self.stats();
        assert!(stats.kv_blocks_used + stats.kv_blocks_cached <= stats.kv_blocks_total);
        for sequence in &self.batch.running {
            let scheduled = sequence.computed_tokens + sequence.scheduled_tokens;
            assert!(blocks_for(scheduled, &self.config) <= sequence.blocks.len());
        }
    }
}

#[test]
fn one_request_prefills_once_and_then_makes_a_token_a_step() {
    let mut engine = Engine::new(config(100));
    engine.submit(Duration::ZERO, request(1, 10, 3)).unwrap();
    let id = RequestId(1);
    let expected = [
        (micros(1010), EngineEvent::FirstToken { id, cached_tokens: 0 }),
        (micros(2010), EngineEvent::Token { id }),
        (micros(3010), EngineEvent::Token { id }),
        (micros(3010), EngineEvent::Finished { id, cached_tokens: 0 }),
    ];
    assert_eq!(run(&mut engine), expected);
    let stats = engine.stats();
    assert_eq!((stats.prompt_tokens, stats.generation_tokens), (10, 3));
    assert_eq!((stats.running, stats.waiting, stats.kv_blocks_used), (0, 0, 0));
}

#[test]
fn a_long_prompt_is_prefilled_in_chunks_and_has_its_first_token_after_the_last() {
    let mut engine = Engine::new(config(100));
    engine.submit(Duration::ZERO, request(1, 150, 1)).unwrap();
    let events = run(&mut engine);
    assert_eq!(events[0].0, micros(3 * 1000 + 150), "chunks of 64, 64 and 22");
    assert_eq!(engine.stats().steps, 3);
}

#[test]
fn a_request_without_output_ends_with_its_prefill() {
    let mut engine = Engine::new(config(100));
    engine.submit(Duration::ZERO, request(1, 10, 0)).unwrap();
    let id = RequestId(1);
    assert_eq!(run(&mut engine), [(micros(1010), EngineEvent::Finished { id, cached_tokens: 0 })]);
    assert_eq!((engine.stats().prompt_tokens, engine.stats().generation_tokens), (10, 0));
}

#[test]
fn a_cached_prefix_shortens_the_prefill_and_is_reported() {
    let mut engine = Engine::new(config(100));
    let prompt: Vec<u32> = (0..20).collect();
    engine.submit(Duration::ZERO, known(1, &prompt, &[90])).unwrap();
    let first = run(&mut engine);
    assert_eq!(first[0].0, micros(1020));
    let now = first[0].0;
    engine.submit(now, known(2, &prompt, &[90])).unwrap();
    let second = run(&mut engine);
    // 5 blocks are cached, but the last prompt token is always computed: 4 of them are used.
    assert_eq!(second[0], (now + micros(1004), first_token(2, 16)));
    let stats = engine.stats();
    assert_eq!(stats.prefix_cache_queries_tokens, 40);
    assert_eq!(stats.prefix_cache_hits_tokens, 16);
}

fn first_token(id: u64, cached_tokens: u32) -> EngineEvent {
    EngineEvent::FirstToken { id: RequestId(id), cached_tokens }
}

#[test]
fn an_answer_is_a_cached_prefix_of_the_next_turn() {
    let mut engine = Engine::new(config(100));
    let prompt: Vec<u32> = (0..8).collect();
    let answer: Vec<u32> = (100..109).collect();
    engine.submit(Duration::ZERO, known(1, &prompt, &answer)).unwrap();
    run(&mut engine);
    let mut turn = [prompt, answer].concat();
    turn.extend(200..210);
    engine.submit(Duration::from_secs(1), known(2, &turn, &[1])).unwrap();
    // 17 tokens are known; the KV of the very last one was never needed, so 16 are cached.
    assert_eq!(run(&mut engine)[0].1, first_token(2, 16));
}

#[test]
fn two_requests_share_a_prefix_that_one_of_them_is_still_using() {
    let mut engine = Engine::new(config(100));
    let prompt: Vec<u32> = (0..16).collect();
    let output: Vec<u32> = (50..80).collect();
    engine.submit(Duration::ZERO, known(1, &prompt, &output)).unwrap();
    drop(engine.step(Duration::ZERO));
    let now = engine.next_step_at().unwrap();
    engine.submit(now, known(2, &[&prompt[..], &[7, 7]].concat(), &[1])).unwrap();
    let report = engine.step(now);
    assert_eq!(report.started.unwrap().prefill_tokens, 2);
    engine.check();
    assert_eq!(engine.stats().kv_blocks_used, 4 + 1 + 1);
}

#[test]
fn a_batch_makes_more_tokens_a_second_than_one_request_after_the_other() {
    let seconds = |together: bool| {
        let mut engine = Engine::new(EngineConfig::from_profile(Profile::L4));
        let mut now = Duration::ZERO;
        for id in 0..8 {
            engine.submit(now, request(id, 100, 50)).unwrap();
            if !together {
                now = run(&mut engine).last().unwrap().0;
            }
        }
        run(&mut engine).last().map_or(now, |(at, _)| *at).as_secs_f64()
    };
    let (batched, single) = (seconds(true), seconds(false));
    assert!(batched * 5.0 < single, "{batched} s together, {single} s one by one");
}

#[test]
fn prefilling_a_newcomer_stalls_those_who_run() {
    let mut engine = Engine::new(config(100));
    engine.submit(Duration::ZERO, request(1, 4, 10)).unwrap();
    drop(engine.step(Duration::ZERO));
    let now = engine.next_step_at().unwrap();
    let alone = engine.step(now).started.unwrap().duration;
    let now = engine.next_step_at().unwrap();
    engine.submit(now, request(2, 60, 1)).unwrap();
    let shared = engine.step(now).started.unwrap();
    assert_eq!(shared.duration, alone + micros(60));
    assert_eq!(shared.sequences, 2);
}

#[test]
fn a_request_that_arrives_during_a_step_joins_the_next_one() {
    let mut engine = Engine::new(config(100));
    engine.submit(Duration::ZERO, request(1, 4, 2)).unwrap();
    drop(engine.step(Duration::ZERO));
    engine.submit(micros(500), request(2, 4, 1)).unwrap();
    assert_eq!(engine.next_step_at(), Some(micros(1004)), "the step under way is not disturbed");
    assert_eq!(engine.step(micros(1004)).started.unwrap().sequences, 2);
}

#[test]
fn a_late_driver_makes_up_the_steps_at_their_own_times() {
    let mut engine = Engine::new(config(100));
    engine.submit(Duration::ZERO, request(1, 4, 3)).unwrap();
    let late = Duration::from_secs(1);
    let ends: Vec<_> =
        std::iter::from_fn(|| engine.next_step_at().map(|_| engine.step(late).ended_at)).collect();
    assert_eq!(ends, [None, Some(micros(1004)), Some(micros(2004)), Some(micros(3004))]);
}

#[test]
fn a_late_driver_does_not_put_a_request_into_a_step_before_its_arrival() {
    let mut engine = Engine::new(config(100));
    engine.submit(Duration::ZERO, request(1, 4, 2)).unwrap();
    let late = micros(1500);
    drop(engine.step(Duration::ZERO));
    engine.submit(late, request(2, 4, 1)).unwrap();
    let report = engine.step(late);
    assert_eq!(report.ended_at, Some(micros(1004)));
    assert_eq!(report.started.unwrap().sequences, 1, "request 2 came at 1500, the step at 1004");
}

#[test]
fn an_idle_engine_starts_when_a_request_arrives_not_when_it_last_stopped() {
    let mut engine = Engine::new(config(100));
    assert_eq!(engine.next_step_at(), None);
    engine.submit(micros(7), request(1, 4, 1)).unwrap();
    assert_eq!(engine.next_step_at(), Some(micros(7)));
    run(&mut engine);
    engine.submit(Duration::from_secs(9), request(2, 4, 1)).unwrap();
    let report = engine.step(Duration::from_secs(20));
    assert_eq!(report.started.unwrap().at, Duration::from_secs(9));
}

#[test]
fn a_call_too_early_does_nothing() {
    let mut engine = Engine::new(config(100));
    engine.submit(micros(10), request(1, 4, 1)).unwrap();
    assert_eq!(engine.step(micros(9)), StepReport::default());
    drop(engine.step(micros(10)));
    assert_eq!(engine.step(micros(11)), StepReport::default());
}

#[test]
fn impossible_requests_are_rejected_and_leave_no_trace() {
    let mut engine = Engine::new(EngineConfig { waiting_max: 1, ..config(10) });
    let mut check = |request, expected| {
        assert_eq!(engine.submit(Duration::ZERO, request), Err(expected));
        assert_eq!(engine.next_step_at(), None);
    };
    check(request(1, 0, 5), RejectedError::Empty);
    check(request(1, 30, 11), RejectedError::TooLong { tokens: 41, tokens_max: 40 });
    check(
        request(1, u32::MAX, u32::MAX),
        RejectedError::TooLong { tokens: 2 * u64::from(u32::MAX), tokens_max: 40 },
    );
    engine.submit(Duration::ZERO, request(1, 30, 10)).unwrap();
    let duplicate = engine.submit(Duration::ZERO, request(1, 1, 1));
    assert_eq!(duplicate, Err(RejectedError::DuplicateId(RequestId(1))));
    let full = engine.submit(Duration::ZERO, request(2, 1, 1));
    assert_eq!(full, Err(RejectedError::QueueFull { waiting: 1 }));
    engine.check();
}

#[test]
fn an_id_may_be_used_again_once_its_request_is_done() {
    let mut engine = Engine::new(config(10));
    for _ in 0..2 {
        engine.submit(Duration::ZERO, request(1, 4, 1)).unwrap();
        assert_eq!(run(&mut engine).len(), 2);
    }
}

#[test]
fn an_aborted_request_frees_its_blocks_at_once_and_says_nothing_more() {
    let mut engine = Engine::new(config(10));
    engine.submit(Duration::ZERO, request(1, 20, 5)).unwrap();
    engine.submit(Duration::ZERO, request(2, 20, 1)).unwrap();
    drop(engine.step(Duration::ZERO));
    assert_eq!(engine.stats().kv_blocks_used, 10);
    assert!(engine.abort(RequestId(1)));
    assert!(!engine.abort(RequestId(1)), "twice");
    assert_eq!(engine.stats().kv_blocks_used, 5);
    let events = run(&mut engine);
    assert!(events.iter().all(|(_, event)| id_of(event) == RequestId(2)), "{events:?}");
}

#[test]
fn what_an_aborted_request_had_computed_stays_in_the_cache() {
    let mut engine = Engine::new(config(100));
    let prompt: Vec<u32> = (0..100).collect();
    engine.submit(Duration::ZERO, known(1, &prompt, &[1])).unwrap();
    drop(engine.step(Duration::ZERO));
    let now = engine.next_step_at().unwrap();
    drop(engine.step(now)); // the first chunk of 64 tokens is computed, the second under way
    assert!(engine.abort(RequestId(1)));
    engine.submit(now, known(2, &prompt, &[1])).unwrap();
    assert_eq!(run(&mut engine)[0].1, first_token(2, 64));
}

#[test]
fn a_waiting_request_can_be_aborted() {
    let mut engine = Engine::new(config(10));
    engine.submit(Duration::ZERO, request(1, 4, 1)).unwrap();
    assert!(engine.abort(RequestId(1)));
    assert_eq!(engine.next_step_at(), None);
    engine.check();
}

#[test]
fn an_abort_of_everyone_still_lets_the_step_take_its_time() {
    let mut engine = Engine::new(config(10));
    engine.submit(Duration::ZERO, request(1, 4, 1)).unwrap();
    drop(engine.step(Duration::ZERO));
    assert!(engine.abort(RequestId(1)));
    engine.submit(micros(5), request(2, 4, 1)).unwrap();
    assert_eq!(engine.next_step_at(), Some(micros(1004)));
    let report = engine.step(micros(1004));
    assert!(report.events.is_empty());
    assert_eq!(report.started.unwrap().at, micros(1004));
}

#[test]
fn a_restart_loses_requests_cache_and_counters() {
    let mut engine = Engine::new(config(100));
    let prompt: Vec<u32> = (0..20).collect();
    engine.submit(Duration::ZERO, known(1, &prompt, &[1])).unwrap();
    let now = run(&mut engine).last().unwrap().0;
    engine.submit(now, known(2, &prompt, &[1, 2, 3])).unwrap();
    drop(engine.step(now));
    assert_eq!(engine.restart(now), [RequestId(2)]);
    assert_eq!(engine.next_step_at(), None);
    assert_eq!(engine.stats(), Stats { kv_blocks_total: 100, ..Stats::default() });
    engine.submit(now, known(3, &prompt, &[1])).unwrap();
    assert_eq!(run(&mut engine)[0].1, first_token(3, 0));
}

#[test]
fn a_flush_empties_the_cache_but_not_the_batch() {
    let mut engine = Engine::new(config(100));
    let prompt: Vec<u32> = (0..20).collect();
    engine.submit(Duration::ZERO, known(1, &prompt, &[1])).unwrap();
    let now = run(&mut engine).last().unwrap().0;
    assert_eq!(engine.flush_cache(), 5);
    engine.submit(now, known(2, &prompt, &[1])).unwrap();
    assert_eq!(run(&mut engine)[0].1, first_token(2, 0));
}

#[test]
fn growing_outputs_preempt_and_everyone_still_finishes_in_full() {
    let mut engine = Engine::new(config(12));
    for id in 0..4 {
        engine.submit(Duration::ZERO, request(id, 8, 24)).unwrap();
    }
    let events = run(&mut engine);
    let tokens = |id| {
        let is_token = |event: &EngineEvent| {
            matches!(event, EngineEvent::FirstToken { .. } | EngineEvent::Token { .. })
        };
        events.iter().filter(|(_, event)| id_of(event) == RequestId(id) && is_token(event)).count()
    };
    assert_eq!([0, 1, 2, 3].map(tokens), [24; 4]);
    assert!(engine.stats().preemptions > 0);
    assert_eq!(engine.stats().generation_tokens, 96);
    assert_eq!(engine.stats().prompt_tokens, 32, "computing again is not a new prompt");
}

pub(super) fn id_of(event: &EngineEvent) -> RequestId {
    match event {
        EngineEvent::FirstToken { id, .. }
        | EngineEvent::Token { id }
        | EngineEvent::Finished { id, .. }
        | EngineEvent::Preempted { id } => *id,
    }
}

#[test]
fn what_is_cached_can_be_asked_without_using_it() {
    let mut engine = Engine::new(config(16));
    let prompt: Vec<u32> = (0..10).collect();
    let hashes = block_hashes(&prompt, nonzero(4));
    assert_eq!(engine.cached_blocks(&hashes), 0);
    engine.submit(Duration::ZERO, known(1, &prompt, &[7])).unwrap();
    run(&mut engine);
    let before = engine.stats();
    assert_eq!(engine.cached_blocks(&hashes), 2);
    assert_eq!(engine.cached_blocks(&hashes[1..]), 0, "only from the beginning");
    assert_eq!(engine.stats(), before);
}
