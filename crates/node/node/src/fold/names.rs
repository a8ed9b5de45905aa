//! Aliases, splits and fallbacks of the cluster and of the config.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use spillway_cluster_state::{Model, Split, StickyArm};
use spillway_rollout::Rollout;
use spillway_route::{ArmWeight, Split as Draw};
use spillway_types::{ModelName, SplitArm};
use spillway_view::{ArmSpec, NameSpec, SplitSpec, StickyCookie};

use crate::fold::{AgreedWorld, Kind, Notes, Use};

/// Merges all names. A record of the cluster replaces everything that the config says of its name.
/// If names of both then refer to each other, each resolves to the end of the chain.
pub(super) fn fold(config: &NameSpec, agreed: &AgreedWorld, notes: &mut Notes) -> NameSpec {
    let agreed_splits = agreed_splits(config, agreed, notes);
    let aliases = aliases(config, agreed, &agreed_splits, notes);
    let splits = splits(config, agreed_splits, &aliases);
    let fallbacks = fallbacks(config, agreed, &aliases, &splits, notes);
    NameSpec { aliases, splits, fallbacks }
}

type Aliases = BTreeMap<ModelName, ModelName>;

/// Returns the cluster's splits that can be used.
fn agreed_splits(config: &NameSpec, agreed: &AgreedWorld, notes: &mut Notes) -> Vec<SplitSpec> {
    let mut splits = Vec::new();
    for (name, split) in &agreed.splits {
        let configured = config.splits.iter().find(|known| known.name == *name);
        match lower_split(name, split, configured) {
            Ok(spec) => {
                let hides = configured.is_some() || config.aliases.contains_key(name);
                let outcome = if hides { Use::Hides } else { Use::Used };
                notes.add(Kind::Split, name.as_str(), outcome, String::new());
                splits.push(spec);
            }
            Err(why) => notes.add(Kind::Split, name.as_str(), Use::Unusable, why),
        }
    }
    splits
}

/// Returns all aliases, each with its final target. Neither the config's aliases nor the cluster's
/// make chains by themselves, but together they may.
fn aliases(
    config: &NameSpec,
    agreed: &AgreedWorld,
    splits: &[SplitSpec],
    notes: &mut Notes,
) -> Aliases {
    let is_agreed = |name: &ModelName| {
        agreed.models.contains_key(name) || splits.iter().any(|split| split.name == *name)
    };
    let kept = config.aliases.iter().filter(|(alias, _)| !is_agreed(alias));
    let mut all: Aliases = kept.map(|(alias, target)| (alias.clone(), target.clone())).collect();
    for (name, model) in &agreed.models {
        let hides = config.aliases.contains_key(name)
            || config.fallbacks.contains_key(name)
            || (model.alias_of.is_some() && config.splits.iter().any(|split| split.name == *name));
        let outcome = if hides { Use::Hides } else { Use::Used };
        notes.add(Kind::Model, name.as_str(), outcome, String::new());
        if let Some(target) = &model.alias_of {
            all.insert(name.clone(), target.clone());
        }
    }
    // The cluster's aliases alone make no circle, so each circle has one of the config's in it.
    let is_circle = |name: &&ModelName| !is_agreed(name) && end(&all, name).as_ref() == Some(*name);
    let circles: Vec<ModelName> = all.keys().filter(is_circle).cloned().collect();
    for name in circles {
        tracing::warn!(alias = %name, "left out: the cluster's aliases form a loop");
        all.remove(&name);
    }
    let lead_on = |name: &ModelName| Some((name.clone(), end(&all, name)?));
    all.keys().filter_map(lead_on).collect()
}

/// Returns the name at the end of a chain of aliases; the name itself if the chain leads back to
/// it, and `None` if it leads into a circle without the name.
fn end(aliases: &Aliases, name: &ModelName) -> Option<ModelName> {
    let mut at = name;
    // A chain with more steps than there are aliases goes round in a circle.
    for _ in 0..=aliases.len() {
        match aliases.get(at) {
            Some(next) if next == name => return Some(name.clone()),
            Some(next) => at = next,
            None => return Some(at.clone()),
        }
    }
    None
}

/// Returns the cluster's splits, and those of the config whose names it leaves free.
fn splits(config: &NameSpec, agreed: Vec<SplitSpec>, aliases: &Aliases) -> Vec<SplitSpec> {
    let of_cluster: BTreeSet<ModelName> = agreed.iter().map(|split| split.name.clone()).collect();
    let is_free = |name: &ModelName| !of_cluster.contains(name) && !aliases.contains_key(name);
    let mut kept: Vec<SplitSpec> = config.splits.clone();
    kept.retain(|split| is_free(&split.name));
    for split in &mut kept {
        let own = split.sticky.as_ref().map(|own| own.name.clone());
        // A cookie of two splits would lead each client to and fro.
        if own.is_some()
            && agreed.iter().any(|it| it.sticky.as_ref().map(|it| &it.name) == own.as_ref())
        {
            tracing::warn!(split = %split.name, "its cookie is left out: a split of the cluster has it");
            split.sticky = None;
        }
    }
    let mut splits: Vec<SplitSpec> = agreed.into_iter().chain(kept).collect();
    for arm in splits.iter_mut().flat_map(|split| &mut split.arms) {
        // Arms lead to models: an alias of the other source is followed here, once.
        if let Some(model) = aliases.get(&arm.model) {
            arm.model = model.clone();
        }
    }
    splits
}

/// Converts a split of the cluster. A record that has neither a basis for choosing arms nor a cookie
/// takes both from the config's split of that name; without one, arms are chosen at random.
fn lower_split(
    name: &ModelName,
    split: &Split,
    configured: Option<&SplitSpec>,
) -> Result<SplitSpec, String> {
    let arm = |arm: &spillway_cluster_state::Arm| {
        // A version of dots alone would be a step up in a path.
        let is_step = |text: &str| text.bytes().all(|byte| byte == b'.');
        if arm.version.as_ref().is_some_and(|version| is_step(version.as_str())) {
            return Err(format!("the version of its arm {} can't stand in a path", arm.name));
        }
        Ok(ArmSpec {
            arm: Arc::new(SplitArm { split: name.clone(), arm: arm.name.clone() }),
            model: arm.model.clone(),
            version: arm.version.clone(),
        })
    };
    let weights: Vec<ArmWeight> = split
        .arms
        .iter()
        .map(|arm| ArmWeight { name: arm.name.clone(), weight: arm.weight_permille.into() })
        .collect();
    let weights = match &split.rollout {
        Some(rollout) => rolled_out(rollout, weights),
        None => weights,
    };
    let draw = Draw::new(name, weights).map_err(|error| error.to_string())?;
    let (by, sticky) = match configured {
        Some(known) if !split.chooses_arms() => (known.by.clone(), known.sticky.clone()),
        _ => (split.by.clone().unwrap_or_default(), split.sticky.as_ref().map(cookie)),
    };
    Ok(SplitSpec {
        name: name.clone(),
        by,
        sticky,
        split: Arc::new(draw),
        arms: split.arms.iter().map(arm).collect::<Result<_, _>>()?,
    })
}

/// Returns the arms with the weights that a rollout gives them.
fn rolled_out(rollout: &Rollout, arms: Vec<ArmWeight>) -> Vec<ArmWeight> {
    let own: Vec<_> = arms.iter().map(|arm| (&arm.name, arm.weight)).collect();
    let weights = rollout.plan.weights(&rollout.progress, &own);
    arms.into_iter().zip(weights).map(|(arm, weight)| ArmWeight { weight, ..arm }).collect()
}

fn cookie(sticky: &StickyArm) -> Arc<StickyCookie> {
    let max_age = Duration::from_secs(sticky.max_age_s.get().into());
    Arc::new(StickyCookie { name: sticky.cookie.clone(), max_age })
}

fn fallbacks(
    config: &NameSpec,
    agreed: &AgreedWorld,
    aliases: &Aliases,
    splits: &[SplitSpec],
    notes: &mut Notes,
) -> BTreeMap<ModelName, Vec<ModelName>> {
    let is_split = |name: &ModelName| splits.iter().any(|split| split.name == *name);
    let of_config =
        config.fallbacks.iter().filter(|(model, _)| !agreed.models.contains_key(*model));
    let of_cluster = agreed.models.iter().filter(|(_, model)| !model.fallbacks.is_empty());
    let mut all = BTreeMap::new();
    for (name, listed) in
        of_config.chain(of_cluster.map(|(name, Model { fallbacks, .. })| (name, fallbacks)))
    {
        if aliases.contains_key(name) {
            let why = "it is an alias: fallbacks of its model apply to it".to_owned();
            notes_of_cluster(agreed, name, why, notes);
            continue;
        }
        let mut list: Vec<ModelName> = Vec::new();
        for other in listed {
            let model = aliases.get(other).unwrap_or(other);
            // Aliases may lead back to the model, or to a split, which is no model.
            if model == name || list.contains(model) || (model != other && is_split(model)) {
                let why = format!("its fallback {other} is left out: it is no further model");
                notes_of_cluster(agreed, name, why, notes);
                continue;
            }
            list.push(model.clone());
        }
        if !list.is_empty() {
            all.insert(name.clone(), list);
        }
    }
    all
}

fn notes_of_cluster(agreed: &AgreedWorld, name: &ModelName, why: String, notes: &mut Notes) {
    if agreed.models.contains_key(name) {
        notes.add(Kind::Model, name.as_str(), Use::InPart, why);
    }
}
