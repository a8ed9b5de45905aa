use std::num::NonZeroU32;

use super::*;
use crate::profile::StepCost;
use crate::request::EngineRequest;

const NOW: Duration = Duration::ZERO;

fn config(kv_blocks: u32) -> EngineConfig {
    EngineConfig {
        cost: StepCost { base_ns: 1, prefill_token_ns: 1, sequence_ns: 1, kv_token_ns: 1 },
        block_tokens: NonZeroU32::new(4).unwrap(),
        kv_blocks: NonZeroU32::new(kv_blocks).unwrap(),
        step_tokens_max: NonZeroU32::new(100).unwrap(),
        running_max: NonZeroU32::new(10).unwrap(),
        waiting_max: 10,
        context_tokens_max: 1000,
        watermark_blocks: 0,
    }
}

/// Makes a batch where requests with these prompt lengths wait; their ids count from 0.
fn batch(config: &EngineConfig, prompts: &[u32]) -> Batch {
    let mut batch = Batch::new(config);
    for (id, prompt_tokens) in (0..).zip(prompts) {
        let request = EngineRequest {
            id: RequestId(id),
            prompt_tokens: *prompt_tokens,
            output_tokens: 50,
            blocks: Vec::new(),
        };
        batch.waiting.push_back(Sequence::new(request, NOW));
    }
    batch
}

/// Acts as the engine does at the end of a step: every scheduled token is computed.
fn compute(batch: &mut Batch) {
    for sequence in &mut batch.running {
        sequence.computed_tokens += std::mem::take(&mut sequence.scheduled_tokens);
        if sequence.missing_tokens() == 0 {
            sequence.generated_tokens += 1;
        }
    }
}

fn scheduled(batch: &Batch) -> Vec<(u64, u32)> {
    batch.running.iter().map(|sequence| (sequence.id.0, sequence.scheduled_tokens)).collect()
}

fn waiting(batch: &Batch) -> Vec<u64> {
    batch.waiting.iter().map(|sequence| sequence.id.0).collect()
}

#[test]
fn a_step_takes_whole_prompts_while_its_budget_lasts_and_then_a_chunk() {
    let config = config(100);
    let mut batch = batch(&config, &[60, 70, 5]);
    let schedule = batch.schedule(NOW, &config);
    assert_eq!(scheduled(&batch), [(0, 60), (1, 40)]);
    assert_eq!((schedule.prefill_tokens, schedule.sequences), (100, 2));
    assert_eq!(schedule.kv_tokens, 100);
    assert_eq!(waiting(&batch), [2]);

    compute(&mut batch);
    let schedule = batch.schedule(NOW, &config);
    // One token for the first request, the rest of the second's prompt, and the third request.
    assert_eq!(scheduled(&batch), [(0, 1), (1, 30), (2, 5)]);
    assert_eq!(schedule.prefill_tokens, 35, "a decoded token is not prefill");
    assert_eq!(schedule.kv_tokens, 61 + 70 + 5);
}

#[test]
fn a_one_token_prompt_is_prefill_too() {
    let config = config(100);
    let mut batch = batch(&config, &[1]);
    assert_eq!(batch.schedule(NOW, &config).prefill_tokens, 1);
    compute(&mut batch);
    assert_eq!(batch.schedule(NOW, &config).prefill_tokens, 0);
}

#[test]
fn no_more_requests_run_than_allowed() {
    let config = EngineConfig { running_max: NonZeroU32::new(2).unwrap(), ..config(100) };
    let mut batch = batch(&config, &[4, 4, 4]);
    drop(batch.schedule(NOW, &config));
    assert_eq!(batch.running.len(), 2);
    assert_eq!(waiting(&batch), [2]);
}

#[test]
fn the_head_of_the_line_waits_for_blocks_and_nobody_passes_it() {
    let config = config(10);
    let mut batch = batch(&config, &[24, 20, 4]);
    drop(batch.schedule(NOW, &config));
    assert_eq!(scheduled(&batch), [(0, 24)]);
    assert_eq!(waiting(&batch), [1, 2], "4 blocks are free, the head needs 5, the next only 1");
    assert!(batch.remove(RequestId(0)));
    drop(batch.schedule(NOW, &config));
    assert_eq!(scheduled(&batch), [(1, 20), (2, 4)]);
}

#[test]
fn the_watermark_keeps_room_for_those_who_run_but_never_stops_the_only_one() {
    let config = EngineConfig { watermark_blocks: 3, ..config(10) };
    let mut alone = batch(&config, &[40]);
    drop(alone.schedule(NOW, &config));
    assert_eq!(scheduled(&alone), [(0, 40)]);
    let mut two = batch(&config, &[16, 16]);
    drop(two.schedule(NOW, &config));
    assert_eq!(scheduled(&two), [(0, 16)], "6 blocks are free, 4 are needed, 3 must stay");
}

#[test]
fn requests_that_arrive_after_the_start_of_a_step_are_not_in_it() {
    let config = config(10);
    let mut batch = batch(&config, &[4]);
    batch.waiting[0].submitted_at = Duration::from_secs(1);
    assert_eq!(batch.schedule(NOW, &config).sequences, 0);
    assert_eq!(batch.schedule(Duration::from_secs(1), &config).sequences, 1);
}

#[test]
fn when_blocks_run_out_the_latest_admitted_request_is_preempted_and_waits_first() {
    let config = config(4);
    let mut batch = batch(&config, &[8, 8, 4]);
    drop(batch.schedule(NOW, &config));
    compute(&mut batch);
    let schedule = batch.schedule(NOW, &config);
    assert_eq!(schedule.preempted, [RequestId(1)]);
    assert_eq!(scheduled(&batch), [(0, 1)]);
    assert_eq!(waiting(&batch), [1, 2], "nobody is admitted in a step that preempts");
    let victim = &batch.waiting[0];
    assert_eq!((victim.computed_tokens, victim.generated_tokens), (0, 1));
    assert!(victim.blocks.is_empty());
}

#[test]
fn a_preempted_request_computes_its_prompt_and_its_output_so_far_again() {
    let config = config(4);
    let mut batch = batch(&config, &[8, 8]);
    drop(batch.schedule(NOW, &config));
    compute(&mut batch);
    drop(batch.schedule(NOW, &config));
    assert!(batch.remove(RequestId(0)));
    let schedule = batch.schedule(NOW, &config);
    assert_eq!(scheduled(&batch), [(1, 9)]);
    assert_eq!(schedule.queried_tokens, 0, "a second admission is not a second look-up");
}

#[test]
fn a_request_that_needs_a_block_may_have_to_preempt_itself() {
    let config = config(5);
    let mut batch = batch(&config, &[6, 12]);
    drop(batch.schedule(NOW, &config));
    compute(&mut batch);
    // The first request still has room in its second block; the last one needs a block and has
    // none.
    let schedule = batch.schedule(NOW, &config);
    assert_eq!(schedule.preempted, [RequestId(1)]);
    assert_eq!(scheduled(&batch), [(0, 1)]);
}

#[test]
fn a_small_budget_serves_the_first_and_lets_the_rest_stand_still() {
    let config = EngineConfig { step_tokens_max: NonZeroU32::new(4).unwrap(), ..config(100) };
    let mut batch = batch(&config, &[3, 3]);
    drop(batch.schedule(NOW, &config));
    assert_eq!(scheduled(&batch), [(0, 3), (1, 1)]);
    compute(&mut batch);
    drop(batch.schedule(NOW, &config));
    assert_eq!(scheduled(&batch), [(0, 1), (1, 2)]);
    batch.pool.check(&batch.running.iter().map(|one| &one.blocks[..]).collect::<Vec<_>>());
}
