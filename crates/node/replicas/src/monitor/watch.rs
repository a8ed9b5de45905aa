//! Loops of one monitor, side by side in one task.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use spillway_types::ReplicaName;
use tokio::time::{Instant, sleep};

use super::wakers::{Due, Wakers};
use crate::fact::{Fact, FactHold, FactKind, FactSender};
use crate::health_check::{
    ActiveCheck, CheckKind, CheckResult, DeepCheck, NoticeCheck, notice, pause,
};
use crate::http::HttpClient;
use crate::http::RequestError;
use crate::identity::{EngineReading, IdentityCheck, ModelsReading, REST};
use crate::pause::rng;
use crate::scrape::{Scrape, ScrapePace, Scraped, Scraper};
use crate::target::ReplicaTarget;

/// Longest pause before the first check of a replica, drawn at random for each loop, so that a
/// start with many replicas is no burst.
const FIRST_PAUSE_MAX: Duration = Duration::from_millis(200);

/// State that the loops of one replica share.
#[derive(Debug)]
pub(super) struct ReplicaWatch {
    target: Arc<ReplicaTarget>,
    facts: FactSender,
    seed: u64,
    gpu_memory_use: GpuMemoryUse,
    wakers: Arc<Wakers>,
}

/// Loop that ends only when it is dropped.
type Loop<'a> = Pin<Box<dyn Future<Output = Infallible> + Send + 'a>>;

impl ReplicaWatch {
    pub(super) fn new(
        target: Arc<ReplicaTarget>,
        facts: FactSender,
        seed: u64,
        wakers: Arc<Wakers>,
    ) -> Self {
        Self { target, facts, seed, gpu_memory_use: GpuMemoryUse::default(), wakers }
    }

    /// Runs all loops. Never ends by itself.
    pub(super) async fn run(self) {
        let target = Arc::clone(&self.target);
        let mut loops: Vec<Loop<'_>> = Vec::new();
        if let Some(check) = &target.active {
            loops.push(Box::pin(self.check_active(check)));
        }
        if let Some(check) = &target.deep {
            loops.push(Box::pin(self.check_deep(check)));
        }
        if let Some(check) = &target.notice {
            loops.push(Box::pin(self.check_notice(check)));
        }
        if let Some(check) = &target.identity {
            loops.push(Box::pin(self.identify(check)));
        }
        for (page, scrape) in target.scrapes.iter().enumerate() {
            loops.push(Box::pin(self.scrape(page, scrape)));
        }
        // Each wake-up polls all loops, which are few.
        std::future::poll_fn(|context| {
            for each in &mut loops {
                let _: Poll<Infallible> = each.as_mut().poll(context);
            }
            Poll::<()>::Pending
        })
        .await;
    }

    async fn check_active(&self, check: &ActiveCheck) -> Infallible {
        let mut rng = self.begin("active").await;
        let api = self.target.server();
        loop {
            let started = Instant::now();
            let result = check.run(&api, self.target.first_model()).await;
            self.tell_check(CheckKind::Active, result, started);
            sleep(pause(check.interval, &mut rng)).await;
        }
    }

    async fn check_deep(&self, check: &DeepCheck) -> Infallible {
        let mut rng = self.begin("deep").await;
        let api = self.target.server();
        loop {
            let started = Instant::now();
            let result = check.run(&api, || self.gpu_memory_use.read()).await;
            self.tell_check(CheckKind::Deep, result, started);
            sleep(pause(check.interval, &mut rng)).await;
        }
    }

    async fn check_notice(&self, check: &NoticeCheck) -> Infallible {
        let mut rng = self.begin("notice").await;
        let mut was_given = false;
        loop {
            match notice(check, &self.target.resolver).await {
                Ok(is_given) => {
                    if is_given {
                        self.tell(FactKind::Notice);
                    } else if was_given {
                        self.tell(FactKind::NoticeWithdrawn);
                    }
                    was_given = is_given;
                }
                // A failed request changes nothing.
                Err(failure) => {
                    tracing::debug!(replica = %self.target.replica, %failure, "notices can't be read");
                }
            }
            sleep(pause(check.interval, &mut rng)).await;
        }
    }

    /// Checks the identity of the replica: its software, if the config does not name it, and its
    /// models. A replica that did not answer may have been restarted as something else.
    async fn identify(&self, check: &IdentityCheck) -> Infallible {
        let mut rng = self.begin("identity").await;
        let api = self.target.server();
        let mut client = HttpClient::new(api.clone());
        let mut engine = None;
        // Stays `None` if the config names the software: then nothing has to be recognised.
        let mut look_at = check.kind.is_none().then(Instant::now);
        loop {
            if look_at.is_some_and(|at| at <= Instant::now()) {
                let reading = check.recognise(&api, engine).await;
                // Without an answer, the replica is examined again after the next reading of its
                // models.
                if reading != EngineReading::NoAnswer {
                    engine = reading.engine();
                    look_at = Some(Instant::now() + REST);
                    self.tell(FactKind::Engine(engine));
                }
            }
            let kind = check.kind.or_else(|| engine.map(|engine| engine.kind));
            let started = Instant::now();
            let reading = check.read_models(kind, &mut client).await;
            let rest = check.pause(&reading, started.elapsed());
            match reading {
                ModelsReading::Page(page) => match FactHold::of(page.bytes()) {
                    Some(hold) => self.tell_held(FactKind::Models(Some(Arc::new(page))), hold),
                    // The pages of others are still to be taken in.
                    None => self.tell(FactKind::ModelsUnread),
                },
                ModelsReading::NoPage => self.tell(FactKind::Models(None)),
                ModelsReading::Denied(status) => self.tell(FactKind::ModelsDenied(status)),
                ModelsReading::NoAnswer => {
                    look_at = look_at.map(|_| Instant::now());
                    self.tell(FactKind::ModelsUnread);
                }
            }
            if self.wakers.rest(pause(rest, &mut rng)).await == Due::All {
                // The server may have been restarted elsewhere.
                client = HttpClient::new(api.clone());
                look_at = look_at.map(|_| Instant::now());
            }
        }
    }

    async fn scrape(&self, page: usize, scrape: &Scrape) -> Infallible {
        self.begin("scrape").await;
        let pace = ScrapePace::new(scrape.period);
        let mut scraper = Scraper::new(scrape, &self.target.server());
        loop {
            let outcome = scraper.scrape().await;
            // A page without this number must not erase that of another page.
            if scrape.mapping.gpu_memory_use.is_some() {
                let used = outcome.as_ref().ok().and_then(|scraped| scraped.report.gpu_memory_use);
                self.gpu_memory_use.set(used);
            }
            let rest = match outcome {
                Ok(scraped) => {
                    let Scraped { report, cache, adapters, took } = scraped;
                    self.tell(FactKind::Report { page, report, cache, adapters, took });
                    pace.pause(took)
                }
                Err(RequestError::Shortage) => {
                    say_shortage(&self.target.replica);
                    pace.pause_after_failure()
                }
                Err(failure) => {
                    self.tell(FactKind::ScrapeFailed { page, failure });
                    pace.pause_after_failure()
                }
            };
            sleep(rest).await;
        }
    }

    /// Waits for the first pause of a loop and returns the loop's random source.
    async fn begin(&self, purpose: &str) -> fastrand::Rng {
        let mut rng = rng(self.seed, &format!("{}/{purpose}", self.target.replica));
        sleep(FIRST_PAUSE_MAX.mul_f64(rng.f64())).await;
        rng
    }

    fn tell_check(&self, kind: CheckKind, result: CheckResult, started: Instant) {
        // Without a file descriptor or a port nothing is learned of the replica.
        if result == CheckResult::Failed(RequestError::Shortage) {
            return say_shortage(&self.target.replica);
        }
        self.tell(FactKind::Check { kind, result, took: started.elapsed() });
    }

    fn tell(&self, kind: FactKind) {
        self.tell_held(kind, FactHold::default());
    }

    fn tell_held(&self, kind: FactKind, hold: FactHold) {
        let replica = self.target.replica.clone();
        self.facts.send(Fact { replica, at: Instant::now().into_std(), kind, hold });
    }
}

fn say_shortage(replica: &ReplicaName) {
    tracing::debug!(%replica, "this machine has no file descriptor, memory or port for a check");
}

/// GPU memory use in the last scrape, for the deep check. Not a number while unknown.
#[derive(Debug)]
struct GpuMemoryUse(AtomicU32);

impl Default for GpuMemoryUse {
    fn default() -> Self {
        Self(AtomicU32::new(f32::NAN.to_bits()))
    }
}

impl GpuMemoryUse {
    fn set(&self, used: Option<f32>) {
        self.0.store(used.unwrap_or(f32::NAN).to_bits(), Ordering::Relaxed);
    }

    fn read(&self) -> Option<f32> {
        let used = f32::from_bits(self.0.load(Ordering::Relaxed));
        (!used.is_nan()).then_some(used)
    }
}
