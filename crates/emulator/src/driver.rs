//! Runs one engine in real time: requests in, token by token out.
//!
//! The engine sits behind a mutex that is held for microseconds. Submitting and aborting happen
//! on the caller's side, so that a request whose client is gone leaves the engine at once and its
//! `Drop` has nothing to wait for; one task per replica makes the steps and sleeps in between.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use spillway_engine::{Engine, EngineConfig, Event, Rejected, Request, RequestId, Stats};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::answer::Finish;
use crate::clock::Clock;
use crate::metrics::Metrics;

/// Steps made up at once when the driver is late, before other tasks get their turn.
const STEPS_AT_ONCE: usize = 64;

/// One engine and the requests that wait for its tokens.
#[derive(Debug)]
pub(crate) struct Driver {
    core: Mutex<Core>,
    /// Wakes the task when the next step may be earlier than it thinks.
    wake: Notify,
    time_scale: f64,
    models: Vec<String>,
}

#[derive(Debug)]
struct Core {
    engine: Engine,
    clock: Clock,
    live: BTreeMap<RequestId, Live>,
    /// Never reset, so that a request of an earlier life can't abort one of this life.
    last_id: u64,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct Live {
    progress: mpsc::Sender<Progress>,
    finish: Finish,
    submitted: Instant,
    last_token: Option<Instant>,
}

/// What a request is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Its next token is there.
    Token,
    /// It is done; so many tokens of its prompt were cached.
    Finished { cached_tokens: u32 },
    /// It was called off; nothing more will come.
    Cancelled,
}

/// What the engine is to compute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) prompt: &'a [u32],
    pub(crate) output: &'a [u32],
    pub(crate) finish: Finish,
    /// Keeps its cache entries apart from those of other salts; 0 shares them with all that have none.
    pub(crate) salt: u64,
}

impl Driver {
    pub(crate) fn new(config: EngineConfig, time_scale: f64, models: Vec<String>) -> Self {
        let core = Core {
            engine: Engine::new(config),
            clock: Clock::new(Instant::now(), time_scale),
            live: BTreeMap::new(),
            last_id: 0,
            metrics: Arc::new(Metrics::new(&models, &config)),
        };
        Self { core: Mutex::new(core), wake: Notify::new(), time_scale, models }
    }

    /// Makes the engine's steps until `stop`.
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

    /// Hands a request to the engine. Dropping the result before its end aborts the request.
    pub(crate) fn submit(self: &Arc<Self>, job: Job<'_>) -> Result<Generation, Rejected> {
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

    /// Hands the parts of one request to the engine: all of them or none. What their prompts have
    /// in common is computed once.
    pub(crate) fn submit_together(
        self: &Arc<Self>,
        jobs: &[Job<'_>],
    ) -> Result<Vec<Generation>, Rejected> {
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

    /// Listens to the request that was submitted next.
    fn follow(self: &Arc<Self>, core: &mut Core, job: Job<'_>, submitted: Instant) -> Generation {
        // Room for every token and the end: the engine never waits for a slow reader.
        let (progress, receiver) = mpsc::channel(job.output.len() + 1);
        core.last_id += 1;
        let id = RequestId(core.last_id);
        let live = Live { progress, finish: job.finish, submitted, last_token: None };
        core.live.insert(id, live);
        Generation { id, driver: Some(Arc::clone(self)), receiver, ended: false }
    }

    /// Makes every step `factor` times slower than the profile from now on.
    pub(crate) fn slow_down(&self, factor: f64) {
        self.core().clock.set_scale(Instant::now(), self.time_scale * factor);
        self.wake.notify_one();
    }

    /// Loses everything, as a process that crashed does.
    pub(crate) fn restart(&self) {
        let mut core = self.core();
        let now = core.clock.virtual_at(Instant::now());
        core.engine.restart(now);
        core.metrics = Arc::new(Metrics::new(&self.models, core.engine.config()));
        // Dropping the senders tells the requests.
        core.live.clear();
    }

    pub(crate) fn stats(&self) -> Stats {
        self.core().engine.stats()
    }

    pub(crate) fn config(&self) -> EngineConfig {
        *self.core().engine.config()
    }

    /// The metrics page.
    pub(crate) fn render_metrics(&self) -> String {
        let core = self.core();
        let (metrics, stats) = (Arc::clone(&core.metrics), core.engine.stats());
        drop(core);
        metrics.render(stats)
    }

    /// Makes every step that is due, and says when the next one will be.
    fn advance(&self, now: Instant) -> Option<Instant> {
        let mut core = self.core();
        let shown = core.clock.virtual_at(now);
        for _ in 0..STEPS_AT_ONCE {
            match core.engine.next_step_at() {
                Some(at) if at <= shown => core.step(shown, now),
                later => return later.map(|at| core.clock.real_at(at)),
            }
        }
        Some(now)
    }

    fn abort(&self, id: RequestId) {
        let mut core = self.core();
        if core.live.remove(&id).is_some() {
            core.engine.abort(id);
            core.metrics.count_request("abort");
        }
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        // A panic inside the engine would be a bug there; the other requests may go on.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    /// The request that is submitted after `before` others.
    fn request(&self, before: u64, job: Job<'_>) -> Request {
        let id = RequestId(self.last_id + 1 + before);
        let block_tokens = self.engine.config().block_tokens;
        let mut request = Request::from_tokens(id, job.prompt, job.output, block_tokens);
        request.blocks.iter_mut().for_each(|block| *block ^= job.salt);
        request
    }

    fn step(&mut self, shown: Duration, now: Instant) {
        for event in self.engine.step(shown).events {
            match event {
                Event::FirstToken { id, .. } | Event::Token { id } => self.deliver_token(id, now),
                Event::Finished { id, cached_tokens } => self.deliver_end(id, cached_tokens, now),
                Event::Preempted { .. } => {}
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
        live.progress.try_send(Progress::Token).unwrap_or_default();
    }

    fn deliver_end(&mut self, id: RequestId, cached_tokens: u32, now: Instant) {
        let Some(live) = self.live.remove(&id) else { return };
        self.metrics.count_request(live.finish.as_str());
        self.metrics.observe_request(now - live.submitted);
        live.progress.try_send(Progress::Finished { cached_tokens }).unwrap_or_default();
    }
}

/// The engine's side of one request.
#[derive(Debug)]
pub(crate) struct Generation {
    id: RequestId,
    /// What to abort it with; `None` for those who only listen to it.
    driver: Option<Arc<Driver>>,
    receiver: mpsc::Receiver<Progress>,
    ended: bool,
}

/// The engine lost the request: the replica crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine lost the request")]
pub(crate) struct Lost;

impl Generation {
    /// What somebody else tells of request `id`. Dropping it aborts nothing.
    pub(crate) fn told(id: RequestId, receiver: mpsc::Receiver<Progress>) -> Self {
        Self { id, driver: None, receiver, ended: false }
    }

    pub(crate) fn id(&self) -> RequestId {
        self.id
    }

    /// What happens next. Not to be called again after the end.
    pub(crate) fn poll_progress(&mut self, cx: &mut Context<'_>) -> Poll<Result<Progress, Lost>> {
        let progress = std::task::ready!(self.receiver.poll_recv(cx));
        self.ended = !matches!(progress, Some(Progress::Token));
        Poll::Ready(progress.ok_or(Lost))
    }

    /// Waits for the end and returns how many prompt tokens were cached.
    pub(crate) async fn finished(mut self) -> Result<u32, Lost> {
        loop {
            match std::future::poll_fn(|cx| self.poll_progress(cx)).await? {
                Progress::Token => {}
                Progress::Finished { cached_tokens } => return Ok(cached_tokens),
                Progress::Cancelled => return Err(Lost),
            }
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
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
