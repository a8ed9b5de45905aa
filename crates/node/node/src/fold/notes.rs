//! Notes on the use of each item that the cluster agreed on.

use std::collections::BTreeMap;

/// Number of items by kind and use.
pub(crate) type NoteCounts = BTreeMap<(Kind, Use), u64>;

/// Note on each item.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(BTreeMap<(Kind, String), FoldNote>);

/// Use of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoldNote {
    pub(crate) outcome: Use,
    /// Reason in words; empty if there is none.
    pub(crate) text: String,
}

/// Kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Model,
    Split,
    Route,
    Replica,
}

/// Use of an item at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// The item is used.
    Used,
    /// The item is used, in place of one in this node's config.
    Hides,
    /// The item is used, but not all of its settings.
    InPart,
    /// The item can't be used here.
    Unusable,
}

impl Notes {
    /// Adds a note. Of several notes on one item the worst stays.
    pub(crate) fn add(&mut self, kind: Kind, name: &str, outcome: Use, text: String) {
        let note = FoldNote { outcome, text };
        let known = self.0.entry((kind, name.to_owned())).or_insert_with(|| note.clone());
        if known.outcome < note.outcome {
            *known = note;
        }
    }

    /// Returns the notes that `before` does not have in this form, without those of plain use.
    pub(crate) fn news<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (Kind, &'a str, &'a FoldNote)> {
        let is_news = |(key, note): &(&(Kind, String), &FoldNote)| {
            note.outcome != Use::Used && before.0.get(key) != Some(note)
        };
        self.0.iter().filter(is_news).map(|((kind, name), note)| (*kind, name.as_str(), note))
    }

    /// Returns the number of items by kind and use.
    pub(crate) fn counts(&self) -> NoteCounts {
        let mut counts = NoteCounts::new();
        for ((kind, _), note) in &self.0 {
            *counts.entry((*kind, note.outcome)).or_default() += 1;
        }
        counts
    }

    /// Returns the use of one item.
    #[cfg(test)]
    pub(crate) fn outcome(&self, kind: Kind, name: &str) -> Option<Use> {
        self.0.get(&(kind, name.to_owned())).map(|note| note.outcome)
    }
}

impl Kind {
    /// Returns the name for logs and metrics.
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
    /// Returns the name for metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Hides => "hides",
            Self::InPart => "in_part",
            Self::Unusable => "unusable",
        }
    }
}
