//! Table with a bound that its owners share: when it is full, the owner with the most loses what it
//! used longest ago. So no owner displaces the entries of smaller ones. Pure: time is an argument.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Table of values by key, each with its owner.
#[derive(Debug)]
pub(crate) struct FairTable<O, K, V> {
    entries: HashMap<K, Entry<O, V>>,
    /// Entries of each owner in the order of their last use.
    shelves: HashMap<O, Shelf<K>>,
    /// Owners by the size of their entries, to find the largest.
    sizes: BTreeSet<(usize, O)>,
    size: usize,
    uses: u64,
    bounds: Bounds,
}

/// Bounds of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Largest size of all entries together, in the unit of [`FairTable::put`].
    pub(crate) size_max: usize,
    /// Time after its last use for which an entry is kept.
    pub(crate) idle: Duration,
    /// Time within which further uses of an entry change nothing: the order of use is as coarse.
    pub(crate) use_period: Duration,
}

#[derive(Debug)]
struct Entry<O, V> {
    owner: O,
    value: V,
    size: usize,
    used_at: Instant,
    /// Position in the owner's order of use.
    use_number: u64,
}

#[derive(Debug)]
struct Shelf<K> {
    by_use: BTreeMap<u64, K>,
    size: usize,
}

impl<O, K, V> FairTable<O, K, V>
where
    O: Clone + Ord + Hash,
    K: Clone + Eq + Hash,
{
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            entries: HashMap::new(),
            shelves: HashMap::new(),
            sizes: BTreeSet::new(),
            size: 0,
            uses: 0,
            bounds,
        }
    }

    /// Returns an entry that is not expired, without a use of it.
    pub(crate) fn look<Q>(&self, key: &Q, now: Instant) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.entries
            .get(key)
            .filter(|entry| !self.is_expired(entry.used_at, now))
            .map(|entry| &entry.value)
    }

    /// Returns an entry that is not expired, and counts a use of it.
    pub(crate) fn find<Q>(&mut self, key: &Q, now: Instant) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let used_at = self.entries.get(key)?.used_at;
        if self.is_expired(used_at, now) {
            self.remove(key);
            return None;
        }
        let entry = self.entries.get_mut(key)?;
        if now.saturating_duration_since(used_at) >= self.bounds.use_period {
            self.uses += 1;
            if let Some(shelf) = self.shelves.get_mut(&entry.owner)
                && let Some(key) = shelf.by_use.remove(&entry.use_number)
            {
                shelf.by_use.insert(self.uses, key);
            }
            (entry.used_at, entry.use_number) = (now, self.uses);
        }
        Some(&mut entry.value)
    }

    /// Puts an entry in, in the place of a former one, as the one used last. Then removes what is
    /// beyond the table's size: of the largest owner what it used longest ago.
    pub(crate) fn put(&mut self, (owner, key): (O, K), value: V, size: usize, now: Instant) {
        self.remove(&key);
        self.uses += 1;
        let shelf = self
            .shelves
            .entry(owner.clone())
            .or_insert_with(|| Shelf { by_use: BTreeMap::new(), size: 0 });
        // The size is part of the set's order, so it can't be changed in place.
        self.sizes.remove(&(shelf.size, owner.clone()));
        shelf.size += size;
        shelf.by_use.insert(self.uses, key.clone());
        self.sizes.insert((shelf.size, owner.clone()));
        self.size += size;
        let entry = Entry { owner, value, size, used_at: now, use_number: self.uses };
        self.entries.insert(key, entry);
        while self.size > self.bounds.size_max && self.evict() {}
    }

    /// Returns up to `count` entries, those used last first.
    pub(crate) fn latest(&self, count: usize) -> Vec<(&K, &V)> {
        let order = |(_, entry): &(&K, &Entry<O, V>)| Reverse(entry.use_number);
        let mut latest: Vec<_> = self.entries.iter().collect();
        // Sorted only as far as needed, since requests may wait for the table.
        if count < latest.len() {
            latest.select_nth_unstable_by_key(count, order);
            latest.truncate(count);
        }
        latest.sort_unstable_by_key(order);
        latest.into_iter().map(|(key, entry)| (key, &entry.value)).collect()
    }

    /// Returns all entries that are not expired, in no order.
    pub(crate) fn iter(&self, now: Instant) -> impl Iterator<Item = (&K, &V)> {
        let live = self.entries.iter().filter(move |(_, it)| !self.is_expired(it.used_at, now));
        live.map(|(key, entry)| (key, &entry.value))
    }

    /// Returns true if there is such an entry, even an expired one.
    pub(crate) fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.entries.contains_key(key)
    }

    fn remove<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let Some(Entry { owner, size, use_number, .. }) = self.entries.remove(key) else { return };
        self.size -= size;
        let Some(shelf) = self.shelves.get_mut(&owner) else { return };
        self.sizes.remove(&(shelf.size, owner.clone()));
        shelf.size -= size;
        shelf.by_use.remove(&use_number);
        if shelf.by_use.is_empty() {
            self.shelves.remove(&owner);
        } else {
            self.sizes.insert((shelf.size, owner));
        }
    }

    /// Removes one entry of the largest owner. Returns false if the table is empty.
    fn evict(&mut self) -> bool {
        let largest = self.sizes.last().and_then(|(_, owner)| self.shelves.get(owner));
        let oldest = largest.and_then(|shelf| shelf.by_use.values().next().cloned());
        if let Some(key) = &oldest {
            self.remove(key);
        }
        oldest.is_some()
    }

    fn is_expired(&self, used_at: Instant, now: Instant) -> bool {
        now.saturating_duration_since(used_at) > self.bounds.idle
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(60);
    const SECOND: Duration = Duration::from_secs(1);

    fn table(size_max: usize) -> FairTable<&'static str, u32, u32> {
        FairTable::new(Bounds { size_max, idle: IDLE, use_period: SECOND })
    }

    fn check_sums(table: &FairTable<&'static str, u32, u32>) {
        let held: usize = table.entries.values().map(|entry| entry.size).sum();
        let shelved: usize = table.shelves.values().map(|shelf| shelf.size).sum();
        let positions: usize = table.shelves.values().map(|shelf| shelf.by_use.len()).sum();
        assert_eq!((held, shelved, positions), (table.size, table.size, table.len()));
        assert_eq!(table.sizes.len(), table.shelves.len());
    }

    #[test]
    fn the_owner_with_the_most_loses_what_it_used_longest_ago() {
        let (mut table, now) = (table(60), Instant::now());
        for key in 0..5 {
            table.put(("small", key), key, 3, now);
        }
        for key in 100..1_000 {
            table.put(("large", key), key, 3, now);
            assert!(table.size <= 60, "{}", table.size);
        }
        check_sums(&table);
        assert!((0..5).all(|key| table.look(&key, now) == Some(&key)));
        assert_eq!((table.look(&984, now), table.look(&985, now)), (None, Some(&985)));
        let later = now + SECOND;
        assert!(table.find(&985, later).is_some());
        table.put(("large", 1_000), 0, 3, later);
        assert_eq!((table.look(&985, later), table.look(&986, later)), (Some(&985), None));
        check_sums(&table);
    }

    #[test]
    fn an_entry_is_kept_until_it_was_idle_for_too_long() {
        let (mut table, now) = (table(60), Instant::now());
        table.put(("a", 1), 7, 1, now);
        assert!(table.find(&1, now + IDLE).is_some(), "which is a use");
        assert!(table.look(&1, now + IDLE + IDLE).is_some());
        assert_eq!(table.find(&1, now + IDLE + IDLE + SECOND), None);
        assert!(!table.contains(&1));
        check_sums(&table);
    }

    #[test]
    fn an_entry_that_changes_its_owner_counts_for_the_new_one() {
        let (mut table, now) = (table(2), Instant::now());
        table.put(("a", 1), 1, 1, now);
        table.put(("b", 1), 2, 1, now);
        assert_eq!((table.len(), table.shelves.len()), (1, 1));
        assert!(table.shelves.contains_key("b"));
        check_sums(&table);
    }
}
