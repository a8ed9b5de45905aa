//! Many runs on all cores.

use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::Serialize;
use spillway_sim::{Figures, Scenario, Setup};

/// Run to be made.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) workload: String,
    pub(super) nodes: usize,
    pub(super) load: Vec<f64>,
    pub(super) scenario: Scenario,
    pub(super) setup: Setup,
}

/// Result of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) workload: String,
    pub(super) nodes: usize,
    pub(super) load: Vec<f64>,
    pub(super) setup: String,
    pub(super) figures: Figures,
}

/// Runs all jobs, and returns the rows in the order of the jobs.
pub(super) fn run_all(jobs: Vec<Job>) -> Vec<Row> {
    // Work queue: each thread takes the next job.
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let work = || {
        let mut rows = Vec::new();
        while let Some((at, job)) =
            jobs.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed))
        {
            rows.push((at, row(job)));
            say(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
        }
        rows
    };
    let mut rows: Vec<(usize, Row)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
    });
    // Threads end in any order; the tables of two runs have to be comparable line by line.
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn row(job: &Job) -> Row {
    Row {
        workload: job.workload.clone(),
        nodes: job.nodes,
        load: job.load.clone(),
        setup: job.setup.name.clone(),
        figures: job.setup.run(&job.scenario),
    }
}

/// Shows the progress on a terminal.
fn say(done: usize, all: usize) {
    let mut error = io::stderr();
    if error.is_terminal() {
        let end = if done == all { "\n" } else { "" };
        // A terminal that can't be written to must not stop the runs.
        let _unread = write!(error, "\r{done} of {all} runs{end}");
    }
}
