//! Fallback order: stand-ins for the model that a client asked for.

use std::collections::VecDeque;

/// Models that may still serve a request, the best first.
#[derive(Clone, Debug)]
pub struct StandIns<M> {
    /// Models to try. The one that the client asked for is among them only if others are tried
    /// before it.
    agenda: VecDeque<M>,
    position: FallbackPosition,
}

/// Model that a request names at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FallbackPosition {
    /// The model asked for, which serves the request if it can.
    // Asked => Other
    Asked,
    /// The model asked for, though another is in a better state.
    // Passed => Other
    Passed,
    /// A model from the agenda.
    // Other => Other
    Other,
}

/// A model that could serve a request.
#[derive(Clone, Copy, Debug)]
pub struct ServedModel<M> {
    /// Name of the model, and what belongs to it.
    pub model: M,
    /// True if one of its replicas is open.
    pub is_open: bool,
}

impl<M> StandIns<M> {
    /// Creates the order of the model that the client asked for, if any replica serves it, and of
    /// the `others` in the order of preference.
    ///
    /// Models without an open replica come after those with one: a healthy stand-in is better than
    /// a replica that is taken for broken, which is better than nothing.
    pub fn of(
        asked: Option<ServedModel<M>>,
        others: impl IntoIterator<Item = ServedModel<M>>,
    ) -> Self {
        let asked = asked.into_iter().map(|served| (true, served));
        let others = others.into_iter().map(|served| (false, served));
        let (open, closed): (Vec<_>, Vec<_>) =
            asked.chain(others).partition(|(_, served)| served.is_open);
        let mut agenda: VecDeque<_> = open.into_iter().chain(closed).collect();
        let position = match agenda.front() {
            Some((false, _)) => FallbackPosition::Passed,
            Some((true, _)) | None => FallbackPosition::Asked,
        };
        if position == FallbackPosition::Asked {
            // The request names that model already.
            agenda.pop_front();
        }
        let agenda = agenda.into_iter().map(|(_, served)| served.model).collect();
        Self { agenda, position }
    }

    /// Returns true if another model is to be tried before the one that the client asked for.
    #[must_use]
    pub fn starts_elsewhere(&self) -> bool {
        self.position == FallbackPosition::Passed
    }

    /// Returns true if there is a stand-in for the model that the request names now.
    #[must_use]
    pub fn is_any_left(&self) -> bool {
        !self.agenda.is_empty()
    }

    /// Takes the next model; `None` if none is left. From then on the request does not start
    /// elsewhere any more.
    pub fn take_next(&mut self) -> Option<M> {
        self.position = FallbackPosition::Other;
        self.agenda.pop_front()
    }

    /// Gives up all models from here on.
    pub fn give_up(&mut self) {
        self.agenda.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(model: &'static str) -> ServedModel<&'static str> {
        ServedModel { model: model.trim_end_matches('!'), is_open: !model.ends_with('!') }
    }

    /// Returns the order of models; those whose name ends in `!` have no open replica.
    fn order(asked: Option<&'static str>, others: &[&'static str]) -> (bool, Vec<&'static str>) {
        let others = others.iter().map(|model| served(model));
        let mut stand_ins = StandIns::of(asked.map(served), others);
        let starts_elsewhere = stand_ins.starts_elsewhere();
        let models = std::iter::from_fn(|| stand_ins.take_next()).collect();
        assert!(!stand_ins.starts_elsewhere() && !stand_ins.is_any_left());
        (starts_elsewhere, models)
    }

    #[test]
    fn the_model_asked_for_comes_first_while_it_can_serve() {
        assert_eq!(order(Some("a"), &["b", "c"]), (false, vec!["b", "c"]));
        assert_eq!(order(Some("a"), &["b!", "c"]), (false, vec!["c", "b"]));
        assert_eq!(order(Some("a!"), &["b!", "c!"]), (false, vec!["b", "c"]));
        assert_eq!(order(Some("a!"), &[]), (false, vec![]));
    }

    #[test]
    fn an_open_stand_in_goes_before_a_model_without_an_open_replica() {
        assert_eq!(order(Some("a!"), &["b", "c!"]), (true, vec!["b", "a", "c"]));
        assert_eq!(order(Some("a!"), &["b!", "c"]), (true, vec!["c", "a", "b"]));
    }

    #[test]
    fn a_model_that_nothing_serves_is_passed_over() {
        assert_eq!(order(None, &["b!", "c"]), (true, vec!["c", "b"]));
        assert_eq!(order(None, &[]), (false, vec![]));
    }

    #[test]
    fn nothing_stands_in_once_all_are_given_up() {
        let mut stand_ins = StandIns::of(Some(served("a")), [served("b")]);
        assert!(stand_ins.is_any_left());
        stand_ins.give_up();
        assert!(!stand_ins.is_any_left() && stand_ins.take_next().is_none());
    }
}
