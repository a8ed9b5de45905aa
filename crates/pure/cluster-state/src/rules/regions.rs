//! Rules for regions.

use spillway_types::{Country, RegionName};

use crate::limits::{REGION_WEIGHT_PERMILLE_MAX, REGIONS_MAX};
use crate::rules::check;
use crate::state::{Done, RegionClock, Turn};
use crate::{ApplyError, CommandError, Expect, RefusalCode, Region, RegionState};

/// Makes the region if it does not exist.
pub(super) fn ensure(turn: &mut Turn<'_>, name: &RegionName) -> Result<(), CommandError> {
    if turn.get::<Region>(name).is_some() {
        return Ok(());
    }
    turn.put(name.clone(), Region::default())?;
    start_clock(turn, name);
    Ok(())
}

/// Writes the region as a whole.
pub(super) fn put(
    turn: &mut Turn<'_>,
    name: &RegionName,
    region: &Region,
    expect: Expect,
) -> Result<Done, ApplyError> {
    turn.check_operator()?;
    turn.expect::<Region>(name, expect)?;
    check_weight(region.weight_permille)?;
    if !matches!(region.country.as_bytes(), [] | [b'A'..=b'Z', b'A'..=b'Z']) {
        let remedy = "use two capital letters, e.g. DE, or nothing";
        return Err(CommandError::invalid("that is no country", remedy).into());
    }
    check::count(region.rtt_hints_ms.len(), REGIONS_MAX, "round trips")?;
    for other in region.rtt_hints_ms.keys() {
        check::name(other.as_str(), "region")?;
    }
    turn.put(name.clone(), region.clone())?;
    start_clock(turn, name);
    Ok(Done::default())
}

pub(super) fn set_state(
    turn: &mut Turn<'_>,
    name: &RegionName,
    state: RegionState,
    expect: Expect,
) -> Result<Done, ApplyError> {
    turn.check_operator()?;
    let region = turn.take::<Region>(name, expect)?;
    turn.put(name.clone(), Region { state, ..region })?;
    Ok(Done::default())
}

pub(super) fn set_weight(
    turn: &mut Turn<'_>,
    name: &RegionName,
    weight_permille: u16,
    expect: Expect,
) -> Result<Done, ApplyError> {
    turn.check_operator()?;
    let region = turn.take::<Region>(name, expect)?;
    check_weight(weight_permille)?;
    turn.put(name.clone(), Region { weight_permille, ..region })?;
    Ok(Done::default())
}

/// Sets a region's country from a node's declaration if no country is set. A declaration never
/// replaces a country: nodes that differ would overwrite each other forever, and an operator's
/// choice would not last.
pub(super) fn declare_country(
    turn: &mut Turn<'_>,
    name: &RegionName,
    country: Country,
) -> Result<Done, ApplyError> {
    turn.check_owner(name)?;
    let region = turn.take::<Region>(name, Expect::Any)?;
    if !region.country.is_empty() && region.country != country.as_str() {
        let cause = format!("region {name} is said to be in {}, not in {country}", region.country);
        let remedy = "correct the region's record, or `country` in the node's config";
        return Err(CommandError::new(RefusalCode::Transition, cause, remedy).into());
    }
    turn.put(name.clone(), Region { country: country.to_string(), ..region })?;
    Ok(Done::default())
}

fn check_weight(weight_permille: u16) -> Result<(), CommandError> {
    check::range(weight_permille.into(), (0, REGION_WEIGHT_PERMILLE_MAX.into()), "weight")
}

fn start_clock(turn: &mut Turn<'_>, name: &RegionName) {
    // A region that is written again keeps its clock, by which its leases end.
    let clock = RegionClock::starting_at(turn.ledger.stamp_ms);
    turn.ledger.clocks.entry(name.clone()).or_insert(clock);
}
