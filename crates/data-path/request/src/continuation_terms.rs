//! Terms on which the stream of a request can be continued.

use spillway_protocol::{CompletionApi, Unfit, UsageTelling};

/// Terms on which the stream of a request can be continued, by its body.
#[derive(Clone, Copy, Debug)]
pub struct ContinuationTerms {
    /// API of the request.
    pub api: CompletionApi,
    /// Way in which the client gets its usage.
    pub telling: UsageTelling,
    /// Error if the body asks for something that no other replica could continue.
    pub fit: Result<(), Unfit>,
}
