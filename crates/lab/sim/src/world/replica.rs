//! Model server in the world.

use std::collections::BTreeMap;
use std::time::Duration;

use spillway_engine::{
    CacheChange, Engine, EngineConfig, EngineRequest, RejectedError, RequestId, StepCost,
    StepReport,
};
use spillway_prefix::kv::kv_session_id;
use spillway_types::{BlockHashes, KvEvent, Reading, Signals, StoredBlocks};

use crate::Time;
use crate::text::{ENGINE_BLOCK_TOKENS, ENGINE_BLOCKS_PER_BLOCK};

/// Engine with its work so far.
#[derive(Debug)]
pub(super) struct SimReplica {
    engine: Engine,
    base: Duration,
    cost: StepCost,
    /// Prompts of the requests that are there, by their numbers.
    chains: BTreeMap<usize, BlockHashes>,
    /// True if the engine publishes KV events.
    publishes: bool,
    /// KV events of the last steps that were not taken yet.
    events: Vec<KvEvent>,
    /// Duration of the counted steps without the reading of weights.
    pub(super) work: Duration,
    /// Moment of the next step on the world's agenda; `None` if there is none.
    pub(super) due: Option<Time>,
}

impl SimReplica {
    /// Returns an idle replica whose steps take `slowness` times as long as the config sets.
    pub(super) fn new(mut config: EngineConfig, slowness: f64) -> Self {
        let slower = |ns: u64| (ns as f64 * slowness) as u64;
        config.cost.base_ns = slower(config.cost.base_ns);
        config.cost.prefill_token_ns = slower(config.cost.prefill_token_ns);
        config.cost.sequence_ns = slower(config.cost.sequence_ns);
        config.cost.kv_token_ns = slower(config.cost.kv_token_ns);
        Self {
            engine: Engine::new(config),
            cost: config.cost,
            base: Duration::from_nanos(config.cost.base_ns),
            chains: BTreeMap::new(),
            publishes: false,
            events: Vec::new(),
            work: Duration::ZERO,
            due: None,
        }
    }

    /// Hands over a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine does not take the request.
    pub(super) fn submit(
        &mut self,
        now: Time,
        request: EngineRequest,
        chain: BlockHashes,
    ) -> Result<(), RejectedError> {
        let RequestId(id) = request.id;
        self.engine.submit(now.since_start(), request)?;
        self.chains.insert(usize::try_from(id).unwrap_or(usize::MAX), chain);
        Ok(())
    }

    /// Returns when [`SimReplica::step`] has to be called next; `None` if there is nothing to do.
    pub(super) fn next_step(&self) -> Option<Time> {
        self.engine.next_step_at().map(Time::from)
    }

    /// Ends the present step and begins the next one. `counts` is true if the time counts.
    pub(super) fn step(&mut self, now: Time, counts: bool) -> StepReport {
        let report = self.engine.step(now.since_start());
        if self.publishes {
            self.note_changes();
        }
        if let Some(started) = report.started.filter(|_| counts) {
            // The base is the reading of weights, which all running requests share.
            self.work += started.duration.saturating_sub(self.base);
        }
        report
    }

    /// Forgets a request that has ended or was given up.
    pub(super) fn forget(&mut self, ask: usize) {
        self.chains.remove(&ask);
    }

    /// Removes a request.
    pub(super) fn abort(&mut self, ask: usize) {
        self.engine.abort(RequestId(ask as u64));
        self.forget(ask);
    }

    /// Empties the engine and its cache.
    pub(super) fn restart(&mut self, config: EngineConfig) {
        self.engine = Engine::new(EngineConfig { cost: self.cost, ..config });
        self.chains.clear();
        self.events.clear();
        if self.publishes {
            self.engine.keep_changes();
        }
    }

    /// Has the engine publish KV events from now on.
    pub(super) fn publish_kv_events(&mut self) {
        self.publishes = true;
        self.engine.keep_changes();
    }

    /// Returns the KV events since the last call.
    pub(super) fn take_kv_events(&mut self) -> Vec<KvEvent> {
        std::mem::take(&mut self.events)
    }

    /// Turns changes of the cache into KV events. Consecutive blocks that one request stored are
    /// one event, as in vLLM.
    fn note_changes(&mut self) {
        let mut last_request = None;
        for change in self.engine.take_changes() {
            let (request, block, parent) = match change {
                CacheChange::Stored { request, block, parent } => (Some(request), block, parent),
                CacheChange::Removed { block } => (None, block, None),
            };
            let is_same = last_request == Some(request);
            last_request = Some(request);
            match (request, self.events.last_mut().filter(|_| is_same)) {
                (None, Some(KvEvent::Removed { hashes, .. })) => hashes.push(block),
                (None, _) => {
                    self.events.push(KvEvent::Removed { hashes: vec![block], group: None });
                }
                (Some(_), Some(KvEvent::Stored(last)))
                    if parent.is_some() && parent == last.hashes.last().copied() =>
                {
                    last.hashes.push(block);
                }
                (Some(request), _) => self.events.push(KvEvent::Stored(StoredBlocks {
                    hashes: vec![block],
                    parent,
                    block_tokens: ENGINE_BLOCK_TOKENS,
                    session: self.session_of(request),
                    group: None,
                })),
            }
        }
    }

    /// Returns the id that a request has in KV events.
    fn session_of(&self, RequestId(request): RequestId) -> Option<String> {
        let chain = self.chains.get(&usize::try_from(request).ok()?)?;
        kv_session_id(chain.as_slice())
    }

    /// Returns the number of requests that are there.
    pub(super) fn requests(&self) -> u32 {
        u32::try_from(self.chains.len()).unwrap_or(u32::MAX)
    }

    /// Returns the present report. `in_flight` is the number of requests that the asking node knows
    /// of, `started` the number that it ever sent.
    pub(super) fn signals(&self, in_flight: u32, started: u64) -> Signals {
        let stats = self.engine.reported();
        let fresh = |value: f32| Reading { value, trust: 1.0 };
        Signals {
            queued: fresh(stats.waiting as f32),
            running: fresh(stats.running as f32),
            kv_use: fresh(stats.kv_blocks_used as f32 / stats.kv_blocks_total.max(1) as f32),
            in_flight_at_report: in_flight,
            started_at: started,
            ..Signals::UNKNOWN
        }
    }

    /// Returns the leading blocks of a prompt, in blocks of the router, that are in the cache or
    /// will be once all requests sent have begun.
    pub(super) fn cached_blocks(&self, engine_chain: &[u64], chain: &[u64]) -> u32 {
        let filed = self.engine.cached_blocks(engine_chain) / ENGINE_BLOCKS_PER_BLOCK;
        let shared = |other: &BlockHashes| {
            other.as_slice().iter().zip(chain).take_while(|(a, b)| a == b).count()
        };
        // Prompts that were sent before will be read, and so cached, first.
        let coming = self.chains.values().map(shared).max().unwrap_or(0);
        u32::try_from(filed.max(coming).min(chain.len())).unwrap_or(u32::MAX)
    }
}
