//! Scheduler of the engine: it chooses the requests that take part in the next step.
//!
//! Running requests come first, each with one token or the next chunk of its prompt. The rest of
//! the step's token budget goes to waiting requests, first come first served. KV for the whole
//! prompt is taken at admission, KV for output as the output grows. A real engine does not know how
//! long an output will be; to reserve KV for it would hide the preemptions that full caches cause.

use std::collections::VecDeque;
use std::time::Duration;

use crate::config::EngineConfig;
use crate::kv::BlockPool;
use crate::request::RequestId;
use crate::sequence::Sequence;

/// The requests of one engine and the blocks they hold.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Requests in the batch, in the order of admission: the last one is preempted first.
    pub(crate) running: Vec<Sequence>,
    /// Requests that wait, first come, first served; preempted requests are at the front.
    pub(crate) waiting: VecDeque<Sequence>,
    pub(crate) pool: BlockPool,
}

/// Work of one scheduled step.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) prefill_tokens: u64,
    pub(crate) sequences: u64,
    pub(crate) kv_tokens: u64,
    /// Requests that lost their KV and wait again.
    pub(crate) preempted: Vec<RequestId>,
    /// Prompt tokens looked up in the cache by requests admitted for the first time.
    pub(crate) queried_tokens: u64,
    /// Prompt tokens of `queried_tokens` that were found in the cache.
    pub(crate) hit_tokens: u64,
}

impl Batch {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        let pool = BlockPool::new(config.kv_blocks.get());
        Self { running: Vec::new(), waiting: VecDeque::new(), pool }
    }

    /// Chooses the tokens that the step that begins at `start` computes.
    pub(crate) fn schedule(&mut self, start: Duration, config: &EngineConfig) -> Schedule {
        let mut schedule = Schedule::default();
        let mut budget = config.step_tokens_max.get();
        self.schedule_running(&mut budget, config, &mut schedule);
        // A step that had to preempt has no room for newcomers.
        if schedule.preempted.is_empty() {
            let running = self.running.iter_mut().filter(|sequence| sequence.shares_at_once);
            // Requests submitted together share blocks before a later one is admitted in this same
            // step.
            running.for_each(|sequence| file_scheduled(&mut self.pool, sequence, config));
            self.admit_waiting(start, &mut budget, config, &mut schedule);
        }
        for sequence in self.running.iter().filter(|sequence| sequence.scheduled_tokens > 0) {
            let scheduled = u64::from(sequence.scheduled_tokens);
            schedule.sequences += 1;
            schedule.kv_tokens += u64::from(sequence.computed_tokens) + scheduled;
            schedule.prefill_tokens += if sequence.is_decoding() { 0 } else { scheduled };
        }
        schedule
    }

    /// Takes a request out of the batch or the queue and frees its blocks. Returns false if it is
    /// in neither.
    pub(crate) fn remove(&mut self, id: RequestId) -> bool {
        if let Some(at) = self.running.iter().position(|sequence| sequence.id == id) {
            let sequence = self.running.remove(at);
            self.pool.release(&sequence.blocks);
            return true;
        }
        let Some(at) = self.waiting.iter().position(|sequence| sequence.id == id) else {
            return false;
        };
        self.waiting.remove(at).is_some()
    }

    fn schedule_running(
        &mut self,
        budget: &mut u32,
        config: &EngineConfig,
        schedule: &mut Schedule,
    ) {
        let mut at = 0;
        while at < self.running.len() {
            let sequence = &mut self.running[at];
            let tokens = sequence.missing_tokens().min(*budget);
            let blocks = blocks_for(sequence.computed_tokens + tokens, config);
            let missing_blocks = blocks.saturating_sub(sequence.blocks.len());
            if missing_blocks == 0 || self.grow(at, missing_blocks, schedule) {
                self.running[at].scheduled_tokens = tokens;
                *budget -= tokens;
                at += 1;
            }
            // Otherwise the request at `at` was preempted itself, and `at` is past the end now.
        }
    }

    /// Adds blocks to the running request at `at`; preempts the latest admitted requests until
    /// there is room. Returns false if the request itself had to be preempted.
    fn grow(&mut self, at: usize, missing_blocks: usize, schedule: &mut Schedule) -> bool {
        for _ in 0..missing_blocks {
            let block = loop {
                if let Some(block) = self.pool.allocate() {
                    break block;
                }
                self.preempt_last(schedule);
                if at >= self.running.len() {
                    return false;
                }
            };
            self.running[at].blocks.push(block);
        }
        true
    }

    fn preempt_last(&mut self, schedule: &mut Schedule) {
        let Some(mut victim) = self.running.pop() else { return };
        self.pool.release(&victim.blocks);
        victim.blocks.clear();
        victim.filed_blocks = 0;
        victim.computed_tokens = 0;
        victim.scheduled_tokens = 0;
        schedule.preempted.push(victim.id);
        self.waiting.push_front(victim);
    }

    fn admit_waiting(
        &mut self,
        start: Duration,
        budget: &mut u32,
        config: &EngineConfig,
        schedule: &mut Schedule,
    ) {
        while *budget > 0 && self.running.len() < config.running_max.get() as usize {
            // The head blocks the line, as in vLLM: letting small requests pass would starve it.
            // A request that was submitted after the step began waits for the next step.
            let Some(head) = self.waiting.pop_front_if(|head| head.submitted_at <= start) else {
                break;
            };
            match self.admit(head, config) {
                Ok(mut sequence) => {
                    sequence.scheduled_tokens = sequence.missing_tokens().min(*budget);
                    *budget -= sequence.scheduled_tokens;
                    // Only the first admission counts as a cache lookup; a preempted request has
                    // counted already.
                    if sequence.cached_tokens.is_none() {
                        let hit = sequence.computed_tokens.min(sequence.prompt_tokens);
                        sequence.cached_tokens = Some(hit);
                        schedule.queried_tokens += u64::from(sequence.prompt_tokens);
                        schedule.hit_tokens += u64::from(hit);
                    }
                    if sequence.shares_at_once {
                        file_scheduled(&mut self.pool, &mut sequence, config);
                    }
                    self.running.push(sequence);
                }
                Err(head) => {
                    self.waiting.push_front(head);
                    break;
                }
            }
        }
    }

    /// Pins the cached part of a request's context and takes blocks for the rest. Gives the request
    /// back unchanged if the blocks do not fit now.
    fn admit(&mut self, mut head: Sequence, config: &EngineConfig) -> Result<Sequence, Sequence> {
        let context = head.context_tokens();
        // The last token is always computed, because its logits give the next one.
        let reusable_max = (context - 1) / config.block_tokens;
        let path = self.pool.longest_prefix(&head.hashes, reusable_max as usize);
        let missing = blocks_for(context, config) - path.len();
        // An empty batch has no requests that could need the reserve.
        let reserve = if self.running.is_empty() { 0 } else { config.watermark_blocks };
        let taken = self.pool.unpinned_in(&path) + reserve;
        if missing > self.pool.available().saturating_sub(taken) as usize {
            return Err(head);
        }
        self.pool.pin_path(&path);
        head.computed_tokens = u32::try_from(path.len()).unwrap_or(0) * config.block_tokens.get();
        head.filed_blocks = path.len();
        head.blocks = path;
        for _ in 0..missing {
            head.blocks.extend(self.pool.allocate());
        }
        Ok(head)
    }
}

/// Files those blocks of a request in the cache's tree that are full once the step under way has
/// ended.
pub(crate) fn file_scheduled(pool: &mut BlockPool, sequence: &mut Sequence, config: &EngineConfig) {
    let tokens = sequence.computed_tokens + sequence.scheduled_tokens;
    debug_assert!(sequence.blocks.len() >= blocks_for(tokens, config));
    let full = ((tokens / config.block_tokens) as usize).min(sequence.hashes.len());
    for at in sequence.filed_blocks..full {
        // Filing may replace a block by one with the same content that was filed before.
        let parent = at.checked_sub(1).map(|before| sequence.blocks[before]);
        sequence.blocks[at] =
            pool.file(sequence.id, sequence.blocks[at], parent, sequence.hashes[at]);
        sequence.filed_blocks = at + 1;
    }
}

/// Returns the number of blocks that hold `tokens`.
pub(crate) fn blocks_for(tokens: u32, config: &EngineConfig) -> usize {
    tokens.div_ceil(config.block_tokens.get()) as usize
}

#[cfg(test)]
#[path = "batch_test.rs"]
mod batch_test;
