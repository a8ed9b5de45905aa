//! Task that sends new homes to the other nodes, and asks them for theirs when this node starts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Full, Limited};
use spillway_link::{ForwardAnswer, ForwardHead, Link, PeerRoom, PeerStatus};
use spillway_types::{NodeName, RegionName};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};

use super::backlog::Backlog;
use super::bounded::BoundedHomes;
use super::wire::Homes;
use super::{ALL_BYTES_MAX, ALL_PATH, KnownHomes, NEWS_BYTES_MAX, NEWS_PATH, encode, kept};
use crate::node_tasks::NodeTasks;

/// Shortest time between two rounds of messages: the first news are sent at once, and news that
/// arrive within this time are sent together.
const GATHER: Duration = Duration::from_millis(10);
/// Period of looking for other nodes.
const LOOK: Duration = Duration::from_millis(200);
/// Time limit of a message.
const SEND_LIMIT: Duration = Duration::from_secs(2);
/// Time limit of an answer to a node that starts.
const ALL_LIMIT: Duration = Duration::from_secs(10);
/// Most nodes that a node asks when it starts: the first may have just started, too.
const ASKED_MAX: usize = 3;
/// Longest time after its start for which a node takes an unknown id for one that it has not
/// received yet.
const LEARNING_MAX: Duration = Duration::from_secs(5);
/// Time between two writes of the known homes.
const SAVE_PERIOD: Duration = Duration::from_secs(30);
/// Time limit of the last write.
const SAVE_LIMIT: Duration = Duration::from_secs(2);
/// Capacity of the queue of results: one message and one question a node are under way at most.
const RESULTS_MAX: usize = 1_024;

/// Task that sends homes to other nodes and asks for theirs.
pub(crate) struct Exchange {
    known: KnownHomes,
    link: Arc<Link>,
    tasks: NodeTasks,
    backlog: Backlog,
    /// Nodes that were asked for all that they know.
    asked: BTreeSet<NodeName>,
    /// True while such a question is under way.
    is_asking: bool,
    /// File for the next process; `None` for a node without a folder.
    file: Option<PathBuf>,
    /// True if this node has news that the file does not have.
    is_changed: bool,
    started: Instant,
    saved: Instant,
    /// News that found no room, as last reported.
    dropped: u64,
    results: (mpsc::Sender<ExchangeResult>, mpsc::Receiver<ExchangeResult>),
}

/// Message of news.
#[derive(Clone)]
struct NewsMessage {
    text: Bytes,
    /// Number behind the last news in it.
    behind: u64,
}

/// Result of a message or a question.
enum ExchangeResult {
    /// A message arrived with the news before this number, or did not arrive.
    Sent(NodeName, Option<u64>),
    /// All that a node knows; `None` without an answer.
    Heard(Option<Homes>),
    /// All that the last process knew.
    Loaded(Homes),
}

impl Exchange {
    /// Makes the task of a node that keeps what it knows in `folder`.
    pub(crate) fn new(
        known: KnownHomes,
        link: &Arc<Link>,
        tasks: &NodeTasks,
        folder: Option<PathBuf>,
    ) -> Self {
        known.homes.responses.set_learning(true);
        let now = Instant::now();
        Self {
            known,
            link: Arc::clone(link),
            tasks: tasks.clone(),
            backlog: Backlog::default(),
            asked: BTreeSet::new(),
            is_asking: false,
            file: folder.map(|folder| kept::path(&folder)),
            is_changed: false,
            started: now,
            saved: now,
            dropped: 0,
            results: mpsc::channel(RESULTS_MAX),
        }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(mut self) {
        let stop = self.tasks.stop.clone();
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let homes = Arc::clone(&self.known.homes);
        self.load();
        // Time of the next round; `None` while there is nothing to send.
        let (mut due, mut earliest) = (None, Instant::now());
        loop {
            let wanted = Instant::now().max(earliest);
            tokio::select! {
                () = homes.outbox.filled(), if due.is_none() => due = Some(wanted),
                () = passed(due) => {
                    due = None;
                    earliest = Instant::now() + GATHER;
                    self.tell();
                }
                Some(result) = self.results.1.recv() => {
                    self.take(result);
                    due.get_or_insert(wanted);
                }
                _ = looks.tick() => {
                    self.look();
                    due.get_or_insert(wanted);
                }
                () = stop.cancelled() => break,
            }
        }
        // The last write also keeps what other nodes have sent, which causes no write while the
        // node runs.
        self.is_changed = true;
        if let Some(saving) = self.save() {
            // A disk that hangs holds up no end.
            drop(timeout(SAVE_LIMIT, saving).await);
        }
    }

    /// Reads what the last process knew. The disk may take its time.
    fn load(&self) {
        let (file, results) = (self.file.clone(), self.results.0.clone());
        self.spawn(async move {
            let reading = spawn_blocking(move || file.map(|file| kept::load(&file)));
            let homes = reading.await.ok().flatten().unwrap_or_default();
            drop(results.send(ExchangeResult::Loaded(homes)).await);
        });
    }

    /// Writes what this node knows, if the file has it otherwise.
    fn save(&mut self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let file = self.file.clone().filter(|_| std::mem::take(&mut self.is_changed))?;
        self.saved = Instant::now();
        let known = self.known.clone();
        let saving = spawn_blocking(move || kept::save(&file, &known.all()));
        Some(async move {
            if let Ok(Err(error)) = saving.await {
                tracing::warn!(%error, "homes can't be saved for the next process");
            }
        })
    }

    /// Sends each connected node what it lacks.
    fn tell(&mut self) {
        let (now, others) = (Instant::now(), self.known.others());
        let outbox = &self.known.homes.outbox;
        let news = outbox.take();
        self.is_changed |= !news.is_empty();
        outbox.note_missed(self.backlog.add(news));
        let dropped: u64 = outbox.dropped().iter().map(|(_, count)| count).sum();
        if dropped > self.dropped {
            let count = dropped - self.dropped;
            tracing::warn!(count, "homes changed faster than other nodes can be informed");
            self.dropped = dropped;
        }
        let mut encoded: Option<(Range<u64>, NewsMessage)> = None;
        let peers: Vec<NodeName> = self.backlog.peers().cloned().collect();
        for node in peers.into_iter().filter(|node| self.link.is_heard(node)) {
            let Some(numbers) = self.backlog.next(&node, now) else { continue };
            // Most nodes lack the same.
            let message = match &encoded {
                Some((known, message)) if *known == numbers => message.clone(),
                _ => self.message(numbers.clone(), &others),
            };
            encoded = Some((numbers, message.clone()));
            let (link, results) = (Arc::clone(&self.link), self.results.0.clone());
            self.spawn(async move {
                let has_arrived = send(&link, &node, message.text).await;
                let result = ExchangeResult::Sent(node, has_arrived.then_some(message.behind));
                // Sending fails only after the task has ended.
                drop(results.send(result).await);
            });
        }
    }

    /// Makes a message of the first of these news.
    fn message(&self, numbers: Range<u64>, others: &BTreeMap<u64, RegionName>) -> NewsMessage {
        let (first, side) = (numbers.start, self.known.side(others));
        let news = self.backlog.news(numbers);
        let (homes, taken) = BoundedHomes::of(news, side, NEWS_BYTES_MAX);
        NewsMessage { text: encode(&homes), behind: first + taken }
    }

    /// Runs a message or a question until the node stops.
    fn spawn(&self, act: impl Future<Output = ()> + Send + 'static) {
        let stop = self.tasks.stop.clone();
        self.tasks.tracker.spawn(async move { stop.run_until_cancelled(act).await });
    }

    fn take(&mut self, result: ExchangeResult) {
        match result {
            ExchangeResult::Sent(node, arrived) => {
                self.backlog.sent(&node, arrived, Instant::now());
            }
            ExchangeResult::Heard(homes) => {
                self.is_asking = false;
                if let Some(homes) = homes {
                    self.is_changed = true;
                    self.known.receive(homes);
                    self.known.homes.responses.set_learning(false);
                }
            }
            ExchangeResult::Loaded(homes) => self.known.receive(homes),
        }
    }

    /// Looks which other nodes there are, and asks one of them if this node has just started.
    fn look(&mut self) {
        let peers = self.link.peers();
        self.backlog.set_peers(peers.iter().map(|peer| peer.identity.node()));
        if self.started.elapsed() >= LEARNING_MAX {
            self.known.homes.responses.set_learning(false);
        }
        if self.saved.elapsed() >= SAVE_PERIOD
            && let Some(saving) = self.save()
        {
            self.tasks.tracker.spawn(saving);
        }
        if self.is_asking || self.asked.len() >= ASKED_MAX {
            return;
        }
        let is_new =
            |peer: &&PeerStatus| peer.is_connected() && !self.asked.contains(peer.identity.node());
        // The region's own nodes know most of the homes that are asked for here.
        let is_far = |peer: &&PeerStatus| *peer.identity.region() != self.known.region;
        let Some(peer) = peers.iter().filter(is_new).min_by_key(is_far) else { return };
        let node = peer.identity.node().clone();
        self.asked.insert(node.clone());
        self.is_asking = true;
        let (link, results) = (Arc::clone(&self.link), self.results.0.clone());
        self.spawn(async move {
            let homes = timeout(ALL_LIMIT, ask_all(&link, &node)).await.ok().flatten();
            drop(results.send(ExchangeResult::Heard(homes)).await);
        });
    }
}

/// Sends a message. Returns true if the node has taken it in.
async fn send(link: &Link, node: &NodeName, message: Bytes) -> bool {
    let head = ForwardHead::new(Method::POST, Uri::from_static(NEWS_PATH));
    let sending = link.forward(node, head, Full::new(message), PeerRoom::Likely);
    match timeout(SEND_LIMIT, sending).await {
        Ok(Ok(ForwardAnswer::Reply(reply))) => reply.status() == StatusCode::NO_CONTENT,
        _ => false,
    }
}

async fn ask_all(link: &Link, node: &NodeName) -> Option<Homes> {
    let head = ForwardHead::new(Method::GET, Uri::from_static(ALL_PATH));
    let answer = link.forward(node, head, Empty::new(), PeerRoom::Unknown).await.ok()?;
    let ForwardAnswer::Reply(reply) = answer else { return None };
    let body = Limited::new(reply.into_body(), ALL_BYTES_MAX).collect().await.ok()?;
    serde_json::from_slice(&body.to_bytes()).ok()
}

/// Returns at this time; never, without one.
async fn passed(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
