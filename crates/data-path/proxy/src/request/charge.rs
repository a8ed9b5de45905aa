//! Charges of a client's request to quotas: once, at the first node.

use std::time::{Duration, SystemTime};

use spillway_front::access::Grant;
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_rate_limit::{LimitKind, QuotaAsk, QuotaError, QuotaHold, Quotas};
use spillway_request::cost::Cost;
use spillway_route::ShedReason;
use spillway_transport::coarse_clock;
use spillway_types::{End, Inquiry, Outcome, RouteName, TenantName, unix_ms};
use spillway_usage::{Bill, BudgetGate};

use crate::request::errors::shed_error;

/// Charge of a request, held until the request ends.
#[derive(Debug)]
pub(crate) struct Charge {
    hold: QuotaHold,
}

impl Charge {
    /// Charges a request to all quotas that apply. Guests were charged by the node that their
    /// client asked.
    ///
    /// # Errors
    /// Returns an error if a quota has no room; then nothing is charged.
    pub(crate) fn take(
        quotas: &Quotas,
        route: &RouteName,
        grant: &Grant,
        inquiry: &Inquiry,
        cost: &Cost,
    ) -> Result<Self, GatewayError> {
        let model = inquiry.model.as_ref().map(|model| model.as_str());
        // Without a model, the usual length for unknown models is expected.
        let usual = || quotas.expected_output(route.as_str(), model.unwrap_or_default());
        let tokens = cost.tokens(usual);
        let ask = QuotaAsk {
            key: grant.key.as_ref().map(|key| key.as_str()),
            tenant: inquiry.tenant.as_ref().map(|tenant| tenant.as_str()),
            model,
            tokens,
            said: cost.tokens(|| 0),
            now: coarse_clock::now(),
        };
        if let Err(error) = cost.check()
            && quotas.limits_tokens(&ask)
        {
            return Err(error);
        }
        let hold = quotas.admit(&ask).map_err(|refusal| refused(&refusal))?;
        Ok(Self { hold })
    }

    /// Settles the charge when the request ends: tokens that it did not use are given back.
    pub(crate) fn settle(self, quotas: &Quotas, outcome: &Outcome, bill: &Bill) {
        // Quotas are charged for the model that the client asked for, not for its fallback.
        let model = outcome.fallback_for.as_ref().or(outcome.model.as_ref());
        let completion = u32::try_from(bill.tokens.completion).unwrap_or(u32::MAX);
        // Only complete replies show the usual length of answers.
        let is_whole = outcome.end == End::Complete && bill.is_counted;
        if let Some(model) = model.filter(|_| completion > 0 && is_whole) {
            let route = outcome.route.as_ref().map_or("", |route| route.as_str());
            quotas.note_output(route, model.as_str(), completion);
        }
        self.hold.settle(bill.limited);
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
