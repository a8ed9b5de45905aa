//! Request for admission by limits, and its outcome.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::limiter::{Charges, Limiter};
use crate::{LimitKind, RequestWindow, Scope};

/// Limits that can apply to one request: the global one, and those of its tenant, model and key.
pub(crate) const LIMITS_EACH: usize = 4;

/// A request that asks for admission.
#[derive(Clone, Copy, Debug)]
pub struct QuotaAsk<'a> {
    /// Id of the key that the request came with.
    pub key: Option<&'a str>,
    /// Tenant that the request belongs to.
    pub tenant: Option<&'a str>,
    /// Model that the request is for.
    pub model: Option<&'a str>,
    /// Tokens that the request will use at most, or most likely.
    pub tokens: u64,
    /// Tokens, of `tokens`, that the request names itself. The rest is a guess, and is charged only
    /// up to the whole limit.
    pub said: u64,
    /// Time of the request.
    pub now: Instant,
}

/// Refusal of a request by a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaError {
    /// Scope of the limit.
    pub scope: Scope,
    /// Kind that has no room.
    pub kind: LimitKind,
    /// Time over which the limit counts requests.
    pub requests: RequestWindow,
    /// Time until there will be room, as far as this node knows.
    pub retry_after: Duration,
    /// Units that the request may use.
    pub asked: u64,
    /// Units that count on this node now.
    pub used: u64,
    /// Units that this node may use now.
    pub held: u64,
    /// The whole limit, in all regions.
    pub whole: u64,
    /// True if this node knows its share. If not, the limit is being divided.
    pub is_divided: bool,
}

impl QuotaError {
    /// Returns true if the request would fit if no other one used the limit. If false, it never
    /// will.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.asked <= self.whole
    }
}

impl fmt::Display for QuotaError {
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

/// Charges of an admitted request. Dropping it frees its concurrency slots and leaves the rest
/// charged; [`Self::settle`] corrects the charge.
#[derive(Debug, Default)]
pub struct QuotaHold {
    charged: [Option<(Arc<Limiter>, Charges)>; LIMITS_EACH],
}

impl QuotaHold {
    /// Ends the request, which used `tokens_used` tokens; None if that is unknown. Tokens charged
    /// too many are given back, and tokens charged too few become debt.
    pub fn settle(mut self, tokens_used: Option<u64>) {
        self.end(tokens_used);
    }

    /// Returns true if no limit applies.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.charged.iter().all(Option::is_none)
    }

    pub(crate) fn add(&mut self, limiter: Arc<Limiter>, charges: Charges) {
        if let Some(place) = self.charged.iter_mut().find(|place| place.is_none()) {
            *place = Some((limiter, charges));
        }
    }

    /// Takes all charges back, since the request is not admitted after all.
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
