//! Kinds of records that commands name.

use clap::ValueEnum;

/// Kind of record, in the order in which records of several kinds are written: what others refer to
/// comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum RecordKind {
    /// Settings of the cluster.
    Settings,
    /// Regions.
    Regions,
    /// Tenants.
    Tenants,
    /// Rights of keys.
    Keys,
    /// Aliases and fallbacks.
    Models,
    /// Splits.
    Splits,
    /// Routes.
    Routes,
    /// Limits.
    Limits,
}

impl RecordKind {
    /// Returns the name in paths of the API.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Regions => "regions",
            Self::Tenants => "tenants",
            Self::Keys => "keys",
            Self::Models => "models",
            Self::Splits => "splits",
            Self::Routes => "routes",
            Self::Limits => "limits",
        }
    }

    /// Returns the kind of a name in paths.
    pub(super) fn of(name: &str) -> Option<Self> {
        Self::value_variants().iter().copied().find(|kind| kind.name() == name)
    }
}
