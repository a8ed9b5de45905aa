//! Ids of clusters and disks as the log has always written them: as numbers of variable length.
//! Elsewhere they are 16 bytes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes an id as a number.
pub(crate) fn serialize<T, S>(id: &T, serializer: S) -> Result<S::Ok, S::Error>
where
    T: Copy + Into<u128>,
    S: Serializer,
{
    (*id).into().serialize(serializer)
}

/// Reads an id that was written as a number.
pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: From<u128>,
    D: Deserializer<'de>,
{
    u128::deserialize(deserializer).map(T::from)
}

/// Ids that may be missing.
pub(crate) mod optional {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes an id, if there is one, as a number.
    pub(crate) fn serialize<T, S>(id: &Option<T>, serializer: S) -> Result<S::Ok, S::Error>
    where
        T: Copy + Into<u128>,
        S: Serializer,
    {
        id.map(Into::<u128>::into).serialize(serializer)
    }

    /// Reads an id, if there is one, that was written as a number.
    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: From<u128>,
        D: Deserializer<'de>,
    {
        Ok(Option::<u128>::deserialize(deserializer)?.map(T::from))
    }
}
