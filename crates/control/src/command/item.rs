//! Records that are written as a whole.

use serde::{Deserialize, Serialize};
use spillway_types::{ModelName, RegionName, RouteName};

use crate::wire::{WIRE_MEMBERS, WIRE_MINUTES, WIRE_RESIDENCY};
use crate::{
    CertificateSerial, JoinToken, Key, KeyId, Limit, LimitScope, Model, RecordKey, Region,
    ResidencyRule, RevokedCertificate, Route, SettingRule, Split, Tenant, TenantName, TokenId,
    TokenTerms,
};

/// A record to write, with its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ItemFrame", into = "ItemFrame")]
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
    /// What lets a node join, as clusters with nodes of wire version 4 make it.
    JoinToken(TokenId, JoinToken),
    /// What lets a node join, to be made when this is carried out.
    NewJoinToken(TokenId, TokenTerms),
    /// A setting and its value, by the rules in [`crate::SETTINGS`].
    Setting(String, String),
    /// A certificate that nobody is to accept any more.
    RevokedCertificate(CertificateSerial, RevokedCertificate),
}

impl Item {
    /// The first wire version that has this kind, with all that this one says.
    #[must_use]
    pub fn since(&self) -> u16 {
        match self {
            // A setting that an older node does not know would be refused there alone.
            Self::Setting(name, _) => SettingRule::find(name).map_or(1, |rule| rule.since),
            Self::NewJoinToken(..) => WIRE_MEMBERS,
            Self::Limit(_, limit) if limit.requests_per_min.is_some() => WIRE_MINUTES,
            item if !item.residency().is_none_or(ResidencyRule::is_anywhere) => WIRE_RESIDENCY,
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
            Self::JoinToken(id, _) | Self::NewJoinToken(id, _) => RecordKey::JoinToken(id.clone()),
            Self::Setting(name, _) => RecordKey::Setting(name.clone()),
            Self::RevokedCertificate(serial, _) => RecordKey::RevokedCertificate(serial.clone()),
        }
    }

    fn residency(&self) -> Option<&ResidencyRule> {
        match self {
            Self::Route(_, Route { residency, .. }) | Self::Tenant(_, Tenant { residency, .. }) => {
                Some(residency)
            }
            _ => None,
        }
    }
}

/// An item on the wire. The order is the format: new kinds go to the end, see [`Item::since`]. Routes
/// and tenants that say where requests may be served are kinds of their own, so that those that say
/// nothing of it are written as before.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ItemFrame {
    Region(RegionName, Region),
    Model(ModelName, Model),
    Route(RouteName, Route),
    Split(ModelName, Split),
    Limit(LimitScope, Limit),
    Tenant(TenantName, Tenant),
    Key(KeyId, Key),
    JoinToken(TokenId, JoinToken),
    Setting(String, String),
    ResidentRoute(RouteName, Route, ResidencyRule),
    ResidentTenant(TenantName, Tenant, ResidencyRule),
    NewJoinToken(TokenId, TokenTerms),
    RevokedCertificate(CertificateSerial, RevokedCertificate),
}

impl From<Item> for ItemFrame {
    fn from(item: Item) -> Self {
        let rule = item.residency().filter(|rule| !rule.is_anywhere()).cloned();
        match (item, rule) {
            (Item::Route(name, route), Some(rule)) => Self::ResidentRoute(name, route, rule),
            (Item::Tenant(name, tenant), Some(rule)) => Self::ResidentTenant(name, tenant, rule),
            (Item::Region(name, region), _) => Self::Region(name, region),
            (Item::Model(name, model), _) => Self::Model(name, model),
            (Item::Route(name, route), None) => Self::Route(name, route),
            (Item::Split(name, split), _) => Self::Split(name, split),
            (Item::Limit(scope, limit), _) => Self::Limit(scope, limit),
            (Item::Tenant(name, tenant), None) => Self::Tenant(name, tenant),
            (Item::Key(id, key), _) => Self::Key(id, key),
            (Item::JoinToken(id, token), _) => Self::JoinToken(id, token),
            (Item::NewJoinToken(id, terms), _) => Self::NewJoinToken(id, terms),
            (Item::Setting(name, value), _) => Self::Setting(name, value),
            (Item::RevokedCertificate(serial, it), _) => Self::RevokedCertificate(serial, it),
        }
    }
}

impl From<ItemFrame> for Item {
    fn from(frame: ItemFrame) -> Self {
        match frame {
            ItemFrame::Region(name, region) => Self::Region(name, region),
            ItemFrame::Model(name, model) => Self::Model(name, model),
            ItemFrame::Route(name, route) => Self::Route(name, route),
            ItemFrame::Split(name, split) => Self::Split(name, split),
            ItemFrame::Limit(scope, limit) => Self::Limit(scope, limit),
            ItemFrame::Tenant(name, tenant) => Self::Tenant(name, tenant),
            ItemFrame::Key(id, key) => Self::Key(id, key),
            ItemFrame::JoinToken(id, token) => Self::JoinToken(id, token),
            ItemFrame::NewJoinToken(id, terms) => Self::NewJoinToken(id, terms),
            ItemFrame::Setting(name, value) => Self::Setting(name, value),
            ItemFrame::RevokedCertificate(serial, it) => Self::RevokedCertificate(serial, it),
            ItemFrame::ResidentRoute(name, route, residency) => {
                Self::Route(name, Route { residency, ..route })
            }
            ItemFrame::ResidentTenant(name, tenant, residency) => {
                Self::Tenant(name, Tenant { residency, ..tenant })
            }
        }
    }
}
