//! Real-time driver of one engine: requests go in, tokens come out one by one.
//!
//! The engine is protected by a mutex that is held for microseconds. Callers submit and abort
//! requests themselves, so a request whose client has disconnected leaves the engine at once, and
//! its `Drop` waits for nothing. One task per replica makes the engine's steps and sleeps in
//! between.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use spillway_engine::{
    Engine, EngineConfig, EngineEvent, EngineRequest, RejectedError, RequestId, Stats,
};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::answer::Finish;
use crate::clock::Clock;
use crate::kv_events::KvPublisher;
use crate::metrics::Metrics;

/// Largest number of steps made at once when the driver is late, before other tasks get their turn.
const STEPS_AT_ONCE: usize = 64;

/// Engine with the requests that wait for its tokens.
#[derive(Debug)]
pub(crate) struct Driver {
    core: Mutex<Core>,
    /// Wakes the task when the next step may be earlier than the task expects.
    wake: Notify,
    time_scale: f64,
    models: Vec<String>,
}

#[derive(Debug)]
struct Core {
    engine: Engine,
    clock: Clock,
    live: BTreeMap<RequestId, LiveGeneration>,
    /// Last id given out. Never reset, so that a request from before a crash cannot abort a later
    /// one.
    last_id: u64,
    metrics: Arc<Metrics>,
    /// Publisher of the blocks that the cache stores and evicts; `None` if no subscriber is
    /// possible.
    publisher: Option<KvPublisher>,
}

#[derive(Debug)]
struct LiveGeneration {
    progress: mpsc::Sender<DriverProgress>,
    finish: Finish,
    submitted: Instant,
    last_token: Option<Instant>,
    /// Cached tokens of the prompt, shared with the request's [`Generation`].
    cached_tokens: Arc<AtomicU32>,
    /// Id by which KV events name the request.
    session: Option<String>,
}

/// Progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriverProgress {
    /// The next token is ready.
    Token,
    /// The request is complete; `cached_tokens` of its prompt were cached.
    Finished { cached_tokens: u32 },
    /// The request was cancelled; nothing follows.
    Cancelled,
}

/// Work for the engine: one prompt and the answer to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriverJob<'a> {
    pub(crate) prompt: &'a [u32],
    pub(crate) output: &'a [u32],
    pub(crate) finish: Finish,
    /// Salt that separates cache entries; 0 shares them with all requests without a salt.
    pub(crate) salt: u64,
    /// Id by which KV events name the request; `None` if it gave none.
    pub(crate) session: Option<&'a str>,
}

impl Driver {
    pub(crate) fn new(config: EngineConfig, time_scale: f64, models: Vec<String>) -> Self {
        let core = Core {
            engine: Engine::new(config),
            clock: Clock::new(Instant::now(), time_scale),
            live: BTreeMap::new(),
            last_id: 0,
            metrics: Arc::new(Metrics::new(&models, &config)),
            publisher: None,
        };
        Self { core: Mutex::new(core), wake: Notify::new(), time_scale, models }
    }

    /// Publishes the blocks that the cache stores and evicts from now on.
    pub(crate) fn publish_to(&self, publisher: KvPublisher) {
        let mut core = self.core();
        core.engine.keep_changes();
        core.publisher = Some(publisher);
    }

    /// Makes the engine's steps until `stop` is cancelled.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let next = self.advance(Instant::now());
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.wake.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Submits a request to the engine. Dropping the result before its end aborts the request.
    ///
    /// # Errors
    /// Returns an error if the engine rejects the request.
    pub(crate) fn submit(
        self: &Arc<Self>,
        job: DriverJob<'_>,
    ) -> Result<Generation, RejectedError> {
        let mut core = self.core();
        let now = Instant::now();
        let request = core.request(0, job);
        let at = core.clock.virtual_at(now);
        core.engine.submit(at, request)?;
        let generation = self.follow(&mut core, job, now);
        drop(core);
        self.wake.notify_one();
        Ok(generation)
    }

    /// Submits the parts of one request to the engine: all of them or none. The common prefix of
    /// their prompts is computed once.
    ///
    /// # Errors
    /// Returns an error if the engine rejects a part.
    pub(crate) fn submit_together(
        self: &Arc<Self>,
        jobs: &[DriverJob<'_>],
    ) -> Result<Vec<Generation>, RejectedError> {
        if let [job] = jobs {
            return self.submit(*job).map(|generation| vec![generation]);
        }
        let mut core = self.core();
        let now = Instant::now();
        let requests = (0..).zip(jobs).map(|(at, job)| core.request(at, *job)).collect();
        let at = core.clock.virtual_at(now);
        core.engine.submit_together(at, requests)?;
        let generations = jobs.iter().map(|job| self.follow(&mut core, *job, now)).collect();
        drop(core);
        self.wake.notify_one();
        Ok(generations)
    }

    /// Registers the request that was submitted next, and returns its progress.
    fn follow(
        self: &Arc<Self>,
        core: &mut Core,
        job: DriverJob<'_>,
        submitted: Instant,
    ) -> Generation {
        // Room for every token and the end, so that the engine never waits for a slow reader.
        let (progress, receiver) = mpsc::channel(job.output.len() + 1);
        core.last_id += 1;
        let id = RequestId(core.last_id);
        let (finish, session) = (job.finish, job.session.map(str::to_owned));
        let cached_tokens = Arc::default();
        let live = LiveGeneration {
            progress,
            finish,
            submitted,
            last_token: None,
            cached_tokens: Arc::clone(&cached_tokens),
            session,
        };
        core.live.insert(id, live);
        Generation { id, driver: Some(Arc::clone(self)), receiver, cached_tokens, ended: false }
    }

    /// Makes every step `factor` times slower than in the profile from now on.
    pub(crate) fn slow_down(&self, factor: f64) {
        self.core().clock.set_scale(Instant::now(), self.time_scale * factor);
        self.wake.notify_one();
    }

    /// Drops all requests and caches, like a process that crashed.
    pub(crate) fn restart(&self) {
        let mut core = self.core();
        let now = core.clock.virtual_at(Instant::now());
        core.engine.restart(now);
        if let Some(publisher) = &core.publisher {
            publisher.restart();
        }
        core.metrics = Arc::new(Metrics::new(&self.models, core.engine.config()));
        // Dropping the senders shows the requests that they are lost.
        core.live.clear();
    }

    pub(crate) fn stats(&self) -> Stats {
        self.core().engine.stats()
    }

    pub(crate) fn config(&self) -> EngineConfig {
        *self.core().engine.config()
    }

    /// Returns the metrics page.
    pub(crate) fn render_metrics(&self) -> String {
        let core = self.core();
        let (metrics, stats) = (Arc::clone(&core.metrics), core.engine.reported());
        drop(core);
        metrics.render(stats)
    }

    /// Makes all steps that are due. Returns the time of the next one; `None` if the engine is
    /// idle.
    fn advance(&self, now: Instant) -> Option<Instant> {
        let mut core = self.core();
        let shown = core.clock.virtual_at(now);
        for _ in 0..STEPS_AT_ONCE {
            match core.engine.next_step_at() {
                Some(at) if at <= shown => core.step(shown, now),
                later => return later.map(|at| core.clock.real_at(at)),
            }
        }
        // Still late: other tasks get their turn, then this one goes on at once.
        Some(now)
    }

    fn abort(&self, id: RequestId) {
        let mut core = self.core();
        // Requests that have ended, or that a crash took, are no longer here.
        if core.live.remove(&id).is_some() {
            core.engine.abort(id);
            core.metrics.count_request("abort");
        }
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        // A panic while the lock is held would be a bug of the engine; other requests may go on.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    /// Returns the request of a job that is submitted after `before` others.
    fn request(&self, before: u64, job: DriverJob<'_>) -> EngineRequest {
        let id = RequestId(self.last_id + 1 + before);
        let block_tokens = self.engine.config().block_tokens;
        let mut request = EngineRequest::from_tokens(id, job.prompt, job.output, block_tokens);
        // Equal prompts with different salts get different blocks.
        request.blocks.iter_mut().for_each(|block| *block ^= job.salt);
        request
    }

    fn step(&mut self, shown: Duration, now: Instant) {
        let report = self.engine.step(shown);
        if let Some(publisher) = &self.publisher {
            let session_of = |id| self.live.get(&id).and_then(|live| live.session.as_deref());
            let block_tokens = self.engine.config().block_tokens.get();
            publisher.publish(&self.engine.take_changes(), block_tokens, session_of);
        }
        for event in report.events {
            match event {
                EngineEvent::FirstToken { id, cached_tokens } => {
                    if let Some(live) = self.live.get(&id) {
                        live.cached_tokens.store(cached_tokens, Ordering::Relaxed);
                    }
                    self.deliver_token(id, now);
                }
                EngineEvent::Token { id } => self.deliver_token(id, now),
                EngineEvent::Finished { id, cached_tokens } => {
                    self.deliver_end(id, cached_tokens, now);
                }
                // The request waits and goes on; its client notices only the delay.
                EngineEvent::Preempted { .. } => {}
            }
        }
    }

    fn deliver_token(&mut self, id: RequestId, now: Instant) {
        let Some(live) = self.live.get_mut(&id) else { return };
        match live.last_token.replace(now) {
            Some(before) => self.metrics.observe_token(now - before),
            None => self.metrics.observe_first_token(now - live.submitted),
        }
        // Fails only if the reader is gone; its `Drop` aborts the request.
        live.progress.try_send(DriverProgress::Token).unwrap_or_default();
    }

    fn deliver_end(&mut self, id: RequestId, cached_tokens: u32, now: Instant) {
        let Some(live) = self.live.remove(&id) else { return };
        self.metrics.count_request(live.finish.as_str());
        self.metrics.observe_request(now - live.submitted);
        live.progress.try_send(DriverProgress::Finished { cached_tokens }).unwrap_or_default();
    }
}

/// Progress of one request in the engine.
#[derive(Debug)]
pub(crate) struct Generation {
    id: RequestId,
    /// Driver that aborts the request on drop; `None` for a listener, whose drop aborts nothing.
    driver: Option<Arc<Driver>>,
    receiver: mpsc::Receiver<DriverProgress>,
    cached_tokens: Arc<AtomicU32>,
    ended: bool,
}

/// Error: the engine lost the request, since the replica crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine lost the request")]
pub(crate) struct Lost;

impl Generation {
    /// Creates a listener to the progress of request `id`. Dropping it aborts nothing.
    pub(crate) fn told(id: RequestId, receiver: mpsc::Receiver<DriverProgress>) -> Self {
        Self { id, driver: None, receiver, cached_tokens: Arc::default(), ended: false }
    }

    /// Returns the number of cached prompt tokens, which is known once the first token exists.
    pub(crate) fn cached_tokens(&self) -> u32 {
        // The channel of the tokens orders the store before this load.
        self.cached_tokens.load(Ordering::Relaxed)
    }

    pub(crate) fn id(&self) -> RequestId {
        self.id
    }

    /// Polls for the next progress. Must not be called again after the end.
    ///
    /// # Errors
    /// Returns [`Lost`] if the replica crashed.
    pub(crate) fn poll_progress(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<DriverProgress, Lost>> {
        let progress = std::task::ready!(self.receiver.poll_recv(cx));
        // Also without any progress: a request that a crash took need not be aborted.
        self.ended = !matches!(progress, Some(DriverProgress::Token));
        Poll::Ready(progress.ok_or(Lost))
    }

    /// Waits for the next progress. Must not be called again after the end.
    ///
    /// # Errors
    /// Returns [`Lost`] if the replica crashed.
    pub(crate) async fn progress(&mut self) -> Result<DriverProgress, Lost> {
        std::future::poll_fn(|cx| self.poll_progress(cx)).await
    }

    /// Waits for the end and returns the number of cached prompt tokens.
    ///
    /// # Errors
    /// Returns [`Lost`] if the replica crashed or the request was cancelled.
    pub(crate) async fn finished(mut self) -> Result<u32, Lost> {
        loop {
            match self.progress().await? {
                DriverProgress::Token => {}
                DriverProgress::Finished { cached_tokens } => return Ok(cached_tokens),
                DriverProgress::Cancelled => return Err(Lost),
            }
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        // Dropped before its end: the client has disconnected.
        if let Some(driver) = self.driver.as_ref().filter(|_| !self.ended) {
            driver.abort(self.id);
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "driver_test.rs"]
mod driver_test;
