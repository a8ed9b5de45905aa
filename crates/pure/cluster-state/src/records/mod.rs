//! Records of the state: one table for each kind.

mod health;
mod join_token;
mod key;
mod lease;
mod limit;
pub(crate) mod lookup;
mod membership;
mod model;
mod node;
mod region;
mod replica;
mod residency_rule;
mod route;
mod setting;
mod split;
mod tenant;

use serde::{Deserialize, Serialize};
use spillway_types::{ModelName, NodeName, RegionName, RouteName};

use crate::limits::{
    JOIN_TOKENS_MAX, KEYS_MAX, LIMITS_MAX, MODELS_MAX, NODES_MAX, REGIONS_MAX, REMOVED_NODES_MAX,
    REPLICAS_MAX, REVOKED_CERTIFICATES_MAX, ROUTES_MAX, SPLITS_MAX, TENANTS_MAX,
};
use crate::state::{Digest, Row, Table};
use crate::{CertificateSerial, KeyId, NodeId, ReplicaId, TenantName, TokenId};

pub use health::{Belief, Health, Observed};
pub use join_token::JoinToken;
pub use key::{Key, KeyRole};
pub use lease::{Lease, LeaseSource};
pub use limit::{Limit, LimitScope};
pub(crate) use limit::{REQUESTS_ANY, REQUESTS_MAX};
pub use membership::{NodeRight, RemovedNode, RevokedCertificate, TokenOrigin};
pub use model::{Model, TokenPrice};
pub use node::{Node, NodeRole};
pub use region::{Region, RegionState};
pub use replica::{Replica, ReplicaState};
pub use residency_rule::ResidencyRule;
pub use route::Route;
#[cfg(test)]
pub(crate) use setting::INVENTED;
pub use setting::{KEY_EPOCH, LEASE_MS, PLACE_MS, SETTINGS, Setting, SettingKind, SettingRule};
pub use split::{Arm, STICKY_MAX_AGE_S, Split, StickyArm};
pub use tenant::{Tenant, TenantTerms};

/// A kind of record, with its table and the most records in it.
pub(crate) trait Stored: Clone + PartialEq + Serialize {
    type Key: Clone + Ord + Serialize;
    const COUNT_MAX: usize;
    fn table(records: &Records) -> &Table<Self::Key, Self>;
    fn table_mut(records: &mut Records) -> &mut Table<Self::Key, Self>;
    fn key(key: &Self::Key) -> RecordKey;
}

/// Declares the tables, and the types for any key and any record. The order is the format: new
/// kinds go to the end, with the wire version that has them.
macro_rules! tables {
    ($(
        $(#[$doc:meta])*
        $kind:ident in $field:ident by $key:ty, $max:expr, $since:expr;
    )*) => {
        /// Tables of all records.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct Records {
            $($(#[$doc])* pub $field: Table<$key, $kind>,)*
        }

        /// Key of a record of any kind.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum RecordKey {
            $($(#[$doc])* $kind($key),)*
        }

        /// A record of any kind, with its version.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Record {
            $($(#[$doc])* $kind(Row<$kind>),)*
        }

        impl RecordKey {
            /// Returns the first wire version that has this kind of record.
            #[must_use]
            pub fn since(&self) -> u16 {
                match self {
                    $(Self::$kind(_) => $since,)*
                }
            }
        }

        impl Records {
            /// Returns the record with this key; None if it does not exist.
            #[must_use]
            pub fn record(&self, key: &RecordKey) -> Option<Record> {
                match key {
                    $(RecordKey::$kind(key) => self.$field.row(key).cloned().map(Record::$kind),)*
                }
            }

            /// Returns the version of the record with this key; None if it does not exist.
            #[must_use]
            pub fn version(&self, key: &RecordKey) -> Option<u64> {
                match key {
                    $(RecordKey::$kind(key) => self.$field.row(key).map(Row::version),)*
                }
            }

            /// Returns the keys of all records, table by table.
            pub fn keys(&self) -> impl Iterator<Item = RecordKey> {
                std::iter::empty()$(.chain(self.$field.keys().cloned().map(RecordKey::$kind)))*
            }

            /// Returns the length of all rows together on the wire, in bytes.
            #[must_use]
            pub fn bytes(&self) -> u64 {
                0 $(+ self.$field.bytes())*
            }

            /// Returns the digest of each table.
            pub(crate) fn digests(&self) -> Vec<Digest> {
                vec![$(self.$field.digest()),*]
            }
        }

        $(impl Stored for $kind {
            type Key = $key;
            const COUNT_MAX: usize = $max;

            fn table(records: &Records) -> &Table<$key, Self> {
                &records.$field
            }

            fn table_mut(records: &mut Records) -> &mut Table<$key, Self> {
                &mut records.$field
            }

            fn key(key: &$key) -> RecordKey {
                RecordKey::$kind(key.clone())
            }
        })*
    };
}

tables! {
    /// A node.
    Node in nodes by NodeId, NODES_MAX, 1;
    /// A region.
    Region in regions by RegionName, REGIONS_MAX, 1;
    /// A replica.
    Replica in replicas by ReplicaId, REPLICAS_MAX, 1;
    /// A replica's lease. Watchers get no renewals.
    Lease in leases by ReplicaId, REPLICAS_MAX, 1;
    /// A replica's health, from the first observation on.
    Health in health by ReplicaId, REPLICAS_MAX, 1;
    /// A model.
    Model in models by ModelName, MODELS_MAX, 1;
    /// A route.
    Route in routes by RouteName, ROUTES_MAX, 1;
    /// A split.
    Split in splits by ModelName, SPLITS_MAX, 1;
    /// A limit.
    Limit in limits by LimitScope, LIMITS_MAX, 1;
    /// A tenant.
    Tenant in tenants by TenantName, TENANTS_MAX, 1;
    /// An API key.
    Key in keys by KeyId, KEYS_MAX, 1;
    /// A join token.
    JoinToken in join_tokens by TokenId, JOIN_TOKENS_MAX, 1;
    /// A setting that differs from its default.
    Setting in settings by String, SETTINGS.len(), 1;
    /// A node's right to propose operators' orders.
    NodeRight in node_rights by NodeId, NODES_MAX, 1;
    /// Origin of a join token and the right that it grants.
    TokenOrigin in token_origins by TokenId, JOIN_TOKENS_MAX, 1;
    /// A node that was removed.
    RemovedNode in removed_nodes by NodeName, REMOVED_NODES_MAX, 1;
    /// A certificate that was revoked.
    RevokedCertificate in revoked_certificates by CertificateSerial, REVOKED_CERTIFICATES_MAX, 1;
}
