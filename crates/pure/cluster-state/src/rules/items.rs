//! Rules for records that operators write as a whole.

use std::collections::BTreeSet;

use spillway_types::{ModelName, SplitBy};

use crate::limits::{
    ARMS_MAX, FALLBACKS_MAX, MODELS_EACH_MAX, PERMILLE, REGIONS_MAX, SETTINGS_BYTES_MAX,
};
use crate::records::{REQUESTS_ANY, REQUESTS_MAX, lookup};
use crate::rules::{check, members, regions, rollouts, tokens};
use crate::state::{Done, Turn};
use crate::wire::WIRE_EVERY_MODEL;
use crate::{
    ApplyError, CommandError, Expect, Item, JoinToken, Key, KeyId, KeyRole, Limit, LimitScope,
    Model, RecordKey, RefusalCode, RevokedCertificate, Route, Setting, SettingRule, Split,
    StickyArm, Tenant,
};

pub(super) fn put(turn: &mut Turn<'_>, item: &Item, expect: Expect) -> Result<Done, ApplyError> {
    turn.check_operator()?;
    match item {
        Item::Region(name, region) => return regions::put(turn, name, region, expect),
        Item::Model(name, model) => {
            turn.expect::<Model>(name, expect)?;
            check_model(turn, name, model)?;
            turn.put(name.clone(), model.clone())?;
        }
        Item::Route(name, route) => {
            turn.expect::<Route>(name, expect)?;
            check_route(route)?;
            turn.put(name.clone(), route.clone())?;
        }
        Item::Split(name, split) => {
            turn.expect::<Split>(name, expect)?;
            check_split(turn, name, split)?;
            turn.put(name.clone(), rollouts::begun(turn, name, split))?;
        }
        Item::Limit(scope, limit) => {
            turn.expect::<Limit>(scope, expect)?;
            check_limit(turn, scope, limit)?;
            turn.put(scope.clone(), limit.clone())?;
        }
        Item::Tenant(name, tenant) => {
            turn.expect::<Tenant>(name, expect)?;
            check::text(&tenant.title, "title")?;
            check::residency(&tenant.residency)?;
            turn.put(name.clone(), tenant.clone())?;
        }
        Item::Key(id, key) => {
            turn.expect::<Key>(id, expect)?;
            check_key(turn, id, key)?;
            turn.put(id.clone(), key.clone())?;
        }
        Item::RevokedCertificate(serial, revoked) => {
            turn.expect::<RevokedCertificate>(serial, expect)?;
            check::text(&revoked.reason, "reason")?;
            turn.put(serial.clone(), revoked.clone())?;
        }
        Item::JoinToken(id, terms) => {
            turn.expect::<JoinToken>(id, expect)?;
            let token = tokens::made(turn, terms)?;
            turn.put(id.clone(), token)?;
            // After the token itself: one that finds no room leaves no origin behind.
            members::remember_token(turn, id, terms.is_operator);
        }
        Item::Setting(name, value) => {
            turn.expect::<Setting>(name, expect)?;
            let key = RecordKey::Setting(name.clone());
            let rule = SettingRule::find(name).ok_or_else(|| CommandError::unknown(&key))?;
            rule.check(value)?;
            turn.put(name.clone(), Setting(value.clone()))?;
        }
    }
    Ok(Done::default())
}

/// Revokes a key. Its record stays, so that its id is not used again.
pub(super) fn revoke(turn: &mut Turn<'_>, id: &KeyId, expect: Expect) -> Result<Done, ApplyError> {
    turn.check_operator()?;
    let key = turn.take::<Key>(id, expect)?;
    turn.put(id.clone(), Key { is_revoked: true, ..key })?;
    Ok(Done::default())
}

/// Checks a model. An alias leads to a model in one step, so that no request goes round in circles.
fn check_model(turn: &Turn<'_>, name: &ModelName, model: &Model) -> Result<(), CommandError> {
    check::count(model.fallbacks.len(), FALLBACKS_MAX, "fallbacks")?;
    model.fallbacks.iter().try_for_each(check::model)?;
    // The model itself counts, too: it was tried before its fallbacks.
    let distinct: BTreeSet<_> = model.fallbacks.iter().chain([name]).collect();
    if distinct.len() <= model.fallbacks.len() {
        let cause = format!("a model would be tried again for {name}");
        return Err(CommandError::new(RefusalCode::Loop, cause, "name each fallback once"));
    }
    let stands_for_all =
        name.as_str() == Model::EVERY && lookup::wire_oldest(turn.records) >= WIRE_EVERY_MODEL;
    if stands_for_all && (model.alias_of.is_some() || !model.fallbacks.is_empty()) {
        let cause = "this name stands for every model without a price";
        return Err(CommandError::invalid(cause, "give it a price alone"));
    }
    let Some(target) = &model.alias_of else { return Ok(()) };
    check::model(target)?;
    let is_alias = |model: &Model| model.alias_of.is_some();
    let leads_on = target == name || turn.get::<Model>(target).is_some_and(is_alias);
    // A model with aliases can't become an alias itself.
    let is_target =
        turn.records.models.iter().any(|(_, other)| other.alias_of.as_ref() == Some(name));
    if leads_on || is_target {
        let cause = format!("{name} would be an alias of an alias");
        return Err(CommandError::new(RefusalCode::Loop, cause, "name the model itself"));
    }
    if turn.get::<Split>(name).is_some() {
        let cause = format!("{name} is a split");
        return Err(CommandError::new(
            RefusalCode::InUse,
            cause,
            "remove the split, or rename the alias",
        ));
    }
    Ok(())
}

fn check_route(route: &Route) -> Result<(), CommandError> {
    check::residency(&route.residency)?;
    check::models(&route.models)?;
    if route.settings.len() > SETTINGS_BYTES_MAX {
        let remedy = format!("shorten them to {SETTINGS_BYTES_MAX} bytes");
        return Err(CommandError::invalid("the route's settings are too long", remedy));
    }
    route.path_prefix.as_deref().map_or(Ok(()), check::path)?;
    for (text, what) in [(&route.pool, "pool"), (&route.policy, "policy")] {
        if !text.is_empty() {
            check::name(text, what)?;
        }
    }
    Ok(())
}

/// Checks a split. Its arms lead to models, not to further splits.
fn check_split(turn: &Turn<'_>, name: &ModelName, split: &Split) -> Result<(), CommandError> {
    check::count(split.arms.len(), ARMS_MAX, "arms")?;
    for arm in &split.arms {
        check::name(arm.name.as_str(), "arm")?;
        check::model(&arm.model)?;
        arm.version.as_ref().map_or(Ok(()), |it| check::name(it.as_str(), "version"))?;
    }
    check_arm_keys(turn, name, split)?;
    rollouts::check_plan(split)?;
    let mut names = BTreeSet::new();
    if let Some(again) = split.arms.iter().find(|arm| !names.insert(&arm.name)) {
        let cause = format!("a second arm is called {:?}", again.name.as_str());
        return Err(CommandError::invalid(cause, "give each arm its own name"));
    }
    let whole: u32 = split.arms.iter().map(|arm| u32::from(arm.weight_permille)).sum();
    // Without a whole, some requests would have no arm.
    if whole != u32::from(PERMILLE) {
        let percent = f64::from(whole) / 10.0;
        let cause = format!("the weights of the arms make {percent} %");
        return Err(CommandError::invalid(cause, "give the arms weights that make 100 %"));
    }
    // An arm may serve the model whose name the split has taken.
    let is_split = |model: &ModelName| model != name && turn.get::<Split>(model).is_some();
    let is_arm = |other: &Split| other.arms.iter().any(|arm| arm.model == *name);
    let mut others = turn.records.splits.iter().filter(|(other, _)| *other != name);
    if split.arms.iter().any(|arm| is_split(&arm.model)) || others.any(|(_, it)| is_arm(it)) {
        let cause = format!("an arm of {name} would be a split itself");
        return Err(CommandError::new(RefusalCode::Loop, cause, "name models in arms"));
    }
    if turn.get::<Model>(name).is_some_and(|model| model.alias_of.is_some()) {
        let cause = format!("{name} is an alias");
        return Err(CommandError::new(
            RefusalCode::InUse,
            cause,
            "remove the alias, or rename the split",
        ));
    }
    Ok(())
}

/// Checks what arms are chosen by, and the cookie that keeps them.
fn check_arm_keys(turn: &Turn<'_>, name: &ModelName, split: &Split) -> Result<(), CommandError> {
    if let Some(SplitBy::Header(name) | SplitBy::Cookie(name)) = &split.by {
        check::token(name, "header or cookie")?;
    }
    let Some(StickyArm { cookie, .. }) = &split.sticky else { return Ok(()) };
    check::token(cookie, "cookie")?;
    if split.by == Some(SplitBy::Cookie(cookie.clone())) {
        let cause = format!("{name} chooses its arms by the cookie {cookie} already");
        return Err(CommandError::invalid(cause, "leave the sticky cookie out, or rename it"));
    }
    let has_it = |other: &Split| other.sticky.as_ref().is_some_and(|it| it.cookie == *cookie);
    let mut others = turn.records.splits.iter().filter(|(other, _)| *other != name);
    if let Some((other, _)) = others.find(|(_, other)| has_it(other)) {
        let cause = format!("{other} keeps its arms by the cookie {cookie}");
        let remedy = "give each split its own cookie";
        return Err(CommandError::new(RefusalCode::InUse, cause, remedy));
    }
    Ok(())
}

fn check_limit(turn: &Turn<'_>, scope: &LimitScope, limit: &Limit) -> Result<(), CommandError> {
    let owner = match scope {
        LimitScope::Tenant(tenant) => Some(RecordKey::Tenant(tenant.clone())),
        LimitScope::Key(key) => Some(RecordKey::Key(key.clone())),
        LimitScope::Global | LimitScope::Model(_) => None,
    };
    // The limit of a tenant or key is removed with it, so it needs one.
    if let Some(owner) = owner.filter(|owner| turn.records.version(owner).is_none()) {
        return Err(CommandError::unknown(&owner));
    }
    check::count(limit.floors_permille.len(), REGIONS_MAX, "floors")?;
    for region in limit.floors_permille.keys() {
        check::name(region.as_str(), "region")?;
    }
    let whole: u64 = limit.floors_permille.values().map(|floor| u64::from(*floor)).sum();
    check::range(whole, (0, PERMILLE.into()), "sum of floors in thousandths")?;
    if limit.requests_per_s.is_some() && limit.requests_per_min.is_some() {
        let remedy = "say requests_per_s or requests_per_min";
        return Err(CommandError::invalid("requests are limited twice", remedy));
    }
    // The value that means no limit is above the bound.
    let per_s = limit.requests_per_s.filter(|count| *count != REQUESTS_ANY);
    for count in [per_s, limit.requests_per_min].into_iter().flatten() {
        check::range(count.into(), (0, REQUESTS_MAX.into()), "number of requests")?;
    }
    if limit.requests().is_none() && limit.tokens_per_min.is_none() && limit.concurrency.is_none() {
        let remedy = "name a rate or a number, or remove the limit";
        return Err(CommandError::invalid("the limit limits nothing", remedy));
    }
    Ok(())
}

fn check_key(turn: &Turn<'_>, id: &KeyId, key: &Key) -> Result<(), CommandError> {
    check::models(&key.models)?;
    check::count(key.regions.len(), MODELS_EACH_MAX, "regions")?;
    for region in &key.regions {
        check::name(region.as_str(), "region")?;
    }
    // A revoked key may have leaked, so it never works again.
    let is_back = turn.get::<Key>(id).is_some_and(|known| known.is_revoked && !key.is_revoked);
    if is_back {
        let cause = format!("key {id} is revoked");
        return Err(CommandError::new(RefusalCode::Transition, cause, "make a new key"));
    }
    match &key.tenant {
        Some(tenant) => {
            check::name(tenant.as_str(), "tenant")?;
            let owner = RecordKey::Tenant(tenant.clone());
            turn.records.version(&owner).map(|_| ()).ok_or_else(|| CommandError::unknown(&owner))
        }
        // Limits, queues and usage of requests depend on the tenant.
        None if key.role == KeyRole::Client => {
            Err(CommandError::invalid("a client's key has no tenant", "name its tenant"))
        }
        None => Ok(()),
    }
}
