//! Charges of a client's request to quotas: once, at the first node.

use std::time::{Duration, SystemTime};

use spillway_protocol::{ErrorKind, GatewayError};
use spillway_quota::{LimitKind, QuotaAsk, QuotaError, QuotaHold, Quotas};
use spillway_route::ShedReason;
use spillway_types::{End, Inquiry, Outcome, TenantName, unix_ms};
use spillway_usage::BudgetGate;

use crate::request::errors::shed_error;
use spillway_front::access::Grant;
use spillway_request::cost::Cost;
use spillway_upstream::wake;

/// Bytes of a reply without usage that count as one token.
const REPLY_TOKEN_BYTES: u64 = 4;

/// Charge of a request, held until the request ends.
#[derive(Debug)]
pub(crate) struct Charge {
    hold: QuotaHold,
    /// Estimated tokens of the prompt.
    prompt_tokens: u64,
}

impl Charge {
    /// Charges a request to all quotas that apply. Guests were charged by the node that their
    /// client asked.
    ///
    /// # Errors
    /// Returns an error if a quota has no room; then nothing is charged.
    pub(crate) fn take(
        quotas: &Quotas,
        grant: &Grant,
        inquiry: &Inquiry,
        cost: &Cost,
    ) -> Result<Self, GatewayError> {
        let model = inquiry.model.as_ref().map(|model| model.as_str());
        // Without a model, the usual length for unknown models is expected.
        let usual = || quotas.expected_output(model.unwrap_or_default());
        let tokens = cost.tokens(usual);
        let ask = QuotaAsk {
            key: grant.key.as_ref().map(|key| key.as_str()),
            tenant: inquiry.tenant.as_ref().map(|tenant| tenant.as_str()),
            model,
            tokens,
            said: cost.tokens(|| 0),
            now: wake::now(),
        };
        if let Err(error) = cost.check()
            && quotas.limits_tokens(&ask)
        {
            return Err(error);
        }
        let hold = quotas.admit(&ask).map_err(|refusal| refused(&refusal))?;
        Ok(Self { hold, prompt_tokens: cost.prompt_tokens })
    }

    /// Settles the charge when the request ends: unused tokens are given back. `reply_bytes` is the
    /// length of a reply without usage; `was_sent` is true if any replica got the request.
    pub(crate) fn settle(
        self,
        quotas: &Quotas,
        outcome: &Outcome,
        reply_bytes: u64,
        was_sent: bool,
    ) {
        // Quotas go by the model that the client asked for, not by its fallback.
        let model = outcome.fallback_for.as_ref().or(outcome.model.as_ref());
        let completion = u32::try_from(outcome.tokens.completion).unwrap_or(u32::MAX);
        // Only complete replies show the usual length of answers.
        if let Some(model) = model.filter(|_| completion > 0 && outcome.end == End::Complete) {
            quotas.note_output(model.as_str(), completion);
        }
        let used = self.used(outcome, reply_bytes, was_sent);
        self.hold.settle(used);
    }

    /// Returns the tokens used; `None` if unknown.
    fn used(&self, outcome: &Outcome, reply_bytes: u64, was_sent: bool) -> Option<u64> {
        let tokens = outcome.tokens;
        // The reply told its usage, so nothing need be estimated.
        if tokens.prompt > 0 {
            return Some(tokens.prompt.saturating_add(tokens.completion));
        }
        let is_refused = match outcome.end {
            // The gateway answered itself, e.g. at a deadline: a replica may have worked all the
            // while.
            End::Answered => !was_sent,
            End::CancelledBeforeReply | End::CancelledInReply => !was_sent,
            // The error of a replica generated nothing.
            _ => outcome.status >= 400,
        };
        match tokens.completion {
            0 if is_refused => Some(0),
            0 if reply_bytes > 0 && outcome.end == End::Complete => {
                Some(self.prompt_tokens.saturating_add(reply_bytes.div_ceil(REPLY_TOKEN_BYTES)))
            }
            // Unknown: a replica may have generated as much as it was allowed to.
            0 => None,
            completion => Some(self.prompt_tokens.saturating_add(completion)),
        }
    }
}

/// Checks that the budget of a client's tenant is not spent. Guests were checked by the node that
/// their client asked.
///
/// # Errors
/// Returns an error if the budget is spent; it says when the next one begins.
pub(crate) fn check_budget(
    budgets: &BudgetGate,
    tenant: Option<&TenantName>,
) -> Result<(), GatewayError> {
    let spent = budgets.check(tenant, || unix_ms(SystemTime::now()));
    let Some((spent, wait_ms)) = spent else { return Ok(()) };
    let error = shed_error(ShedReason::Budget).with_retry_after(Duration::from_millis(wait_ms));
    Err(GatewayError { message: spent.to_string(), ..error })
}

fn refused(refusal: &QuotaError) -> GatewayError {
    if !refusal.fits() {
        // A retry is as useless as for a body that is too large.
        return GatewayError::new(ErrorKind::BeyondLimit, refusal.to_string());
    }
    let reason = match refusal.kind {
        LimitKind::RequestRate => ShedReason::RequestRate,
        LimitKind::TokenRate => ShedReason::TokenRate,
        LimitKind::Concurrency => ShedReason::Concurrency,
    };
    let error = shed_error(reason).with_retry_after(refusal.retry_after);
    GatewayError { message: refusal.to_string(), ..error }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use spillway_quota::Quotas;
    use spillway_types::TokenCounts;

    use super::*;

    fn ended(end: End, completion: u64) -> Outcome {
        let tokens = TokenCounts { completion, ..TokenCounts::default() };
        Outcome { end, tokens, ..Outcome::begun() }
    }

    #[test]
    fn only_what_no_replica_worked_on_is_free() {
        let now = Instant::now();
        let ask = QuotaAsk { key: None, tenant: None, model: None, tokens: 900, said: 900, now };
        let hold = Quotas::new(now).admit(&ask).unwrap();
        let charge = Charge { hold, prompt_tokens: 100 };
        for end in [End::Answered, End::CancelledBeforeReply, End::CancelledInReply] {
            assert_eq!(
                charge.used(&ended(end, 0), 0, false),
                Some(0),
                "{end:?} before it was sent"
            );
            assert_eq!(charge.used(&ended(end, 0), 0, true), None, "{end:?}: all of the charge");
            assert_eq!(charge.used(&ended(end, 7), 0, true), Some(107), "{end:?}");
        }
        let whole = Outcome { status: 200, ..ended(End::Complete, 0) };
        assert_eq!(charge.used(&whole, 400, true), Some(200), "a reply without usage");
        assert_eq!(charge.used(&ended(End::Complete, 0), 400, true), Some(0), "an error");
    }
}
