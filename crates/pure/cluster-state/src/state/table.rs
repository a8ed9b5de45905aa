//! Tables: rows of one kind, with their versions and a running digest.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Digest;

/// Rows of one kind. Each write updates the digest, so that reading it costs nothing.
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    rows: BTreeMap<K, Row<V>>,
    digest: Digest,
    bytes: u64,
}

/// A value, with the index of the entry that wrote it last.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row<V> {
    version: u64,
    value: V,
    /// The row's part of the table's digest and bytes.
    #[serde(skip)]
    mark: (Digest, u64),
}

impl<V> Row<V> {
    /// Returns the index of the entry that wrote the row last.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the value.
    #[must_use]
    pub fn value(&self) -> &V {
        &self.value
    }

    /// Returns the length of key and row on the wire, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.mark.1
    }
}

impl<V: PartialEq> PartialEq for Row<V> {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version && self.value == other.value
    }
}

impl<V: Eq> Eq for Row<V> {}

impl<K: Ord, V> Table<K, V> {
    /// Returns the value of `key`; None if there is no such row.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.row(key).map(Row::value)
    }

    /// Returns the value of `key` in a form that keys can be borrowed as, e.g. `str`.
    #[must_use]
    pub fn get_by<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.rows.get(key).map(Row::value)
    }

    /// Returns the row of `key`; None if there is no such row.
    #[must_use]
    pub fn row(&self, key: &K) -> Option<&Row<V>> {
        self.rows.get(key)
    }

    /// Returns keys and values in the order of keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.iter().map(|(key, row)| (key, row.value()))
    }

    /// Returns keys and rows in the order of keys.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = (&K, &Row<V>)> {
        self.rows.iter()
    }

    /// Returns the keys in their order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.rows.keys()
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the length of all rows on the wire, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// Takes a row out.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let row = self.rows.remove(key)?;
        Some(self.forget(row))
    }

    /// Takes the first row out.
    pub(crate) fn pop_first(&mut self) -> Option<V> {
        let (_, row) = self.rows.pop_first()?;
        Some(self.forget(row))
    }

    fn forget(&mut self, row: Row<V>) -> V {
        let (digest, bytes) = row.mark;
        self.digest.subtract(digest);
        self.bytes -= bytes;
        row.value
    }
}

impl<K: Ord + Serialize, V> Table<K, V> {
    /// Writes a row and replaces an earlier one with its key.
    pub(crate) fn insert(&mut self, key: K, version: u64, value: V)
    where
        V: Serialize,
    {
        let mark = Digest::of(&(&key, version, &value));
        self.digest.add(mark.0);
        self.bytes += mark.1;
        if let Some(old) = self.rows.insert(key, Row { version, value, mark }) {
            self.forget(old);
        }
    }

    /// Changes the value of a row and keeps its version.
    pub(crate) fn amend(&mut self, key: &K, change: impl FnOnce(&mut V))
    where
        V: Serialize,
    {
        if let Some((key, row)) = self.rows.remove_entry(key) {
            let version = row.version;
            let mut value = self.forget(row);
            change(&mut value);
            self.insert(key, version, value);
        }
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), digest: Digest::default(), bytes: 0 }
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Table<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows
    }
}

impl<K: Serialize, V: Serialize> Serialize for Table<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.rows.serialize(serializer)
    }
}

/// Computes the digest again, so that a row that changed in transit is found.
impl<'de, K, V> Deserialize<'de> for Table<K, V>
where
    K: Ord + Serialize + Deserialize<'de>,
    V: Serialize + Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = Self::default();
        for (key, row) in BTreeMap::<K, Row<V>>::deserialize(deserializer)? {
            table.insert(key, row.version, row.value);
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_digest_depends_on_the_rows_and_not_on_how_they_came_there(
            writes in prop::collection::vec((0_u8..6, 0_u8..4, prop::option::of(0_u8..3)), 0..60),
        ) {
            let mut table = Table::<u8, u8>::default();
            for (key, version, value) in writes {
                match value {
                    Some(value) => table.insert(key, version.into(), value),
                    None => drop(table.remove(&key)),
                }
            }
            let mut again = Table::default();
            for (key, row) in table.rows().rev() {
                again.insert(*key, row.version(), *row.value());
            }
            prop_assert_eq!(table.digest(), again.digest());
            prop_assert_eq!(table.bytes(), again.bytes());
            prop_assert_eq!(&table, &again);
        }
    }

    #[test]
    fn key_version_and_value_all_count() {
        let digest = |key: u8, version, value: u8| {
            let mut table = Table::default();
            table.insert(key, version, value);
            table.digest()
        };
        let digests = [digest(1, 1, 1), digest(2, 1, 1), digest(1, 2, 1), digest(1, 1, 2)];
        let distinct: BTreeSet<_> = digests.into_iter().collect();
        assert_eq!(distinct.len(), digests.len());
    }
}
