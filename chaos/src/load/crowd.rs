//! Clients: so many a second whatever becomes of them, or so many who wait for each reply.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, sleep_until, timeout};

use super::caller::{Ask, Caller};
use super::note::{End, Note, Story};
use crate::trial::task::spawn;

/// What is allowed for a machine that is late, when clients should have given up.
const MARGIN: Duration = Duration::from_secs(1);

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
    tales: Arc<Tales>,
    is_over: Arc<AtomicBool>,
    /// Thousandths of a request a second.
    rate: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

/// Stories by their numbers, as they go on.
#[derive(Default)]
struct Tales(Mutex<BTreeMap<u64, Tale>>);

#[derive(Default)]
struct Tale {
    notes: Vec<Note>,
    /// When the attempt that is under way was to be sent.
    asked: Option<Instant>,
}

impl Habit {
    pub(crate) fn once(make: impl Fn(u64) -> Ask + Send + Sync + 'static) -> Self {
        Self { make: Arc::new(make), attempts_max: 1 }
    }

    pub(crate) fn patient(self, attempts_max: usize) -> Self {
        Self { attempts_max, ..self }
    }

    async fn act(&self, caller: &Caller, (number, mut due): (u64, Instant), tales: &Tales) {
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
    /// So many requests a second, at random moments, however long each takes.
    pub(crate) fn open(caller: &Caller, habit: Habit, rate_per_s: f64, seed: u64) -> Self {
        let (tales, is_over, rate) = shared(rate_per_s);
        let (caller, kept, over) = (caller.clone(), Arc::clone(&tales), Arc::clone(&is_over));
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
                all.spawn(async move { habit.act(&caller, (number, due), &kept).await });
                while all.try_join_next().is_some() {}
            }
            while all.join_next().await.is_some() {}
        });
        Self { tales, is_over, rate, task }
    }

    /// So many clients that send one request after the other, with `think` between two.
    pub(crate) fn closed(caller: &Caller, habit: Habit, clients: u64, think: Duration) -> Self {
        let (tales, is_over, rate) = shared(0.0);
        let (caller, kept, over) = (caller.clone(), Arc::clone(&tales), Arc::clone(&is_over));
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
                        habit.act(&caller, (number, Instant::now()), &kept).await;
                        // wait: the client thinks
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

    /// Nobody comes any more; what is under way may take as long as clients stay, and a margin. What is
    /// not over by then has failed; who still waits to come again has what it got so far.
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
    /// The next attempt begins; it was to be sent when it was `due`.
    fn asked(&self, number: u64, due: Instant) {
        self.lock().entry(number).or_default().asked = Some(due);
    }

    /// The attempt under way came to this.
    fn answered(&self, number: u64, note: Note) {
        let mut tales = self.lock();
        let tale = tales.entry(number).or_default();
        tale.notes.push(note);
        tale.asked = None;
    }

    /// All stories; attempts under way have failed.
    fn end(&self, now: Instant) -> Vec<Story> {
        let lost =
            |due| Note { due, ended: now, end: End::Nothing("not over at the end".to_owned()) };
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
    use super::super::note::Answer;
    use super::*;

    fn note(due: Instant, status: u16) -> Note {
        let retry_after = (status == 503).then_some(Duration::from_secs(1));
        let answer = Answer { status, retry_after, ..Answer::default() };
        Note { due, ended: due, end: End::Whole(answer) }
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
        // The first waits for its third attempt, the second's is not over, and the third has made none.
        let retries: Vec<_> = stories.iter().map(Story::first_retry).collect();
        assert_eq!(retries, [Some(false), Some(false), None]);
        assert!(!stories.iter().any(Story::is_good));
    }
}
