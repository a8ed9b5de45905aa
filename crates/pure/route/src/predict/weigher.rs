//! Terms of one candidate's cost.

use spillway_types::{Inquiry, Prediction, Reading, Signals, Speed};

use super::cost::{Cost, sound};
use super::fit::{Fit, Room};
use super::request::RequestSize;
use super::usual::CandidateMeans;
use crate::field::{Field, Usable};
use crate::rendezvous::uniform;
use crate::reported::in_system;
use crate::{Goal, PredictedTuning, Snapshot};

/// Use of a KV cache, as a share, from which on it shows how many requests fit in. Below it, one
/// long prompt can be most of the use.
const KV_USE_TELLING: f32 = 0.3;

/// Facts of one decision that hold for all candidates.
#[derive(Debug)]
pub(crate) struct Weigher {
    tuning: PredictedTuning,
    request: RequestSize,
    usual: CandidateMeans,
    /// Tokens of context beyond the least of the group up to which a replica is not slowed down.
    light_context: f32,
}

/// Prediction for a request at one candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight {
    pub(crate) cost: Cost,
    pub(crate) fit: Fit,
    pub(crate) prediction: Prediction,
    /// Size of the KV cache in tokens; 0 if unknown.
    pub(crate) kv_tokens: f32,
    /// Requests that wait there.
    pub(crate) queued: f32,
    /// Wait there for each request that runs there, by which a candidate in slow start has less in
    /// proportion to its ramp.
    held_up_ms: f32,
}

impl Weight {
    /// Returns the cost with the wait added again for each request that runs there. Replicas that
    /// hold equally much of the prompt are compared by it.
    pub(crate) fn contended_ms(&self) -> f32 {
        self.cost.total_ms() + self.held_up_ms
    }
}

/// Part of a [`Weight`]: the rest is needed of few candidates only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outline {
    /// Cost without the tie-breaker.
    pub(crate) cost: Cost,
    load: ReplicaLoad,
    prompt: f32,
    cached: f32,
    rest_ms: f32,
    is_queue: bool,
    /// As in [`Weight`].
    pub(crate) held_up_ms: f32,
    /// Size of the KV cache in tokens; 0 if unknown.
    pub(crate) kv_tokens: f32,
}

/// Present load of a candidate.
#[derive(Clone, Copy, Debug)]
struct ReplicaLoad {
    requests: f32,
    newer: f32,
    queued: f32,
    running: f32,
}

impl Weigher {
    /// Learns the means of the group. Draws from `rng` only for a request without a prompt.
    pub(crate) fn new(
        tuning: &PredictedTuning,
        inquiry: &Inquiry,
        field: &Field<'_>,
        rng: &mut fastrand::Rng,
    ) -> Self {
        let request = RequestSize::new(inquiry, tuning, field.cached_blocks_max(), rng);
        let tuning = PredictedTuning {
            kappa: sound(tuning.kappa),
            crowding: sound(tuning.crowding),
            session_ms: sound(tuning.session_ms),
            tie_ms: sound(tuning.tie_ms),
            ..*tuning
        };
        let usual = CandidateMeans::of(field);
        let Speed { step_ms, step_ms_per_thousand, .. } = usual.speed;
        let light_context = CONTEXT_STEPS * 1e3 * step_ms / step_ms_per_thousand;
        Self { tuning, request, usual, light_context }
    }

    /// Returns a hash of the beginning of the prompt; random for a request without one.
    pub(crate) fn key(&self) -> u64 {
        self.request.key
    }

    /// Returns true if a candidate could cost less than `least_ms`, by the two terms that make most
    /// of a cost: most candidates of a large group need no closer look.
    #[inline]
    pub(crate) fn may_cost_less(
        &self,
        base_weight: u32,
        snapshot: &Snapshot,
        least_ms: f32,
    ) -> bool {
        let Self { tuning, request, usual, .. } = self;
        let Snapshot { signals, speed, .. } = snapshot;
        let pace = usual.pace(base_weight);
        let trust = positive(speed.trust).min(1.0);
        let prefill_ms = mixed(speed.prefill_ms, usual.speed.prefill_ms * pace, trust);
        let floor_ms = usual.speed.floor_ms * pace;
        let bytes_per_token = speed.bytes_per_token.max(BYTES_PER_TOKEN_MIN);
        let cached_bytes = snapshot.cached_blocks as f32 * request.block_bytes;
        let linear = positive(request.prompt_bytes - cached_bytes) * prefill_ms / bytes_per_token;
        // At least as many of the present requests run as ran at the report.
        let requests = self.requests(snapshot.known(), in_system(signals), signals);
        let running = requests.min(self.ran(signals));
        let bound_ms = floor_ms + linear * (1.0 + tuning.kappa * running);
        bound_ms * BOUND_SHARE - tuning.session_ms <= least_ms
    }

    /// Weighs one candidate without the tie-breaker and without its room, which a decision does not
    /// need for most candidates.
    #[inline(always)]
    pub(crate) fn outline(
        &self,
        field: &Field<'_>,
        usable: &Usable,
        snapshot: &Snapshot,
    ) -> Outline {
        let Self { tuning, request, usual, .. } = self;
        let load = self.load(usable, &snapshot.signals);
        let pace = usual.pace(field.base_weight(usable.index));
        let speed = self.speed(&snapshot.speed, pace);
        let tokens_per_byte = speed.bytes_per_token.recip();
        let prompt = request.prompt_bytes * tokens_per_byte;
        let cached_bytes = snapshot.cached_blocks as f32 * request.block_bytes;
        let cached = (cached_bytes * tokens_per_byte).min(prompt);
        let to_read = prompt - cached;
        let linear = to_read * speed.prefill_ms;
        // On average, half of the new tokens stand before a new one, beside the cached ones.
        let context = to_read * (cached + to_read * 0.5) * 1e-3 * speed.prefill_ms_per_thousand;
        let queue_ms = match load.queued > 0.0 {
            true => load.queued * self.turn_ms(&speed, pace, load.running),
            false => 0.0,
        };
        let pending_ms = snapshot.pending_tokens as f32 * speed.prefill_ms;
        // Queue and unread prompts are two measures of one backlog: the longer one counts.
        let wait_ms = queue_ms.max(pending_ms);
        let decode_ms = speed.decode_ms * request.output_tokens;
        let crowd = (load.requests + usable.next as f32) * usual.burden(usable);
        let lag = usual.lag(usable);
        let is_session = request.session == Some(field.identity(usable.index));
        let cost = Cost {
            floor_ms: speed.floor_ms,
            wait_ms,
            prefill_ms: linear * (1.0 + speed.prefill_per_running * load.running) + context,
            decode_ms: self.generating_ms(&speed) * (1.0 + tuning.crowding * load.running),
            stall_ms: (linear + context) * tuning.kappa * load.running,
            context_ms: request.output_tokens
                * self.slowdown_ms(&speed, snapshot.context() + prompt)
                * (1.0 + load.running),
            crowding_ms: tuning.crowding * decode_ms * crowd + wait_ms * lag,
            session_ms: if is_session { tuning.session_ms } else { 0.0 },
            tie_ms: 0.0,
        };
        let is_queue = queue_ms >= pending_ms;
        let kv_tokens = speed.kv_tokens;
        // The first token is there already.
        let rest = request.whole_tokens.map_or(0.0, |tokens| positive(tokens - 1.0));
        // A mere guess at so many tokens would make any time of it.
        let rest_ms = if speed.is_decode_known { rest * speed.decode_ms } else { 0.0 };
        let held_up_ms = load.running * (wait_ms * (1.0 + lag));
        Outline { cost, load, prompt, cached, rest_ms, is_queue, held_up_ms, kv_tokens }
    }

    /// Weighs one candidate.
    #[inline(never)]
    pub(crate) fn weigh(&self, field: &Field<'_>, usable: &Usable, snapshot: &Snapshot) -> Weight {
        self.complete(field, usable, snapshot, &self.outline(field, usable, snapshot))
    }

    /// Completes an outline.
    pub(crate) fn complete(
        &self,
        field: &Field<'_>,
        usable: &Usable,
        snapshot: &Snapshot,
        outline: &Outline,
    ) -> Weight {
        let Self { tuning, request, usual, .. } = self;
        let Outline { cost, load, prompt, cached, rest_ms, is_queue, held_up_ms, kv_tokens } =
            *outline;
        let tie = uniform(request.key, field.identity(usable.index)) as f32;
        let cost = Cost { tie_ms: tuning.tie_ms * tie, ..cost };
        let room = Room {
            in_flight: usable.in_flight,
            requests: load.requests,
            newer: load.newer,
            queued: load.queued,
            running: load.running,
            kv_use: snapshot.signals.kv_use.or(usual.kv_use),
            kv_tokens,
        };
        Weight {
            cost,
            fit: room.fit(request, prompt - cached, tuning.push),
            prediction: Prediction {
                first_token_ms: cost.first_token_ms(),
                wait_ms: cost.wait_ms,
                prefill_ms: cost.prefill_ms,
                rest_ms,
                cached_tokens: cached as u32,
                prompt_tokens: prompt as u32,
                running: load.running,
                queued: if is_queue { load.queued } else { 0.0 },
                pending_tokens: if is_queue { 0.0 } else { snapshot.pending_tokens as f32 },
            },
            kv_tokens,
            queued: load.queued,
            held_up_ms,
        }
    }

    /// Returns the present requests, and how many of them wait: those beyond the number that can
    /// run at once. If requests waited at the report, that number is the requests that ran then.
    /// Otherwise the use of the cache shows how many more would have had room.
    #[inline]
    fn load(&self, usable: &Usable, signals: &Signals) -> ReplicaLoad {
        let reports = &self.usual.reports;
        let reported = in_system(signals);
        let requests = self.requests(usable.known(), reported, signals);
        let running = self.ran(signals);
        let is_queue = signals.queued.or(self.usual.queued) >= 1.0;
        // If no more requests are there than ran at the report, none waits.
        let waits = if requests <= running {
            0.0
        } else if is_queue {
            requests - running
        } else {
            let kv_use = signals.kv_use.or(self.usual.kv_use);
            let at_once =
                if kv_use >= KV_USE_TELLING { running / kv_use.min(1.0) } else { f32::INFINITY };
            positive(requests - at_once)
        };
        ReplicaLoad {
            requests,
            newer: requests - reports.before(reported),
            queued: waits,
            running: requests - waits,
        }
    }

    /// Returns the present requests there, at least those known to be in flight.
    #[inline]
    fn requests(&self, known: f32, reported: Reading, signals: &Signals) -> f32 {
        let now = self.usual.reports.now(known, reported, signals);
        if now > known { now.min(COUNT_MAX) } else { known }
    }

    /// Returns the requests that ran there at the report, or the mean if unknown.
    #[inline]
    fn ran(&self, signals: &Signals) -> f32 {
        signals.running.or(self.usual.running).max(1.0)
    }

    /// Returns the learned speed as far as it is trusted, filled up with the mean for the weight.
    ///
    /// Of the floor counts the mean, and what it has beyond twice that. Learned floors hold what
    /// requests waited for by chance: between equal replicas they differ by more than a request
    /// costs, and would send all of them to one.
    #[inline]
    fn speed(&self, learned: &Speed, pace: f32) -> Speed {
        let usual = &self.usual.speed;
        let trust = positive(learned.trust).min(1.0);
        let or = |value: f32, usual: f32| mixed(value, usual, trust);
        let usual_floor_ms = usual.floor_ms * pace;
        let floor_ms = or(learned.floor_ms, usual_floor_ms);
        Speed {
            floor_ms: usual_floor_ms + positive(floor_ms - FLOORS_ALIKE * usual_floor_ms),
            prefill_ms: or(learned.prefill_ms, usual.prefill_ms * pace),
            prefill_ms_per_thousand: or(
                learned.prefill_ms_per_thousand,
                usual.prefill_ms_per_thousand * pace,
            ),
            prefill_per_running: or(learned.prefill_per_running, usual.prefill_per_running),
            decode_ms: or(learned.decode_ms, usual.decode_ms),
            step_ms: or(learned.step_ms, usual.step_ms),
            step_ms_per_thousand: or(learned.step_ms_per_thousand, usual.step_ms_per_thousand),
            is_decode_known: learned.is_decode_known,
            ends_per_s: learned.ends_per_s,
            bytes_per_token: learned.bytes_per_token.max(BYTES_PER_TOKEN_MIN),
            kv_tokens: positive(learned.kv_tokens),
            trust,
        }
    }

    /// Returns the milliseconds of generating a reply that count: none if only the first token does.
    ///
    /// Of the time of a token counts the mean, and what is clearly above or below it. It varies with
    /// the load of a replica, and a reply has many: between equal replicas chance would be worth more
    /// than caches and queues are.
    #[inline]
    fn generating_ms(&self, speed: &Speed) -> f32 {
        let request = &self.request;
        let tokens = match (request.whole_tokens, self.tuning.goal) {
            // Nothing of such a reply is of use before its last token.
            (Some(tokens), _) => tokens,
            (None, Goal::Total) => request.output_tokens,
            (None, Goal::FirstToken) => return 0.0,
        };
        let usual_ms = self.usual.speed.decode_ms;
        let slower_ms = positive(speed.decode_ms - TOKENS_ALIKE * usual_ms);
        let faster_ms = positive(usual_ms / TOKENS_ALIKE - speed.decode_ms);
        tokens * (usual_ms + slower_ms - faster_ms)
    }

    /// Returns the milliseconds by which a replica's decode steps would be slower than they should,
    /// if requests with so many tokens of context ran there: the time to read the tokens that it
    /// has beyond the least of the group and a number that is no burden.
    ///
    /// Below that, the difference between replicas is worth less than what is cached there:
    /// requests that share a prompt belong together until they slow each other down. How many
    /// tokens take as long to be read as the weights depends on the model more than on the machine,
    /// so the mean of the group shows it better than each replica does.
    fn slowdown_ms(&self, speed: &Speed, context: f32) -> f32 {
        let heavy = positive(context - self.usual.context_least - self.light_context);
        heavy * 1e-3 * speed.step_ms_per_thousand
    }

    /// Returns the milliseconds between two ends while the replica is busy: as learned, or the
    /// mean, or else an estimate from all requests that run there.
    fn turn_ms(&self, speed: &Speed, pace: f32, running: f32) -> f32 {
        let turn_ms = if speed.ends_per_s > 0.0 {
            1_000.0 / speed.ends_per_s
        } else if let Some(usual_ms) = self.usual.turn_ms {
            usual_ms * pace
        } else {
            (speed.floor_ms + speed.decode_ms * self.request.output_tokens) / running.max(1.0)
        };
        turn_ms.clamp(0.0, TURN_MAX_MS)
    }
}

/// Largest number of requests; no replica has more.
const COUNT_MAX: f32 = 1e6;

/// Multiple of the mean up to which a learned floor says nothing of the replica.
const FLOORS_ALIKE: f32 = 2.0;

/// Multiple of the mean up to which a learned time of a token says nothing of the replica.
const TOKENS_ALIKE: f32 = 1.25;

/// Steps without any context that reading the context may take in each step before it counts. At 1,
/// prompts that most requests share are spread before any request gains from it. At 2, a document
/// that all ask for is read by one replica after the other in time.
const CONTEXT_STEPS: f32 = 2.0;

/// Part of a bound that counts, which leaves room for rounding in another order.
const BOUND_SHARE: f32 = 0.999;

/// Fewest bytes of a token: one, except for some tokens of special languages.
const BYTES_PER_TOKEN_MIN: f32 = 0.25;

/// Returns the learned value as far as it is trusted, filled up with the usual one.
#[inline]
fn mixed(learned: f32, usual: f32, trust: f32) -> f32 {
    usual + (positive(learned) - usual) * trust
}

/// Returns the number, or 0 if it is negative or NaN. An infinite number makes the highest cost.
/// (`f32::max` does the same and takes three times as long.)
#[inline]
fn positive(number: f32) -> f32 {
    if number > 0.0 { number } else { 0.0 }
}

/// Longest time between two ends, in milliseconds: one request in ten minutes.
const TURN_MAX_MS: f32 = 600_000.0;
