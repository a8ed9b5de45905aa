//! Report of a replica's KV and prefix caches.

/// Figures of caches on a page. A figure that the page lacks is `None`; all numbers are finite and
/// not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheReport {
    /// Tokens that the KV cache holds when it is full.
    pub tokens: Option<f64>,
    /// Prompt tokens looked up in the prefix cache since the start of the process.
    pub queries: Option<f64>,
    /// Prompt tokens of `queries` that were found.
    pub hits: Option<f64>,
    /// Start of the process, in seconds since 1970 by the replica's own clock. Compared only with
    /// earlier values of the same replica.
    pub started_s: Option<f64>,
}
