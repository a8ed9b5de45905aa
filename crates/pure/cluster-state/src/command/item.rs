//! Records that operators write as a whole.

use serde::{Deserialize, Serialize};
use spillway_types::{ModelName, RegionName, RouteName};

use crate::wire::{WIRE_ROLLOUT, WIRE_SPLIT_BY};
use crate::{
    CertificateSerial, Key, KeyId, Limit, LimitScope, Model, RecordKey, Region, RevokedCertificate,
    Route, SettingRule, Split, Tenant, TenantName, TokenId, TokenTerms,
};

/// A record to write, with its key. The order of variants is the format: new kinds go to the end,
/// with the wire version that has them in [`Item::since`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// A region.
    Region(RegionName, Region),
    /// A model: the model that it is an alias of, and its fallbacks.
    Model(ModelName, Model),
    /// A route.
    Route(RouteName, Route),
    /// A split; clients ask for its name as for a model.
    Split(ModelName, Split),
    /// A limit.
    Limit(LimitScope, Limit),
    /// A tenant.
    Tenant(TenantName, Tenant),
    /// An API key, or a token of the admin API.
    Key(KeyId, Key),
    /// The terms of a join token. The token's record is made when the command is carried out.
    JoinToken(TokenId, TokenTerms),
    /// A setting and its value, by the rules in [`crate::SETTINGS`].
    Setting(String, String),
    /// A certificate that is revoked: no node accepts it any more.
    RevokedCertificate(CertificateSerial, RevokedCertificate),
}

impl Item {
    /// Returns the first wire version that has this kind of record, its fields and, for a setting,
    /// this setting.
    #[must_use]
    pub fn since(&self) -> u16 {
        match self {
            // A node that does not know the setting would refuse it, and its state would differ.
            Self::Setting(name, _) => SettingRule::find(name).map_or(1, |rule| rule.since),
            Self::Model(_, model) => model.since(),
            Self::Route(_, route) => route.since(),
            Self::Tenant(_, tenant) => tenant.since(),
            Self::Split(_, split) if split.rollout.is_some() => WIRE_ROLLOUT,
            Self::Split(_, split) if split.chooses_arms() => WIRE_SPLIT_BY,
            item => item.key().since(),
        }
    }

    /// Returns the key of the record that is written.
    #[must_use]
    pub fn key(&self) -> RecordKey {
        match self {
            Self::Region(name, _) => RecordKey::Region(name.clone()),
            Self::Model(name, _) => RecordKey::Model(name.clone()),
            Self::Route(name, _) => RecordKey::Route(name.clone()),
            Self::Split(name, _) => RecordKey::Split(name.clone()),
            Self::Limit(scope, _) => RecordKey::Limit(scope.clone()),
            Self::Tenant(name, _) => RecordKey::Tenant(name.clone()),
            Self::Key(id, _) => RecordKey::Key(id.clone()),
            Self::JoinToken(id, _) => RecordKey::JoinToken(id.clone()),
            Self::Setting(name, _) => RecordKey::Setting(name.clone()),
            Self::RevokedCertificate(serial, _) => RecordKey::RevokedCertificate(serial.clone()),
        }
    }
}
