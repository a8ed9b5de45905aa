//! Router of tests that follows a given rule, and records all that it sees and receives.

use std::cell::RefCell;
use std::rc::Rc;

use spillway_route::Guest;
use spillway_types::KvEvent;

use super::{World, WorldConfig};
use crate::router::{
    Ask, CacheNews, CacheReport, Forwarded, NodePosition, OwnReplica, RemoteRegion, Router,
    RouterVerdict, Stage, WorldView, Written,
};
use crate::{Figures, Session};

/// Verdict about a request with this number of a node of this region; `hop` is 1 for a guest.
pub(super) type Rule = fn(request: usize, region: usize, hop: u8) -> RouterVerdict;

/// Entry of the list, with the node that made it and the milliseconds since the beginning.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) node: usize,
    pub(super) now_ms: u64,
    pub(super) seen: Seen,
}

#[derive(Clone, Debug)]
pub(super) enum Seen {
    WorldView {
        request: usize,
        replicas: Vec<OwnReplica>,
        others: Vec<RemoteRegion>,
    },
    Written {
        replica: usize,
        blocks: usize,
        is_own: bool,
    },
    /// Blocks that an engine stored and evicted; `None` if events got lost.
    Cache {
        replica: usize,
        blocks: Option<(usize, usize)>,
    },
    Forwarded {
        region: usize,
        stage: &'static str,
        whole: usize,
        is_own: bool,
    },
}

#[derive(Debug)]
struct Listener {
    node: usize,
    position: NodePosition,
    rule: Rule,
    notes: Rc<RefCell<Vec<Note>>>,
}

impl Listener {
    fn note(&self, now_ms: u64, seen: Seen) {
        self.notes.borrow_mut().push(Note { node: self.node, now_ms, seen });
    }
}

impl Router for Listener {
    fn decide(
        &mut self,
        ask: &Ask<'_>,
        sight: &WorldView<'_>,
        _rng: &mut fastrand::Rng,
    ) -> RouterVerdict {
        let (replicas, others) = (sight.replicas.to_vec(), sight.others.to_vec());
        self.note(sight.now_ms, Seen::WorldView { request: ask.number, replicas, others });
        (self.rule)(ask.number, self.position.region, ask.inquiry.hop)
    }

    fn admits(&mut self, _ask: &Ask<'_>, _sight: &WorldView<'_>) -> Guest {
        Guest::Welcome
    }

    fn written(&mut self, written: &Written<'_>) {
        let Written { replica, chain, now_ms, is_own, .. } = *written;
        self.note(now_ms, Seen::Written { replica, blocks: chain.len(), is_own });
    }

    fn follows_caches(&self) -> bool {
        true
    }

    fn cache_told(&mut self, report: &CacheReport<'_>) {
        let blocks = match report.news {
            CacheNews::Events(events) => {
                Some(events.iter().fold((0, 0), |(stored, removed), event| match event {
                    KvEvent::Stored(blocks) => (stored + blocks.hashes.len(), removed),
                    KvEvent::Removed { hashes, .. } => (stored, removed + hashes.len()),
                    KvEvent::Cleared => (stored, removed),
                }))
            }
            CacheNews::Missed => None,
        };
        self.note(report.now_ms, Seen::Cache { replica: report.replica, blocks });
    }

    fn forwarded(&mut self, forwarded: &Forwarded<'_>) {
        let Forwarded { region, now_ms, is_own, stage, .. } = *forwarded;
        let (stage, whole) = match stage {
            Stage::Sent => ("sent", 0),
            Stage::Replied { .. } => ("replied", 0),
            Stage::Ended { whole } => ("ended", whole.len()),
            Stage::Refused => ("refused", 0),
        };
        self.note(now_ms, Seen::Forwarded { region, stage, whole, is_own });
    }
}

/// Returns the verdict to serve a request at a replica.
pub(super) fn serve(replica: usize) -> RouterVerdict {
    RouterVerdict::Serve { replica, prediction: None }
}

/// Runs a world whose nodes follow a rule; returns the figures, the positions of the nodes, and their
/// notes.
pub(super) fn listen(
    config: &WorldConfig,
    sessions: Vec<Session>,
    rule: Rule,
) -> (Figures, Vec<NodePosition>, Vec<Note>) {
    let notes = Rc::default();
    let mut positions = Vec::new();
    let figures = World::new(config.clone(), sessions, &mut |position| {
        let node = positions.len();
        positions.push(position.clone());
        Box::new(Listener { node, position: position.clone(), rule, notes: Rc::clone(&notes) })
    })
    .run();
    (figures, positions, notes.take())
}
