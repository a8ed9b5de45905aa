//! What became of each thing that the cluster agreed on.

use std::collections::BTreeMap;

/// How many things of each kind came to each use.
pub(crate) type NoteCounts = BTreeMap<(Kind, Use), u64>;

/// What became of each thing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(BTreeMap<(Kind, String), Note>);

/// What became of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) outcome: Use,
    /// What there is to say about it; empty if nothing.
    pub(crate) text: String,
}

/// A kind of thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Model,
    Split,
    Route,
    Replica,
}

/// Whether something is used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// It is.
    Used,
    /// It is, in place of something in this node's config.
    Hides,
    /// It is, though not in all that it says.
    InPart,
    /// It is not.
    Unusable,
}

impl Notes {
    /// Notes how something is used. Of several words about one thing the worst stays.
    pub(crate) fn add(&mut self, kind: Kind, name: &str, outcome: Use, text: String) {
        let note = Note { outcome, text };
        let known = self.0.entry((kind, name.to_owned())).or_insert_with(|| note.clone());
        if known.outcome < note.outcome {
            *known = note;
        }
    }

    /// Those of which `before` knew nothing, or something else, and that somebody should read of.
    pub(crate) fn news<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (Kind, &'a str, &'a Note)> {
        let is_news = |(key, note): &(&(Kind, String), &Note)| {
            note.outcome != Use::Used && before.0.get(key) != Some(note)
        };
        self.0.iter().filter(is_news).map(|((kind, name), note)| (*kind, name.as_str(), note))
    }

    /// How many there are of each.
    pub(crate) fn counts(&self) -> NoteCounts {
        let mut counts = NoteCounts::new();
        for ((kind, _), note) in &self.0 {
            *counts.entry((*kind, note.outcome)).or_default() += 1;
        }
        counts
    }

    /// What became of one thing.
    #[cfg(test)]
    pub(crate) fn outcome(&self, kind: Kind, name: &str) -> Option<Use> {
        self.0.get(&(kind, name.to_owned())).map(|note| note.outcome)
    }
}

impl Kind {
    /// Name as it stands in logs and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Split => "split",
            Self::Route => "route",
            Self::Replica => "replica",
        }
    }
}

impl Use {
    /// Name as it stands in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Hides => "hides",
            Self::InPart => "in_part",
            Self::Unusable => "unusable",
        }
    }
}
