//! Node of a baseline with sights made by hand.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use spillway_journey::{Event, StatusClass};
use spillway_route::{Guest, RegionReport, WaitLimits};
use spillway_types::{BlockHashes, Deadline, Inquiry, Reading, Residency, Signals};

use super::Baseline;
use crate::router::{
    Ask, Ended, Forwarded, NodePosition, OwnReplica, Queue, RemoteRegion, Replied, Router,
    RouterVerdict, Sent, Stage, Truth, WorldView, Written,
};
use crate::text::BLOCK_TOKENS;

/// Tokens that the cache of each replica holds.
const KV_TOKENS: f32 = 64_000.0;

#[derive(Debug)]
struct Nothing;

impl Truth for Nothing {
    fn cached_blocks(&self, _replica: usize) -> u32 {
        0
    }
}

/// Request of a client, or of another region.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) number: usize,
    pub(super) chain: Vec<u64>,
    pub(super) key: u64,
    pub(super) hop: u8,
    pub(super) at_ms: u64,
}

/// Returns a client's request with this prompt.
pub(super) fn asked(number: usize, chain: &[u64]) -> Asked {
    Asked { number, chain: chain.to_vec(), key: 7, hop: 0, at_ms: 0 }
}

/// Returns a prompt of so many blocks that shares none with those of other ids.
pub(super) fn prompt(id: u64, blocks: u64) -> Vec<u64> {
    (1..=blocks).map(|block| id * 1_000 + block).collect()
}

/// Returns a prompt that begins with all of `head`.
pub(super) fn follow(head: &[u64], id: u64, blocks: u64) -> Vec<u64> {
    [head, &prompt(id, blocks)].concat()
}

/// Node in region 0.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) router: Box<dyn Router>,
    pub(super) queue: Queue,
    pub(super) replicas: Vec<OwnReplica>,
    pub(super) others: Vec<RemoteRegion>,
    start: Instant,
    rng: fastrand::Rng,
}

impl Case {
    /// Returns a node of the baseline of this name with so many idle replicas of its own.
    pub(super) fn new(name: &str, replicas: usize) -> Self {
        Self::of_regions(name, &vec![0; replicas])
    }

    /// Returns a node of the baseline of this name with an idle replica in each of these regions for
    /// its own.
    pub(super) fn of_regions(name: &str, homes: &[usize]) -> Self {
        let replicas = homes.len();
        let baseline = Baseline::named(name).unwrap();
        let position = NodePosition {
            region: 0,
            replicas,
            regions: 4,
            is_central: baseline.is_central,
            homes: homes.into(),
            seed: 0,
        };
        let known = Reading { value: 0.0, trust: 1.0 };
        let signals = Signals { queued: known, running: known, kv_use: known, ..Signals::UNKNOWN };
        let idle = OwnReplica {
            in_flight: 0,
            elsewhere: 0,
            started: 0,
            pending_tokens: 0,
            pending_elsewhere: 0,
            context_tokens: 0,
            read_tokens: 0,
            signals,
            rtt_ms: 0.0,
            is_away: false,
            slots: crate::router::Slots::default(),
        };
        #[expect(clippy::disallowed_methods, reason = "a test needs some starting moment")]
        let start = Instant::now();
        Self {
            router: baseline.make(&position, KV_TOKENS),
            queue: Queue::new(WaitLimits::default()),
            replicas: vec![idle; replicas],
            others: Vec::new(),
            start,
            rng: fastrand::Rng::with_seed(1),
        }
    }

    /// Adds an idle region to the sight.
    pub(super) fn add_region(&mut self, region: usize, rtt_ms: f32) {
        self.others.push(RemoteRegion {
            region,
            report: Some(RegionReport::default()),
            rtt_ms,
            replicas: 4,
            available: 4,
            waiting: 0,
            kv_use: 0.0,
        });
    }

    /// Sets the requests in flight at each replica.
    pub(super) fn set_loads(&mut self, loads: &[u32]) {
        for (replica, load) in self.replicas.iter_mut().zip(loads) {
            replica.in_flight = *load;
        }
    }

    /// Lets requests wait at each replica.
    pub(super) fn set_queued(&mut self, queued: &[f32]) {
        for (replica, queued) in self.replicas.iter_mut().zip(queued) {
            replica.signals.queued.value = *queued;
        }
    }

    /// Sets the share of KV in use at each replica.
    pub(super) fn set_kv_use(&mut self, kv_use: &[f32]) {
        for (replica, kv_use) in self.replicas.iter_mut().zip(kv_use) {
            replica.signals.kv_use.value = *kv_use;
        }
    }

    /// Reports to the node that it sent a request to a replica.
    pub(super) fn sent(&mut self, request: usize, replica: usize, chain: &[u64], now_ms: u64) {
        self.router.sent(&Sent { request, replica, chain, is_own: true, now_ms });
    }

    /// Reports a reply's first token to the node.
    pub(super) fn replied(
        &mut self,
        request: usize,
        (replica, first_token_ms): (usize, f64),
        chain: &[u64],
        now_ms: u64,
    ) {
        let prompt_tokens = chain.len() as u32 * BLOCK_TOKENS;
        self.router.replied(&Replied {
            request,
            replica,
            chain,
            prompt_tokens,
            cached_tokens: 0,
            first_token_ms,
            prompt_bytes: 4 * prompt_tokens,
            prediction: None,
            now_ms,
        });
    }

    /// Reports to the node how far its request in another region has come.
    pub(super) fn forwarded(
        &mut self,
        request: usize,
        region: usize,
        stage: Stage<'_>,
        now_ms: u64,
    ) {
        let forwarded = Forwarded { request, region, chain: &[], now_ms, is_own: true, stage };
        self.router.forwarded(&forwarded);
    }

    /// Reports a reply's end to the node.
    pub(super) fn ended(&mut self, request: usize, replica: usize, chain: &[u64]) {
        self.ended_after(request, replica, chain, chain.len());
    }

    /// Reports to the node the end of a reply that follows so many blocks.
    pub(super) fn ended_after(
        &mut self,
        request: usize,
        replica: usize,
        chain: &[u64],
        prompt_blocks: usize,
    ) {
        let ended = Ended {
            request,
            replica,
            chain,
            prompt_blocks,
            tokens: 9,
            span_ms: 90.0,
            context_tokens: 0.0,
            read_tokens: 0.0,
        };
        self.router.ended(&ended);
        self.router.written(&Written {
            replica,
            chain,
            prompt_blocks,
            prompt_tokens: chain.len() as u32 * BLOCK_TOKENS,
            cached_tokens: 0,
            reply_tokens: 10,
            now_ms: 0,
            is_own: true,
        });
    }

    /// Lets the node look at a request.
    fn look<R>(
        &mut self,
        asked: &Asked,
        act: impl FnOnce(&mut dyn Router, &Ask<'_>, &WorldView<'_>, &mut fastrand::Rng) -> R,
    ) -> R {
        let now = self.start + Duration::from_millis(asked.at_ms);
        let prompt_tokens = asked.chain.len() as u32 * BLOCK_TOKENS;
        let inquiry = Inquiry {
            model: None,
            prefix: BlockHashes::new(asked.chain.clone()),
            prompt_bytes: 4 * prompt_tokens,
            output_tokens_max: None,
            output_tokens: None,
            whole_tokens: None,
            answers: 1,
            affinity: Some(asked.key),
            session: None,
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            deadline: Deadline::after(now, Duration::from_secs(60)),
            hop: asked.hop,
            tenant: None,
            priority: 0,
            residency: Residency::default(),
            is_isolated: false,
        };
        let ask = Ask {
            number: asked.number,
            inquiry: &inquiry,
            prompt_tokens,
            ticket: None,
            tenant: 0,
            weight: 1,
        };
        let sight = WorldView {
            now,
            now_ms: asked.at_ms,
            replicas: &self.replicas,
            others: &self.others,
            own: RegionReport::default(),
            queue: &self.queue,
            nodes: 1,
            guests: 0,
            truth: &Nothing,
        };
        act(self.router.as_mut(), &ask, &sight, &mut self.rng)
    }

    /// Returns the verdict about a request.
    pub(super) fn decide(&mut self, asked: &Asked) -> RouterVerdict {
        self.look(asked, |router, ask, sight, rng| router.decide(ask, sight, rng))
    }

    /// Returns the replica that a request is sent to.
    pub(super) fn replica(&mut self, asked: &Asked) -> usize {
        let verdict = self.decide(asked);
        let RouterVerdict::Serve { replica, .. } = verdict else { panic!("{verdict:?}") };
        replica
    }

    /// Returns the replica that a request is sent to, and reports to the node that it was sent.
    pub(super) fn serve(&mut self, asked: &Asked) -> usize {
        let replica = self.replica(asked);
        self.sent(asked.number, replica, &asked.chain, asked.at_ms);
        replica
    }

    /// Reports to the node what happened to a request.
    pub(super) fn handle(&mut self, asked: &Asked, event: Event) {
        self.look(asked, |router, ask, sight, _| router.handle(ask, sight, event));
    }

    /// Lets the replica that was chosen last reject a request.
    pub(super) fn reject(&mut self, asked: &Asked) {
        let status = StatusClass::NoRoom;
        self.handle(asked, Event::Replied { status, can_repeat: true });
    }

    /// Returns true if the node takes the request as a guest.
    pub(super) fn admits(&mut self, asked: &Asked) -> bool {
        self.look(asked, |router, ask, sight, _| router.admits(ask, sight) == Guest::Welcome)
    }
}
