//! Many runs on all cores.

use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// Runs all jobs on all cores, and returns the results in the order of the jobs.
pub(super) fn run_all<J: Sync, R: Send>(jobs: &[J], run: impl Fn(&J) -> R + Sync) -> Vec<R> {
    // Work queue: each thread takes the next job.
    let next = AtomicUsize::new(0);
    let progress = Progress::new(jobs.len());
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let work = || {
        let mut results = Vec::new();
        while let Some((at, job)) =
            jobs.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed))
        {
            results.push((at, run(job)));
            progress.add();
        }
        results
    };
    let mut results: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
    });
    // Threads end in any order; the tables of two runs have to be comparable line by line.
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Progress of many runs: shown all the time on a terminal, and written each minute to a file.
#[derive(Debug)]
struct Progress {
    done: AtomicUsize,
    all: usize,
    began: Instant,
    /// Last minute since the beginning whose progress was printed.
    told: AtomicU64,
}

impl Progress {
    #[expect(clippy::disallowed_methods, reason = "people wait for it by the clock")]
    fn new(all: usize) -> Self {
        let (done, told) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { done, all, began: Instant::now(), told }
    }

    /// Counts a run that is done.
    #[expect(clippy::disallowed_methods, reason = "people wait for it by the clock")]
    fn add(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let all = self.all;
        let passed = self.began.elapsed();
        let mut error = io::stderr();
        let is_terminal = error.is_terminal();
        let minute = passed.as_secs() / 60;
        if !is_terminal && minute <= self.told.fetch_max(minute, Ordering::Relaxed) {
            return;
        }
        let left = passed.mul_f64((all - done) as f64 / done as f64).as_secs();
        let (minutes, seconds) = (left / 60, left % 60);
        let (begin, end) = match is_terminal {
            true if done < all => ("\r", " "),
            true => ("\r", " \n"),
            false => ("", "\n"),
        };
        // A failed write must not stop the runs.
        let _unread =
            write!(error, "{begin}{done} of {all} runs, {minutes}:{seconds:02} min left{end}");
    }
}
