//! Errors of reading a location database.

use maxminddb::MaxMindDbError;

/// Error of reading a location database.
#[derive(Debug, thiserror::Error)]
pub enum LocatorError {
    /// The bytes are no location database, or only a part of one.
    #[error("not a whole location database (MMDB): {0}")]
    Damaged(#[source] MaxMindDbError),
    /// Two branches of the search tree lead to the same node, or one leads into a circle. A full
    /// check of such a tree might never end.
    #[error("not a location database (MMDB): two branches of its search tree lead to node {0}")]
    Tangled(u32),
    /// The database is of another type.
    #[error("a database of type {found:?}, where one of type {} is expected", expected.join(", "))]
    OtherType {
        /// Type that the database claims, cut to 64 characters.
        found: String,
        /// Accepted types; the type of a database must contain one of them.
        expected: &'static [&'static str],
    },
}
