//! What a request asks of limits, and what it gets.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::limiter::{Charges, Limiter};
use crate::{LimitKind, RequestWindow, Scope};

/// Limits that can apply to one request: everybody's, a tenant's, a model's, a key's.
pub(crate) const LIMITS_EACH: usize = 4;

/// A request that wants to be let in.
#[derive(Clone, Copy, Debug)]
pub struct QuotaAsk<'a> {
    /// The id of the key it came with.
    pub key: Option<&'a str>,
    /// Whose it is.
    pub tenant: Option<&'a str>,
    /// Which model it is for.
    pub model: Option<&'a str>,
    /// The tokens that it will use at most, or most likely.
    pub tokens: u64,
    /// Of these, what it says itself. The rest is a guess, and not charged where all of a limit is less.
    pub said: u64,
    /// When.
    pub now: Instant,
}

/// A request is not let in by a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaRefusal {
    /// Whose limit.
    pub scope: Scope,
    /// What has no room.
    pub kind: LimitKind,
    /// Over which time the limit counts requests.
    pub requests: RequestWindow,
    /// When there will be room, as far as this node knows.
    pub retry_after: Duration,
    /// What the request may use.
    pub asked: u64,
    /// What counts on this node now.
    pub used: u64,
    /// What this node may use now.
    pub held: u64,
    /// The whole limit, in all regions.
    pub whole: u64,
    /// Whether this node has been told its share. If not, the limit is being divided.
    pub is_divided: bool,
}

impl QuotaRefusal {
    /// Whether the request would fit if nobody else used the limit. If not, it never will.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.asked <= self.whole
    }
}

impl fmt::Display for QuotaRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, asked, used, held, whole, .. } = self;
        let limit = format_args!("{whole} {} for {scope}", self.kind.unit(self.requests));
        let is_tokens = self.kind == LimitKind::TokenRate;
        let seconds = self.retry_after.as_millis().div_ceil(1_000).max(1);
        if !self.fits() {
            return match is_tokens {
                true => write!(f, "the request may use {asked} tokens, the limit is {limit}"),
                false => write!(f, "the limit is {limit}: no request can be served"),
            };
        }
        if !self.is_divided {
            return write!(f, "{limit}: being divided among nodes, again in {seconds} s");
        }
        write!(f, "{limit}: {used} used")?;
        if held < whole {
            write!(f, " of the {held} that this node holds now")?;
        }
        if is_tokens {
            write!(f, ", {asked} asked for")?;
        }
        write!(f, ", again in {seconds} s")
    }
}

/// What a request has charged. When it goes, places are free again and the rest stays charged;
/// [`Self::settle`] says what was used.
#[derive(Debug, Default)]
pub struct QuotaHold {
    charged: [Option<(Arc<Limiter>, Charges)>; LIMITS_EACH],
}

impl QuotaHold {
    /// The request ended and used so many tokens; none if nobody knows. What was charged too much
    /// is given back, what was charged too little is carried as debt.
    pub fn settle(mut self, tokens_used: Option<u64>) {
        self.end(tokens_used);
    }

    /// Whether any limit applies.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.charged.iter().all(Option::is_none)
    }

    pub(crate) fn add(&mut self, limiter: Arc<Limiter>, charges: Charges) {
        if let Some(place) = self.charged.iter_mut().find(|place| place.is_none()) {
            *place = Some((limiter, charges));
        }
    }

    /// Takes everything back: the request is not let in after all.
    pub(crate) fn undo(&mut self) {
        for (limiter, charges) in self.charged.iter_mut().filter_map(Option::take) {
            limiter.undo(charges);
        }
    }

    fn end(&mut self, tokens: Option<u64>) {
        for (limiter, charges) in self.charged.iter_mut().filter_map(Option::take) {
            limiter.settle(charges, tokens);
        }
    }
}

impl Drop for QuotaHold {
    fn drop(&mut self) {
        self.end(None);
    }
}
