//! Location database that was checked.

use std::net::IpAddr;

use maxminddb::Reader;
use serde::Deserialize;

use super::{LocatorError, tree};

/// Longest type name in an error, in characters: a file could claim a type of megabytes.
const TYPE_CHARS_SHOWN: usize = 64;

/// Description of a database, from its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// Type of the database, e.g. `GeoLite2-City`.
    pub database_type: String,
    /// Time at which the database was made, in seconds since 1970.
    pub built_unix_s: u64,
}

/// Location database in memory.
pub(super) struct DatabaseSource(Reader<Vec<u8>>);

impl DatabaseSource {
    /// Reads a database, and checks that it is whole and of one of the expected types.
    ///
    /// # Errors
    /// Returns an error if the database is damaged, tangled or of another type.
    pub(super) fn read(
        bytes: Vec<u8>,
        expected: &'static [&'static str],
    ) -> Result<Self, LocatorError> {
        // The tree is checked while the bytes are at hand: the reader gives no access to them.
        let metadata =
            Reader::from_source(&bytes).map_err(LocatorError::Damaged)?.metadata().clone();
        if !expected.iter().any(|name| metadata.database_type.contains(name)) {
            let found = metadata.database_type.chars().take(TYPE_CHARS_SHOWN).collect();
            return Err(LocatorError::OtherType { found, expected });
        }
        tree::check(&bytes, &metadata)?;
        let reader = Reader::from_source(bytes).map_err(LocatorError::Damaged)?;
        reader.verify().map_err(LocatorError::Damaged)?;
        Ok(Self(reader))
    }

    /// Returns the fields of `T` that the record of an address has. Unknown networks, and records
    /// of another shape, give the default.
    pub(super) fn look_up<'a, T: Deserialize<'a> + Default>(&'a self, address: IpAddr) -> T {
        let found = self.0.lookup(address).and_then(|found| found.decode());
        found.ok().flatten().unwrap_or_default()
    }

    pub(super) fn describe(&self) -> Database {
        let metadata = self.0.metadata();
        Database {
            database_type: metadata.database_type.clone(),
            built_unix_s: metadata.build_epoch,
        }
    }
}
