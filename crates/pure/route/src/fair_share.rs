//! Fair share of the requests in flight that a candidate may carry.

use crate::field::{Field, Usable};

/// Bound of a replica's load, as a multiple of its fair share: a smaller one moves more keys and
/// sessions away, a larger one lets a popular key overload its replica.
const BOUND: (u64, u64) = (5, 4);

/// Weight and load of all usable candidates together.
///
/// Unusable candidates are left out of both sums: otherwise their weight would be a share that no
/// candidate can take, and all others could be at their bound.
#[derive(Debug)]
pub(crate) struct FairShare {
    /// Total weight, in thousandths.
    weight: u64,
    /// Requests in flight, including the one to be placed.
    in_flight: u64,
}

impl FairShare {
    /// Sums up the usable candidates, in `O(n)`.
    pub(crate) fn of(field: &Field<'_>) -> Self {
        // Without the request to be placed, an idle group would have no room for its first one.
        let placed = Self { weight: 0, in_flight: 1 };
        field.all_usable().fold(placed, |share, usable| Self {
            weight: share.weight + usable.weight,
            in_flight: share.in_flight + u64::from(usable.in_flight),
        })
    }

    /// Returns true if one more request keeps the candidate within `ceil(5/4 * in flight * its
    /// weight / weight)`.
    pub(crate) fn has_room(&self, usable: &Usable) -> bool {
        // An integer is below a number rounded up if and only if it is below the number itself.
        let (numerator, denominator) = BOUND;
        let carried = u128::from(usable.in_flight) * u128::from(denominator * self.weight);
        carried < u128::from(usable.weight) * u128::from(self.in_flight) * u128::from(numerator)
    }
}
