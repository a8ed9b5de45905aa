//! Latency model with replies whose times are made of known terms.

use proptest::prelude::*;
use spillway_types::{Prediction, Speed};

use super::{Beside, LatencyModel, ObservedLatency};

/// Replica that is as fast as its speed says, apart from noise.
struct Replica {
    speed: Speed,
    turn_ms: f32,
    rng: fastrand::Rng,
}

impl Replica {
    fn new(seed: u64) -> Self {
        let speed = Speed {
            floor_ms: 35.0,
            prefill_ms: 0.25,
            prefill_ms_per_thousand: 0.01,
            prefill_per_running: 0.05,
            ..Speed::UNKNOWN
        };
        Self { speed, turn_ms: 40.0, rng: fastrand::Rng::with_seed(seed) }
    }

    /// Returns a chat request: a long prompt, some of it cached, now and then behind a queue.
    fn request(&mut self) -> ObservedLatency {
        let prompt_tokens = 200.0 + self.rng.f32() * 8_000.0;
        let is_queue = self.rng.u8(..5) == 0;
        ObservedLatency {
            prompt_tokens,
            cached_tokens: prompt_tokens * self.rng.f32() * 0.9,
            running: self.rng.f32() * 20.0,
            queued: if is_queue { self.rng.f32() * 10.0 } else { 0.0 },
            pending_tokens: if is_queue { 0.0 } else { self.rng.f32() * 1_000.0 },
            written_tokens: 0.0,
            took_ms: 0.0,
        }
    }

    fn exact_ms(&self, seen: &ObservedLatency) -> f32 {
        let Speed { floor_ms, prefill_ms, prefill_ms_per_thousand, .. } = self.speed;
        let to_read = seen.prompt_tokens - seen.cached_tokens;
        let context = seen.cached_tokens + to_read / 2.0;
        floor_ms
            + to_read * prefill_ms * (1.0 + self.speed.prefill_per_running * seen.running)
            + to_read * prefill_ms_per_thousand * context / 1_000.0
            + seen.pending_tokens * prefill_ms
            + seen.queued * self.turn_ms
            + seen.written_tokens * self.speed.decode_ms
    }

    /// Returns a reply in one piece of up to so many tokens.
    fn whole(&mut self, noise: f32, tokens: f32) -> ObservedLatency {
        let written_tokens = (tokens * self.rng.f32()).floor();
        let seen = ObservedLatency { written_tokens, ..self.request() };
        let factor = 1.0 + noise * (2.0 * self.rng.f32() - 1.0);
        ObservedLatency { took_ms: self.exact_ms(&seen) * factor, ..seen }
    }

    /// Returns a reply to such a request, off by up to this part of its time.
    fn reply(&mut self, noise: f32) -> ObservedLatency {
        let seen = self.request();
        let factor = 1.0 + noise * (2.0 * self.rng.f32() - 1.0);
        ObservedLatency { took_ms: self.exact_ms(&seen) * factor, ..seen }
    }

    /// Returns the mean error of the model's predictions for the next requests, as a part of their
    /// time.
    fn error(&mut self, model: &LatencyModel, now_ms: u64) -> f32 {
        let speed = Self { speed: model.speed(now_ms), turn_ms: 0.0, rng: self.rng.clone() };
        // A model that has learned no rate has only the prior's.
        let ends_per_s = speed.speed.ends_per_s;
        let turn_ms = if ends_per_s > 0.0 { 1_000.0 / ends_per_s } else { 50.0 };
        let learned = Self { turn_ms, ..speed };
        let off = |_: u32| {
            let seen = self.request();
            let exact = self.exact_ms(&seen);
            (learned.exact_ms(&seen) - exact).abs() / exact
        };
        (0..200).map(off).sum::<f32>() / 200.0
    }
}

/// Returns a model after so many replies, one every 100 ms.
fn learned(replica: &mut Replica, replies: u64, noise: f32) -> LatencyModel {
    let mut model = LatencyModel::new(Speed::UNKNOWN);
    for reply in 0..replies {
        model.learn(&replica.reply(noise), reply * 100);
    }
    model
}

fn assert_near(found: f32, planted: f32, part: f32, what: &str) {
    assert!((found / planted - 1.0).abs() < part, "{what}: {found} instead of {planted}");
}

#[test]
fn planted_terms_are_found_again() {
    let mut replica = Replica::new(1);
    let model = learned(&mut replica, 400, 0.02);
    let (found, planted) = (model.speed(40_000), replica.speed);
    assert_near(found.floor_ms, planted.floor_ms, 0.3, "floor");
    assert_near(found.prefill_ms, planted.prefill_ms, 0.1, "prefill");
    let found_context = found.prefill_ms_per_thousand;
    assert_near(found_context, planted.prefill_ms_per_thousand, 0.3, "context");
    assert_near(found.prefill_per_running, planted.prefill_per_running, 0.2, "running");
    assert_near(1_000.0 / found.ends_per_s, replica.turn_ms, 0.1, "turn");
    assert!(found.trust > 0.9, "{found:?}");
}

#[test]
fn twenty_replies_are_enough_to_predict_by() {
    for seed in 0..20 {
        let mut replica = Replica::new(seed);
        let untaught = LatencyModel::new(Speed { ends_per_s: 10.0, ..Speed::UNKNOWN });
        assert!(replica.error(&untaught, 0) > 0.3);
        let model = learned(&mut replica, 20, 0.1);
        let error = replica.error(&model, 2_000);
        assert!(error < 0.15, "seed {seed}: {error}");
    }
}

#[test]
fn replies_that_took_far_too_long_change_little() {
    for seed in 0..10 {
        let mut replica = Replica::new(seed);
        let mut model = learned(&mut replica, 100, 0.05);
        for reply in 0..200 {
            let mut seen = replica.reply(0.05);
            if reply % 10 == 3 {
                seen.took_ms *= 20.0;
            }
            model.learn(&seen, 10_000 + reply * 100);
        }
        let error = replica.error(&model, 30_000);
        assert!(error < 0.12, "seed {seed}: {error}");
    }
}

#[test]
fn a_replica_that_becomes_slower_or_faster_is_learned_anew() {
    for (seed, factor) in [(1, 4.0), (2, 0.25), (3, 10.0), (4, 0.1)] {
        let mut replica = Replica::new(seed);
        let mut model = learned(&mut replica, 300, 0.05);
        replica.speed.floor_ms *= factor;
        replica.speed.prefill_ms *= factor;
        replica.speed.prefill_ms_per_thousand *= factor;
        replica.turn_ms *= factor;
        let before = replica.error(&model, 30_000);
        for reply in 0..40 {
            model.learn(&replica.reply(0.05), 30_000 + reply * 100);
        }
        let after = replica.error(&model, 34_000);
        assert!(before > 0.6 && after < 0.3, "{factor} times: {before}, then {after}");
    }
}

#[test]
fn replies_in_one_piece_alone_tell_the_first_token_and_the_others_apart() {
    for seed in 0..10 {
        let mut replica = Replica::new(seed);
        replica.speed.decode_ms = 30.0;
        let mut model = LatencyModel::new(Speed::UNKNOWN);
        for reply in 0..300 {
            model.learn(&replica.whole(0.03, 60.0), reply * 100);
        }
        let found = model.speed(30_000);
        assert_near(found.decode_ms, 30.0, 0.1, "decode");
        assert_near(found.prefill_ms, replica.speed.prefill_ms, 0.15, "prefill");
        assert!(found.trust > 0.9, "{found:?}");
        let error = replica.error(&model, 30_000);
        assert!(error < 0.12, "seed {seed}: first tokens are off by {error}");
    }
}

#[test]
fn replies_of_one_length_are_predicted_right_though_their_terms_are_not_known() {
    for slower in [1.0, 10.0] {
        let mut model = LatencyModel::new(Speed::UNKNOWN);
        let took_ms = slower * (40.0 + 24.0 * 20.0);
        let whole = ObservedLatency {
            prompt_tokens: 100.0,
            cached_tokens: 90.0,
            running: 0.0,
            queued: 0.0,
            pending_tokens: 0.0,
            written_tokens: 24.0,
            took_ms,
        };
        for reply in 0..50 {
            model.learn(&whole, reply * 100);
        }
        let Speed { floor_ms, prefill_ms, decode_ms, .. } = model.speed(5_000);
        assert_near(floor_ms + 10.0 * prefill_ms + 24.0 * decode_ms, took_ms, 0.02, "the sum");
        // Most of the time of so many tokens is theirs.
        assert_near(decode_ms, slower * 20.0, 0.3, "decode");
    }
}

#[test]
fn streams_and_replies_in_one_piece_are_learned_from_together() {
    let mut replica = Replica::new(8);
    replica.speed.decode_ms = 25.0;
    let mut model = LatencyModel::new(Speed::UNKNOWN);
    for reply in 0..400_u64 {
        if reply % 2 == 0 {
            model.learn(&replica.reply(0.03), reply * 100);
            model.learn_decode(80.0, 80.0 * 25.0, Beside::default());
        } else {
            model.learn(&replica.whole(0.03, 200.0), reply * 100);
        }
    }
    let found = model.speed(40_000);
    assert_near(found.decode_ms, 25.0, 0.05, "decode");
    assert_near(found.prefill_ms, replica.speed.prefill_ms, 0.1, "prefill");
    assert!(replica.error(&model, 40_000) < 0.1);
}

#[test]
fn a_replica_that_becomes_slower_shows_by_replies_in_one_piece() {
    let mut replica = Replica::new(9);
    let mut model = LatencyModel::new(Speed::UNKNOWN);
    for reply in 0..200 {
        model.learn(&replica.whole(0.05, 60.0), reply * 100);
    }
    replica.speed.floor_ms *= 8.0;
    replica.speed.prefill_ms *= 8.0;
    replica.speed.prefill_ms_per_thousand *= 8.0;
    replica.speed.decode_ms *= 8.0;
    replica.turn_ms *= 8.0;
    for reply in 0..40 {
        model.learn(&replica.whole(0.05, 60.0), 20_000 + reply * 100);
    }
    let found = model.speed(24_000);
    assert_near(found.decode_ms, replica.speed.decode_ms, 0.35, "decode");
    assert_near(found.prefill_ms, replica.speed.prefill_ms, 0.3, "prefill");
}

#[test]
fn a_first_token_is_corrected_by_the_tokens_that_its_stream_tells_and_counts_once() {
    for seed in 0..5 {
        let mut replica = Replica::new(seed);
        let new = || LatencyModel::new(Speed::UNKNOWN);
        let (mut early, mut late, mut wrong) = (new(), new(), new());
        let mut under_way = std::collections::VecDeque::new();
        for reply in 0..200_u64 {
            let exact = replica.reply(0.03);
            // A token has more bytes than was thought.
            let guess = ObservedLatency {
                prompt_tokens: exact.prompt_tokens * 1.2,
                cached_tokens: exact.cached_tokens * 1.2,
                ..exact
            };
            let learned = early.learn(&guess, reply * 100).expect("a sound reply");
            under_way.push_back((learned, exact));
            if under_way.len() > 10 {
                let (learned, exact) = under_way.pop_front().expect("one");
                early.correct(&learned, &exact);
            }
            late.learn(&exact, reply * 100);
            wrong.learn(&guess, reply * 100);
        }
        under_way.iter().for_each(|(learned, exact)| early.correct(learned, exact));
        assert_near(early.replies() as f32, late.replies() as f32, 1e-3, "replies");
        let errors = [early, late, wrong].map(|model| replica.error(&model, 20_000));
        let [early, late, wrong] = errors;
        assert!(early < 0.05 && late < 0.05 && wrong > 0.1, "{errors:?}");
    }
}

#[test]
fn what_was_forgotten_or_is_of_another_model_is_not_corrected() {
    let mut replica = Replica::new(4);
    let mut model = learned(&mut replica, 30, 0.05);
    let seen = replica.reply(0.05);
    let learned_reply = model.learn(&seen, 3_000).expect("a sound reply");
    let corrected = ObservedLatency { prompt_tokens: seen.prompt_tokens + 500.0, ..seen };
    let mut other = LatencyModel::new(Speed::UNKNOWN);
    let before = other.clone();
    other.correct(&learned_reply, &corrected);
    assert_eq!(other, before, "nothing was learned there");
    let before = model.clone();
    model.correct(&learned_reply, &seen);
    assert_eq!(model, before, "nothing is new");
    model.correct(&learned_reply, &ObservedLatency { took_ms: f32::NAN, ..seen });
    assert_eq!(model, before);
    model.correct(&learned_reply, &corrected);
    assert_ne!(model, before);
    // A clock that was set right after years.
    let learned_reply = model.learn(&seen, 2_000_000_000_000).expect("a sound reply");
    let before = model.clone();
    model.correct(&learned_reply, &corrected);
    assert_ne!(model, before);
}

#[test]
fn what_replies_do_not_tell_stays_as_the_profile_says() {
    let profile = Speed { prefill_ms: 0.4, kv_tokens: 7_000.0, ends_per_s: 3.0, ..Speed::UNKNOWN };
    let mut model = LatencyModel::new(profile);
    let fresh = model.speed(0);
    assert_near(fresh.prefill_ms, 0.4, 1e-3, "prefill");
    assert_near(fresh.floor_ms, profile.floor_ms, 1e-3, "floor");
    assert_eq!((fresh.trust, fresh.kv_tokens, fresh.ends_per_s), (0.0, 7_000.0, 3.0));
    let empty = Prediction::default();
    for reply in 0..200 {
        model.learn(&ObservedLatency::of(&empty, 90.0), reply);
    }
    let taught = model.speed(200);
    assert_near(taught.floor_ms, 90.0, 0.05, "floor");
    assert_near(taught.prefill_ms, 0.4, 1e-3, "prefill");
}

#[test]
fn trust_grows_with_replies_and_fades_without() {
    let mut replica = Replica::new(5);
    let trust = |replies, later_ms: u64| {
        let mut replica = Replica::new(5);
        learned(&mut replica, replies, 0.05).speed(replies.saturating_sub(1) * 100 + later_ms).trust
    };
    assert_eq!(trust(0, 0), 0.0);
    assert!(trust(2, 0) < 0.3 && trust(30, 0) > 0.75, "{} {}", trust(2, 0), trust(30, 0));
    assert_near(trust(30, 10_000), trust(30, 0) / 2.0, 0.01, "after ten seconds");
    let night = trust(30, 30_000_000);
    assert!(night > 0.0 && night < 0.06, "what was known is still the best guess: {night}");
    // The first reply after the pause shows that nothing has changed.
    let mut model = learned(&mut replica, 30, 0.05);
    model.learn(&replica.reply(0.05), 30_000_000);
    assert!(model.speed(30_000_000).trust > 0.7);
}

#[test]
fn rates_of_words_and_tokens_are_those_that_were_seen() {
    let mut model = LatencyModel::new(Speed::UNKNOWN);
    for _ in 0..300 {
        model.learn_decode(50.0, 50.0 * 22.0, Beside::default());
        model.learn_text(3_000.0, 1_000.0);
    }
    model.set_kv_tokens(120_000.0);
    let speed = model.speed(0);
    assert_near(speed.decode_ms, 22.0, 0.02, "decode");
    assert_near(speed.bytes_per_token, 3.0, 0.02, "bytes");
    assert_eq!(speed.kv_tokens, 120_000.0);
}

#[test]
fn what_makes_no_sense_is_passed_over() {
    let mut replica = Replica::new(6);
    let mut model = learned(&mut replica, 10, 0.05);
    let before = model.clone();
    let good = replica.reply(0.05);
    for wrong in [f32::NAN, f32::INFINITY, -1.0] {
        model.learn(&ObservedLatency { took_ms: wrong, ..good }, 2_000);
        model.learn(&ObservedLatency { prompt_tokens: wrong, ..good }, 2_000);
        model.learn(&ObservedLatency { running: wrong, ..good }, 2_000);
        model.learn_decode(wrong, 10.0, Beside::default());
        model.learn_decode(10.0, wrong, Beside::default());
        model.learn_text(wrong, wrong);
    }
    model.learn_text(0.0, 0.0);
    assert_eq!(model, before);
}

#[test]
fn a_saved_model_goes_on_as_if_it_had_not_been() {
    let mut replica = Replica::new(7);
    let mut model = learned(&mut replica, 50, 0.05);
    model.learn_decode(50.0, 900.0, Beside::default());
    let saved = serde_json::to_string(&model).unwrap();
    assert!(saved.len() < 2_000, "{} bytes", saved.len());
    let mut loaded = serde_json::from_str::<LatencyModel>(&saved).unwrap();
    // The text format rounds the last digit.
    let assert_same = |a: Speed, b: Speed| {
        assert_near(a.floor_ms, b.floor_ms, 1e-4, "floor");
        assert_near(a.prefill_ms, b.prefill_ms, 1e-4, "prefill");
        assert_near(a.decode_ms, b.decode_ms, 1e-4, "decode");
        assert_eq!(a.trust, b.trust);
    };
    assert_same(loaded.speed(5_000), model.speed(5_000));
    let next = replica.reply(0.05);
    model.learn(&next, 6_000);
    loaded.learn(&next, 6_000);
    assert_same(loaded.speed(6_000), model.speed(6_000));
    let broken = saved.replacen("\"replies\":", "\"replies\":-", 1);
    assert!(serde_json::from_str::<LatencyModel>(&broken).is_err(), "{broken}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_it_is_told_its_speed_is_made_of_numbers(
        told in prop::collection::vec(
            (prop::array::uniform6(0.0..1e8_f32), any::<u32>()), 1..40),
    ) {
        let mut model = LatencyModel::new(Speed::UNKNOWN);
        for ([prompt, cached, running, queued, pending, took_ms], at) in told {
            let seen = ObservedLatency {
                prompt_tokens: prompt,
                cached_tokens: cached,
                running,
                queued,
                pending_tokens: pending,
                written_tokens: running,
                took_ms,
            };
            model.learn(&seen, u64::from(at));
            model.learn_decode(prompt, cached, Beside::default());
            model.learn_text(prompt, cached);
            let speed = model.speed(u64::from(at));
            let all = [
                speed.floor_ms,
                speed.prefill_ms,
                speed.prefill_ms_per_thousand,
                speed.prefill_per_running,
                speed.decode_ms,
                speed.ends_per_s,
                speed.bytes_per_token,
                speed.trust,
            ];
            prop_assert!(all.iter().all(|one| one.is_finite() && *one >= 0.0), "{speed:?}");
        }
    }
}
