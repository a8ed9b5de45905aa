//! Handle of the thread that learns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use spillway_replicas::CacheReport;
use spillway_types::{NodeName, ReplicaName};
use spillway_view::Replica;
use tokio::sync::{mpsc, watch};

use super::published::{KnowledgeFigures, Published};

/// Capacity of the queue of events: as many as 1,000 replicas' pages cause in four readings.
const EVENTS_MAX: usize = 4_096;
/// Capacity of the queue of datagrams: as many as seven nodes send in four flushes.
const DATAGRAMS_MAX: usize = 2_048;

/// Event that concerns a replica's caches.
#[derive(Clone, Debug, PartialEq)]
pub enum KnowledgeEvent {
    /// A page of the replica reported on the caches.
    Reported(ReplicaName, CacheReport),
    /// The replica was down, and is back, perhaps as another process.
    Returned(ReplicaName),
    /// The caches are empty: the replica reported that it loads, or was registered again.
    Emptied(ReplicaName),
}

/// Channels to the thread that learns, and its published results.
#[derive(Debug)]
pub struct KnowledgeHandle {
    events: mpsc::Sender<KnowledgeEvent>,
    datagrams: mpsc::Sender<(NodeName, Bytes)>,
    replicas: watch::Sender<Vec<Arc<Replica>>>,
    pub(super) published: ArcSwap<Published>,
    pub(super) figures: ArcSwap<KnowledgeFigures>,
    /// True if this node speaks for its region.
    pub(super) is_speaker: AtomicBool,
    dropped: AtomicU64,
}

/// Receiving ends of the channels.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) events: mpsc::Receiver<KnowledgeEvent>,
    pub(super) datagrams: mpsc::Receiver<(NodeName, Bytes)>,
    pub(super) replicas: watch::Receiver<Vec<Arc<Replica>>>,
}

impl KnowledgeHandle {
    /// Creates the handle, without any knowledge yet, and the receiving ends.
    pub(super) fn new() -> (Arc<Self>, Inbox) {
        let (event_sender, events) = mpsc::channel(EVENTS_MAX);
        let (datagram_sender, datagrams) = mpsc::channel(DATAGRAMS_MAX);
        let (replica_sender, replicas) = watch::channel(Vec::new());
        let handle = Self {
            events: event_sender,
            datagrams: datagram_sender,
            replicas: replica_sender,
            published: ArcSwap::default(),
            figures: ArcSwap::default(),
            is_speaker: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
        };
        (Arc::new(handle), Inbox { events, datagrams, replicas })
    }

    /// Hands an event over; never waits. An event that finds no room is counted: its content will
    /// be reported again, or replies will show it.
    pub fn tell(&self, event: KnowledgeEvent) {
        if self.events.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Hands over a datagram about prompts from another node of the region; never waits. It may be
    /// lost, as any datagram.
    pub fn receive(&self, from: &NodeName, datagram: Bytes) {
        if self.datagrams.try_send((from.clone(), datagram)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sets the list of all replicas, whether they may serve or not.
    pub fn set_replicas(&self, replicas: Vec<Arc<Replica>>) {
        self.replicas.send_replace(replicas);
    }

    /// Sets whether this node speaks for its region.
    pub fn set_speaker(&self, is_speaker: bool) {
        self.is_speaker.store(is_speaker, Ordering::Relaxed);
    }

    /// Returns the speeds, at most 100 ms old.
    pub fn published(&self) -> Arc<Published> {
        self.published.load_full()
    }

    /// Returns figures for metrics, at most 100 ms old.
    pub fn figures(&self) -> KnowledgeFigures {
        let events_dropped = self.dropped.load(Ordering::Relaxed);
        KnowledgeFigures { events_dropped, ..KnowledgeFigures::clone(&self.figures.load()) }
    }
}
