//! Policies by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use spillway_types::Inquiry;

pub(crate) use choose::Choose;

use crate::{Candidate, Tuning};

mod bounded_consistent_hash;
mod choose;
mod consistent_hash;
mod least_connections;
mod least_loaded;
mod least_response_time;
mod p99_weighted;
mod power_of_two;
mod predicted_latency;
mod prefix_aware;
mod prequal;
mod random;
mod round_robin;
mod sample;
mod token_bucket;
mod weighted_least_pending;
mod weighted_round_robin;

/// Declares the policies. A line has the variant, the name in the config, the [`Feedback`] that the
/// policy uses, `by affinity` if it uses the request's key, and the type that prepares it.
macro_rules! policies {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $feedback:ident $(by $key:ident)? => $prepared:ty,)+) => {
        /// Rule by which a group chooses among its candidates.
        ///
        /// Weights are shares of traffic or of capacity, as each policy says. No policy chooses a
        /// candidate that is at its limit or was tried before. During slow start only a part of
        /// [`Candidate::weight`] counts. Where loads are compared, chance decides by weight between
        /// the candidates in slow start and the others, and then the policy decides among either.
        /// An unknown value of a candidate is taken to be the mean of the others.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Policy {
            $($(#[$doc])* $variant,)+
        }

        impl Policy {
            /// All policies, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name used in the config, e.g. `power_of_two`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Returns the feedback from replicas that the policy uses.
            #[must_use]
            pub fn feedback(self) -> Feedback {
                match self {
                    $(Self::$variant => Feedback::$feedback,)+
                }
            }

            /// Returns true if the policy uses [`Inquiry::affinity`], so that a route has to name a
            /// key.
            #[must_use]
            pub fn hashes(self) -> bool {
                match self {
                    $(Self::$variant => !stringify!($($key)?).is_empty(),)+
                }
            }

            /// Prepares the policy for `candidates`, before any request.
            pub(crate) fn prepare(
                self,
                candidates: &[Candidate],
                tuning: &Tuning,
            ) -> Box<dyn Choose> {
                match self {
                    $(Self::$variant => Box::new(<$prepared>::prepare(candidates, tuning)),)+
                }
            }
        }
    };
}

/// Feedback from replicas that a policy uses to choose among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// None: a replica gets its share however slow it is.
    Blind,
    /// Requests or work at the replica: a slow replica gets as many requests as it can serve.
    Load,
    /// Times of replies as well: a slow replica gets almost no requests.
    Latency,
}

policies! {
    /// Draws a candidate with a probability in proportion to its weight.
    Random = "random", Blind => random::Random,
    /// Takes turns in the order of the group; weights don't count. A candidate in slow start leaves
    /// a part of its turns to the others.
    RoundRobin = "round_robin", Blind => round_robin::RoundRobin,
    /// Takes turns in proportion to the weights, each candidate's turns spread as evenly as
    /// possible: after any number of turns each has had its exact share to within one turn.
    ///
    /// Weights whose sum, divided by their common divisor, passes 4,096 are rounded to that many
    /// turns, at least one each: a share then is off by less than `(1 + n) / 4,096`, `n` being
    /// the number of candidates whose exact share is less than one turn.
    WeightedRoundRobin = "weighted_round_robin", Blind => weighted_round_robin::WeightedRoundRobin,
    /// Draws two candidates, each pair with the same probability, and takes the one that would
    /// carry less for its weight: the smaller `(in flight + 1) / weight`.
    PowerOfTwo = "power_of_two", Load => power_of_two::PowerOfTwo,
    /// Takes the candidate with the fewest requests in flight; equal ones take turns. Weights don't
    /// count.
    LeastConnections = "least_connections", Load => least_connections::LeastConnections,
    /// Takes the candidate that would carry the least for its weight: the smallest
    /// `(in flight + 1) / weight`; equal ones take turns.
    WeightedLeastConnections = "weighted_least_connections", Load =>
        least_connections::LeastConnections,
    /// Takes the candidate that would take the least time: the smallest
    /// `latency * (in flight + 1) / weight`, the latency being an average that follows peaks at
    /// once ([`Signals::latency_ms`]); equal ones take turns.
    ///
    /// [`Signals::latency_ms`]: spillway_types::Signals::latency_ms
    LeastResponseTime = "least_response_time", Latency => least_response_time::LeastResponseTime,
    /// Draws two candidates with chances in proportion to `weight / p99^3` and takes the one that
    /// would carry less for its weight. One of 250 requests is drawn by weight alone, so that a
    /// slow candidate gets the chance to prove itself again.
    P99Weighted = "p99_weighted", Latency => p99_weighted::P99Weighted,
    /// Takes the candidate with the smallest sum of queue, latency, GPU use and KV-cache use, each
    /// with a weight of its own ([`LeastLoadedWeights`]); equal ones take turns.
    ///
    /// [`LeastLoadedWeights`]: crate::LeastLoadedWeights
    LeastLoaded = "least_loaded", Latency => least_loaded::LeastLoaded,
    /// Takes the candidate that reports the least work for its weight: the smallest `(pending +
    /// sent since the report + 1) / weight`; equal ones take turns. Without a report of pending
    /// work, the requests that wait and run there count.
    WeightedLeastPending = "weighted_least_pending", Load => weighted_least_pending::WeightedLeastPending,
    /// Draws among the candidates that have a token left, in proportion to `tokens * weight`; with
    /// no token left anywhere, it does as [`Policy::WeightedLeastConnections`].
    ///
    /// [`refill`](crate::refill) computes how the buckets fill.
    TokenBucket = "token_bucket", Load => token_bucket::TokenBucket,
    /// Takes the candidate that the request's key prefers: always the same one while it is usable,
    /// else the key's next preference. Each candidate is preferred by a share of the keys in
    /// proportion to its weight, and when one comes or goes only its own keys move.
    ///
    /// A request without a key goes where [`Policy::PowerOfTwo`] sends it.
    ConsistentHash = "consistent_hash", Blind by affinity => consistent_hash::ConsistentHash,
    /// Like [`Policy::ConsistentHash`], but a candidate that carries 1.25 times its fair share of
    /// what is in flight is passed over for the key's next preference.
    ///
    /// The fair share is in proportion to weight among the usable candidates, this request
    /// included, and its 1.25-fold is rounded up. So one candidate always has room.
    BoundedConsistentHash = "bounded_consistent_hash", Load by affinity =>
        bounded_consistent_hash::BoundedConsistentHash,
    /// Takes the candidate where the first token (or the whole reply) is predicted to come soonest,
    /// including the cost to the requests already there: wait, prompt not yet cached, crowding.
    /// Between candidates that differ by a few milliseconds only, the prompt decides, alike on all
    /// nodes.
    ///
    /// A request that fits at no candidate is refused as if all were busy, so that it can wait
    /// where it may still go elsewhere ([`Push`](crate::Push)). A session's replica is preferred by
    /// some milliseconds only.
    PredictedLatency = "predicted_latency", Latency => predicted_latency::PredictedLatency,
    /// Takes the candidate with the longest part of the prompt in its cache, and of equal ones the
    /// one that carries less. If no cache has enough of it, or if loads differ too much, takes the
    /// one that carries the least for its weight ([`PrefixAwareTuning`](crate::PrefixAwareTuning)).
    PrefixAware = "prefix_aware", Load => prefix_aware::PrefixAware,
    /// Draws some candidates. Those with more requests than most of them are hot. Takes the cold
    /// one with the lowest latency, or if all are hot the one with the fewest requests (Wydrowski
    /// et al., "Load is not what you should balance: introducing Prequal", 2024).
    Prequal = "prequal", Latency => prequal::Prequal,
}

impl Policy {
    /// Returns true if the policy uses the contents of replicas' caches.
    #[must_use]
    pub fn reads_caches(self) -> bool {
        matches!(self, Self::PredictedLatency | Self::PrefixAware)
    }

    /// Returns true if weights count.
    pub(crate) fn is_weighted(self) -> bool {
        !matches!(self, Self::RoundRobin | Self::LeastConnections)
    }

    /// Returns true if the policy weighs a session's replica itself. With other policies the
    /// session stays at its replica before the policy is asked.
    pub(crate) fn weighs_sessions(self) -> bool {
        self == Self::PredictedLatency
    }

    /// Returns true if the policy compares the loads of candidates for this request. Otherwise a
    /// candidate's weight alone sets its share.
    pub(crate) fn compares_loads(self, inquiry: &Inquiry) -> bool {
        match self.hashes() {
            true => inquiry.affinity.is_none(),
            false => self.feedback() != Feedback::Blind,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicyError;

    fn from_str(text: &str) -> Result<Self, UnknownPolicyError> {
        let known = Self::ALL.iter().find(|policy| policy.name() == text);
        known.copied().ok_or_else(|| UnknownPolicyError(text.to_owned()))
    }
}

/// Error for a name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy `{0}`, expected one of {names}", names = known_names())]
pub struct UnknownPolicyError(String);

fn known_names() -> String {
    Policy::ALL.iter().map(|policy| policy.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod every_policy_test;
#[cfg(test)]
mod predicted_latency_test;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_config_and_display_agree_on_every_name() {
        for &policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
            assert_eq!(policy.to_string(), policy.name());
            let json = serde_json::to_string(&policy).unwrap();
            assert_eq!(json, format!("\"{policy}\""));
            assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), policy);
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = "power_of_three".parse::<Policy>().unwrap_err().to_string();
        let (start, names) = error.split_once(", expected one of ").unwrap();
        assert_eq!(start, "unknown policy `power_of_three`");
        assert!(names.starts_with("random, round_robin, weighted_round_robin, "), "{names}");
        assert!(names.split(", ").eq(Policy::ALL.iter().map(|policy| policy.name())), "{names}");
    }

    #[test]
    fn the_page_of_policies_has_a_row_for_each() {
        let page = include_str!("../../../../docs/explanation/policies.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let named: Vec<&str> = rows.map(|(name, _)| name).take(Policy::ALL.len()).collect();
        assert!(named.iter().copied().eq(Policy::ALL.iter().map(|it| it.name())), "{named:?}");
    }
}
