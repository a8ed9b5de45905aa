//! Load: clients in an open loop (a rate of requests, whatever the outcome of earlier ones) or a
//! closed loop (a number of clients that send one request after the other).

use std::collections::BTreeMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{sleep, sleep_until, timeout};

use crate::attempt::{AttemptEnd, AttemptError, LoadAttempt, LoadRecord};
use crate::client::{LoadClient, LoadRequest};
use crate::task::spawn;

/// Extra wait for a slow machine, after all clients should have given up.
const MARGIN: Duration = Duration::from_secs(1);

/// Returns the time until the next request of a Poisson process: requests come in bursts, as real
/// ones do.
pub fn exponential_gap(random: &mut fastrand::Rng, rate_per_s: f64) -> Duration {
    // 1 - x lies in (0, 1], so that the logarithm is finite.
    Duration::from_secs_f64(-(1.0 - random.f64()).ln() / rate_per_s)
}

/// Carries out an action for each arrival at its due time, however long earlier ones take. `act`
/// returns `None` to end the load. Returns the results in the order of their ends, once all have
/// ended.
pub async fn open_loop<A, F>(
    arrivals: impl IntoIterator<Item = (Instant, A)>,
    mut act: impl FnMut(A, Instant) -> Option<F>,
) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let (mut running, mut results) = (JoinSet::new(), Vec::new());
    for (due, arrival) in arrivals {
        sleep_until(due.into()).await;
        let Some(action) = act(arrival, due) else { break };
        running.spawn(action);
        while let Some(ended) = running.try_join_next() {
            results.push(result(ended));
        }
    }
    while let Some(ended) = running.join_next().await {
        results.push(result(ended));
    }
    results
}

/// Returns the result of a task that is never aborted. A panic in it continues here.
fn result<T>(ended: Result<T, JoinError>) -> T {
    ended.unwrap_or_else(|error| resume_unwind(error.into_panic()))
}

/// Requests of one kind of clients.
#[derive(Clone)]
pub struct LoadSource {
    /// Function that makes the request with a given number.
    make: Arc<dyn Fn(u64) -> LoadRequest + Send + Sync>,
    /// Most attempts of one request. Between two attempts the client waits for the Retry-After it
    /// got.
    attempts_max: usize,
}

/// Running load generator. Dropping it ends the load.
#[derive(Debug)]
pub struct LoadGenerator {
    records: Arc<OpenRecords>,
    is_over: Arc<AtomicBool>,
    /// Rate in thousandths of a request per second.
    rate: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

/// Records under way, by number of the request.
#[derive(Debug, Default)]
struct OpenRecords(Mutex<BTreeMap<u64, OpenRecord>>);

#[derive(Debug, Default)]
struct OpenRecord {
    attempts: Vec<LoadAttempt>,
    /// Due time of the attempt under way; `None` between two attempts.
    begun: Option<Instant>,
}

impl LoadSource {
    /// Returns a source of requests that are sent once.
    pub fn new(make: impl Fn(u64) -> LoadRequest + Send + Sync + 'static) -> Self {
        Self { make: Arc::new(make), attempts_max: 1 }
    }

    /// Returns this source with clients that try again after a refusal, at the time of its
    /// Retry-After.
    #[must_use]
    pub fn retrying(self, attempts_max: usize) -> Self {
        Self { attempts_max, ..self }
    }

    async fn play(
        &self,
        client: &LoadClient,
        number: u64,
        mut due: Instant,
        records: &OpenRecords,
    ) {
        let request = (self.make)(number);
        for count in 1..=self.attempts_max {
            records.begin(number, due);
            let attempt = client.send(&request, due).await;
            let retry_after = attempt.reply().and_then(|reply| reply.retry_after);
            let again = retry_after.filter(|_| attempt.is_shed() && count < self.attempts_max);
            records.finish(number, attempt);
            let Some(after) = again else { return };
            due = Instant::now() + after;
            sleep_until(due.into()).await;
        }
    }
}

impl fmt::Debug for LoadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadSource")
            .field("attempts_max", &self.attempts_max)
            .finish_non_exhaustive()
    }
}

impl LoadGenerator {
    /// Starts an open loop: `rate_per_s` requests a second at random moments, however long each
    /// takes.
    #[must_use]
    pub fn open(client: &LoadClient, source: LoadSource, rate_per_s: f64, seed: u64) -> Self {
        Self::start(rate_per_s, |records, is_over, rate| {
            let client = client.clone();
            async move {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut due = Instant::now();
                // Drawn one by one, so that another rate counts from the next request on.
                let arrivals = (0..).map(|number| {
                    // A rate of zero would make the gap infinite, which no duration can be.
                    let rate_per_s = rate.load(Ordering::Relaxed).max(1) as f64 / 1e3;
                    due += exponential_gap(&mut random, rate_per_s);
                    (due, number)
                });
                open_loop(arrivals, |number, due| {
                    let (client, source) = (client.clone(), source.clone());
                    let records = Arc::clone(&records);
                    let play = async move { source.play(&client, number, due, &records).await };
                    (!is_over.load(Ordering::Relaxed)).then_some(play)
                })
                .await;
            }
        })
    }

    /// Starts a closed loop: `clients` clients that send one request after the other, with a pause
    /// of `think` in between.
    #[must_use]
    pub fn closed(client: &LoadClient, source: LoadSource, clients: u64, think: Duration) -> Self {
        Self::start(0.0, |records, is_over, _| {
            let client = client.clone();
            async move {
                let mut all = JoinSet::new();
                for index in 0..clients {
                    let (client, source) = (client.clone(), source.clone());
                    let (records, is_over) = (Arc::clone(&records), Arc::clone(&is_over));
                    all.spawn(async move {
                        // wait: the clients do not start at the same moment
                        sleep(think.mul_f64(index as f64 / clients as f64)).await;
                        for turn in 0.. {
                            if is_over.load(Ordering::Relaxed) {
                                return;
                            }
                            let number = index + turn * clients;
                            source.play(&client, number, Instant::now(), &records).await;
                            // wait: the client's pause
                            sleep(think).await;
                        }
                    });
                }
                while let Some(ended) = all.join_next().await {
                    result(ended);
                }
            }
        })
    }

    fn start<F: Future<Output = ()> + Send + 'static>(
        rate_per_s: f64,
        work: impl FnOnce(Arc<OpenRecords>, Arc<AtomicBool>, Arc<AtomicU64>) -> F,
    ) -> Self {
        let (records, is_over) = (Arc::default(), Arc::default());
        let rate = Arc::new(AtomicU64::new(milli(rate_per_s)));
        let work = work(Arc::clone(&records), Arc::clone(&is_over), Arc::clone(&rate));
        Self { records, is_over, rate, task: spawn(work) }
    }

    /// Changes the rate of an open loop.
    pub fn set_rate(&self, rate_per_s: f64) {
        self.rate.store(milli(rate_per_s), Ordering::Relaxed);
    }

    /// Ends the load and returns all records. Attempts under way get `patience` and a margin, and
    /// count as failed after that; a client that still waits for its next attempt keeps the
    /// attempts it made.
    ///
    /// # Panics
    /// Panics if a request has panicked: the records would not show the requests that the load has
    /// not made since.
    pub async fn end(mut self, patience: Duration) -> Vec<LoadRecord> {
        self.is_over.store(true, Ordering::Relaxed);
        match timeout(patience + MARGIN, &mut self.task).await {
            Ok(ended) => result(ended),
            Err(_) => self.task.abort(),
        }
        self.records.end(Instant::now())
    }
}

impl Drop for LoadGenerator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl OpenRecords {
    /// Records that an attempt begins that was to be sent at `due`.
    fn begin(&self, number: u64, due: Instant) {
        self.lock().entry(number).or_default().begun = Some(due);
    }

    /// Records the result of the attempt under way.
    fn finish(&self, number: u64, attempt: LoadAttempt) {
        let mut records = self.lock();
        let record = records.entry(number).or_default();
        record.attempts.push(attempt);
        record.begun = None;
    }

    /// Returns all records; attempts under way count as failed.
    fn end(&self, now: Instant) -> Vec<LoadRecord> {
        let lost = |due| {
            let end = AttemptEnd::Nothing(AttemptError::NotOver);
            LoadAttempt { ended: now, ..LoadAttempt::at_once(due, end) }
        };
        let record = |(number, mut record): (u64, OpenRecord)| {
            record.attempts.extend(record.begun.map(lost));
            LoadRecord { number, attempts: record.attempts }
        };
        std::mem::take(&mut *self.lock()).into_iter().map(record).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, OpenRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn milli(rate_per_s: f64) -> u64 {
    (rate_per_s * 1e3) as u64
}

#[cfg(test)]
#[path = "load_test.rs"]
mod tests;
