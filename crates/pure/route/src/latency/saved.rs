//! Latency models as they are saved.

use serde::{Deserialize, Serialize};

use super::decode::DecodeModel;
use super::model::{CHANGE, LatencyModel, STREAMED_MAX, TERMS};
use super::ratio::Ratio;
use super::regression::Sums;

/// Terms of a model before it learned from replies in one piece.
const TERMS_BEFORE: usize = 5;

/// Saved model, not checked yet.
#[derive(Debug, Deserialize)]
pub(super) struct SavedModel {
    pub(super) sums: Sums<TERMS>,
    pub(super) replies: f64,
    pub(super) error: f64,
    pub(super) row: i8,
    pub(super) last_ms: u64,
    pub(super) decode: Ratio,
    pub(super) streamed: f64,
    pub(super) text: Ratio,
    pub(super) kv_tokens: f32,
    pub(super) steps: DecodeModel,
}

/// Model as it was saved before it learned what contexts cost each step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyModelV2 {
    sums: Sums<TERMS>,
    replies: f64,
    error: f64,
    row: i8,
    last_ms: u64,
    decode: Ratio,
    streamed: f64,
    text: Ratio,
    kv_tokens: f32,
}

/// Model as it was saved before it learned from replies in one piece.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyModelV1 {
    sums: Sums<TERMS_BEFORE>,
    replies: f64,
    error: f64,
    row: i8,
    last_ms: u64,
    decode: Ratio,
    text: Ratio,
    kv_tokens: f32,
}

/// Error for a saved model with impossible numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a saved latency model holds what is no number")]
pub struct UnsoundModel;

impl TryFrom<SavedModel> for LatencyModel {
    type Error = UnsoundModel;

    fn try_from(saved: SavedModel) -> Result<Self, UnsoundModel> {
        let amounts = [saved.replies, saved.error, saved.streamed, f64::from(saved.kv_tokens)];
        let are_amounts =
            amounts.iter().all(|&number| number.is_finite() && (0.0..=1e12).contains(&number));
        // A saved model comes from outside and may hold anything.
        let are_ratios = saved.decode.is_sound() && saved.text.is_sound() && saved.steps.is_sound();
        let is_sound = are_ratios && saved.sums.is_sound() && saved.row.abs() < CHANGE;
        if are_amounts && is_sound { Ok(Self::restored(saved)) } else { Err(UnsoundModel) }
    }
}

impl TryFrom<LatencyModelV2> for LatencyModel {
    type Error = UnsoundModel;

    fn try_from(saved: LatencyModelV2) -> Result<Self, UnsoundModel> {
        let LatencyModelV2 {
            sums,
            replies,
            error,
            row,
            last_ms,
            decode,
            streamed,
            text,
            kv_tokens,
        } = saved;
        let steps = DecodeModel::default();
        let new = SavedModel {
            sums,
            replies,
            error,
            row,
            last_ms,
            decode,
            streamed,
            text,
            kv_tokens,
            steps,
        };
        new.try_into()
    }
}

impl TryFrom<LatencyModelV1> for LatencyModel {
    type Error = UnsoundModel;

    fn try_from(saved: LatencyModelV1) -> Result<Self, UnsoundModel> {
        let LatencyModelV1 { sums, replies, error, row, last_ms, decode, text, kv_tokens } = saved;
        let mut all = Sums::<TERMS>::EMPTY;
        for (to, from) in all.products.iter_mut().zip(sums.products) {
            to[..TERMS_BEFORE].copy_from_slice(&from);
        }
        all.targets[..TERMS_BEFORE].copy_from_slice(&sums.targets);
        let streamed = decode.sums().1.clamp(0.0, STREAMED_MAX);
        let sums = all;
        LatencyModelV2 { sums, replies, error, row, last_ms, decode, streamed, text, kv_tokens }
            .try_into()
    }
}
