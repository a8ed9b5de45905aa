//! Allow lists: all of a kind, or some of them alone.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Allow list: everything of a kind, or the listed things alone. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Allowed<T> {
    /// Everything, also what is added later.
    #[default]
    All,
    /// Only the members of the set.
    Only(Arc<BTreeSet<T>>),
}

impl<T: Ord> Allowed<T> {
    /// Makes an allow list of a set in a record, where an empty set allows everything.
    #[must_use]
    pub fn all_if_empty(set: BTreeSet<T>) -> Self {
        if set.is_empty() { Self::All } else { Self::Only(Arc::new(set)) }
    }

    /// Returns true if `one` is allowed.
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

    /// Returns true if nothing is excluded.
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
