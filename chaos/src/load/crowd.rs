//! Clients in an open loop (a fixed rate of requests) or a closed loop (a fixed number of clients).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, sleep_until, timeout};

use super::caller::{Caller, CallerAsk};
use super::note::{LoadNote, NoteEnd, Story};
use crate::trial::task::spawn;

/// Extra wait for a slow machine, after all clients should have given up.
const MARGIN: Duration = Duration::from_secs(1);

/// Behaviour of one kind of clients.
#[derive(Clone)]
pub(crate) struct Habit {
    /// Makes the request with a given number.
    pub(crate) make: Arc<dyn Fn(u64) -> CallerAsk + Send + Sync>,
    /// Most attempts of one request. Between two attempts the client waits for the Retry-After it
    /// got.
    pub(crate) attempts_max: usize,
}

/// Running clients.
pub(crate) struct Crowd {
    tales: Arc<Tales>,
    is_over: Arc<AtomicBool>,
    /// Rate in thousandths of a request per second.
    rate: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

/// Stories under way, by number.
#[derive(Default)]
struct Tales(Mutex<BTreeMap<u64, Tale>>);

#[derive(Default)]
struct Tale {
    notes: Vec<LoadNote>,
    /// Due time of the attempt under way; `None` between two attempts.
    asked: Option<Instant>,
}

impl Habit {
    pub(crate) fn once(make: impl Fn(u64) -> CallerAsk + Send + Sync + 'static) -> Self {
        Self { make: Arc::new(make), attempts_max: 1 }
    }

    pub(crate) fn patient(self, attempts_max: usize) -> Self {
        Self { attempts_max, ..self }
    }

    async fn act(&self, caller: &Caller, number: u64, mut due: Instant, tales: &Tales) {
        let ask = (self.make)(number);
        for attempt in 1..=self.attempts_max {
            tales.asked(number, due);
            let note = caller.ask(&ask, due).await;
            let told = note.answer().and_then(|answer| answer.retry_after);
            let again = told.filter(|_| note.is_shed() && attempt < self.attempts_max);
            tales.answered(number, note);
            let Some(after) = again else { return };
            due = Instant::now() + after;
            sleep_until(due.into()).await;
        }
    }
}

impl Crowd {
    /// Starts an open loop: `rate_per_s` requests a second at random moments, however long each
    /// takes.
    pub(crate) fn open(caller: &Caller, habit: Habit, rate_per_s: f64, seed: u64) -> Self {
        let (tales, is_over, rate) = shared(rate_per_s);
        let (caller, kept, over) = (caller.clone(), Arc::clone(&tales), Arc::clone(&is_over));
        let pace = Arc::clone(&rate);
        let task = spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut due, mut all) = (Instant::now(), JoinSet::new());
            for number in 0.. {
                let rate = pace.load(Ordering::Relaxed).max(1) as f64 / 1e3;
                // Gaps of a Poisson process, so that requests come in bursts as real ones do.
                due += Duration::from_secs_f64(-random.f64().max(1e-12).ln() / rate);
                sleep_until(due.into()).await;
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let (caller, habit, kept) = (caller.clone(), habit.clone(), Arc::clone(&kept));
                all.spawn(async move { habit.act(&caller, number, due, &kept).await });
                while all.try_join_next().is_some() {}
            }
            while all.join_next().await.is_some() {}
        });
        Self { tales, is_over, rate, task }
    }

    /// Starts a closed loop: `clients` clients that send one request after the other, with a pause
    /// of `think` in between.
    pub(crate) fn closed(caller: &Caller, habit: Habit, clients: u64, think: Duration) -> Self {
        let (tales, is_over, rate) = shared(0.0);
        let (caller, kept, over) = (caller.clone(), Arc::clone(&tales), Arc::clone(&is_over));
        let task = spawn(async move {
            let mut all = JoinSet::new();
            for client in 0..clients {
                let (caller, habit) = (caller.clone(), habit.clone());
                let (kept, over) = (Arc::clone(&kept), Arc::clone(&over));
                all.spawn(async move {
                    // wait: the clients do not start at the same moment
                    sleep(think.mul_f64(client as f64 / clients as f64)).await;
                    for turn in 0.. {
                        if over.load(Ordering::Relaxed) {
                            return;
                        }
                        let number = client + turn * clients;
                        habit.act(&caller, number, Instant::now(), &kept).await;
                        // wait: the client's pause
                        sleep(think).await;
                    }
                });
            }
            while all.join_next().await.is_some() {}
        });
        Self { tales, is_over, rate, task }
    }

    pub(crate) fn set_rate(&self, rate_per_s: f64) {
        self.rate.store(milli(rate_per_s), Ordering::Relaxed);
    }

    /// Ends the load and returns all stories. Attempts under way get `patience` and a margin, and
    /// count as failed after that; a client that still waits for its next attempt keeps the
    /// attempts it made.
    pub(crate) async fn end(mut self, patience: Duration) -> Vec<Story> {
        self.is_over.store(true, Ordering::Relaxed);
        drop(timeout(patience + MARGIN, &mut self.task).await);
        self.task.abort();
        self.tales.end(Instant::now())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Tales {
    /// Notes that an attempt begins that was to be sent at `due`.
    fn asked(&self, number: u64, due: Instant) {
        self.lock().entry(number).or_default().asked = Some(due);
    }

    /// Notes the result of the attempt under way.
    fn answered(&self, number: u64, note: LoadNote) {
        let mut tales = self.lock();
        let tale = tales.entry(number).or_default();
        tale.notes.push(note);
        tale.asked = None;
    }

    /// Returns all stories; attempts under way count as failed.
    fn end(&self, now: Instant) -> Vec<Story> {
        let lost = |due| LoadNote {
            due,
            ended: now,
            end: NoteEnd::Nothing("not over at the end".to_owned()),
        };
        let story = |(number, mut tale): (u64, Tale)| {
            tale.notes.extend(tale.asked.map(lost));
            Story { number, notes: tale.notes }
        };
        std::mem::take(&mut *self.lock()).into_iter().map(story).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Tale>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Shared = (Arc<Tales>, Arc<AtomicBool>, Arc<AtomicU64>);

fn shared(rate_per_s: f64) -> Shared {
    (Arc::default(), Arc::default(), Arc::new(AtomicU64::new(milli(rate_per_s))))
}

fn milli(rate_per_s: f64) -> u64 {
    (rate_per_s * 1e3) as u64
}

#[cfg(test)]
mod tests {
    use super::super::note::NotedAnswer;
    use super::*;

    fn note(due: Instant, status: u16) -> LoadNote {
        let retry_after = (status == 503).then_some(Duration::from_secs(1));
        let answer = NotedAnswer { status, retry_after, ..NotedAnswer::default() };
        LoadNote { due, ended: due, end: NoteEnd::Whole(answer) }
    }

    #[test]
    fn what_is_under_way_at_the_end_has_failed() {
        let (tales, due) = (Tales::default(), Instant::now());
        for number in [1, 2] {
            tales.asked(number, due);
        }
        tales.answered(2, note(due, 200));
        let stories = tales.end(due + Duration::from_secs(3));
        assert_eq!(stories.iter().map(Story::is_good).collect::<Vec<_>>(), [false, true]);
        let lost = &stories[0].notes;
        assert_eq!((lost.len(), lost[0].due, lost[0].took().as_secs()), (1, due, 3));
    }

    #[test]
    fn a_first_retry_counts_when_the_end_comes_in_a_later_wait_or_attempt() {
        let (tales, due) = (Tales::default(), Instant::now());
        for number in [1, 2, 3] {
            tales.asked(number, due);
            tales.answered(number, note(due, 503));
        }
        tales.asked(1, due);
        tales.answered(1, note(due, 503));
        tales.asked(2, due);
        let stories = tales.end(due);
        // The first waits for its third attempt, the second is not over, and the third has made
        // none.
        let retries: Vec<_> = stories.iter().map(Story::first_retry).collect();
        assert_eq!(retries, [Some(false), Some(false), None]);
        assert!(!stories.iter().any(Story::is_good));
    }
}
