//! What a client's request charges to limits: once, where it came in.

use std::time::Instant;

use spillway_protocol::GatewayError;
use spillway_quota::{LimitKind, QuotaAsk, QuotaHold, QuotaRefusal};
use spillway_route::ShedReason;
use spillway_types::{End, Inquiry, Outcome};

use crate::access::Grant;
use crate::gateway::Gateway;
use crate::request::queue::shed_error;

/// Bytes of a prompt's JSON text that count as a token before the replica says how many there were.
const TOKEN_BYTES: u64 = 4;

/// What a request has charged, until it ends.
#[derive(Debug)]
pub(crate) struct Charge {
    hold: QuotaHold,
    /// About how many tokens its prompt has.
    prompt_tokens: u64,
}

impl Charge {
    /// Charges a request to all limits that apply to it. Guests were charged by the node that their
    /// client asked.
    ///
    /// # Errors
    /// If one of them has no room; then nothing is charged.
    pub(crate) fn take(
        gateway: &Gateway,
        grant: &Grant,
        inquiry: &Inquiry,
    ) -> Result<Self, GatewayError> {
        let prompt_tokens = u64::from(inquiry.prompt_bytes).div_ceil(TOKEN_BYTES);
        let model = inquiry.model.as_ref().map(|model| model.as_str());
        // Without a prompt there are no tokens to speak of.
        let tokens = match prompt_tokens {
            0 => 0,
            tokens => {
                let usual = || model.map_or(0, |model| gateway.quotas().expected_output(model));
                tokens + u64::from(inquiry.output_tokens_max.unwrap_or_else(usual))
            }
        };
        let ask = QuotaAsk {
            key: grant.key.as_ref().map(|key| key.as_str()),
            tenant: inquiry.tenant.as_ref().map(|tenant| tenant.as_str()),
            model,
            tokens,
            now: Instant::now(),
        };
        let hold = gateway.quotas().admit(&ask).map_err(|refusal| refused(&refusal))?;
        Ok(Self { hold, prompt_tokens })
    }

    /// The request ended in this way: what it did not use is given back.
    pub(crate) fn settle(self, gateway: &Gateway, outcome: &Outcome) {
        let model = outcome.fallback_for.as_ref().or(outcome.model.as_ref());
        let completion = u32::try_from(outcome.tokens.completion).unwrap_or(u32::MAX);
        if let Some(model) = model.filter(|_| completion > 0 && outcome.end == End::Complete) {
            gateway.quotas().note_output(model.as_str(), completion);
        }
        let used = self.used(outcome);
        self.hold.settle(used);
    }

    /// The tokens that it used; `None` if nobody knows.
    fn used(&self, outcome: &Outcome) -> Option<u64> {
        let tokens = outcome.tokens;
        if tokens.prompt > 0 {
            return Some(tokens.prompt + tokens.completion);
        }
        let is_refusal = outcome.status >= 400 && outcome.end != End::CancelledBeforeReply;
        match tokens.completion {
            0 if is_refusal => Some(0),
            // It may have been worked on for as long as it may.
            0 => None,
            completion => Some(self.prompt_tokens + completion),
        }
    }
}

fn refused(refusal: &QuotaRefusal) -> GatewayError {
    let reason = match refusal.kind {
        LimitKind::RequestRate => ShedReason::RequestRate,
        LimitKind::TokenRate => ShedReason::TokenRate,
        LimitKind::Concurrency => ShedReason::Concurrency,
    };
    let error = shed_error(reason).with_retry_after(refusal.retry_after);
    GatewayError { message: refusal.to_string(), ..error }
}
