//! Rules for repeating an attempt.

/// Safety of repeating a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetrySafety {
    /// The replica never saw the request: a repetition is always safe.
    Unsent,
    /// The replica may have seen the request; no byte of a reply came.
    Reset,
    /// The request must not be repeated.
    Never,
}

/// Kind of a reply's status, as far as a retry depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusClass {
    /// A reply for the client: a success, or the client's own fault.
    Final,
    /// 429 or 503: the replica has no room and has not begun to work.
    NoRoom,
    /// 500, 502 or 504: the work may be half done.
    Failed,
}

impl StatusClass {
    /// Sorts an HTTP status code.
    #[must_use]
    pub fn of(status: u16) -> Self {
        match status {
            429 | 503 => Self::NoRoom,
            500 | 502 | 504 => Self::Failed,
            _ => Self::Final,
        }
    }

    /// Returns the safety of asking another replica instead of passing this reply on.
    /// `is_idempotent`: the client sent an idempotency key.
    #[must_use]
    pub(crate) fn safety(self, is_idempotent: bool) -> RetrySafety {
        match self {
            Self::NoRoom => RetrySafety::Unsent,
            Self::Failed if is_idempotent => RetrySafety::Reset,
            Self::Failed | Self::Final => RetrySafety::Never,
        }
    }
}

impl RetrySafety {
    /// Returns `Never` for a request that cannot be sent again, since its body is gone.
    #[must_use]
    pub(crate) fn if_possible(self, can_repeat: bool) -> Self {
        if can_repeat { self } else { Self::Never }
    }

    /// Returns the safety of a repetition that the client has prepared for: a request with an
    /// idempotency key that arrives twice is done once. Only a fault of the replica counts, since
    /// a deadline that passed is no reason to ask again.
    #[must_use]
    pub(crate) fn with_key(self, is_idempotent: bool, is_fault: bool) -> Self {
        match self {
            Self::Never if is_idempotent && is_fault => Self::Reset,
            safety => safety,
        }
    }
}
