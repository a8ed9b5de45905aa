//! Tenant share: slots in a group's replicas that a tenant leaves to other tenants.

use crate::CLASSES;

/// Slots kept for each slot that other tenants use: bursts exceed the usual use, and a replica
/// that is not full is faster.
const KEPT_PER_USED: f32 = 2.0;
/// Prompt and reply tokens that count as much as a slot, as in a short request: long prompts keep
/// engines busy that have slots left, and long replies keep slots for long.
const TOKENS_PER_SLOT: f32 = 256.0;

/// Use of a group by one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantUse {
    /// Requests in flight.
    pub requests: u32,
    /// Tokens of the requests in flight, prompts and expected replies.
    pub tokens: u32,
    /// Recent maximum of the tenant's requests in flight, as of the last judgement if there was
    /// one.
    pub requests_max: u32,
}

/// Shares of a group among all tenants that sent something lately.
///
/// A tenant's use is its dominant share: of the slots, or of all tokens in flight if that is more.
/// A tenant that uses more than an equal part leaves to the others twice their peak use, up to a
/// part of the slots that the operator sets. It may use the rest, and everything while no other
/// tenant is there. Nothing is kept from a tenant below its equal part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantShare {
    /// Slots that a tenant may use before it has to leave some to others; 0 if no tenant has to.
    fair: f32,
    /// Tokens that count as a slot.
    tokens_per_slot: f32,
    /// Sum of all peaks, each no more than an equal part.
    peaks: f32,
    /// Most slots that are kept.
    kept_max: f32,
    /// Slots per replica.
    each: f32,
}

/// Shares of a group for each class of requests. A tenant above its part leaves room to requests
/// that are as urgent or more, and nothing to less urgent ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantShares {
    shares: [TenantShare; CLASSES],
    /// Room that is kept for requests of each class, by tenants above their part in it or in a
    /// class below.
    kept: [Option<KeptShare>; CLASSES],
}

/// Room that is kept from a tenant: whole replicas, the last ones of the group, and a part of one
/// more. A request is slowed by its neighbours, so a tenth of each replica would be of little use.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct KeptShare {
    /// Number of replicas, perhaps with a fraction.
    kept: f32,
}

impl TenantShare {
    /// Computes the shares of all tenants that sent something lately. `slots` are those of all
    /// `replicas`; at most `kept_permille_max` thousandths of them are kept.
    #[must_use]
    pub fn judge(
        uses: impl Iterator<Item = TenantUse> + Clone,
        slots: u32,
        replicas: u32,
        kept_permille_max: u16,
    ) -> Self {
        let count = uses.clone().count() as f32;
        let slots = slots as f32;
        // A single tenant leaves nothing to others, and without slots nothing can be kept.
        if count < 2.0 || slots <= 0.0 || kept_permille_max == 0 {
            return Self::default();
        }
        let tokens: f32 = uses.clone().map(|used| used.tokens as f32).sum();
        let fair = slots / count;
        Self {
            fair,
            // Tokens beyond those that the slots represent are shared out as they are.
            tokens_per_slot: TOKENS_PER_SLOT.max(tokens / slots),
            peaks: uses.map(|used| (used.requests_max as f32).min(fair)).sum(),
            // A tenant above its part keeps at least an equal part.
            kept_max: (f32::from(kept_permille_max) / 1_000.0 * slots).min(slots - fair),
            each: slots / replicas.max(1) as f32,
        }
    }

    /// Returns true if some tenant may have to leave room.
    #[must_use]
    pub fn keeps_any(&self) -> bool {
        self.fair > 0.0
    }

    /// Returns the room that a tenant with this use leaves to others; `None` if it leaves none.
    #[must_use]
    pub fn left_by(&self, used: &TenantUse) -> Option<KeptShare> {
        if !self.keeps_any() || !self.is_over(used) {
            return None;
        }
        // Its own peak is in the sum: a tenant leaves nothing to itself.
        let others = self.peaks - (used.requests_max as f32).min(self.fair);
        let kept = (KEPT_PER_USED * others).min(self.kept_max);
        (kept > 0.0).then(|| KeptShare { kept: kept / self.each })
    }

    /// Returns true if a tenant with this use has more than its part.
    fn is_over(&self, used: &TenantUse) -> bool {
        let by_tokens = used.tokens as f32 / self.tokens_per_slot;
        by_tokens.max(used.requests as f32) > self.fair
    }
}

impl TenantShares {
    /// Computes the shares in each class, of the tenants that sent something of it lately;
    /// otherwise as [`TenantShare::judge`].
    #[must_use]
    pub fn judge(
        uses: &[(u8, TenantUse)],
        slots: u32,
        replicas: u32,
        kept_permille_max: u16,
    ) -> Self {
        let shares = std::array::from_fn(|class| {
            let before = uses.iter().filter(|(of, _)| slot(*of) <= class);
            TenantShare::judge(before.map(|(_, used)| *used), slots, replicas, kept_permille_max)
        });
        let mut kept = [None; CLASSES];
        for (of, used) in uses {
            let left: Option<KeptShare> = shares[slot(*of)].left_by(used);
            for most in &mut kept[..=slot(*of)] {
                // `None` compares as less than any room.
                *most = if left > *most { left } else { *most };
            }
        }
        Self { shares, kept }
    }

    /// Returns true if some tenant may have to leave room.
    #[must_use]
    pub fn keeps_any(&self) -> bool {
        self.shares.iter().any(TenantShare::keeps_any)
    }

    /// Returns the room that a tenant with this use in this class leaves to others; `None` if it
    /// leaves none.
    #[must_use]
    pub fn left_by(&self, class: u8, used: &TenantUse) -> Option<KeptShare> {
        self.shares[slot(class)].left_by(used)
    }

    /// Returns the room to which a tenant with this use is sent first, because other tenants use
    /// much: elsewhere a long prompt may come next and slow its request. `None` if no room is kept,
    /// or if the tenant itself has to leave room.
    #[must_use]
    pub fn kept_for(&self, class: u8, used: &TenantUse) -> Option<KeptShare> {
        self.kept[slot(class)].filter(|_| self.left_by(class, used).is_none())
    }
}

/// Returns the index of a class; higher classes count as the last.
fn slot(class: u8) -> usize {
    usize::from(class).min(CLASSES - 1)
}

impl KeptShare {
    /// Returns the number of replicas at the end of the group that are kept as a whole.
    #[must_use]
    pub fn whole(&self) -> usize {
        self.kept as usize
    }

    /// Returns the number of replicas at the end of the group that are kept as a whole or in part.
    #[must_use]
    pub fn touched(&self) -> usize {
        self.kept.ceil() as usize
    }

    /// Returns the slots that a tenant above its part may use at the replica before those kept as
    /// a whole. `u32::MAX` means no limit, of which no part can be kept.
    #[must_use]
    pub fn left_of_part(&self, slots: u32) -> u32 {
        match slots {
            u32::MAX => u32::MAX,
            slots => slots - (slots as f32 * self.kept.fract()) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn using(requests: u32) -> TenantUse {
        TenantUse { requests, tokens: 0, requests_max: requests }
    }

    /// Returns the slots that the first tenant may use at four replicas of 16 slots, from first
    /// to last.
    fn left(uses: &[TenantUse], permille: u16) -> [u32; 4] {
        let room = TenantShare::judge(uses.iter().copied(), 64, 4, permille);
        [3, 2, 1, 0].map(|from_end| slots_left(room.left_by(&uses[0]), 16, from_end))
    }

    fn slots_left(kept: Option<KeptShare>, slots: u32, from_end: usize) -> u32 {
        let Some(kept) = kept else { return slots };
        match from_end.cmp(&kept.whole()) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => kept.left_of_part(slots),
            std::cmp::Ordering::Greater => slots,
        }
    }

    #[test]
    fn whoever_has_much_leaves_twice_what_others_use() {
        assert_eq!(left(&[using(58), using(6)], 250), [16, 16, 16, 4]);
        assert_eq!(left(&[using(6), using(58)], 250), [16; 4]);
        let burst = TenantUse { requests: 1, requests_max: 40, ..TenantUse::default() };
        assert_eq!(left(&[using(58), burst], 250), [16, 16, 16, 0], "a quarter, whatever they use");
        assert_eq!(left(&[using(58), burst], 1_000), [16, 16, 0, 0], "an equal part is its own");
    }

    #[test]
    fn others_are_sent_to_what_is_kept_while_somebody_has_much() {
        let kept = |uses: &[(u8, TenantUse)]| {
            TenantShares::judge(uses, 64, 4, 250).kept_for(uses[0].0, &uses[0].1)
        };
        assert_eq!(kept(&[(2, using(6)), (2, using(30))]), None);
        let left = kept(&[(2, using(6)), (2, using(58))]).unwrap();
        assert_eq!((left.whole(), left.touched()), (0, 1));
        let left = kept(&[(2, using(9)), (2, using(58)), (2, using(1))]).unwrap();
        assert_eq!((left.whole(), left.touched()), (1, 1));
        assert_eq!(kept(&[(2, using(58)), (2, using(6))]), None, "it has much itself");
        // No room is kept for less urgent requests.
        assert_eq!(kept(&[(3, using(6)), (2, using(58))]), None);
        assert!(kept(&[(1, using(6)), (2, using(58))]).is_some());
    }

    #[test]
    fn urgent_requests_leave_nothing_to_those_that_are_less_so() {
        let (urgent, other) = (using(58), using(6));
        let shares = TenantShares::judge(&[(0, urgent), (3, other)], 64, 4, 250);
        assert_eq!(shares.left_by(0, &urgent), None);
        let shares = TenantShares::judge(&[(0, other), (3, urgent)], 64, 4, 250);
        assert!(shares.left_by(3, &urgent).is_some() && shares.left_by(9, &urgent).is_some());
        let shares = TenantShares::judge(&[(0, urgent), (0, other)], 64, 4, 250);
        assert!(shares.left_by(0, &urgent).is_some());
    }

    #[test]
    fn a_burst_leaves_it_though_nobody_had_much_before() {
        let room = TenantShare::judge([using(0), using(4)].into_iter(), 64, 4, 250);
        let by_now = |requests| TenantUse { requests, ..using(0) };
        assert_eq!(room.left_by(&by_now(32)), None);
        let kept = room.left_by(&by_now(33));
        assert_eq!([1, 0].map(|from_end| slots_left(kept, 16, from_end)), [16, 8]);
    }

    #[test]
    fn alone_a_tenant_may_have_all() {
        assert_eq!(left(&[using(64)], 250), [16; 4]);
        assert_eq!(left(&[using(60), using(60)], 0), [16; 4]);
        assert_eq!(left(&[using(60), using(0)], 250), [16; 4], "nobody uses anything beside it");
    }

    #[test]
    fn nothing_is_kept_from_those_who_have_their_part() {
        assert_eq!(left(&[using(30), using(10)], 250), [16; 4]);
        assert_eq!(left(&[using(20), using(22), using(22)], 250), [16; 4]);
        assert_eq!(left(&[using(22), using(20), using(1)], 250), [16, 16, 16, 0]);
    }

    #[test]
    fn long_prompts_count_for_more_than_their_places() {
        let long = TenantUse { requests: 1, tokens: 9_000, requests_max: 6 };
        let short = TenantUse { requests: 4, tokens: 400, requests_max: 8 };
        assert_eq!(left(&[long, short], 250), [16, 16, 16, 0]);
        assert_eq!(left(&[short, long], 250), [16; 4]);
        // All have long requests: shares of the tokens decide then.
        let long = TenantUse { requests: 8, tokens: 80_000, requests_max: 8 };
        assert_eq!(left(&[long, long, long], 250), [16; 4]);
    }

    #[test]
    fn a_replica_without_a_limit_is_kept_as_a_whole_or_not_at_all() {
        let kept = |others| {
            let room = TenantShare::judge([using(100), using(others)].into_iter(), 64, 4, 250);
            slots_left(room.left_by(&using(100)), u32::MAX, 0)
        };
        assert_eq!((kept(6), kept(16)), (u32::MAX, 0));
    }

    proptest! {
        #[test]
        fn a_quarter_is_kept_at_most_and_an_equal_part_is_never(
            uses in prop::collection::vec((0_u32..200, 0_u32..1_000_000, 0_u32..200), 0..9),
            (each, replicas) in (1_u32..100, 1_u32..40),
        ) {
            let uses = uses.into_iter().map(|(requests, tokens, more)| {
                TenantUse { requests, tokens, requests_max: requests.saturating_add(more) }
            });
            let uses: Vec<_> = uses.collect();
            let slots = each * replicas;
            let room = TenantShare::judge(uses.iter().copied(), slots, replicas, 250);
            let mut count_over = 0;
            for used in &uses {
                let kept = room.left_by(used);
                let left = |from_end| slots_left(kept, each, from_end as usize);
                let left: u32 = (0..replicas).map(left).sum();
                prop_assert!(left <= slots && 4 * left + 4 >= 3 * slots, "{left} of {slots}");
                let part = slots as f32 / uses.len() as f32;
                prop_assert!(left as f32 + 1.0 >= part.floor(), "{left} of a part of {part}");
                if kept.is_some() {
                    count_over += 1;
                    prop_assert!(used.requests as f32 > part || used.tokens > 0);
                }
            }
            // One tenant may have more than its part of the tokens, and another of the slots.
            let is_one_kind = uses.iter().all(|used| used.tokens == 0);
            prop_assert!(!is_one_kind || count_over < uses.len().max(1));
        }
    }
}
