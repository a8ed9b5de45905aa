//! Permission for a region to serve a request.

/// Reason for which this node's region may not serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidencyDenial {
    /// The request's own residency, by its route, credential and client, names other regions.
    NeverGiven,
    /// The rules for its tenant or its client's country have changed since it came, and forbid it
    /// now.
    Withdrawn,
}

impl ResidencyDenial {
    /// Judges if the region may serve a request: by the request's own residency, and by the rules
    /// for its tenant and its client that hold now.
    ///
    /// # Errors
    /// Returns the reason for which it may not.
    pub fn judge(by_request: bool, by_rules_now: impl FnOnce() -> bool) -> Result<(), Self> {
        match by_request {
            false => Err(Self::NeverGiven),
            true if by_rules_now() => Ok(()),
            true => Err(Self::Withdrawn),
        }
    }
}

/// Returns true if the request's own residency allows the region, whatever has changed since.
pub(crate) fn is_by_request(permission: Result<(), ResidencyDenial>) -> bool {
    permission != Err(ResidencyDenial::NeverGiven)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_needs_the_request_and_the_rules_of_now() {
        assert_eq!(ResidencyDenial::judge(true, || true), Ok(()));
        assert_eq!(ResidencyDenial::judge(true, || false), Err(ResidencyDenial::Withdrawn));
        for by_rules in [true, false] {
            let judged = ResidencyDenial::judge(false, || by_rules);
            assert_eq!(judged, Err(ResidencyDenial::NeverGiven));
        }
    }
}
