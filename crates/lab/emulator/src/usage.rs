//! Tokens that requests took, as the emulator itself counts them.

use serde::Serialize;

use crate::ledger::RequestRecord;

/// Tokens of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenUsage {
    /// Tokens of all prompts.
    pub prompt_tokens: u32,
    /// Generated tokens that were handed to the connection. A reply that is no stream hands over
    /// all of its tokens at once.
    pub completion_tokens: u32,
    /// Tokens of the prompts that were in the prefix cache; 0 until the first token exists.
    pub cached_tokens: u32,
}

/// Sum over several requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UsageTotals {
    /// Number of requests.
    pub requests: u64,
    /// Sum of [`TokenUsage::prompt_tokens`].
    pub prompt_tokens: u64,
    /// Sum of [`TokenUsage::completion_tokens`].
    pub completion_tokens: u64,
    /// Sum of [`TokenUsage::cached_tokens`].
    pub cached_tokens: u64,
}

impl UsageTotals {
    pub(crate) fn add(&mut self, usage: TokenUsage) {
        self.requests += 1;
        self.prompt_tokens += u64::from(usage.prompt_tokens);
        self.completion_tokens += u64::from(usage.completion_tokens);
        self.cached_tokens += u64::from(usage.cached_tokens);
    }
}

/// Usage of a replica since the emulator started; crashes do not reset it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UsageReport {
    /// Requests whose answer was handed over whole.
    pub complete: UsageTotals,
    /// Requests whose reply or answer was cut. Requests that were answered with an error count in
    /// neither sum.
    pub incomplete: UsageTotals,
    /// Last requests in the order of their arrival, at most
    /// [`crate::EmulatorConfig::records_max`].
    pub requests: Vec<RequestRecord>,
}
