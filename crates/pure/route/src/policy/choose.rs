//! Trait that every policy implements.

use std::fmt;

use spillway_types::Inquiry;

use crate::field::Field;
use crate::{Attempt, Moment};

/// Smallest latency that counts, in milliseconds: differences below it are noise of the node
/// itself, and nothing is divided by 0.
pub(crate) const LATENCY_MS_MIN: f32 = 0.1;

/// Policy that is prepared for the candidates of one group.
pub(crate) trait Choose: fmt::Debug + Send + Sync {
    /// Chooses a usable candidate of `field`; `None` only if there is none, or if the policy finds
    /// that the request fits at none.
    ///
    /// `field` holds the candidates that the policy was prepared for, in the same order.
    fn choose(
        &self,
        inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt>;
}
