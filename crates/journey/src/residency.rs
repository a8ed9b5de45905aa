//! Permission for a region to serve a request.

/// Permission to serve a request in this node's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidencyPermission {
    /// The region may serve the request.
    Given,
    /// The request's own residency, by its route, credential and client, names other regions.
    NeverGiven,
    /// The rules for its tenant or its client's country have changed since it came, and forbid it
    /// now.
    Withdrawn,
}

impl ResidencyPermission {
    /// Returns true if the region may serve the request.
    #[must_use]
    pub fn is_given(self) -> bool {
        self == Self::Given
    }

    /// Returns true if the request's own residency allows the region, whatever has changed since.
    #[must_use]
    pub fn is_by_request(self) -> bool {
        self != Self::NeverGiven
    }
}
