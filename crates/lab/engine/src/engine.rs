//! The engine: takes requests, computes steps, reports events.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

use crate::batch::{Batch, file_scheduled};
use crate::changes::CacheChange;
use crate::config::EngineConfig;
use crate::request::{EngineRequest, RejectedError, RequestId};
use crate::sequence::Sequence;

/// Model of one inference engine.
///
/// All times are virtual, counted from the engine's own start, and must never decrease from call to
/// call. The loop of a driver: at the time that [`Self::next_step_at`] returns, call [`Self::step`]
/// until `next_step_at` returns a later time or `None`; then wait for that time or for the next
/// request. [`Self::submit`] and [`Self::abort`] may be called at any moment in between; ask
/// [`Self::next_step_at`] again after each of them.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    batch: Batch,
    phase: Phase,
    /// Ids of all live requests, in the batch or waiting.
    ids: BTreeSet<RequestId>,
    totals: Totals,
    /// State at the end of the last step.
    reported: Stats,
}

/// State of the engine: idle or computing a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    // Idle => Stepping
    /// Nothing runs; the last step ended at `since`.
    Idle { since: Duration },
    // Stepping => (Stepping | Idle)
    /// A step is being computed.
    Stepping { began_at: Duration, ends_at: Duration },
}

/// Counters since the engine was made or restarted.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    steps: u64,
    prompt_tokens: u64,
    generation_tokens: u64,
    prefix_queries_tokens: u64,
    prefix_hits_tokens: u64,
    preemptions: u64,
}

/// Something that happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineEvent {
    /// The request generated its first token.
    FirstToken {
        /// Id of the request.
        id: RequestId,
        /// Prompt tokens that did not need computing, because their KV was cached.
        cached_tokens: u32,
    },
    /// The request generated another token.
    Token {
        /// Id of the request.
        id: RequestId,
    },
    /// The request is done, and its id may be used again. This event follows the last token in the
    /// same report.
    Finished {
        /// Id of the request.
        id: RequestId,
        /// Cached prompt tokens, as in [`EngineEvent::FirstToken`]: a request without output has only
        /// this event.
        cached_tokens: u32,
    },
    /// The request lost its KV to older requests and waits again. Its generated tokens are kept;
    /// their KV and that of the prompt will be computed again.
    Preempted {
        /// Id of the request.
        id: RequestId,
    },
}

/// Result of a call of [`Engine::step`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepReport {
    /// Events of the step that ended, then the preemptions of the step that began.
    pub events: Vec<EngineEvent>,
    /// Virtual time when a step ended. `None` if none ended.
    pub ended_at: Option<Duration>,
    /// The step that began. `None` if none began.
    pub started: Option<StepStart>,
}

/// A step that began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepStart {
    /// Virtual time when the step began.
    pub at: Duration,
    /// Time that the step takes.
    pub duration: Duration,
    /// Prompt tokens that the step computes.
    pub prefill_tokens: u64,
    /// Requests that take part in the step.
    pub sequences: u64,
}

/// State of the engine at one moment, and its counters since it was made or restarted.
/// Serialized without the requests of the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Requests in the batch.
    #[serde(skip)]
    pub running: u32,
    /// Requests that wait for a place or for KV.
    #[serde(skip)]
    pub waiting: u32,
    /// KV blocks pinned by running requests.
    pub kv_blocks_used: u32,
    /// KV blocks that no running request uses but that hold reusable prefixes.
    pub kv_blocks_cached: u32,
    /// KV blocks in all.
    pub kv_blocks_total: u32,
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_cache_queries_tokens: u64,
    /// Prompt tokens found in the prefix cache.
    pub prefix_cache_hits_tokens: u64,
    /// Number of times that a running request lost its KV.
    pub preemptions: u64,
    /// Prompt tokens of requests that finished prefill, cached tokens included.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Steps begun.
    pub steps: u64,
}

impl Engine {
    /// Makes an idle engine with an empty cache.
    #[must_use]
    pub fn new(config: EngineConfig) -> Self {
        Self {
            config,
            batch: Batch::new(&config),
            phase: Phase::Idle { since: Duration::ZERO },
            ids: BTreeSet::new(),
            totals: Totals::default(),
            reported: Stats { kv_blocks_total: config.kv_blocks.get(), ..Stats::default() },
        }
    }

    /// Returns the limits that the engine was made with.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Queues a request, which joins the first step at or after `now` that has room for it.
    ///
    /// # Errors
    /// Returns [`RejectedError`] if the request is empty or can never fit, its id is in use, or the
    /// queue is full.
    pub fn submit(&mut self, now: Duration, request: EngineRequest) -> Result<(), RejectedError> {
        self.refuse_impossible(&request, 0)?;
        self.queue(Sequence::new(request, now));
        Ok(())
    }

    /// Queues requests that are parts of one, such as several answers to a prompt: all of them, or
    /// none. Equal full blocks are computed once, even when the requests meet in the same step, as
    /// in vLLM; each request computes the tokens of its own partial block. The ids must differ.
    ///
    /// # Errors
    /// Returns [`RejectedError`] if one of the requests is empty or can never fit, an id is in use, or
    /// the queue has no room for all.
    pub fn submit_together(
        &mut self,
        now: Duration,
        requests: Vec<EngineRequest>,
    ) -> Result<(), RejectedError> {
        for (before, request) in (0..).zip(&requests) {
            self.refuse_impossible(request, before)?;
        }
        for request in requests {
            self.queue(Sequence { shares_at_once: true, ..Sequence::new(request, now) });
        }
        Ok(())
    }

    /// Returns the virtual time when [`Self::step`] must be called next; `None` while there is
    /// nothing to do.
    ///
    /// The answer changes only after `submit`, `step`, `abort` and `restart`. It lies in the past
    /// if the driver is late: each call of `step` then makes up one missed step, at the time when
    /// that step was due.
    #[must_use]
    pub fn next_step_at(&self) -> Option<Duration> {
        match self.phase {
            Phase::Stepping { ends_at, .. } => Some(ends_at),
            Phase::Idle { since } => {
                self.batch.waiting.front().map(|head| head.submitted_at.max(since))
            }
        }
    }

    /// Ends the step under way if it is due at `now`, and begins the next one if there is work. A
    /// call before [`Self::next_step_at`] does nothing.
    #[must_use = "events are reported once"]
    pub fn step(&mut self, now: Duration) -> StepReport {
        let mut report = StepReport::default();
        let Some(at) = self.next_step_at().filter(|at| *at <= now) else { return report };
        if let Phase::Stepping { began_at, ends_at } = self.phase {
            self.end_step(&mut report.events);
            self.reported = Stats { waiting: self.waiting_until(began_at), ..self.stats() };
            report.ended_at = Some(ends_at);
            self.phase = Phase::Idle { since: ends_at };
        }
        // Requests that arrived between the end of the step and `now` are not in this one.
        let late = self.batch.waiting.front().is_none_or(|head| head.submitted_at > at);
        if !(self.batch.running.is_empty() && late) {
            report.started = Some(self.begin_step(at, &mut report.events));
        }
        report
    }

    /// Takes a request out at once and frees its blocks; full blocks stay in the cache. Returns
    /// true if the request was live; no event will follow for it. A step under way still takes its
    /// full time.
    pub fn abort(&mut self, id: RequestId) -> bool {
        self.ids.remove(&id) && self.batch.remove(id)
    }

    /// Loses the cache, the counters and all live requests, like a process that crashed at `now`.
    /// Returns the ids of the lost requests.
    pub fn restart(&mut self, now: Duration) -> Vec<RequestId> {
        let lost = std::mem::take(&mut self.ids);
        let keeps_changes = self.batch.pool.changes.is_kept;
        *self = Self { phase: Phase::Idle { since: now }, ..Self::new(self.config) };
        self.batch.pool.changes.is_kept = keeps_changes;
        lost.into_iter().collect()
    }

    /// Drops every cached block that no running request pins. Returns the number of dropped blocks.
    pub fn flush_cache(&mut self) -> u32 {
        self.batch.pool.flush()
    }

    /// Begins to keep changes of the cache for [`Self::take_changes`], which must be called after
    /// each step from now on.
    pub fn keep_changes(&mut self) {
        self.batch.pool.changes.is_kept = true;
    }

    /// Returns the changes of the cache since the last call, in their order. A restart drops
    /// changes that were not taken.
    pub fn take_changes(&mut self) -> Vec<CacheChange> {
        self.batch.pool.changes.take()
    }

    /// Returns the number of leading blocks of a request with these content hashes that are in the
    /// cache now. Changes nothing, not even the order in which blocks are evicted.
    #[must_use]
    pub fn cached_blocks(&self, hashes: &[u64]) -> usize {
        self.batch.pool.longest_prefix(hashes, hashes.len()).len()
    }

    /// Returns the state and the counters at this moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let pool = &self.batch.pool;
        Stats {
            running: u32::try_from(self.batch.running.len()).unwrap_or(u32::MAX),
            waiting: self.waiting(),
            kv_blocks_used: pool.total() - pool.available(),
            kv_blocks_cached: pool.unpinned(),
            kv_blocks_total: pool.total(),
            prefix_cache_queries_tokens: self.totals.prefix_queries_tokens,
            prefix_cache_hits_tokens: self.totals.prefix_hits_tokens,
            preemptions: self.totals.preemptions,
            prompt_tokens: self.totals.prompt_tokens,
            generation_tokens: self.totals.generation_tokens,
            steps: self.totals.steps,
        }
    }

    /// Returns the figures that the engine's metrics show at this moment: the state at the end of
    /// the last step.
    ///
    /// Requests that arrive during a step are read from the input queue before the next one, so they
    /// count neither as waiting nor as running until the end of the first step after they came.
    /// Requests that are aborted count until the end of the step under way. vLLM counts like this
    /// (`make_stats` in its v1 scheduler), and so does SGLang; docs/reference/emulator.md has the
    /// measurement.
    #[must_use]
    pub fn reported(&self) -> Stats {
        self.reported
    }

    /// Returns the number of waiting requests that came until `moment`.
    fn waiting_until(&self, moment: Duration) -> u32 {
        let known = self.batch.waiting.iter().filter(|sequence| sequence.submitted_at <= moment);
        u32::try_from(known.count()).unwrap_or(u32::MAX)
    }

    fn waiting(&self) -> u32 {
        u32::try_from(self.batch.waiting.len()).unwrap_or(u32::MAX)
    }

    fn queue(&mut self, sequence: Sequence) {
        self.ids.insert(sequence.id);
        self.batch.waiting.push_back(sequence);
    }

    /// Returns an error if `request` can't be accepted when `before` others are queued ahead of it.
    fn refuse_impossible(&self, request: &EngineRequest, before: u32) -> Result<(), RejectedError> {
        let tokens = u64::from(request.prompt_tokens) + u64::from(request.output_tokens);
        let cache_tokens =
            u64::from(self.config.kv_blocks.get()) * u64::from(self.config.block_tokens.get());
        let tokens_max = cache_tokens.min(u64::from(self.config.context_tokens_max));
        if request.prompt_tokens == 0 {
            return Err(RejectedError::Empty);
        }
        if tokens > tokens_max {
            return Err(RejectedError::TooLong { tokens, tokens_max });
        }
        if self.ids.contains(&request.id) {
            return Err(RejectedError::DuplicateId(request.id));
        }
        if self.waiting().saturating_add(before) >= self.config.waiting_max {
            return Err(RejectedError::QueueFull { waiting: self.waiting() });
        }
        Ok(())
    }

    fn begin_step(&mut self, at: Duration, events: &mut Vec<EngineEvent>) -> StepStart {
        let schedule = self.batch.schedule(at, &self.config);
        self.totals.steps += 1;
        self.totals.prefix_queries_tokens += schedule.queried_tokens;
        self.totals.prefix_hits_tokens += schedule.hit_tokens;
        self.totals.preemptions += schedule.preempted.len() as u64;
        events.extend(schedule.preempted.into_iter().map(|id| EngineEvent::Preempted { id }));
        let duration = self.config.cost.duration(
            schedule.prefill_tokens,
            schedule.sequences,
            schedule.kv_tokens,
        );
        self.phase = Phase::Stepping { began_at: at, ends_at: at + duration };
        let (prefill_tokens, sequences) = (schedule.prefill_tokens, schedule.sequences);
        StepStart { at, duration, prefill_tokens, sequences }
    }

    fn end_step(&mut self, events: &mut Vec<EngineEvent>) {
        let running = std::mem::take(&mut self.batch.running);
        for mut sequence in running {
            self.keep_computed(&mut sequence);
            if sequence.missing_tokens() == 0 {
                self.generate(&mut sequence, events);
            }
            // A request without output is complete after prefill.
            if sequence.computed_tokens >= sequence.prompt_tokens && sequence.is_complete() {
                self.batch.pool.release(&sequence.blocks);
                self.ids.remove(&sequence.id);
                let cached_tokens = sequence.cached_tokens.unwrap_or(0);
                events.push(EngineEvent::Finished { id: sequence.id, cached_tokens });
            } else {
                self.batch.running.push(sequence);
            }
        }
    }

    /// Counts the tokens that the step computed, and files the blocks that are full now.
    fn keep_computed(&mut self, sequence: &mut Sequence) {
        file_scheduled(&mut self.batch.pool, sequence, &self.config);
        sequence.computed_tokens += std::mem::take(&mut sequence.scheduled_tokens);
    }

    fn generate(&mut self, sequence: &mut Sequence, events: &mut Vec<EngineEvent>) {
        let id = sequence.id;
        if sequence.generated_tokens == 0 {
            self.totals.prompt_tokens += u64::from(sequence.prompt_tokens);
        }
        if sequence.output_tokens == 0 {
            return;
        }
        sequence.generated_tokens += 1;
        self.totals.generation_tokens += 1;
        events.push(if sequence.generated_tokens == 1 {
            EngineEvent::FirstToken { id, cached_tokens: sequence.cached_tokens.unwrap_or(0) }
        } else {
            EngineEvent::Token { id }
        });
    }
}

#[cfg(test)]
#[path = "engine_property_test.rs"]
mod engine_property_test;
#[cfg(test)]
#[path = "engine_reported_test.rs"]
mod engine_reported_test;
#[cfg(test)]
#[path = "engine_test.rs"]
mod engine_test;
#[cfg(test)]
#[path = "engine_together_test.rs"]
mod engine_together_test;
#[cfg(test)]
#[path = "figures_test.rs"]
mod figures_test;
