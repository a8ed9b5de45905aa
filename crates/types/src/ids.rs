//! Names that people write in the config, and the dense numbers that stand for them inside a view.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Declares a name: an immutable shared string that is compared by its text.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        // Maps keyed by a name are searched by `&str`, without building a name first.
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// A model as clients ask for it, e.g. `llama-3.1-8b`.
    ModelName
}
name! {
    /// One model server, unique within a node's config.
    ReplicaName
}
name! {
    /// A route of the config: a set of requests and how they are served.
    RouteName
}
name! {
    /// A pool of replicas, whose members share their load and may stand in for each other.
    PoolName
}
name! {
    /// A version of a model, e.g. `2`, as KServe V2 has it.
    ModelVersion
}
name! {
    /// A region, e.g. `eu-central-1`: the nodes and replicas that are near each other.
    RegionName
}
name! {
    /// One process of the cluster, unique in it.
    NodeName
}
name! {
    /// One arm of a traffic split, e.g. `canary`; unique within its split.
    ArmName
}
name! {
    /// Who pays for and owns requests.
    TenantName
}

/// Position of a replica in one view: dense, so that per-replica state is an array look-up.
///
/// A slot means nothing outside the view it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaSlot(pub u32);

impl ReplicaSlot {
    /// The slot as an array index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
