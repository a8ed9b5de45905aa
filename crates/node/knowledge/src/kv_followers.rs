//! Subscriptions to the KV events of all replicas that have them.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillway_replicas::{KvDelivery, KvQueue, KvSource, follow_kv_events};
use spillway_tasks::restarted;
use spillway_types::ReplicaName;
use spillway_view::Replica;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Capacity of the queue of news. Subscriptions wait while it is full. During that time publishers
/// keep their messages or leave them out, which shows.
const NEWS_MAX: usize = 1_024;

/// Tasks that read KV events, one for each replica.
#[derive(Debug)]
pub(crate) struct Followers {
    running: BTreeMap<ReplicaName, (KvSource, DropGuard)>,
    queue: KvQueue,
    news: mpsc::Receiver<KvDelivery>,
    tasks: TaskTracker,
}

impl Followers {
    /// Creates an empty set.
    pub(crate) fn new() -> Self {
        let (sender, news) = mpsc::channel(NEWS_MAX);
        let queue = KvQueue::new(sender);
        Self { running: BTreeMap::new(), queue, news, tasks: TaskTracker::new() }
    }

    /// Reads the events of exactly these replicas from now on, on the runtime of the caller. Returns
    /// those whose events are not read any more, or come from another address.
    pub(crate) fn reconcile(&mut self, replicas: &[Arc<Replica>]) -> Vec<ReplicaName> {
        let sources = replicas.iter().filter_map(|replica| {
            let (spec, resolver) = (replica.spec(), replica.connections().resolver());
            let (replica, host) = (spec.name.clone(), spec.host.clone());
            let port = spec.kv_events_port?;
            let resolver = resolver.clone();
            Some((replica.clone(), KvSource { replica, resolver, host, port }))
        });
        let sources: BTreeMap<_, _> = sources.collect();
        let is_other = |name: &ReplicaName, (known, _): &mut (KvSource, DropGuard)| {
            sources.get(name) != Some(&*known)
        };
        // The drop of a guard ends its task.
        let ended = self.running.extract_if(.., is_other).map(|(name, _)| name).collect();
        for (name, source) in sources {
            let (tasks, queue) = (&self.tasks, &self.queue);
            self.running.entry(name).or_insert_with(|| {
                let stop = CancellationToken::new();
                let (followed, queue) = (source.clone(), queue.clone());
                let follow = restarted("KV events of a replica", move || {
                    follow_kv_events(followed.clone(), 0, queue.clone())
                });
                tasks.spawn(stop.clone().run_until_cancelled_owned(follow));
                (source, stop.drop_guard())
            });
        }
        ended
    }

    /// Returns true if the events of this replica are read.
    pub(crate) fn follows(&self, name: &ReplicaName) -> bool {
        self.running.contains_key(name)
    }

    /// Returns the next news. Never ends, as the sender lives here too.
    pub(crate) async fn next(&mut self) -> Option<KvDelivery> {
        self.news.recv().await
    }
}
