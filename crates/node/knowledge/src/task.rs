//! The task on the thread that learns, and its periods.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use spillway_cluster_state::State;
use spillway_gossip::{Sharing, SharingConfig};
use spillway_prefix::{FineIndex, HeatConfig, HotStats, HotView, KnowledgeConfig, PrefixHasher};
use spillway_proxy::Worker;
use spillway_request::gateway::{Counters, Gateway, HomeState, RoutingState};
use spillway_types::{RegionName, ReplicaName, unix_ms};
use spillway_view::{AffinityMove, HomeNews, Learning};
use tokio::time::{MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use super::address_book::KnownAddress;
use super::caches::{Caches, wire_epoch};
use super::context::KnowledgeContext;
use super::epoch::prompt_key;
use super::handle::{Inbox, KnowledgeEvent, KnowledgeHandle};
use super::hot::Proposer;
use super::kv_followers::Followers;
use super::published::KnowledgeFigures;
use super::saved;
use super::speeds::Speeds;

/// Pause between the first news and learning from them, and between two times of learning: one
/// wake-up handles all news that arrive in between. The next turn of a conversation never comes as
/// soon, and of prompts that share their beginning none is in a cache before the first one was
/// read.
const GATHER: Duration = Duration::from_millis(25);
/// Period of sharing prompts with the region's other nodes.
const FLUSH: Duration = Duration::from_millis(25);
/// Period of publishing speeds and figures.
const PUBLISH: Duration = Duration::from_millis(100);
/// Shortest time between two proposals of hot blocks: each is an entry of the log.
const PROPOSE: Duration = Duration::from_secs(2);
/// Period of writing speeds to disk; what a crash loses is learned again from a hundred replies.
const SAVE: Duration = Duration::from_secs(60);
/// Least number of blocks in a prompt whose region is reported to the other nodes: any region reads
/// a shorter one in less time than the way to another region takes.
const TURN_BLOCKS_MIN: usize = 4;

/// Task that learns from replies, pages and other nodes.
#[derive(Debug)]
pub struct KnowledgeTask {
    config: KnowledgeConfig,
    routing: Arc<RoutingState>,
    homes: Arc<HomeState>,
    counters: Arc<Counters>,
    workers: Vec<Arc<Worker>>,
    handle: Arc<KnowledgeHandle>,
    inbox: Inbox,
    caches: Caches,
    speeds: Speeds,
    proposer: Proposer,
    followers: Followers,
    /// Ties to the cluster; `None` for a node without one.
    context: Option<Arc<KnowledgeContext>>,
    /// Epoch of the key that prompts are hashed with.
    epoch: u64,
    /// Digest of the hot blocks that the view was made of.
    hot_digest: u128,
    hot: HotStats,
    hot_regions: Arc<[(RegionName, u64)]>,
    began: Instant,
}

impl KnowledgeTask {
    /// Creates the task, which learns from `workers`, and lets the gateway read the index.
    pub fn new(
        config: KnowledgeConfig,
        gateway: &Gateway,
        workers: &[Arc<Worker>],
    ) -> (Self, Arc<KnowledgeHandle>) {
        let (index, reader) = FineIndex::new(config.index);
        gateway.routing.knowledge.set_index(reader, config.prefix.block_bytes as u32);
        let (handle, inbox) = KnowledgeHandle::new();
        let mut caches = Caches::new(index, config.prefix.block_bytes);
        gateway.routing.knowledge.set_forwards(caches.forwards().0.reader());
        let task = Self {
            caches,
            config,
            routing: Arc::clone(&gateway.routing),
            homes: Arc::clone(&gateway.homes),
            counters: Arc::clone(&gateway.counters),
            workers: workers.to_vec(),
            handle: Arc::clone(&handle),
            inbox,
            speeds: Speeds::default(),
            proposer: Proposer::default(),
            followers: Followers::new(),
            context: None,
            epoch: 0,
            hot_digest: 0,
            hot: HotStats::default(),
            hot_regions: Arc::default(),
            began: Instant::now(),
        };
        (task, handle)
    }

    /// Ties this node's knowledge to the cluster's.
    pub fn connect(&mut self, context: KnowledgeContext) {
        if self.config.is_shared {
            self.caches.share(Sharing::new(SharingConfig::default(), wire_epoch(self.epoch)));
        }
        if context.control_plane.is_some() {
            self.caches.keep_heat(HeatConfig::default());
        }
        self.context = Some(Arc::new(context));
    }

    /// Learns on a thread of its own until `stop`, and then writes the speeds. Goes on with those
    /// that were learned before the node was stopped.
    ///
    /// # Errors
    /// Returns an error if the thread can't be started.
    pub fn start(mut self, stop: CancellationToken) -> io::Result<JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = Builder::new().name("spillway-learns".to_owned());
        thread.spawn(move || {
            // Here, as the disk may hang.
            self.restore();
            runtime.block_on(self.run(stop));
        })
    }

    fn restore(&mut self) {
        let Some(path) = self.file() else { return };
        match saved::load(&path) {
            Ok(models) => self.speeds = Speeds::restored(models),
            Err(error) => {
                let path = path.display();
                tracing::warn!(%path, %error, "saved speeds can't be read: learning starts over");
            }
        }
    }

    async fn run(mut self, stop: CancellationToken) {
        let routing = Arc::clone(&self.routing);
        let mut publications = self.publications();
        let [mut flush, mut publish, mut propose, mut save] =
            [FLUSH, PUBLISH, PROPOSE, SAVE].map(ticks);
        // Time of taking in what was learned; `None` while there is nothing new.
        let mut due = None;
        loop {
            tokio::select! {
                () = routing.knowledge.learned(), if due.is_none() => due = Some(Instant::now() + GATHER),
                () = passed(due) => due = self.learn().then(|| Instant::now() + GATHER),
                Some((from, datagram)) = self.inbox.datagrams.recv() => {
                    let now_ms = self.now_ms();
                    self.caches.receive(&from, &datagram, now_ms);
                }
                Some(event) = self.inbox.events.recv() => self.note(event),
                Some(delivery) = self.followers.next() => {
                    // An engine reports a prompt after it was sent, so the prompt must be known.
                    self.learn();
                    let now_ms = self.now_ms();
                    self.caches.events(&delivery.replica, delivery.news, now_ms);
                }
                Ok(()) = self.inbox.replicas.changed() => self.reconcile(),
                () = changed(&mut publications) => self.follow_published(),
                _ = flush.tick(), if self.has_news() => self.flush(),
                _ = publish.tick() => self.publish(),
                _ = propose.tick() => self.propose(),
                _ = save.tick() => self.save(),
                () = stop.cancelled() => break,
            }
        }
        self.learn();
        self.save();
    }

    fn publications(&self) -> Option<tokio::sync::watch::Receiver<u64>> {
        let control_plane = self.context.as_ref()?.control_plane()?;
        let mut publications = control_plane.publications();
        // The state that is published already counts, too.
        publications.mark_changed();
        Some(publications)
    }

    /// Handles the workers' news. Returns true if there were any.
    fn learn(&mut self) -> bool {
        // Replicas must be known before their prompts: otherwise the first prompts of a view would
        // be lost.
        if self.inbox.replicas.has_changed().unwrap_or(false) {
            self.reconcile();
        }
        // Speeds outlive a restart, so their age is counted by the clock.
        let (heat_ms, clock_ms) = (self.now_ms(), unix_ms(SystemTime::now()));
        let Self { workers, caches, speeds, homes, counters, context, .. } = self;
        let region = context.as_ref().map(|context| context.me.1.clone());
        let mut taken = 0;
        for worker in workers {
            taken += worker.drain_learnings(|learning| match learning {
                Learning::Sent { identity, chain, is_guest } => {
                    caches.sent(identity, chain.as_slice(), heat_ms);
                    // The node that forwarded a guest reports it.
                    if let Some(region) = region.as_ref().filter(|_| !is_guest) {
                        note_turn(homes, counters, region, chain.as_slice());
                    }
                }
                Learning::Forwarded { region, chain } => {
                    let (forwards, sharing) = caches.forwards();
                    forwards.began(&region, chain.as_slice(), sharing);
                }
                Learning::ForwardReplied(reply) => {
                    let (forwards, sharing) = caches.forwards();
                    forwards.replied(&reply, sharing);
                }
                Learning::Unread { identity, chain } => caches.unread(identity, chain.as_slice()),
                Learning::Begun(begun) => {
                    if let Some(known) = caches.known(begun.identity) {
                        speeds.begin(&known.name, &begun, clock_ms);
                    }
                }
                Learning::Replied(replied) => {
                    caches.replied(&replied, heat_ms);
                    if let Some(known) = caches.known(replied.identity) {
                        speeds.learn(&known.name, &replied, clock_ms);
                    }
                }
            });
        }
        taken > 0
    }

    fn note(&mut self, event: KnowledgeEvent) {
        match event {
            KnowledgeEvent::Reported(replica, report) => {
                if let Some(tokens) = self.caches.reported(&replica, &report) {
                    self.speeds.set_kv_tokens(&replica, tokens);
                }
            }
            KnowledgeEvent::Returned(replica) => self.caches.returned(&replica),
            KnowledgeEvent::Emptied(replica) => self.caches.empty(&replica, "it starts over"),
        }
    }

    fn reconcile(&mut self) {
        let replicas = self.inbox.replicas.borrow_and_update().clone();
        let gone = self.caches.reconcile(&replicas, Instant::now());
        self.forget(&gone);
        let ended = self.followers.reconcile(&replicas);
        self.caches.follow_events(&ended, &self.followers);
    }

    fn forget(&mut self, gone: &[KnownAddress]) {
        gone.iter().for_each(|known| self.speeds.forget(&known.name));
    }

    /// Returns true if there is something to send to other nodes of the region.
    fn has_news(&mut self) -> bool {
        self.context.is_some() && self.caches.sharing().is_some_and(|sharing| sharing.is_due())
    }

    fn flush(&mut self) {
        if let (Some(context), Some(sharing)) = (&self.context, self.caches.sharing()) {
            let datagrams = sharing.flush();
            context.send(datagrams);
        }
    }

    fn publish(&mut self) {
        let gone = self.caches.forget_absent(Instant::now());
        self.forget(&gone);
        let regions = self.routing.regions();
        let forwards = self.caches.forwards().0;
        if let Some(holders) = forwards.set_regions(regions.others.iter().map(|other| &other.name))
        {
            self.routing.knowledge.replace_forward_holders(Arc::new(holders));
        }
        // In a block of its own, since the borrow keeps new lists of replicas out.
        let published = {
            let replicas = self.inbox.replicas.borrow();
            self.speeds.at(&replicas, unix_ms(SystemTime::now()))
        };
        self.caches.size(|name: &ReplicaName| published.of_replica(name).bytes_per_token);
        self.handle.published.store(Arc::new(published));
        self.caches.settle_events(self.now_ms());
        let (index, sharing) = self.caches.figures();
        self.handle.figures.store(Arc::new(KnowledgeFigures {
            index,
            hot: self.hot,
            hot_regions: Arc::clone(&self.hot_regions),
            sharing,
            kv_events: self.caches.event_figures(),
            models: self.speeds.len() as u64,
            proposals: self.proposer.counts,
            // The handle counts these itself.
            events_dropped: 0,
        }));
    }

    fn propose(&mut self) {
        let now_ms = self.now_ms();
        let Some(context) = &self.context else { return };
        if context.control_plane.is_some() {
            let is_speaker = self.handle.is_speaker.load(Ordering::Relaxed);
            self.proposer.turn((is_speaker, self.epoch, now_ms), &mut self.caches, context);
        }
    }

    fn follow_published(&mut self) {
        let control_plane = self.context.as_ref().and_then(|context| context.control_plane());
        if let Some(control_plane) = control_plane {
            self.follow(&control_plane.published());
        }
    }

    /// Applies the agreed state: the epoch of the key, and hot blocks.
    pub fn follow(&mut self, state: &State) {
        if state.key_epoch() != self.epoch {
            self.rotate(state.key_epoch());
        }
        let hot = state.hot();
        let digest = hot.digest();
        if digest != self.hot_digest {
            self.hot_digest = digest;
            self.hot = hot.stats();
            let regions = hot.regions();
            self.hot_regions = regions
                .map(|(name, blocks)| (name.clone(), blocks.entries().len() as u64))
                .collect();
            self.routing.knowledge.replace_hot(Arc::new(HotView::new(hot)));
        }
    }

    /// Has prompts hashed with another key. Prompts under way have hashes of the old key: what they
    /// teach is never found again, and is dropped like anything unused.
    fn rotate(&mut self, epoch: u64) {
        let Some(context) = &self.context else { return };
        let key = prompt_key(context.prefix_key, epoch);
        match PrefixHasher::new(key, self.config.prefix) {
            Ok(hasher) => self.routing.replace_hasher(hasher),
            // The key worked with these sizes when the node was started.
            Err(error) => {
                return tracing::error!(%error, "the key for hashing prompts can't be changed");
            }
        }
        tracing::info!(epoch, "prompts are hashed with another key");
        self.epoch = epoch;
        self.caches.set_epoch(epoch);
        self.proposer.start_over();
    }

    /// Returns the path of the file for speeds; `None` if they are not kept.
    fn file(&self) -> Option<PathBuf> {
        let folder = self.context.as_ref()?.data.as_ref()?;
        self.config.is_kept.then(|| saved::path(folder))
    }

    fn save(&self) {
        let Some(path) = self.file() else { return };
        // Writing blocks this thread; only learning waits during the write.
        if let Err(error) = saved::save(&path, self.speeds.to_keep()) {
            tracing::warn!(path = %path.display(), %error, "replica speeds can't be saved");
        }
    }

    /// Returns milliseconds by a clock that never goes back.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Notes that this region serves a turn of a conversation, and informs the other nodes.
fn note_turn(homes: &HomeState, counters: &Counters, region: &RegionName, chain: &[u64]) {
    let Some(block) = chain.last().copied().filter(|_| chain.len() >= TURN_BLOCKS_MIN) else {
        return;
    };
    if homes.conversations.moved_to(chain, region) {
        counters.affinity_moves.count(AffinityMove::ConversationToRegion);
    }
    homes.outbox.push(|| HomeNews::Conversation { block, region: None });
}

/// Returns at this time; never, without one.
async fn passed(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Returns when the agreed state has changed; never, without one.
async fn changed(publications: &mut Option<tokio::sync::watch::Receiver<u64>>) {
    let Some(publications) = publications else { return std::future::pending().await };
    if publications.changed().await.is_err() {
        // The node ends.
        std::future::pending::<()>().await;
    }
}

fn ticks(period: Duration) -> tokio::time::Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
