//! Records that are written as a whole.

use serde::{Deserialize, Serialize};
use spillway_types::{ModelName, RegionName, RouteName};

use crate::{
    JoinToken, Key, KeyId, Limit, LimitScope, Model, RecordKey, Region, Route, SettingRule, Split,
    Tenant, TenantName, TokenId,
};

/// A record to write, with its key. New kinds go to the end, see [`Item::since`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// A region.
    Region(RegionName, Region),
    /// A model: what it stands for and what stands in for it.
    Model(ModelName, Model),
    /// A route.
    Route(RouteName, Route),
    /// A split; its name is what clients ask for.
    Split(ModelName, Split),
    /// A limit.
    Limit(LimitScope, Limit),
    /// A tenant.
    Tenant(TenantName, Tenant),
    /// An API key, or a token of the admin API.
    Key(KeyId, Key),
    /// What lets a node join.
    JoinToken(TokenId, JoinToken),
    /// A setting and its value, by the rules in [`crate::SETTINGS`].
    Setting(String, String),
}

impl Item {
    /// The first wire version that has this kind.
    #[must_use]
    pub fn since(&self) -> u16 {
        match self {
            // A setting that an older node does not know would be refused there alone.
            Self::Setting(name, _) => SettingRule::find(name).map_or(1, |rule| rule.since),
            item => item.key().since(),
        }
    }

    /// Which record it is about.
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
        }
    }
}
