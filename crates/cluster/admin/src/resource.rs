//! Kinds of records that have paths.

/// A kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Nodes,
    Regions,
    Replicas,
    Models,
    Routes,
    Splits,
    Limits,
    Tenants,
    Keys,
    JoinTokens,
    Settings,
    RemovedNodes,
    RevokedCertificates,
}

impl Resource {
    pub(crate) const ALL: [Self; 13] = [
        Self::Nodes,
        Self::Regions,
        Self::Replicas,
        Self::Models,
        Self::Routes,
        Self::Splits,
        Self::Limits,
        Self::Tenants,
        Self::Keys,
        Self::JoinTokens,
        Self::Settings,
        Self::RemovedNodes,
        Self::RevokedCertificates,
    ];

    /// Returns the name in paths.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Regions => "regions",
            Self::Replicas => "replicas",
            Self::Models => "models",
            Self::Routes => "routes",
            Self::Splits => "splits",
            Self::Limits => "limits",
            Self::Tenants => "tenants",
            Self::Keys => "keys",
            Self::JoinTokens => "join-tokens",
            Self::Settings => "settings",
            Self::RemovedNodes => "removed-nodes",
            Self::RevokedCertificates => "revoked-certificates",
        }
    }

    /// Returns the path of one record, with `{names}` for the variable parts.
    pub(crate) fn item_path(self) -> String {
        let name = self.name();
        match self {
            Self::Replicas => "/v1/replicas/{region}/{replica}".to_owned(),
            _ => format!("/v1/{name}/{{{}}}", self.parameter()),
        }
    }

    fn parameter(self) -> &'static str {
        match self {
            Self::Nodes | Self::RemovedNodes => "node",
            Self::Regions => "region",
            Self::Replicas => "replica",
            Self::Models => "model",
            Self::Routes => "route",
            Self::Splits => "split",
            Self::Limits => "scope",
            Self::Tenants => "tenant",
            Self::Keys => "key",
            Self::JoinTokens => "token",
            Self::Settings => "setting",
            Self::RevokedCertificates => "serial",
        }
    }

    /// Returns true if a record of this kind can be written as a whole.
    pub(crate) fn is_writable(self) -> bool {
        !matches!(self, Self::JoinTokens | Self::RemovedNodes)
    }
}
