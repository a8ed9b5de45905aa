//! Speeds of replicas, learned from their replies.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillway_route::{Beside, LatencyModel, ObservedLatency};
use spillway_types::{End, ModelName, ReplicaName, Speed};
use spillway_view::{BegunStream, Replica, Replied};

use super::published::Published;

/// Maximum number of models that are kept, at some 500 bytes each: more than any region has
/// replicas times models. Beyond it the default profile holds.
const MODELS_MAX: usize = 16_384;

/// Latency models by replica and model.
#[derive(Debug, Default)]
pub(super) struct Speeds {
    models: BTreeMap<(ReplicaName, ModelName), LatencyModel>,
    kv_tokens: BTreeMap<ReplicaName, f32>,
}

impl Speeds {
    /// Creates the speeds with models that were learned before this node was started.
    pub(super) fn restored(models: Vec<(ReplicaName, ModelName, LatencyModel)>) -> Self {
        let models = models.into_iter().take(MODELS_MAX);
        let models =
            models.map(|(replica, model, it)| ((replica, model), it.with_profile(Speed::UNKNOWN)));
        Self { models: models.collect(), kv_tokens: BTreeMap::new() }
    }

    /// Returns the models, to be kept.
    pub(super) fn to_keep(&self) -> Vec<(ReplicaName, ModelName, LatencyModel)> {
        let models = self.models.iter();
        models.map(|((replica, model), it)| (replica.clone(), model.clone(), it.clone())).collect()
    }

    /// Learns from the first token of a stream of a replica. The end of the stream reports its
    /// tokens, and corrects what is learned here.
    pub(super) fn begin(&mut self, replica: &ReplicaName, begun: &BegunStream, now_ms: u64) {
        let took_ms = begun.first_byte.as_secs_f32() * 1e3;
        let Some(model) = self.model(replica, &begun.model) else { return };
        if let Some(learned) = model.learn(&ObservedLatency::of(&begun.predicted, took_ms), now_ms)
        {
            // Set once: a stream begins once.
            let _ = begun.learned.set(learned);
        }
    }

    /// Learns from a complete, successful reply of a replica.
    pub(super) fn learn(&mut self, replica: &ReplicaName, replied: &Replied, now_ms: u64) {
        // The times of a reply that failed or broke off prove nothing.
        if !replied.is_success || replied.end != End::Complete {
            return;
        }
        let Some(model) = self.model(replica, &replied.model) else { return };
        if let Some(seen) = seen(replied) {
            match replied.begun.as_ref().and_then(|begun| begun.learned.get()) {
                Some(learned) => model.correct(learned, &seen),
                None => {
                    model.learn(&seen, now_ms);
                }
            }
        }
        if let (Some(first_byte), true) = (replied.first_byte, replied.is_stream) {
            let span = replied.duration.saturating_sub(first_byte);
            // The first token comes with the first byte; the others take the rest of the time.
            let (tokens, span_ms) = (tokens_after_first(replied), span.as_secs_f32() * 1e3);
            let Replied { context_tokens, read_tokens, .. } = *replied;
            let beside = Beside { context_tokens, read_tokens: read_tokens as f32 };
            model.learn_decode(tokens, span_ms, beside);
        }
        if let Some(tokens) = replied.prompt_tokens {
            model.learn_text(replied.prompt_bytes as f32, tokens as f32);
        }
    }

    /// Returns the latency model of a replica and a model; `None` if it is new and too many are kept.
    fn model(&mut self, replica: &ReplicaName, model: &ModelName) -> Option<&mut LatencyModel> {
        let key = (replica.clone(), model.clone());
        if self.models.len() >= MODELS_MAX && !self.models.contains_key(&key) {
            return None;
        }
        let kv_tokens = self.kv_tokens.get(replica).copied().unwrap_or(0.0);
        Some(self.models.entry(key).or_insert_with(|| {
            let mut model = LatencyModel::new(Speed::UNKNOWN);
            model.set_kv_tokens(kv_tokens);
            model
        }))
    }

    /// Sets the number of tokens that a replica's KV cache holds.
    pub(super) fn set_kv_tokens(&mut self, replica: &ReplicaName, tokens: f64) {
        let tokens = tokens as f32;
        self.kv_tokens.insert(replica.clone(), tokens);
        let of_replica = self.models.iter_mut().filter(|((name, _), _)| name == replica);
        of_replica.for_each(|(_, model)| model.set_kv_tokens(tokens));
    }

    /// Forgets a replica that is gone for good.
    pub(super) fn forget(&mut self, replica: &ReplicaName) {
        self.kv_tokens.remove(replica);
        self.models.retain(|(name, _), _| name != replica);
    }

    /// Returns the speeds of these replicas at this moment.
    pub(super) fn at(&self, replicas: &[Arc<Replica>], now_ms: u64) -> Published {
        let mut published = Published::default();
        let mut sums: BTreeMap<&ModelName, Vec<Speed>> = BTreeMap::new();
        for replica in replicas {
            let name = &replica.spec().name;
            // The empty name sorts before every model of the replica.
            let from = (name.clone(), ModelName::from(""));
            let of_replica = self.models.range(from..).take_while(|((other, _), _)| other == name);
            let mut most = 0.0;
            for ((_, model), it) in of_replica {
                let speed = it.speed(now_ms);
                sums.entry(model).or_default().push(speed);
                if it.replies() > most {
                    most = it.replies();
                    published.replicas.insert(name.clone(), speed);
                }
            }
            // Without replies only the size of the cache is known.
            if let (None, Some(tokens)) = (published.replicas.get(name), self.kv_tokens.get(name)) {
                let speed = Speed { kv_tokens: *tokens, ..Speed::UNKNOWN };
                published.replicas.insert(name.clone(), speed);
            }
        }
        let means = sums.into_iter().map(|(model, speeds)| (model.clone(), mean(&speeds)));
        published.models = means.collect();
        published
    }

    /// Returns the number of models that are kept.
    pub(super) fn len(&self) -> usize {
        self.models.len()
    }
}

/// Returns the time to the first token of a stream, or to all of a reply in one piece, with its
/// circumstances; `None` if the reply does not report enough.
fn seen(replied: &Replied) -> Option<ObservedLatency> {
    let took_ms = replied.first_byte?.as_secs_f32() * 1e3;
    let written_tokens = match replied.is_stream {
        true => 0.0,
        // Without a count the time may be that of any number of tokens.
        false => replied.prompt_tokens.map(|_| tokens_after_first(replied))?,
    };
    let prompt_tokens = replied.prompt_tokens.map(|tokens| tokens as f32);
    let cached_tokens = replied.cached_tokens.map(|tokens| tokens as f32);
    match &replied.predicted {
        Some(predicted) => {
            let guess = ObservedLatency::of(predicted, took_ms);
            Some(ObservedLatency {
                prompt_tokens: prompt_tokens.unwrap_or(guess.prompt_tokens),
                cached_tokens: cached_tokens.unwrap_or(guess.cached_tokens),
                written_tokens,
                ..guess
            })
        }
        // Without a prediction only the reply shows how much was cached.
        None => Some(ObservedLatency {
            prompt_tokens: prompt_tokens?,
            cached_tokens: cached_tokens?,
            running: replied.in_flight.saturating_sub(1) as f32,
            queued: 0.0,
            pending_tokens: 0.0,
            written_tokens,
            took_ms,
        }),
    }
}

/// Returns the tokens of an answer after its first one.
fn tokens_after_first(replied: &Replied) -> f32 {
    let each = replied.output_tokens / u64::from(replied.answers.max(1));
    each.saturating_sub(1) as f32
}

/// Returns the mean of several replicas' speeds, weighted by trust.
fn mean(speeds: &[Speed]) -> Speed {
    // A least weight, so that replicas of which little is known count a little.
    let weight = |speed: &Speed| speed.trust.max(0.01);
    let weights: f32 = speeds.iter().map(weight).sum();
    let of = |number: fn(&Speed) -> f32| {
        speeds.iter().map(|speed| number(speed) * weight(speed)).sum::<f32>() / weights
    };
    Speed {
        floor_ms: of(|speed| speed.floor_ms),
        prefill_ms: of(|speed| speed.prefill_ms),
        prefill_ms_per_thousand: of(|speed| speed.prefill_ms_per_thousand),
        prefill_per_running: of(|speed| speed.prefill_per_running),
        decode_ms: of(|speed| speed.decode_ms),
        step_ms: of(|speed| speed.step_ms),
        step_ms_per_thousand: of(|speed| speed.step_ms_per_thousand),
        is_decode_known: speeds.iter().any(|speed| speed.is_decode_known),
        ends_per_s: of(|speed| speed.ends_per_s),
        bytes_per_token: of(|speed| speed.bytes_per_token),
        kv_tokens: of(|speed| speed.kv_tokens),
        trust: speeds.iter().map(|speed| speed.trust).sum::<f32>() / speeds.len() as f32,
    }
}
