//! Checks of names, texts and numbers.

use std::collections::BTreeSet;

use spillway_types::{ModelName, is_record_name, is_token};

use crate::limits::{
    BATCH_MAX, COUNTRIES_EACH_MAX, MODEL_NAME_BYTES_MAX, MODELS_EACH_MAX, NAME_BYTES_MAX,
    REGIONS_MAX, TEXT_BYTES_MAX, URL_BYTES_MAX,
};
use crate::{
    Actor, CertificateSerial, CommandError, LimitScope, Proposer, RecordKey, RefusalCode,
    ReplicaId, ResidencyRule,
};

/// Most characters of a wrong text that a refusal shows.
const SHOWN_CHARS_MAX: usize = 32;

/// Checks that `text` can be a name: 1 to 64 letters, digits, hyphens, underscores and dots.
///
/// # Errors
/// Returns an error that names `what`, the kind of record.
pub(crate) fn name(text: &str, what: &str) -> Result<(), CommandError> {
    if is_record_name(text) {
        return Ok(());
    }
    let remedy =
        format!("use 1 to {NAME_BYTES_MAX} letters, digits, hyphens, underscores and dots");
    Err(CommandError::invalid(format!("{:?} can't be the name of a {what}", shown(text)), remedy))
}

/// Checks that `text` can be the name of a header or a cookie: up to 64 bytes, see [`is_token`].
///
/// # Errors
/// Returns an error that names `what`.
pub(crate) fn token(text: &str, what: &str) -> Result<(), CommandError> {
    if text.len() <= NAME_BYTES_MAX && is_token(text) {
        return Ok(());
    }
    let remedy = format!("use 1 to {NAME_BYTES_MAX} letters, digits and hyphens");
    Err(CommandError::invalid(format!("{:?} can't be the name of a {what}", shown(text)), remedy))
}

/// Checks that `name` can be a model's: 1 to 256 bytes without spaces and control characters. Names
/// in model registries have slashes, colons and more.
///
/// # Errors
/// Returns an error if `name` can't be a model's.
pub(crate) fn model(name: &ModelName) -> Result<(), CommandError> {
    let text = name.as_str();
    let is_plain = |character: char| !character.is_control() && !character.is_whitespace();
    if (1..=MODEL_NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_plain) {
        return Ok(());
    }
    let remedy = format!("use 1 to {MODEL_NAME_BYTES_MAX} bytes without spaces");
    Err(CommandError::invalid(format!("{:?} can't be the name of a model", shown(text)), remedy))
}

/// Returns the models that a registration may name: those with a valid name, at most 256.
pub fn registrable(models: impl IntoIterator<Item = ModelName>) -> BTreeSet<ModelName> {
    models.into_iter().filter(|name| model(name).is_ok()).take(MODELS_EACH_MAX).collect()
}

/// Checks the names of models.
///
/// # Errors
/// Returns an error if there are too many, or one can't be a model's.
pub(crate) fn models(names: &BTreeSet<ModelName>) -> Result<(), CommandError> {
    count(names.len(), MODELS_EACH_MAX, "models")?;
    names.iter().try_for_each(model)
}

/// Checks the names of a replica and its region.
///
/// # Errors
/// Returns an error if one of them can't be a name.
pub(crate) fn replica(id: &ReplicaId) -> Result<(), CommandError> {
    name(id.region.as_str(), "region")?;
    name(id.name.as_str(), "replica")
}

/// Checks the names in a record's key.
///
/// # Errors
/// Returns an error if no record can have the key.
pub(crate) fn key(key: &RecordKey) -> Result<(), CommandError> {
    match key {
        RecordKey::Node(_) => Ok(()),
        RecordKey::Region(region) => name(region.as_str(), "region"),
        RecordKey::Replica(id) | RecordKey::Lease(id) | RecordKey::Health(id) => replica(id),
        RecordKey::Model(name) | RecordKey::Split(name) => model(name),
        RecordKey::Route(route) => name(route.as_str(), "route"),
        RecordKey::Limit(scope) => limit_scope(scope),
        RecordKey::Tenant(tenant) => name(tenant.as_str(), "tenant"),
        RecordKey::Key(id) => name(id.as_str(), "key"),
        RecordKey::JoinToken(id) => name(id.as_str(), "join token"),
        RecordKey::Setting(setting) => name(setting, "setting"),
        RecordKey::NodeRight(_) => Ok(()),
        RecordKey::TokenOrigin(id) => name(id.as_str(), "join token"),
        RecordKey::RemovedNode(node) => name(node.as_str(), "node"),
        RecordKey::RevokedCertificate(number) => serial(number),
    }
}

/// Checks that a serial number has the form that [`CertificateSerial::read`] gives.
///
/// # Errors
/// Returns an error if it has another form.
pub(crate) fn serial(number: &CertificateSerial) -> Result<(), CommandError> {
    if CertificateSerial::read(number.as_str()).as_ref() == Some(number) {
        return Ok(());
    }
    let cause = format!("{:?} is no serial number of a certificate", shown(number.as_str()));
    let remedy = "use up to 40 hexadecimal digits in lower case, without leading zeros";
    Err(CommandError::invalid(cause, remedy))
}

/// Checks the name in a limit's scope.
///
/// # Errors
/// Returns an error if it can't be a name.
pub(crate) fn limit_scope(scope: &LimitScope) -> Result<(), CommandError> {
    match scope {
        LimitScope::Global => Ok(()),
        LimitScope::Tenant(tenant) => name(tenant.as_str(), "tenant"),
        LimitScope::Model(name) => model(name),
        LimitScope::Key(id) => name(id.as_str(), "key"),
    }
}

/// Checks the name of an operator.
///
/// # Errors
/// Returns an error if the name is empty, too long, or has control characters.
pub(crate) fn actor(actor: &Actor) -> Result<(), CommandError> {
    match actor {
        Actor::Node => Ok(()),
        Actor::Operator(who) if who.is_empty() => {
            Err(CommandError::invalid("the actor has no name", "say in whose name it is done"))
        }
        Actor::Operator(who) => text(who, "actor"),
    }
}

/// Checks the names of the proposing node and its region.
///
/// # Errors
/// Returns an error if one of them can't be a name.
pub(crate) fn proposer(proposer: &Proposer) -> Result<(), CommandError> {
    name(proposer.node.as_str(), "node")?;
    name(proposer.region.as_str(), "region")
}

/// Checks a free text, which may be empty.
///
/// # Errors
/// Returns an error if the text has more than 128 bytes or control characters.
pub(crate) fn text(text: &str, what: &str) -> Result<(), CommandError> {
    if text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control) {
        return Ok(());
    }
    let remedy = format!("use up to {TEXT_BYTES_MAX} bytes without control characters");
    Err(CommandError::invalid(format!("{:?} can't be the {what}", shown(text)), remedy))
}

/// Checks a residency rule. Regions that do not exist may be named: they may come later.
///
/// # Errors
/// Returns an error if there are too many regions or countries, or a region's name can't be one.
pub(crate) fn residency(rule: &ResidencyRule) -> Result<(), CommandError> {
    count(rule.regions.len(), REGIONS_MAX, "regions")?;
    count(rule.countries.len(), COUNTRIES_EACH_MAX, "countries")?;
    rule.regions.iter().try_for_each(|region| name(region.as_str(), "region"))
}

/// Checks that `text` is an address of the form `host:port`.
///
/// # Errors
/// Returns an error if it is not.
pub(crate) fn address(text: &str) -> Result<(), CommandError> {
    if text.len() <= URL_BYTES_MAX && is_host_and_port(text) {
        return Ok(());
    }
    let cause = format!("{:?} is no address", shown(text));
    Err(CommandError::invalid(cause, "write it as host:port"))
}

/// Checks that `text` is the URL of a host. A user or password in it is refused, because every
/// snapshot would contain it in clear text.
///
/// # Errors
/// Returns an error if it is no such URL.
pub(crate) fn url(text: &str) -> Result<(), CommandError> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let is_host = |rest: &str| {
        let host = rest.strip_suffix('/').unwrap_or(rest);
        !host.is_empty() && host.bytes().all(is_host_byte)
    };
    if text.len() <= URL_BYTES_MAX && rest.is_some_and(is_host) {
        return Ok(());
    }
    // The refusal does not show the text, which may have a password.
    let remedy = "write it as http://host:port or https://host:port, without user or path";
    Err(CommandError::invalid("the URL can't be used", remedy))
}

/// Checks that `text` is a path without query and fragment.
///
/// # Errors
/// Returns an error if it is not.
pub(crate) fn path(text: &str) -> Result<(), CommandError> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#".contains(&byte);
    if text.len() <= URL_BYTES_MAX && text.starts_with('/') && text.bytes().all(is_plain) {
        return Ok(());
    }
    let cause = format!("{:?} can't be a path", shown(text));
    Err(CommandError::invalid(cause, "begin with a slash, without spaces, query or fragment"))
}

/// Checks that `count` is at most `max`.
///
/// # Errors
/// Returns [`RefusalCode::LimitReached`] otherwise.
pub(crate) fn count(count: usize, max: usize, what: &str) -> Result<(), CommandError> {
    if count <= max {
        return Ok(());
    }
    let cause = format!("{count} {what} are more than {max}");
    Err(CommandError::new(RefusalCode::LimitReached, cause, "leave some out, or divide them"))
}

/// Checks the length of a batch.
///
/// # Errors
/// Returns [`RefusalCode::LimitReached`] if the batch has more than [`BATCH_MAX`] parts.
pub(crate) fn batch(parts: usize) -> Result<(), CommandError> {
    count(parts, BATCH_MAX, "parts")
}

/// Checks that `number` is within both `bounds`, the bounds included.
///
/// # Errors
/// Returns an error if it is out of them.
pub(crate) fn range(number: u64, bounds: (u64, u64), what: &str) -> Result<(), CommandError> {
    let (min, max) = bounds;
    if (min..=max).contains(&number) {
        return Ok(());
    }
    Err(CommandError::invalid(
        format!("{number} can't be the {what}"),
        format!("use {min} to {max}"),
    ))
}

fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    !host.is_empty()
        && host.bytes().all(is_host_byte)
        && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte)
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}
