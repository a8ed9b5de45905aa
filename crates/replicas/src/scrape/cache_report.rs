//! What a replica says of its KV and prefix caches.

/// What a page tells of caches. What it does not tell is `None`; all numbers are finite and not
/// negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheReport {
    /// Tokens that the KV cache holds when it is full.
    pub tokens: Option<f64>,
    /// Prompt tokens ever looked up in the prefix cache, since the process was started.
    pub queries: Option<f64>,
    /// Of these, found there.
    pub hits: Option<f64>,
    /// When the process was started, in seconds since 1970 by the replica's own clock. Only ever
    /// compared with what it said before.
    pub started_s: Option<f64>,
}
