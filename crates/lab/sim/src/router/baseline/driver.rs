//! Driver of a rule: retries, the queue, and the knowledge of caches, which all baselines share.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use spillway_journey::{Claim, Event, StatusClass, WaitTerms};
use spillway_route::{Guest, ShedReason};
use spillway_types::Prediction;

use super::rule::{News, Rule};
use super::view::{Choice, View};
use crate::router::cache_index::CacheIndex;
use crate::router::{
    Ask, CacheReport, Ended, Forwarded, NodePosition, Replied, Router, RouterVerdict, Sent,
    WorldView, Written,
};

/// Replicas that are asked after the first one had no room.
const RETRIES_MAX: usize = 3;

/// Pause of a request that is kept, before the node checks it again without a call: half the time
/// between two reports, since little changes in between except for events that call it.
const PAUSE: Duration = Duration::from_millis(50);

/// Router that follows a [`Rule`].
#[derive(Debug)]
pub(super) struct Driver {
    rule: Box<dyn Rule>,
    index: CacheIndex,
    /// Leading blocks of the present request's prompt at each replica.
    cached: Vec<u32>,
    /// Replica whose turn it is among equals: the one after the last that was chosen.
    turn: usize,
    /// Requests that the node decides about, by their numbers.
    visits: BTreeMap<usize, Visit>,
}

/// Blocks that a baseline knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// Blocks of prompts, as a router sees them when it sends them.
    Prompts,
    /// Blocks of prompts and replies, as engines publish them in events. Until the events of a prompt
    /// come, its blocks count as cached, as with the better ones of these routers.
    Events,
}

/// Request that the node decides about.
#[derive(Debug)]
struct Visit {
    since: Instant,
    tried: Vec<usize>,
    /// Replica that was chosen last.
    chosen: Option<usize>,
    /// True if it is the request's turn, as the first of the queue.
    is_called: bool,
    is_queue_full: bool,
    /// True if the request was in another region, which did not serve it.
    came_back: bool,
}

impl Driver {
    /// Returns a router with this rule. Each replica's cache holds so many tokens.
    pub(super) fn new(
        rule: Box<dyn Rule>,
        knowledge: Knowledge,
        position: &NodePosition,
        kv_tokens: f32,
    ) -> Self {
        Self {
            rule,
            index: match knowledge {
                Knowledge::Prompts => CacheIndex::of_replicas(position.replicas, kv_tokens),
                Knowledge::Events => CacheIndex::following_events(position.replicas, kv_tokens),
            },
            cached: vec![0; position.replicas],
            // Nodes begin at different replicas.
            turn: position.seed as usize % 1_024,
            visits: BTreeMap::new(),
        }
    }

    fn visit(&mut self, request: usize, now: Instant) -> &mut Visit {
        self.visits.entry(request).or_insert_with(|| Visit {
            since: now,
            tried: Vec::new(),
            chosen: None,
            is_called: false,
            is_queue_full: false,
            came_back: false,
        })
    }

    /// Returns the verdict that keeps a request.
    fn keep(&mut self, ask: &Ask<'_>, now: Instant) -> RouterVerdict {
        let visit = self.visit(ask.number, now);
        // The queue has a limit, which no baseline knows: the rest waits outside.
        if std::mem::take(&mut visit.is_queue_full) {
            return RouterVerdict::Pause(PAUSE);
        }
        let terms = WaitTerms {
            until: ask.inquiry.deadline.at(),
            over: ShedReason::Waited,
            begin_by: None,
            // First come, first served, even for requests that were called without success.
            turn_by: Some(visit.since),
            pause: PAUSE,
            passes_turn_on: false,
        };
        RouterVerdict::Wait { terms, claim: Claim::Newcomer }
    }
}

impl Router for Driver {
    fn decide(
        &mut self,
        ask: &Ask<'_>,
        sight: &WorldView<'_>,
        rng: &mut fastrand::Rng,
    ) -> RouterVerdict {
        let visit = self.visit(ask.number, sight.now);
        let is_first = match ask.ticket {
            Some(ticket) => sight.queue.waiting_of(ticket, sight.now).ahead == 0,
            None => std::mem::take(&mut visit.is_called) || sight.queue.is_empty(),
        };
        if !is_first {
            return self.keep(ask, sight.now);
        }
        let came_back = visit.came_back;
        let tried = std::mem::take(&mut visit.tried);
        self.index.look_up(ask.inquiry.prefix.as_slice());
        for (replica, cached) in self.cached.iter_mut().enumerate() {
            *cached = self.index.blocks(replica);
        }
        let view = View {
            ask,
            sight,
            cached: &self.cached,
            tried: &tried,
            may_leave: ask.inquiry.hop == 0 && !came_back,
            turn: self.turn,
        };
        if tried.len() > RETRIES_MAX || view.open().next().is_none() {
            return RouterVerdict::Fail;
        }
        let choice = self.rule.choose(&view, rng);
        let verdict = match choice {
            Choice::Replica(replica) => Some(RouterVerdict::Serve {
                replica,
                // The world derives the tokens that a replica has to read from the cached tokens
                // that the prediction names.
                prediction: Some(Prediction {
                    cached_tokens: view.cached_tokens(replica),
                    prompt_tokens: ask.prompt_tokens,
                    ..Prediction::default()
                }),
            }),
            Choice::Region(region) => Some(RouterVerdict::Forward(region)),
            Choice::Stay => None,
        };
        let visit = self.visit(ask.number, sight.now);
        visit.tried = tried;
        if let Some(RouterVerdict::Serve { replica, .. }) = verdict {
            visit.chosen = Some(replica);
            self.turn = replica + 1;
        }
        verdict.unwrap_or_else(|| self.keep(ask, sight.now))
    }

    fn handle(&mut self, ask: &Ask<'_>, _sight: &WorldView<'_>, event: Event) {
        let Some(visit) = self.visits.get_mut(&ask.number) else { return };
        match event {
            Event::Replied { status: StatusClass::NoRoom, .. } | Event::Failed { .. } => {
                visit.tried.extend(visit.chosen);
            }
            Event::Turn { .. } => visit.is_called = true,
            Event::QueueFull => visit.is_queue_full = true,
            Event::RegionFailed { .. } => visit.came_back = true,
            _ => {}
        }
    }

    fn left(&mut self, request: usize) {
        self.visits.remove(&request);
        self.rule.note(&News::Left(request));
    }

    fn admits(&mut self, _ask: &Ask<'_>, _sight: &WorldView<'_>) -> Guest {
        // No baseline refuses guests: those that keep requests queue them.
        Guest::Welcome
    }

    fn sent(&mut self, sent: &Sent<'_>) {
        self.index.sent(sent);
        if sent.is_own {
            self.rule.note(&News::Sent(sent));
        }
    }

    fn replied(&mut self, replied: &Replied<'_>) {
        self.index.replied(replied);
        self.rule.note(&News::Replied(replied));
    }

    fn ended(&mut self, ended: &Ended<'_>) {
        self.rule.note(&News::Ended(ended));
    }

    fn forwarded(&mut self, forwarded: &Forwarded<'_>) {
        if forwarded.is_own {
            self.rule.note(&News::Forwarded(forwarded));
        }
    }

    fn written(&mut self, written: &Written<'_>) {
        self.index.written(written);
    }

    fn follows_caches(&self) -> bool {
        self.index.follows_events()
    }

    fn cache_told(&mut self, report: &CacheReport<'_>) {
        self.index.cache_told(report);
    }
}
