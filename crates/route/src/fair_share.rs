//! How much of what is in flight a candidate may carry before it is passed over.

use crate::field::{Field, Usable};

/// Bounds a replica's load at 5/4 of its fair share: less keeps fewer keys and sessions in their
/// place, more lets a popular one weigh down its replica.
const BOUND: (u64, u64) = (5, 4);

/// What the usable candidates are and carry together.
///
/// The unusable ones are left out on both sides: were their weight counted, it would be a share
/// that nobody can take, and all others could be at their bound.
#[derive(Debug)]
pub(crate) struct FairShare {
    /// In thousandths.
    weight: u64,
    /// Requests in flight, the one to be placed included.
    in_flight: u64,
}

impl FairShare {
    /// Sums up the usable candidates, in `O(n)`.
    pub(crate) fn of(field: &Field<'_>) -> Self {
        let placed = Self { weight: 0, in_flight: 1 };
        field.all_usable().fold(placed, |share, usable| Self {
            weight: share.weight + usable.weight,
            in_flight: share.in_flight + u64::from(usable.in_flight),
        })
    }

    /// Whether one more request keeps the candidate within
    /// `ceil(5/4 * in flight * its weight / weight)`.
    pub(crate) fn has_room(&self, usable: &Usable) -> bool {
        // A whole number is below a number rounded up exactly if it is below the number itself.
        let (numerator, denominator) = BOUND;
        let carried = u128::from(usable.in_flight) * u128::from(denominator * self.weight);
        carried < u128::from(usable.weight) * u128::from(self.in_flight) * u128::from(numerator)
    }
}
