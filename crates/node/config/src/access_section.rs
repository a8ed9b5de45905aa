//! `[auth]`, `[[key]]` and `[[tenant]]`: authentication of clients.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Deserialize;
use spillway_cluster_state::{Hidden, Key, KeyId, KeyRole};
use spillway_front::access::{AccessMode, TenantTerms};
use spillway_types::{
    Country, ModelName, RECORD_NAME_BYTES_MAX, RegionName, Residency, TenantName, is_record_name,
};
use spillway_usage::{Budget, Money};
use toml::Spanned;
use toml::value::{Date, Datetime, Offset, Time};

use crate::error::{ConfigError, ConfigErrors};
use crate::section::ListenerSection;
use crate::source::Source;
use crate::usage_section::millionths;

/// Maximum number of keys in a config: as many as the cluster's agreed state can hold.
const KEYS_MAX: usize = 32_768;

/// Method by which clients authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AuthMode {
    /// Each request has a key.
    Keys,
    /// No authentication: every client may use everything.
    None,
    /// A trusted proxy in front names the tenant, in `x-spillway-tenant` and the like.
    Headers,
}

/// `[auth]`: authentication of clients.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuthSection {
    /// Authentication mode of listeners that set none. Without it, keys are required if the config
    /// has some; a listener that is not loopback needs a mode or keys.
    pub(crate) mode: Option<AuthMode>,
}

/// `[[key]]`: a key for clients. `spillway keys create --offline` prints one.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeySection {
    /// Id of the key: the part after `sw_`.
    #[schemars(with = "String")]
    pub(crate) id: Spanned<String>,
    /// Salt: 16 bytes in hexadecimal.
    #[schemars(with = "String")]
    pub(crate) salt: Spanned<String>,
    /// SHA-256 of salt and secret, in hexadecimal.
    #[schemars(with = "String")]
    pub(crate) hash: Spanned<String>,
    /// Tenant that the key belongs to.
    #[schemars(with = "String")]
    pub(crate) tenant: Spanned<String>,
    /// Models, aliases and splits that the key may use; all by default.
    #[serde(default)]
    pub(crate) models: BTreeSet<String>,
    /// Regions that may serve the key's requests; all by default.
    #[serde(default)]
    #[schemars(with = "BTreeSet<String>")]
    pub(crate) regions: Vec<Spanned<RegionName>>,
    /// Priority class of the key's requests, 0 to 3; 0 is served first.
    #[serde(default)]
    #[schemars(range(max = 3))]
    pub(crate) priority: u8,
    /// Time at which the key expires, e.g. `2027-01-31T00:00:00Z`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) expires: Option<Spanned<Datetime>>,
    /// True if the key is revoked; its requests are refused with that reason.
    #[serde(default)]
    pub(crate) revoked: bool,
}

/// `[[tenant]]`: terms of a tenant besides its keys.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantSection {
    /// Name of the tenant, as in its keys.
    #[schemars(with = "String")]
    pub(crate) name: Spanned<String>,
    /// True to refuse all keys of the tenant.
    #[serde(default)]
    pub(crate) suspended: bool,
    /// True to never share cached prompts with other tenants, even if they are equal.
    #[serde(default)]
    pub(crate) isolate_prompts: bool,
    /// Regions that may serve its requests; all by default.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) regions: Vec<Spanned<RegionName>>,
    /// Countries whose regions may serve its requests, e.g. `DE`; all by default.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) countries: Vec<Country>,
    /// Budget for its requests per day (UTC), by `[[price]]`, over all nodes. Further requests are
    /// refused until the next day.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = 0))]
    pub(crate) budget_per_day: Option<Spanned<f64>>,
    /// Budget for its requests per month (UTC).
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = 0))]
    pub(crate) budget_per_month: Option<Spanned<f64>>,
}

/// The keys and tenants of a config.
#[derive(Clone, Debug, Default)]
pub struct AccessConfig {
    /// All keys, by id.
    pub keys: BTreeMap<KeyId, Key>,
    /// Terms of tenants that the config names.
    pub tenants: BTreeMap<TenantName, TenantTerms>,
    /// Budgets of tenants that have one.
    pub budgets: BTreeMap<TenantName, Budget>,
}

/// The sections of a config about access.
pub(crate) struct AccessSections {
    pub(crate) auth: AuthSection,
    pub(crate) keys: Vec<KeySection>,
    pub(crate) tenants: Vec<TenantSection>,
}

/// A listener's mode, and whether the config sets it or it follows from the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerAccess {
    /// Authentication mode.
    pub mode: AccessMode,
    /// True if the config sets the mode; false if it follows from the keys.
    pub is_said: bool,
}

impl AccessSections {
    /// Checks the sections.
    ///
    /// # Errors
    /// Returns all faults, with their lines.
    pub(crate) fn lower(self, source: &Source) -> Result<AccessConfig, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let keys = errors.keep(lower_keys(source, self.keys));
        let budgets = errors.keep(lower_budgets(source, &self.tenants)).unwrap_or_default();
        let tenants = errors.keep(lower_tenants(source, self.tenants)).unwrap_or_default();
        errors.or(AccessConfig { keys: keys.unwrap_or_default(), tenants, budgets })
    }

    /// Returns the authentication mode of a listener. `has_lost_keys` is true if settings of access
    /// were left out since they are wrong.
    ///
    /// # Errors
    /// Returns an error if other machines can reach the listener and the config neither sets a mode
    /// nor has keys, or if headers are to be believed and no proxy is trusted.
    pub(crate) fn mode_of(
        &self,
        source: &Source,
        listener: &ListenerSection,
        has_lost_keys: bool,
    ) -> Result<ListenerAccess, ConfigError> {
        let address = &listener.address;
        let is_loopback = address.get_ref().ip().is_loopback();
        let mode = match listener.auth.or(self.auth.mode) {
            Some(AuthMode::Keys) => AccessMode::Keys,
            Some(AuthMode::None) => AccessMode::None,
            // Without a trusted proxy any client could set these headers and be any tenant.
            Some(AuthMode::Headers) if listener.trusted_proxies.is_empty() => {
                let message = "headers say who asks, but no proxy is trusted to set them";
                let remedy = "set trusted_proxies on this listener";
                return Err(source.fault(address.span(), message, remedy));
            }
            Some(AuthMode::Headers) => AccessMode::Headers,
            // An operator who writes keys into the config expects that clients need one.
            None if !self.keys.is_empty() || has_lost_keys => AccessMode::Keys,
            // Only programs of this machine can connect, so a first try needs no keys.
            None if is_loopback => AccessMode::None,
            None => {
                let message = format!(
                    "other machines can reach {}, and no client would need a key",
                    address.get_ref()
                );
                let remedy = "add a key (`spillway keys create --offline --tenant NAME` prints one), or say \
                              mode = \"none\" in [auth] if any client may use everything";
                return Err(source.fault(address.span(), message, remedy));
            }
        };
        let is_said = listener.auth.or(self.auth.mode).is_some();
        Ok(ListenerAccess { mode, is_said })
    }
}

fn lower_keys(
    source: &Source,
    sections: Vec<KeySection>,
) -> Result<BTreeMap<KeyId, Key>, ConfigErrors> {
    if let Some(key) = sections.get(KEYS_MAX) {
        // The first key beyond the maximum is the one whose line the error shows.
        let message = format!("a config has {KEYS_MAX} keys at most");
        let remedy = "remove those that are revoked";
        return Err(source.fault(key.id.span(), message, remedy).into());
    }
    let mut errors = ConfigErrors::default();
    let mut keys = BTreeMap::new();
    let mut places = BTreeMap::new();
    for section in sections {
        let at = section.id.span();
        if let Some(earlier) = places.insert(section.id.get_ref().clone(), at.clone()) {
            let message = format!("a second key is called {:?}", section.id.get_ref());
            errors.add(source.collision(at, earlier, message, "give each its own id"));
        }
        keys.extend(errors.keep(section.lower(source)));
    }
    errors.or(keys)
}

fn lower_tenants(
    source: &Source,
    sections: Vec<TenantSection>,
) -> Result<BTreeMap<TenantName, TenantTerms>, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let mut tenants = BTreeMap::new();
    let mut places = BTreeMap::new();
    for section in sections {
        errors.keep(check_name(source, &section.name, "tenant"));
        let at = section.name.span();
        if let Some(earlier) = places.insert(section.name.get_ref().clone(), at.clone()) {
            let message = format!("a second tenant is called {:?}", section.name.get_ref());
            errors.add(source.collision(at, earlier, message, "give each its own name"));
        }
        let regions: Vec<RegionName> =
            section.regions.into_iter().map(Spanned::into_inner).collect();
        let terms = TenantTerms {
            is_suspended: section.suspended,
            is_isolated: section.isolate_prompts,
            residency: Residency::new(regions, section.countries),
        };
        tenants.insert(TenantName::from(section.name.get_ref().as_str()), terms);
    }
    errors.or(tenants)
}

fn lower_budgets(
    source: &Source,
    sections: &[TenantSection],
) -> Result<BTreeMap<TenantName, Budget>, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let mut budgets = BTreeMap::new();
    for section in sections {
        let budget = errors.keep(section.budget(source)).filter(|budget| !budget.is_none());
        let name = TenantName::from(section.name.get_ref().as_str());
        budgets.extend(budget.map(|budget| (name, budget)));
    }
    errors.or(budgets)
}

impl TenantSection {
    fn budget(&self, source: &Source) -> Result<Budget, ConfigError> {
        let amount = |money: &Option<Spanned<f64>>| {
            let money = money.as_ref().map(|money| millionths(source, money, "budget"));
            Ok(money.transpose()?.map(Money::of_millionths))
        };
        let (per_day, per_month) = (&self.budget_per_day, &self.budget_per_month);
        Ok(Budget { per_day: amount(per_day)?, per_month: amount(per_month)? })
    }
}

impl KeySection {
    fn lower(self, source: &Source) -> Result<(KeyId, Key), ConfigErrors> {
        let mut errors = ConfigErrors::default();
        errors.keep(check_name(source, &self.id, "key"));
        errors.keep(check_name(source, &self.tenant, "tenant"));
        let expires_ms = self.expires.as_ref().map(|expires| {
            milliseconds(expires.get_ref()).ok_or_else(|| {
                let message = format!("{} is no moment", expires.get_ref());
                let remedy = "write day, time and offset: 2027-01-31T00:00:00Z";
                source.fault(expires.span(), message, remedy)
            })
        });
        let expires_ms = errors.keep(expires_ms.transpose());
        let salt = errors.keep(bytes(source, &self.salt));
        let hash = errors.keep(bytes(source, &self.hash));
        let (Some(expires_ms), Some(salt), Some(hash)) = (expires_ms, salt, hash) else {
            return Err(errors);
        };
        let names = |set: BTreeSet<String>| set.into_iter();
        let key = Key {
            role: KeyRole::Client,
            salt,
            hash: Hidden::new(hash),
            tenant: Some(TenantName::from(self.tenant.get_ref().as_str())),
            models: names(self.models).map(ModelName::from).collect(),
            regions: self.regions.into_iter().map(Spanned::into_inner).collect(),
            priority: self.priority,
            expires_ms,
            is_revoked: self.revoked,
        };
        errors.or((KeyId::from(self.id.get_ref().as_str()), key))
    }
}

/// Checks that a name can be that of a record of all nodes.
///
/// # Errors
/// Returns an error that names `what` can't be named so.
pub(crate) fn check_name(
    source: &Source,
    name: &Spanned<String>,
    what: &str,
) -> Result<(), ConfigError> {
    let text = name.get_ref();
    if is_record_name(text) {
        return Ok(());
    }
    let message = format!("{text:?} can't name a {what}");
    let remedy =
        format!("use up to {RECORD_NAME_BYTES_MAX} letters, digits, hyphens, underscores and dots");
    Err(source.fault(name.span(), message, remedy))
}

/// Reads bytes written as hexadecimal digits. The error does not repeat the text, which may be a
/// secret in the wrong place.
fn bytes<const BYTES: usize>(
    source: &Source,
    text: &Spanned<String>,
) -> Result<[u8; BYTES], ConfigError> {
    let digits = text.get_ref().as_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let pair = |pair: &[u8; 2]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    let (pairs, rest) = digits.as_chunks::<2>();
    let read: Option<Vec<u8>> = pairs.iter().map(pair).collect();
    let read = read.filter(|_| rest.is_empty()).and_then(|read| read.try_into().ok());
    read.ok_or_else(|| {
        let message = format!("{} hexadecimal digits belong here", 2 * BYTES);
        let remedy = "copy it from what `spillway keys create --offline` prints";
        source.fault(text.span(), message, remedy)
    })
}

/// Reads a moment such as `2027-01-31T00:00:00Z`, as milliseconds since 1970; `None` without day,
/// time and offset, and before 1970.
#[must_use]
pub fn moment_ms(text: &str) -> Option<u64> {
    milliseconds(&text.parse().ok()?)
}

/// Converts to milliseconds since 1970; `None` without day, time and offset, and before 1970.
fn milliseconds(moment: &Datetime) -> Option<u64> {
    let (date, time, offset) = (moment.date?, moment.time?, moment.offset?);
    let offset_min = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    let Time { hour, minute, second, nanosecond } = time;
    let minutes = days(&date) * 1_440 + i64::from(hour) * 60 + i64::from(minute) - offset_min;
    let seconds = minutes * 60 + i64::from(second.unwrap_or(0));
    u64::try_from(seconds * 1_000 + i64::from(nanosecond.unwrap_or(0)) / 1_000_000).ok()
}

/// Returns days since 1970-01-01 in the Gregorian calendar: whole years and leap days before that
/// day, with years that begin in March, so that leap days end them.
fn days(date: &Date) -> i64 {
    let (year, month) = (i64::from(date.year), i64::from(date.month));
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    // Months from March on have 31, 30, 31, 30, 31 days, and so again: 153 in five of them.
    let day_of_year = (153 * month + 2) / 5 + i64::from(date.day) - 1;
    let leap_days = year / 4 - year / 100 + year / 400;
    // 719,468 days lie between the first of March of the year 0 and 1970.
    year * 365 + leap_days + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_counted_from_1970() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T23:59:59.250Z", Some(951_868_799_250)),
            ("2000-03-01T00:00:00Z", Some(951_868_800_000)),
            ("2026-12-31T00:00:00Z", Some(1_798_675_200_000)),
            ("2027-01-31T01:00:00+01:00", Some(1_801_353_600_000)),
            ("2100-03-01T00:00:00Z", Some(4_107_542_400_000)),
            ("1969-12-31T23:59:59Z", None),
            ("2027-01-31", None),
            ("2027-01-31T00:00:00", None),
        ] {
            let moment: Datetime = text.parse().unwrap();
            assert_eq!(milliseconds(&moment), expected, "{text}");
        }
    }
}
