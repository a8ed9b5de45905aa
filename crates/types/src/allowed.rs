//! What somebody may use.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// All of a kind, or these alone. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Allowed<T> {
    /// Any, those that come later included.
    #[default]
    All,
    /// These, and no other.
    Only(Arc<BTreeSet<T>>),
}

impl<T: Ord> Allowed<T> {
    /// As records have it: an empty set allows all.
    #[must_use]
    pub fn all_if_empty(set: BTreeSet<T>) -> Self {
        if set.is_empty() { Self::All } else { Self::Only(Arc::new(set)) }
    }

    /// Whether this one may be used.
    #[must_use]
    pub fn allows<Q: Ord + ?Sized>(&self, one: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        match self {
            Self::All => true,
            Self::Only(set) => set.contains(one),
        }
    }

    /// Whether any may be used.
    #[must_use]
    pub fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RegionName;

    #[test]
    fn an_empty_set_allows_all_and_any_other_its_own_alone() {
        let allowed = |names: &[&str]| {
            Allowed::all_if_empty(names.iter().map(|name| RegionName::from(*name)).collect())
        };
        assert!(allowed(&[]).allows("eu") && allowed(&[]).is_all());
        let only = allowed(&["eu", "us"]);
        assert!(only.allows("us") && !only.allows("ap") && !only.is_all());
    }
}
