//! How others reach the thread that learns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use spillway_proxy::Replica;
use spillway_replicas::CacheReport;
use spillway_types::{NodeName, ReplicaName};
use tokio::sync::{mpsc, watch};

use super::published::{Figures, Published};

/// Events that may wait: what 1,000 replicas' pages tell in four readings.
const EVENTS_MAX: usize = 4_096;
/// Datagrams of other nodes that may wait: what seven of them send in four flushes.
const DATAGRAMS_MAX: usize = 2_048;

/// Something that concerns a replica's caches.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// One of its pages told of them.
    Reported(ReplicaName, CacheReport),
    /// It was down, and is back; whether it is the same process nobody said.
    Returned(ReplicaName),
    /// They are empty: it said that it loads, or was registered anew.
    Emptied(ReplicaName),
}

/// The way to the thread that learns, and what it publishes.
#[derive(Debug)]
pub(crate) struct Knowledge {
    events: mpsc::Sender<Event>,
    datagrams: mpsc::Sender<(NodeName, Bytes)>,
    replicas: watch::Sender<Vec<Arc<Replica>>>,
    pub(super) published: ArcSwap<Published>,
    pub(super) figures: ArcSwap<Figures>,
    /// Whether this node speaks for its region.
    pub(super) is_speaker: AtomicBool,
    dropped: AtomicU64,
}

/// The other ends.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) datagrams: mpsc::Receiver<(NodeName, Bytes)>,
    pub(super) replicas: watch::Receiver<Vec<Arc<Replica>>>,
}

impl Knowledge {
    /// Nothing is known yet.
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

    /// Hands an event over; never waits. One that finds no room is counted: what it would have said
    /// is told again, or found out by replies.
    pub(crate) fn tell(&self, event: Event) {
        if self.events.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Hands over what another node of the region sent of prompts; never waits. It may be lost, as
    /// any datagram.
    pub(crate) fn hear(&self, from: &NodeName, datagram: Bytes) {
        if self.datagrams.try_send((from.clone(), datagram)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// These are all replicas there are, whether they may serve or not.
    pub(crate) fn set_replicas(&self, replicas: Vec<Arc<Replica>>) {
        self.replicas.send_replace(replicas);
    }

    /// Says whether this node speaks for its region.
    pub(crate) fn set_speaker(&self, is_speaker: bool) {
        self.is_speaker.store(is_speaker, Ordering::Relaxed);
    }

    /// Speeds, at most 100 ms old.
    pub(crate) fn published(&self) -> Arc<Published> {
        self.published.load_full()
    }

    /// Figures for metrics, at most 100 ms old.
    pub(crate) fn figures(&self) -> Figures {
        let events_dropped = self.dropped.load(Ordering::Relaxed);
        Figures { events_dropped, ..Figures::clone(&self.figures.load()) }
    }
}
