//! Memory after many prompts, no two of which begin alike.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use futures_util::future::join_all;

use crate::client::{BenchClient, BenchReply};
use crate::request::ChatBody;
use crate::scale::figures::{ScaleFigures, progress};
use crate::scale::site::{SHORT_ANSWER, ScaleSite};
use crate::tally::LoadTally;

/// Bytes of each body: some 4,000 tokens, 64 blocks of the prefix index.
const BODY_BYTES: usize = 16 * 1024;

/// Clients that send at a time, each as fast as it is answered.
const CLIENTS: usize = 64;

/// Prompts between two lines of progress.
const STEP: u64 = 10_000;

/// Share of failed requests from which on the figures are meaningless.
const FAILED_MAX: f64 = 0.001;

/// Sends `prompts` prompts, and reads the memory of the node after some of them.
pub(super) async fn measure(spillway: &Path, prompts: u64) -> anyhow::Result<ScaleFigures> {
    let site = ScaleSite::start(SHORT_ANSWER)?;
    let node = site.node(spillway, "prompts", "").await?;
    let body = ChatBody::new(BODY_BYTES, false)?;
    let client = |_| BenchClient::new(node.address(), body.clone(), BenchReply::Whole);
    let mut sender = Sender {
        clients: (0..CLIENTS).map(client).collect(),
        next: AtomicU64::new(0),
        tally: Mutex::new(LoadTally::new()?),
    };
    let mut figures = ScaleFigures::new(
        "prompts",
        &[
            ("resident, MiB", 0),
            ("anonymous, MiB", 0),
            ("resident when idle, MiB", 0),
            ("failed", 0),
        ],
    );
    let start = node.memory()?;
    figures.push("0", &[start.resident_mib, start.anonymous_mib, start.resident_mib, 0.0]);
    let mut sent = 0;
    for target in [prompts / 10, prompts / 10 * 3, prompts] {
        while sent < target {
            sent = (sent + STEP).min(target);
            sender.send_until(sent).await;
            progress(&format!("{sent} prompts: {:.0} MiB", node.memory()?.resident_mib));
        }
        let memory = node.memory()?;
        node.settle().await?;
        let (idle, failed) = (node.memory()?, sender.failed(sent)?);
        let values = [memory.resident_mib, memory.anonymous_mib, idle.resident_mib, failed as f64];
        figures.push(target.to_string(), &values);
    }
    Ok(figures)
}

/// Clients that share a count of prompts.
struct Sender {
    clients: Vec<BenchClient>,
    next: AtomicU64,
    tally: Mutex<LoadTally>,
}

impl Sender {
    /// Sends prompts until `end` of them were sent in all.
    async fn send_until(&mut self, end: u64) {
        let (next, tally) = (&self.next, &self.tally);
        let work = self.clients.iter_mut().map(async |client| {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return;
                }
                if let Err(error) = client.exchange(number, Instant::now(), tally).await {
                    tally.lock().unwrap_or_else(PoisonError::into_inner).fail(&error);
                }
            }
        });
        join_all(work).await;
        // Each client took one number too many.
        self.next.store(end, Ordering::Relaxed);
    }

    /// Returns the number of failed requests.
    ///
    /// # Errors
    /// Returns the first failure if there are many.
    fn failed(&self, sent: u64) -> anyhow::Result<u64> {
        let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = tally.measurement(std::time::Duration::from_secs(1));
        let is_many = seen.errors as f64 > FAILED_MAX * sent as f64;
        anyhow::ensure!(!is_many, "{} failed: {:?}", seen.errors, seen.first_error);
        Ok(seen.errors)
    }
}
