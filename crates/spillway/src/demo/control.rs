//! What the demo's regions agree on: who leads, and an order that takes effect in all of them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use spillway_consensus::ProposeError;
use spillway_control::{Actor, Command, Expect, Outcome, RegionState, RequestId};
use tokio::time::sleep;

use crate::demo::region::Region;
use crate::demo::world::World;

/// The region that is drained, and the one at which that is ordered.
const DRAINED: Region = Region::EuCentral;
const ORDERED_AT: Region = Region::ApNortheast;
/// How long anything here may take: some elections on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// Share of its requests that a region usually gets, in thousandths.
const USUAL_PERMILLE: u16 = 1_000;

/// What the control plane did.
#[derive(Debug, Serialize)]
pub(crate) struct Control {
    /// The node that leads.
    leader: String,
    /// Its term.
    term: u64,
    /// The last entry that was carried out, at the end.
    applied_index: u64,
    /// Nodes that vote.
    voters: usize,
    drained: &'static str,
    ordered_at: &'static str,
    /// From the order to when it was committed.
    committed_ms: f64,
    /// From the order to when both other regions sent nothing more to the drained one.
    effective_ms: f64,
}

/// Drains a region by an order at another one, and takes that back.
pub(crate) async fn show(world: &World) -> Result<Control> {
    until(|| leader(world).is_some(), "a leader").await?;
    let begin = Instant::now();
    order(world, RegionState::Draining).await?;
    let committed = begin.elapsed();
    until(|| weights(world).all(|weight| weight == Some(0)), "the drain").await?;
    let effective = begin.elapsed();
    order(world, RegionState::Active).await?;
    until(|| weights(world).all(|weight| weight == Some(USUAL_PERMILLE)), "its end").await?;
    let status = world.agreement(ORDERED_AT).context("the region is up")?.status();
    let (leader, term) = leader(world).context("nobody leads any more")?;
    Ok(Control {
        leader,
        term,
        applied_index: status.applied_index.unwrap_or(0),
        voters: status.voters.len(),
        drained: DRAINED.name(),
        ordered_at: ORDERED_AT.name(),
        committed_ms: committed.as_secs_f64() * 1e3,
        effective_ms: effective.as_secs_f64() * 1e3,
    })
}

impl Control {
    pub(crate) fn text(&self) -> String {
        format!(
            "\nAgreed on by {} voters: {} leads in term {}, {} entries applied.\n\
             {} was drained by an order at {}: committed after {:.0} ms, no region sent anything \
             more there after {:.0} ms; and taken back.",
            self.voters,
            self.leader,
            self.term,
            self.applied_index,
            self.drained,
            self.ordered_at,
            self.committed_ms,
            self.effective_ms,
        )
    }
}

/// The leader that all regions agree on, and its term.
fn leader(world: &World) -> Option<(String, u64)> {
    let seen = |region: Region| {
        let agreement = world.agreement(region)?;
        let is_formed = agreement.published().cluster().is_some();
        let (name, _) = agreement.leader().filter(|_| is_formed)?;
        Some((name.to_string(), agreement.status().term))
    };
    let [first, second, third] = Region::ALL.map(seen);
    first.filter(|first| Some(first) == second.as_ref() && Some(first) == third.as_ref())
}

/// What the regions that are not drained make of the one that is.
fn weights(world: &World) -> impl Iterator<Item = Option<u16>> {
    DRAINED.others().map(|region| world.weight(region, DRAINED))
}

async fn order(world: &World, state: RegionState) -> Result<()> {
    let agreement = world.agreement(ORDERED_AT).context("the region is up")?;
    let region = DRAINED.name().into();
    let command = Command::SetRegionState { region, state, expect: Expect::Any };
    let by = Instant::now() + PATIENCE;
    let request = Some(RequestId(fastrand::u128(..).to_le_bytes()));
    let done = loop {
        let operator = Actor::Operator("demo".to_owned());
        match agreement.propose(command.clone(), operator, request, PATIENCE).await {
            // A busy machine may have made the leader look gone: another one is elected.
            Err(ProposeError::NoQuorum { .. } | ProposeError::Unknown) if Instant::now() < by => {
                sleep(LOOK).await;
            }
            done => break done?,
        }
    };
    let is_done = matches!(done.outcome, Outcome::Applied { .. } | Outcome::Unchanged);
    ensure!(is_done, "the order was not carried out: {:?}", done.outcome);
    Ok(())
}

async fn until(mut is_so: impl FnMut() -> bool, what: &str) -> Result<()> {
    let by = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() > by {
            bail!("{what} did not come within {} s", PATIENCE.as_secs());
        }
        sleep(LOOK).await;
    }
    Ok(())
}

#[cfg(test)]
impl Control {
    /// What it may look like.
    pub(crate) fn sample() -> Self {
        Self {
            leader: "node-us-east-1".to_owned(),
            term: 1,
            applied_index: 12,
            voters: 3,
            drained: DRAINED.name(),
            ordered_at: ORDERED_AT.name(),
            committed_ms: 240.0,
            effective_ms: 480.0,
        }
    }
}
