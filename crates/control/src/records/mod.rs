//! What the state consists of: one table for each kind of record.

mod health;
mod join_token;
mod key;
mod lease;
mod limit;
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
use crate::state::{Digest, Row, Table, Valued};
use crate::wire::WIRE_MEMBERS;
use crate::{CertificateSerial, KeyId, NodeId, ReplicaId, TenantName, TokenId};

pub use health::{Belief, Health, Observed};
pub use join_token::JoinToken;
pub use key::{Key, KeyRole};
pub use lease::{Lease, LeaseSource};
pub use limit::{Limit, LimitScope};
pub(crate) use limit::{REQUESTS_ANY, REQUESTS_MAX};
pub use membership::{NodeRight, RemovedNode, RevokedCertificate, TokenOrigin};
pub use model::Model;
pub use node::{Node, NodeRole};
pub use region::{Region, RegionState};
pub use replica::{Replica, ReplicaState};
pub use residency_rule::ResidencyRule;
pub use route::Route;
pub use setting::{SETTINGS, Setting, SettingKind, SettingRule};
pub use split::{Arm, Split};
pub use tenant::Tenant;

/// A kind of record: where its table is and how many there may be.
pub(crate) trait Stored: Clone + PartialEq + Valued {
    type Key: Clone + Ord + Serialize;
    const COUNT_MAX: usize;
    fn table(records: &Records) -> &Table<Self::Key, Self>;
    fn table_mut(records: &mut Records) -> &mut Table<Self::Key, Self>;
    fn key(key: &Self::Key) -> RecordKey;
}

/// Declares the tables, and the types that stand for any key and any record. The order is the
/// format; new kinds go to the end, with the wire version that has them. Those with `skip` are
/// written beside the others, as older versions don't know them: see [`crate::state::Beside`].
macro_rules! tables {
    ($(
        $(#[$doc:meta])*
        $kind:ident in $field:ident by $key:ty, $max:expr, $since:expr $(, $skip:ident)?;
    )*) => {
        /// All records.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct Records {
            $($(#[$doc])* $(#[serde($skip)])? pub $field: Table<$key, $kind>,)*
        }

        /// Names one record.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum RecordKey {
            $($(#[$doc])* $kind($key),)*
        }

        /// One record of any kind, as it stood at some version.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Record {
            $($(#[$doc])* $kind(Row<$kind>),)*
        }

        impl RecordKey {
            /// The first wire version that has this kind.
            #[must_use]
            pub fn since(&self) -> u16 {
                match self {
                    $(Self::$kind(_) => $since,)*
                }
            }
        }

        impl Records {
            /// The record of that name.
            #[must_use]
            pub fn record(&self, key: &RecordKey) -> Option<Record> {
                match key {
                    $(RecordKey::$kind(key) => self.$field.row(key).cloned().map(Record::$kind),)*
                }
            }

            /// The version of the record of that name.
            #[must_use]
            pub fn version(&self, key: &RecordKey) -> Option<u64> {
                match key {
                    $(RecordKey::$kind(key) => self.$field.row(key).map(Row::version),)*
                }
            }

            /// Every record's key, table by table.
            pub fn keys(&self) -> impl Iterator<Item = RecordKey> {
                std::iter::empty()$(.chain(self.$field.keys().cloned().map(RecordKey::$kind)))*
            }

            /// Length of all rows together.
            #[must_use]
            pub fn bytes(&self) -> u64 {
                0 $(+ self.$field.bytes())*
            }

            /// Tables that older versions don't know count as soon as something is in them.
            pub(crate) fn digests(&self) -> Vec<Digest> {
                let mut digests = Vec::new();
                $(if $since < WIRE_MEMBERS || !self.$field.is_empty() {
                    digests.push(self.$field.digest());
                })*
                digests
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
    /// A replica's lease; its renewals are no changes to watchers.
    Lease in leases by ReplicaId, REPLICAS_MAX, 1;
    /// A replica's health, once somebody said something about it.
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
    /// Whether a node may propose operators' orders.
    NodeRight in node_rights by NodeId, NODES_MAX, WIRE_MEMBERS, skip;
    /// Where a join token comes from.
    TokenOrigin in token_origins by TokenId, JOIN_TOKENS_MAX, WIRE_MEMBERS, skip;
    /// A node that was removed.
    RemovedNode in removed_nodes by NodeName, REMOVED_NODES_MAX, WIRE_MEMBERS, skip;
    /// A certificate that was revoked.
    RevokedCertificate in revoked_certificates by CertificateSerial, REVOKED_CERTIFICATES_MAX, WIRE_MEMBERS, skip;
}

/// Records that say nothing of where requests may be served.
macro_rules! served_anywhere {
    ($($kind:ident),*) => {
        $(impl Valued for $kind {})*
    };
}

served_anywhere!(
    Node,
    Region,
    Replica,
    Lease,
    Health,
    Model,
    Split,
    Limit,
    Key,
    JoinToken,
    Setting,
    NodeRight,
    TokenOrigin,
    RemovedNode,
    RevokedCertificate
);
