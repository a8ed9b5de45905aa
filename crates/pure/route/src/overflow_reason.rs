//! Reasons for the use of an overflow replica.

use spillway_types::reasons;

reasons! {
    /// Reason for which an overflow replica was asked, beside a reason to shed the request and one why
    /// no replica was chosen.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum OverflowReason {
        /// A replica rejected the request for lack of room, and no other was asked.
        Refused = "refused";
        /// The last attempt at a replica failed.
        Failed = "failed";
        /// The request had waited for a slot as long as the overflow replica's `after_ms` allows.
        Waiting = "waiting";
    }
}
