//! Clients: so many a second whatever becomes of them, or so many who wait for each reply.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, sleep_until, timeout};

use super::caller::{Ask, Caller};
use super::note::Story;
use crate::trial::task::spawn;

/// What one kind of clients does.
#[derive(Clone)]
pub(crate) struct Habit {
    /// The request of a number.
    pub(crate) make: Arc<dyn Fn(u64) -> Ask + Send + Sync>,
    /// How often it is sent at most. Between two times the client waits as long as it was told.
    pub(crate) attempts_max: usize,
}

/// Clients at work.
pub(crate) struct Crowd {
    stories: Arc<Mutex<Vec<Story>>>,
    is_over: Arc<AtomicBool>,
    /// Thousandths of a request a second.
    rate: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Habit {
    pub(crate) fn once(make: impl Fn(u64) -> Ask + Send + Sync + 'static) -> Self {
        Self { make: Arc::new(make), attempts_max: 1 }
    }

    pub(crate) fn patient(self, attempts_max: usize) -> Self {
        Self { attempts_max, ..self }
    }

    async fn act(&self, caller: &Caller, number: u64, mut due: Instant) -> Story {
        let ask = (self.make)(number);
        let mut story = Story { number, notes: Vec::new() };
        loop {
            let note = caller.ask(&ask, due).await;
            let told = note.answer().and_then(|answer| answer.retry_after);
            let again =
                told.filter(|_| note.is_shed() && story.notes.len() + 1 < self.attempts_max);
            story.notes.push(note);
            let Some(after) = again else { return story };
            due = Instant::now() + after;
            sleep_until(due.into()).await;
        }
    }
}

impl Crowd {
    /// So many requests a second, at random moments, however long each takes.
    pub(crate) fn open(caller: &Caller, habit: Habit, rate_per_s: f64, seed: u64) -> Self {
        let (stories, is_over, rate) = shared(rate_per_s);
        let (caller, kept, over) = (caller.clone(), Arc::clone(&stories), Arc::clone(&is_over));
        let pace = Arc::clone(&rate);
        let task = spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut due, mut all) = (Instant::now(), JoinSet::new());
            for number in 0.. {
                let rate = pace.load(Ordering::Relaxed).max(1) as f64 / 1e3;
                // Gaps of a Poisson process, so that requests come in bunches as real ones do.
                due += Duration::from_secs_f64(-random.f64().max(1e-12).ln() / rate);
                sleep_until(due.into()).await;
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let (caller, habit, kept) = (caller.clone(), habit.clone(), Arc::clone(&kept));
                all.spawn(async move { tell(&kept, habit.act(&caller, number, due).await) });
                while all.try_join_next().is_some() {}
            }
            while all.join_next().await.is_some() {}
        });
        Self { stories, is_over, rate, task }
    }

    /// So many clients that send one request after the other, with `think` between two.
    pub(crate) fn closed(caller: &Caller, habit: Habit, clients: u64, think: Duration) -> Self {
        let (stories, is_over, rate) = shared(0.0);
        let (caller, kept, over) = (caller.clone(), Arc::clone(&stories), Arc::clone(&is_over));
        let task = spawn(async move {
            let mut all = JoinSet::new();
            for client in 0..clients {
                let (caller, habit) = (caller.clone(), habit.clone());
                let (kept, over) = (Arc::clone(&kept), Arc::clone(&over));
                all.spawn(async move {
                    // wait: they don't begin in step
                    sleep(think.mul_f64(client as f64 / clients as f64)).await;
                    for turn in 0.. {
                        if over.load(Ordering::Relaxed) {
                            return;
                        }
                        let number = client + turn * clients;
                        tell(&kept, habit.act(&caller, number, Instant::now()).await);
                        // wait: the client thinks
                        sleep(think).await;
                    }
                });
            }
            while all.join_next().await.is_some() {}
        });
        Self { stories, is_over, rate, task }
    }

    pub(crate) fn set_rate(&self, rate_per_s: f64) {
        self.rate.store(milli(rate_per_s), Ordering::Relaxed);
    }

    /// Nobody comes any more; what is under way has so long to end.
    pub(crate) async fn end(mut self, limit: Duration) -> Vec<Story> {
        self.is_over.store(true, Ordering::Relaxed);
        // What is not over by then is left out.
        drop(timeout(limit, &mut self.task).await);
        self.task.abort();
        std::mem::take(&mut *self.stories.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Shared = (Arc<Mutex<Vec<Story>>>, Arc<AtomicBool>, Arc<AtomicU64>);

fn shared(rate_per_s: f64) -> Shared {
    (Arc::default(), Arc::default(), Arc::new(AtomicU64::new(milli(rate_per_s))))
}

fn milli(rate_per_s: f64) -> u64 {
    (rate_per_s * 1e3) as u64
}

fn tell(stories: &Mutex<Vec<Story>>, story: Story) {
    stories.lock().unwrap_or_else(PoisonError::into_inner).push(story);
}
