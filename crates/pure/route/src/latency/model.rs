//! Latency model of one replica.

use serde::{Deserialize, Serialize};
use spillway_types::Speed;

use super::decode::DecodeModel;
use super::ratio::Ratio;
use super::regression::{Prior, Sums};
use super::saved::SavedModel;
use super::seen::ObservedLatency;

/// Terms of the time that a reply takes: see [`features`].
pub(super) const TERMS: usize = 6;
/// Index of the term for requests that are queued ahead.
const QUEUED: usize = 4;
/// Index of the term for tokens that are generated after the first one.
const WRITTEN: usize = 5;
/// Part of a reply's weight that each later reply leaves: about the last hundred count.
const KEEP_PER_REPLY: f64 = 0.99;
/// Half-life of the learned values, in milliseconds without replies (a day): hardware changes now
/// and then.
const HALVING_MS: f64 = 86_400_000.0;
/// Half-life of the trust, in milliseconds without replies. So a replica that was slow is soon
/// taken for an average one, gets a request, and shows its speed.
const TRUST_HALVING_MS: f32 = 10_000.0;
/// Least part of the trust that stays, however old the replies are: they are still the best guess.
const TRUST_MIN: f32 = 0.05;
/// Replies after which the trust is one half.
const REPLIES_TRUSTED: f64 = 6.0;
/// Usual scatter of replies around a prediction, in milliseconds, beside a tenth of the prediction.
const NOISE_MS: f64 = 10.0;
/// Largest error that counts, as a multiple of the usual one.
const OUTLIER: f64 = 2.5;
/// Outliers in a row to one side that prove a change.
pub(super) const CHANGE: i8 = 4;
/// Part of the old knowledge that is left after a change.
const KEEP_ON_CHANGE: f64 = 0.02;
/// Least evidence on turns in a queue before a rate is made of it: five times the prior's, see
/// [`prior`].
const TURNS_MIN: f64 = 0.2;
/// Tokens of streams that count, at most, against the time of a token that replies in one piece
/// show, and the weight of each.
pub(super) const STREAMED_MAX: f64 = 200.0;
const STREAMED_WEIGHT: f64 = 0.8;
/// Least part of a reply that is still worth a correction.
const PART_MIN: f64 = 1e-6;
/// Tokens of streams from which on the time of a token is known.
const STREAMED_MIN: f64 = 10.0;
/// Least evidence on generated tokens by which replies in one piece make their time known: five times
/// the prior's, see [`prior`]. One reply of twenty tokens has more.
const WRITTEN_MIN: f64 = 2.0;

/// Latency of one replica for the requests of one model, learned from its replies.
///
/// The time of a reply is modelled as a sum of terms, which [`Speed`] lists, fitted by least
/// squares with the profile as the prior: terms that replies don't show stay as the profile has
/// them. A stream shows the time to its first token and the time of the others separately. A reply
/// in one piece shows their sum; replies of different lengths separate the two. A reply that is far
/// off counts as one at the edge of the usual, unless it is one of several in a row.
///
/// A model takes about 500 bytes, and [`LatencyModel::learn`] less than a microsecond. Times are
/// milliseconds by any clock that goes on over restarts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "SavedModel")]
pub struct LatencyModel {
    #[serde(skip)]
    profile: Speed,
    sums: Sums<TERMS>,
    /// Replies in the sums; old ones count as fractions.
    replies: f64,
    /// Usual error, as a multiple of the noise.
    error: f64,
    /// Outliers in a row: above 0 slow ones, below 0 fast ones.
    row: i8,
    /// Time of the last reply, in milliseconds.
    last_ms: u64,
    /// Time of a token by streams, which show it apart from the first token.
    decode: Ratio,
    /// Tokens of streams that count against replies in one piece; old ones count as fractions.
    streamed: f64,
    text: Ratio,
    kv_tokens: f32,
    /// Time of a decode step against the contexts that run.
    steps: DecodeModel,
    /// Coefficients that fit best.
    #[serde(skip)]
    terms: [f64; TERMS],
    /// Logarithm of the part that is left of the values learned first.
    #[serde(skip)]
    faded: f64,
}

/// A reply as a [`LatencyModel`] has learned it, so that it can be corrected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedReply {
    features: [f64; TERMS],
    target_ms: f64,
    weight: f64,
    /// [`LatencyModel::faded`] when the reply was learned.
    faded: f64,
}

/// Work of a replica while it generates a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Beside {
    /// Mean tokens of context that it held.
    pub context_tokens: f32,
    /// Prompt tokens that the replica read during that time.
    pub read_tokens: f32,
}

/// Prediction for a reply, and the scatter around it.
#[derive(Clone, Copy, Debug)]
struct Expected {
    ms: f64,
    noise_ms: f64,
    /// Largest plausible difference.
    bound_ms: f64,
}

impl LatencyModel {
    /// Returns a model that knows nothing but the profile.
    #[must_use]
    pub fn new(profile: Speed) -> Self {
        let model = Self {
            profile,
            sums: Sums::EMPTY,
            replies: 0.0,
            error: 1.0,
            row: 0,
            last_ms: 0,
            decode: Ratio::default(),
            steps: DecodeModel::default(),
            streamed: 0.0,
            text: Ratio::default(),
            kv_tokens: 0.0,
            terms: [0.0; TERMS],
            faded: 0.0,
        };
        model.with_profile(profile)
    }

    /// Returns this model with another profile: a saved model comes without one.
    #[must_use]
    pub fn with_profile(mut self, profile: Speed) -> Self {
        self.profile = profile;
        self.fit();
        self
    }

    /// Returns a saved model, whose numbers were checked.
    pub(super) fn restored(saved: SavedModel) -> Self {
        let SavedModel { sums, replies, error, row, last_ms, decode, streamed, .. } = saved;
        let SavedModel { text, kv_tokens, steps, .. } = saved;
        let new = Self::new(Speed::UNKNOWN);
        let model = Self { sums, replies, error, row, last_ms, decode, streamed, ..new };
        Self { text, kv_tokens, steps, ..model }.with_profile(Speed::UNKNOWN)
    }

    /// Learns from one successful reply: from the first token of a stream, or from all of a reply in
    /// one piece. The order of replies does not matter. Returns what [`correct`](Self::correct)
    /// needs; `None` if the reply makes no sense.
    pub fn learn(&mut self, seen: &ObservedLatency, now_ms: u64) -> Option<LearnedReply> {
        let seen = seen.sound()?;
        self.age(now_ms);
        let features = features(&seen);
        let expected = self.expect(&features);
        let off_ms = f64::from(seen.took_ms) - expected.ms;
        // Before the reply is added: after a change most of the old is forgotten first.
        let has_changed = self.note_outlier(off_ms, expected.bound_ms);
        // An outlier counts as the edge of the usual, unless the replica has changed.
        let believed_ms = if has_changed { off_ms } else { expected.believed_ms(off_ms) };
        // The errors of the first replies are the model's; later ones are the usual scatter.
        if self.replies >= REPLIES_TRUSTED {
            let seen_error = (off_ms.abs() / expected.noise_ms).min(2.0 * OUTLIER);
            self.error += (seen_error - self.error) * 0.05;
        }
        self.fade(KEEP_PER_REPLY);
        let learned = LearnedReply {
            features,
            target_ms: expected.ms + believed_ms,
            weight: expected.weight(),
            faded: self.faded,
        };
        self.sums.add(&learned.features, learned.target_ms, learned.weight);
        self.replies = self.replies * KEEP_PER_REPLY + 1.0;
        self.fit();
        Some(learned)
    }

    /// Corrects a reply that was learned before all was known of it: the first token of a stream
    /// comes long before its counts of tokens. The reply still counts once.
    pub fn correct(&mut self, learned: &LearnedReply, seen: &ObservedLatency) {
        let Some(seen) = seen.sound() else { return };
        let features = features(&seen);
        let part = (self.faded - learned.faded).exp();
        // Nothing is left of a reply that a change made the model forget, and one of another model
        // can't be taken out of this one.
        let is_in = part > PART_MIN && part <= 1.0;
        let weight = learned.weight * part;
        if features == learned.features || !is_in || weight > self.sums.products[0][0] {
            return;
        }
        self.sums.add(&learned.features, learned.target_ms, -weight);
        self.fit();
        let expected = self.expect(&features);
        let believed_ms = expected.believed_ms(f64::from(seen.took_ms) - expected.ms);
        self.sums.add(&features, expected.ms + believed_ms, expected.weight() * part);
        self.fit();
    }

    /// Learns the speed of decoding from a stream: `tokens` tokens after the first one in `span_ms`
    /// milliseconds.
    pub fn learn_decode(&mut self, tokens: f32, span_ms: f32, beside: Beside) {
        if is_amount(tokens) && is_amount(span_ms) {
            self.steps.learn(tokens, span_ms, beside);
            // One long reply must not outweigh all others.
            let part = (200.0 / tokens).min(1.0);
            self.decode.add(span_ms * part, tokens * part, KEEP_PER_REPLY);
            self.streamed = (self.streamed + f64::from(tokens)).min(STREAMED_MAX);
            self.fit();
        }
    }

    /// Learns the bytes per token from a prompt.
    pub fn learn_text(&mut self, prompt_bytes: f32, prompt_tokens: f32) {
        if is_amount(prompt_bytes) && is_amount(prompt_tokens) {
            self.text.add(prompt_bytes, prompt_tokens, KEEP_PER_REPLY);
        }
    }

    /// Sets the size of the KV cache in tokens, from the replica's report or the configuration.
    pub fn set_kv_tokens(&mut self, tokens: f32) {
        self.kv_tokens = if is_amount(tokens) { tokens } else { 0.0 };
    }

    /// Returns the estimated speed at `now_ms`.
    #[must_use]
    pub fn speed(&self, now_ms: u64) -> Speed {
        let [floor, prefill, context, running, _, written] = self.terms.map(|term| term as f32);
        let is_read = prefill > 0.0;
        let kv_tokens = if self.kv_tokens > 0.0 { self.kv_tokens } else { self.profile.kv_tokens };
        let step = self.steps.step_time(&self.profile);
        Speed {
            floor_ms: floor,
            prefill_ms: prefill / 1_000.0,
            prefill_ms_per_thousand: context / 1_000.0,
            prefill_per_running: if is_read { (running / prefill).min(1.0) } else { 0.0 },
            decode_ms: written,
            step_ms: step.base_ms,
            step_ms_per_thousand: step.per_thousand_ms,
            is_decode_known: self.streamed >= STREAMED_MIN
                || self.sums.products[WRITTEN][WRITTEN] >= WRITTEN_MIN,
            ends_per_s: self.ends_per_s(),
            bytes_per_token: self.text.or(self.profile.bytes_per_token, 100.0).max(0.25),
            kv_tokens,
            trust: self.trust(now_ms),
        }
    }

    /// Returns the number of replies learned from; old ones count as fractions.
    #[must_use]
    pub fn replies(&self) -> f64 {
        self.replies
    }

    fn trust(&self, now_ms: u64) -> f32 {
        let confidence = (self.replies / (self.replies + REPLIES_TRUSTED)) as f32;
        let age_ms = now_ms.saturating_sub(self.last_ms) as f32;
        confidence * (-age_ms / TRUST_HALVING_MS).exp2().max(TRUST_MIN)
    }

    /// Returns the requests that end per second, learned from requests that waited in the queue, or
    /// else the profile's.
    fn ends_per_s(&self) -> f32 {
        let turn_ms = self.terms[QUEUED] as f32;
        if self.sums.products[QUEUED][QUEUED] >= TURNS_MIN && turn_ms > 0.0 {
            1_000.0 / turn_ms
        } else {
            self.profile.ends_per_s
        }
    }

    /// Lets what was learned fade by the time since the last reply.
    fn age(&mut self, now_ms: u64) {
        let age_ms = now_ms.saturating_sub(self.last_ms) as f64;
        if self.replies > 0.0 && age_ms > 0.0 {
            self.keep((-age_ms / HALVING_MS).exp2());
        }
        // Replies may come out of order.
        self.last_ms = self.last_ms.max(now_ms);
    }

    /// Notes an error, and forgets most of the old if several outliers in a row show a change.
    /// Returns true in that case.
    fn note_outlier(&mut self, off_ms: f64, bound_ms: f64) -> bool {
        let side = if off_ms > 0.0 { 1 } else { -1 };
        self.row = match off_ms.abs() > bound_ms {
            false => 0,
            true if self.row * side > 0 => self.row + side,
            true => side,
        };
        let has_changed = self.row.abs() >= CHANGE;
        if has_changed {
            self.keep(KEEP_ON_CHANGE);
            self.row = 0;
        }
        has_changed
    }

    fn keep(&mut self, part: f64) {
        self.fade(part);
        self.replies *= part;
    }

    /// Scales the weight of all that was learned.
    fn fade(&mut self, part: f64) {
        self.sums.scale(part);
        self.streamed *= part;
        // A clock that jumps by years leaves nothing, and the logarithm of that is no number.
        self.faded += part.max(f64::MIN_POSITIVE).ln();
    }

    fn expect(&self, features: &[f64; TERMS]) -> Expected {
        let ms = features.iter().zip(self.terms).map(|(feature, term)| feature * term).sum();
        // The longer the prediction, and the more of it is queueing, the more replies scatter.
        let noise_ms = NOISE_MS + 0.1 * ms + 0.3 * features[QUEUED] * self.terms[QUEUED];
        // The fewer replies are known, the further off a plausible one may be.
        let newness = 1.0 + REPLIES_TRUSTED / (self.replies + 0.1);
        Expected { ms, noise_ms, bound_ms: OUTLIER * noise_ms * self.error.max(0.2) * newness }
    }

    fn fit(&mut self) {
        let mut prior = prior(&self.profile);
        // Where replies scatter less than expected, they count more against the profile.
        prior.precision.iter_mut().for_each(|one| *one *= self.error.clamp(0.1, 1.0).powi(2));
        // Replies in one piece correct what streams show: without any of them it stays.
        prior.mean[WRITTEN] = f64::from(self.decode.or(self.profile.decode_ms, 100.0));
        prior.precision[WRITTEN] += self.streamed * STREAMED_WEIGHT;
        self.terms = self.sums.solve(&prior);
    }
}

impl Expected {
    /// Returns the difference that is believed of a reply.
    fn believed_ms(&self, off_ms: f64) -> f64 {
        off_ms.clamp(-self.bound_ms, self.bound_ms)
    }

    /// Returns the weight of a reply: the noisier, the less it weighs.
    fn weight(&self) -> f64 {
        (NOISE_MS / self.noise_ms).powi(2)
    }
}

/// Returns the features of the time that a reply takes: 1 for the floor; thousands of tokens to
/// read; the product of those and the thousands before them; the product of those and the running
/// requests; requests that are queued ahead; tokens that are generated after the first one.
fn features(seen: &ObservedLatency) -> [f64; TERMS] {
    let cached = f64::from(seen.cached_tokens) / 1_000.0;
    let to_read = (f64::from(seen.prompt_tokens) / 1_000.0 - cached).max(0.0);
    let before = f64::from(seen.pending_tokens) / 1_000.0;
    [
        1.0,
        to_read + before,
        to_read * (cached + to_read / 2.0),
        to_read * f64::from(seen.running),
        f64::from(seen.queued),
        f64::from(seen.written_tokens),
    ]
}

/// Returns the profile's terms with their uncertainty: about their own size, and a minimum for
/// each.
fn prior(profile: &Speed) -> Prior<TERMS> {
    let prefill = amount(profile.prefill_ms) * 1_000.0;
    let turn = if profile.ends_per_s > 0.0 { 1_000.0 / amount(profile.ends_per_s) } else { 50.0 };
    let mean = [
        amount(profile.floor_ms),
        prefill,
        amount(profile.prefill_ms_per_thousand) * 1_000.0,
        prefill * amount(profile.prefill_per_running),
        turn,
        amount(profile.decode_ms),
    ];
    // Where the profile has 0, the true value may still be larger.
    let least = [100.0, 50.0, 2.0, 2.0, 50.0, 10.0];
    let precision =
        std::array::from_fn(|term: usize| (NOISE_MS / mean[term].max(least[term])).powi(2));
    Prior { mean, precision }
}

fn amount(number: f32) -> f64 {
    if number.is_finite() { f64::from(number.clamp(0.0, 1e9)) } else { 0.0 }
}

/// Returns true for a positive number of plausible size.
fn is_amount(number: f32) -> bool {
    number > 0.0 && number <= 1e9
}
