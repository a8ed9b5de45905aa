//! Which replicas of a group take part, by their standing.

use spillway_types::Admission;

use crate::Candidate;

/// The candidates of a group, and how far it had to go to find some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Those that take part, in the order they were given.
    pub candidates: Vec<Candidate>,
    /// Set if none was open, so that those of this standing have to serve.
    pub last_resort: Option<Admission>,
}

/// Keeps the candidates of the best standing there is: better a replica that looks bad than none.
/// Those that are busy by their own word or draining are never kept.
#[must_use]
pub fn admitted(candidates: Vec<(Candidate, Admission)>) -> Admitted {
    let may_serve = |admission: &Admission| {
        *admission == Admission::Open || admission.is_last_resort()
    };
    let best = candidates.iter().map(|(_, admission)| *admission).filter(may_serve).min();
    let Some(best) = best else { return Admitted::default() };
    Admitted {
        candidates: candidates
            .into_iter()
            .filter(|(_, admission)| *admission == best)
            .map(|(candidate, _)| candidate)
            .collect(),
        last_resort: (best != Admission::Open).then_some(best),
    }
}
