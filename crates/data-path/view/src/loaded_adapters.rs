//! Adapters in the memory of a replica, readable without a lock.

use std::hash::{DefaultHasher, Hash, Hasher};

use arc_swap::ArcSwap;

/// Identities of the adapters that a replica has in memory, the last used first.
#[derive(Debug, Default)]
pub struct LoadedAdapters(ArcSwap<Vec<u64>>);

impl LoadedAdapters {
    /// Returns the identity of an adapter within this process.
    #[must_use]
    pub fn identity_of(name: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        hasher.finish()
    }

    /// Notes the adapters that the replica names. With `slots` it names those in use: others stay in
    /// memory until so many were used after them. Without, it names all.
    pub fn note<'n>(&self, names: impl Iterator<Item = &'n str>, slots: Option<usize>) {
        let mut loaded: Vec<_> = names.map(Self::identity_of).collect();
        let before = self.0.load();
        let slots = slots.unwrap_or(0);
        for earlier in before.iter() {
            if loaded.len() < slots && !loaded.contains(earlier) {
                loaded.push(*earlier);
            }
        }
        if loaded != **before {
            self.0.store(loaded.into());
        }
    }

    /// Forgets all adapters: the replica may have been restarted.
    pub fn forget(&self) {
        self.0.store(Default::default());
    }

    /// Returns true if the replica has the adapter in memory.
    #[must_use]
    pub fn has(&self, adapter: u64) -> bool {
        self.0.load().contains(&adapter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(adapters: &LoadedAdapters) -> String {
        let has = |name: &&str| adapters.has(LoadedAdapters::identity_of(name));
        ["a", "b", "c", "d"].into_iter().filter(has).collect()
    }

    #[test]
    fn an_adapter_stays_until_as_many_others_as_fit_were_used() {
        let adapters = LoadedAdapters::default();
        let note = |names: &[&str]| {
            adapters.note(names.iter().copied(), Some(2));
            loaded(&adapters)
        };
        assert_eq!(note(&["a"]), "a");
        assert_eq!(note(&[]), "a", "it is idle");
        assert_eq!(note(&["b"]), "ab");
        assert_eq!(note(&["a"]), "ab");
        assert_eq!(note(&["c"]), "ac", "b was used before a");
        assert_eq!(note(&["a", "b", "d"]), "abd", "what the engine says counts");
        adapters.forget();
        assert_eq!(loaded(&adapters), "");
    }

    #[test]
    fn a_full_list_leaves_nothing_of_the_earlier_one() {
        let adapters = LoadedAdapters::default();
        adapters.note(["a", "b"].into_iter(), None);
        adapters.note(["c"].into_iter(), None);
        assert_eq!(loaded(&adapters), "c");
    }
}
