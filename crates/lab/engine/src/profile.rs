//! Machines with published figures, and the cost of one step on each.
//!
//! The cost of a step is
//! `base + prefill_token × prefilled tokens + sequence × sequences + kv_token × KV tokens read`.
//! Figures that no paper states are derived from memory bandwidth (NVIDIA data sheets) and marked
//! *assumption*; docs/reference/emulator.md lists the sources.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A model on a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Llama-3.1-8B on one L4: 512 prompt tokens take about 300 ms (SkyWalker), 40,000 KV tokens.
    #[default]
    L4,
    /// Mistral-7B on one A100 80 GB: 0.0938 ms a prompt token (regression of GORGO).
    A100,
    /// Qwen3-32B on two H100: 15,900 prompt tokens/s and 301,808 KV tokens (a public calibration).
    H100,
}

impl Profile {
    /// Every profile, slowest first.
    pub const ALL: [Self; 3] = [Self::L4, Self::A100, Self::H100];

    /// Returns the profile's name: `l4`, `a100` or `h100`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::L4 => "l4",
            Self::A100 => "a100",
            Self::H100 => "h100",
        }
    }

    /// Returns the cost of a step of this model on this machine.
    #[must_use]
    pub fn step_cost(self) -> StepCost {
        match self {
            // base: 16.1 GB of weights at 300 GB/s (assumption: a step reads all weights once).
            // prefill_token: (300 ms − base) ÷ 512, the published point.
            // kv_token: 128 KiB at 300 GB/s. sequence: assumption.
            Self::L4 => StepCost {
                base_ns: 54_000_000,
                prefill_token_ns: 478_000,
                sequence_ns: 100_000,
                kv_token_ns: 437,
            },
            // The regression's constant of 150.72 ms is the time of a whole request through HTTP,
            // not of a step, so base is 14.5 GB of weights at 2,039 GB/s (assumption). kv_token:
            // 128 KiB at 2,039 GB/s. sequence: assumption.
            Self::A100 => StepCost {
                base_ns: 7_100_000,
                prefill_token_ns: 93_800,
                sequence_ns: 50_000,
                kv_token_ns: 64,
            },
            // base: 65.5 GB of weights at 2 × 3,350 GB/s (assumption). prefill_token: the rest of
            // the 128.8 ms that 2,048 tokens take at 15,900 tokens/s. kv_token: 256 KiB at 6,700
            // GB/s. sequence: assumption.
            Self::H100 => StepCost {
                base_ns: 9_800_000,
                prefill_token_ns: 58_100,
                sequence_ns: 50_000,
                kv_token_ns: 39,
            },
        }
    }

    /// Returns the KV tokens that fit beside the weights. The A100's figure is an assumption: 90 %
    /// of 80 GB less the weights would hold 437,000 tokens of 128 KiB; activations need the rest.
    #[must_use]
    pub fn kv_tokens(self) -> u32 {
        match self {
            Self::L4 => 40_000,
            Self::A100 => 400_000,
            Self::H100 => 301_808,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = UnknownProfileError;

    fn from_str(name: &str) -> Result<Self, UnknownProfileError> {
        let known = Self::ALL.into_iter().find(|profile| profile.name().eq_ignore_ascii_case(name));
        known.ok_or_else(|| UnknownProfileError(name.to_owned()))
    }
}

/// A profile name that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown profile `{0}`: expected l4, a100 or h100")]
pub struct UnknownProfileError(pub String);

/// Cost of one step, in nanoseconds of virtual time.
///
/// The model is linear: it leaves out that attention within one long prompt grows with the square
/// of its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepCost {
    /// Cost of each step: reading the weights and launching kernels.
    pub base_ns: u64,
    /// Cost of each prompt token computed in the step.
    pub prefill_token_ns: u64,
    /// Cost of each sequence in the step: sampling and bookkeeping.
    pub sequence_ns: u64,
    /// Cost of each token of KV that the step's sequences hold, because attention reads it.
    pub kv_token_ns: u64,
}

impl StepCost {
    /// Returns the time of a step that prefills `prefill_tokens` and serves `sequences` requests,
    /// which hold `kv_tokens` of KV together.
    #[must_use]
    pub fn duration(&self, prefill_tokens: u64, sequences: u64, kv_tokens: u64) -> Duration {
        Duration::from_nanos(
            self.base_ns
                + self.prefill_token_ns * prefill_tokens
                + self.sequence_ns * sequences
                + self.kv_token_ns * kv_tokens,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that `actual_ms` is within 2 % of the published figure.
    fn check_published(actual_ms: f64, published_ms: f64) {
        let error = (actual_ms / published_ms - 1.0).abs();
        assert!(error < 0.02, "{actual_ms} ms, published {published_ms} ms");
    }

    fn prefill_ms(profile: Profile, tokens: u64) -> f64 {
        profile.step_cost().duration(tokens, 1, tokens).as_secs_f64() * 1e3
    }

    #[test]
    fn l4_prefills_512_tokens_in_the_published_300_ms() {
        check_published(prefill_ms(Profile::L4, 512), 300.0);
    }

    #[test]
    fn a100_has_the_published_slope_per_prompt_token() {
        let slope = (prefill_ms(Profile::A100, 2000) - prefill_ms(Profile::A100, 1000)) / 1000.0;
        check_published(slope, 0.0938);
    }

    #[test]
    fn h100_prefills_a_full_chunk_at_the_published_rate() {
        check_published(prefill_ms(Profile::H100, 2048), 2048.0 / 15.9);
    }

    #[test]
    fn each_term_of_the_cost_counts() {
        let cost =
            StepCost { base_ns: 1, prefill_token_ns: 10, sequence_ns: 100, kv_token_ns: 1000 };
        assert_eq!(cost.duration(2, 3, 4), Duration::from_nanos(1 + 20 + 300 + 4000));
    }

    #[test]
    fn names_parse_back_and_unknown_ones_are_refused() {
        for profile in Profile::ALL {
            assert_eq!(profile.name().parse(), Ok(profile));
        }
        assert_eq!("L4".parse(), Ok(Profile::L4));
        assert_eq!("tpu".parse::<Profile>(), Err(UnknownProfileError("tpu".to_owned())));
    }
}
