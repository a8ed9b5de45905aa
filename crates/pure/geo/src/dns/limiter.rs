//! Response rate limiting: a bound on UDP answers to one network, since source addresses of UDP can
//! be forged.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::dns::client::ClientNetwork;

/// Number of token buckets in the table, 16 bytes each (1 MiB).
const NETWORKS_MAX: usize = 65_536;
/// Slots of the table in which one network may have its bucket.
const WAYS: usize = 4;

/// Rate limit of one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimiterConfig {
    /// Answers per second; 0 means no limit.
    pub answers_per_s: u32,
    /// Answers that an idle network may get at once (size of the token bucket); 0 counts as 1.
    pub burst: u32,
}

/// Decision of the rate limiter on one query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryAdmission {
    /// The query is answered.
    Answer,
    /// The answer is empty and asks for TCP. A real resolver follows, and the victim of a forged
    /// address gets no more bytes than the attacker sent.
    Truncate,
    /// The query gets no answer.
    Drop,
}

/// Token buckets of networks, in a table of fixed size.
///
/// A network without a free slot replaces the network that was quiet the longest. Forged networks
/// therefore use no more memory, and each of them gets its burst at most.
#[derive(Debug)]
pub struct ResponseLimiter {
    config: LimiterConfig,
    /// Random seed of the hash, so that no attacker can find out which networks share slots.
    seed: u64,
    start: Instant,
    buckets: Vec<Bucket>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    /// Upper half of the network's hash; 0 means that the slot is free.
    tag: u32,
    /// Time of the network's last query, in milliseconds after `start`.
    seen_ms: u32,
    /// Tokens left, in thousandths of an answer.
    left: u32,
    /// Number of queries over the limit: the odd ones get an answer that asks for TCP, the even
    /// ones get none.
    refused: u32,
}

impl ResponseLimiter {
    /// Creates a limiter with full buckets. `seed` must be random.
    #[must_use]
    pub fn new(config: LimiterConfig, seed: u64, now: Instant) -> Self {
        Self { config, seed, start: now, buckets: vec![Bucket::default(); NETWORKS_MAX] }
    }

    /// Takes one answer from the token bucket of `source` at time `now`, or refuses the query.
    #[must_use]
    pub fn admit(&mut self, source: IpAddr, now: Instant) -> QueryAdmission {
        // Zero switches the rate limit off.
        if self.config.answers_per_s == 0 {
            return QueryAdmission::Answer;
        }
        let now_ms = millis(now.saturating_duration_since(self.start));
        let each_s = self.config.answers_per_s;
        let full = self.config.burst.max(1).saturating_mul(1_000);
        let bucket = self.bucket(source, now_ms, full);
        // One answer per second is one thousandth of an answer per millisecond.
        let gained = now_ms.wrapping_sub(bucket.seen_ms).saturating_mul(each_s);
        bucket.left = bucket.left.saturating_add(gained).min(full);
        bucket.seen_ms = now_ms;
        if let Some(rest) = bucket.left.checked_sub(1_000) {
            bucket.left = rest;
            return QueryAdmission::Answer;
        }
        bucket.refused = bucket.refused.wrapping_add(1);
        // Every second refusal asks for TCP, which a real resolver follows. The others save the
        // reply.
        if bucket.refused % 2 == 1 { QueryAdmission::Truncate } else { QueryAdmission::Drop }
    }

    /// Returns the bucket of a network. A new bucket replaces a free slot, or else the slot that
    /// was quiet the longest.
    fn bucket(&mut self, source: IpAddr, now_ms: u32, full: u32) -> &mut Bucket {
        let hash = ClientNetwork::of(source).hash(self.seed, b"limit");
        // The tag 0 means a free slot.
        let tag = u32::try_from(hash >> 32).unwrap_or_default().max(1);
        let sets = NETWORKS_MAX / WAYS;
        // The lower half of the hash chooses the slots, the upper half is the tag.
        let set = usize::try_from(hash & 0xffff_ffff).unwrap_or_default() % sets * WAYS;
        let ways = &mut self.buckets[set..set + WAYS];
        let known = ways.iter().position(|bucket| bucket.tag == tag);
        let way = known.unwrap_or_else(|| {
            let age_ms = |bucket: &Bucket| now_ms.wrapping_sub(bucket.seen_ms);
            let is_free = |bucket: &Bucket| bucket.tag == 0;
            // Free slots come first, then the slot that was quiet the longest.
            let order = |&way: &usize| (is_free(&ways[way]), age_ms(&ways[way]));
            (0..WAYS).max_by_key(order).unwrap_or_default()
        });
        if known.is_none() {
            ways[way] = Bucket { tag, seen_ms: now_ms, left: full, refused: 0 };
        }
        &mut ways[way]
    }
}

/// Returns a duration as milliseconds modulo 2^32 (49 days): only differences of such times are
/// used.
fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis() & u128::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "there is no other way to have an instant")]
    fn some_moment() -> Instant {
        Instant::now()
    }

    fn limiter(answers_per_s: u32, burst: u32) -> (ResponseLimiter, Instant) {
        let start = some_moment();
        (ResponseLimiter::new(LimiterConfig { answers_per_s, burst }, 7, start), start)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_gets_its_burst_then_its_rate_and_every_second_one_over_it_a_hint() {
        let (mut limiter, start) = limiter(10, 3);
        let mut admit =
            |address: &str, ms: u64| limiter.admit(ip(address), start + Duration::from_millis(ms));
        let burst: Vec<_> = (0..7).map(|n| admit(&format!("192.0.2.{n}"), 0)).collect();
        use QueryAdmission::{Answer, Drop, Truncate};
        assert_eq!(burst, [Answer, Answer, Answer, Truncate, Drop, Truncate, Drop]);
        assert_eq!(admit("198.51.100.1", 0), Answer, "another network");
        assert_eq!(admit("192.0.2.9", 99), Truncate, "a tenth of a second has not passed");
        assert_eq!(admit("192.0.2.9", 100), Answer);
        assert_eq!(admit("192.0.2.9", 100), Drop);
        let rested: Vec<_> = (0..4).map(|_| admit("192.0.2.9", 60_000)).collect();
        assert_eq!(rested[..3], [Answer; 3], "no more than the burst is saved up");
        assert_ne!(rested[3], Answer);
    }

    #[test]
    fn a_rest_of_two_months_is_a_rest() {
        let (mut limiter, start) = limiter(1, 1);
        assert_eq!(limiter.admit(ip("192.0.2.1"), start), QueryAdmission::Answer);
        let later = start + Duration::from_secs(60 * 86_400);
        assert_eq!(limiter.admit(ip("192.0.2.1"), later), QueryAdmission::Answer);
        assert_eq!(limiter.admit(ip("192.0.2.1"), later), QueryAdmission::Truncate);
    }

    #[test]
    fn without_a_limit_all_are_answered() {
        let (mut limiter, start) = limiter(0, 0);
        assert!((0..1_000).all(|_| limiter.admit(ip("::1"), start) == QueryAdmission::Answer));
    }

    #[test]
    fn more_networks_than_places_cost_no_memory_and_leave_a_busy_one_limited() {
        let (mut limiter, start) = limiter(1, 2);
        let busy = ip("192.0.2.1");
        for n in 0..200_000_u32 {
            let at = start + Duration::from_micros(u64::from(n));
            let _admission = limiter.admit(busy, at);
            let forged = std::net::Ipv4Addr::from(0x0b00_0000 + (n << 8));
            assert_eq!(limiter.admit(forged.into(), at), QueryAdmission::Answer);
        }
        assert_eq!(limiter.buckets.len(), NETWORKS_MAX);
        assert_ne!(limiter.admit(busy, start + Duration::from_millis(200)), QueryAdmission::Answer);
    }
}
