//! Control plane of the demo: its leader, and an order that takes effect in all regions.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use spillway_cluster_state::{Actor, Command, Expect, Outcome, RegionState, RequestId};
use spillway_harness::wait_for;

use crate::demo::region::DemoRegion;
use crate::demo::world::DemoWorld;

/// Region that is drained, and region at which that is ordered.
const DRAINED: DemoRegion = DemoRegion::EuCentral;
const ORDERED_AT: DemoRegion = DemoRegion::ApNortheast;
/// Longest wait for each step: some elections on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait for the outcome of an order: the leader may change during that time, more than
/// once.
const ORDER_LIMIT: Duration = Duration::from_secs(120);
/// Interval between two looks.
const LOOK: Duration = Duration::from_millis(2);
/// Share of its requests that a region usually gets, in thousandths.
const USUAL_PERMILLE: u16 = 1_000;

/// Results of the control plane.
#[derive(Debug, Serialize)]
pub(crate) struct Control {
    /// Node that leads.
    leader: String,
    /// Term of the leader.
    term: u64,
    /// Last entry that was applied, at the end.
    applied_index: u64,
    /// Number of nodes that vote.
    voters: usize,
    drained: &'static str,
    ordered_at: &'static str,
    /// Time from the order until it was committed.
    committed_ms: f64,
    /// Time from the order until both other regions sent nothing more to the drained one.
    effective_ms: f64,
}

/// Drains a region by an order at another one, and takes that back.
pub(crate) async fn show(world: &DemoWorld) -> Result<Control> {
    led(world).await?;
    let begin = Instant::now();
    order(world, RegionState::Draining).await?;
    let committed = begin.elapsed();
    until(|| weights(world).all(|weight| weight == Some(0)), "the drain").await?;
    let effective = begin.elapsed();
    order(world, RegionState::Active).await?;
    until(|| weights(world).all(|weight| weight == Some(USUAL_PERMILLE)), "its end").await?;
    let status = world.control_plane(ORDERED_AT).context("the region is up")?.status();
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
            "{} voters agreed, led by {} in term {}; {} entries were applied.\n\
             {} was drained by an order at {}: committed after {:.0} ms,\n\
             effective in all regions after {:.0} ms; and taken back.\n",
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

/// Returns the leader that all regions agree on, with its term; None if they don't.
fn leader(world: &DemoWorld) -> Option<(String, u64)> {
    let seen = |region: DemoRegion| {
        let control_plane = world.control_plane(region)?;
        let is_formed = control_plane.published().cluster().is_some();
        let (name, _) = control_plane.leader().filter(|_| is_formed)?;
        Some((name.to_string(), control_plane.status().term))
    };
    let [first, second, third] = DemoRegion::ALL.map(seen);
    first.filter(|first| Some(first) == second.as_ref() && Some(first) == third.as_ref())
}

/// Returns the weight that each other region gives to the drained one.
fn weights(world: &DemoWorld) -> impl Iterator<Item = Option<u16>> {
    DRAINED.others().map(|region| world.weight(region, DRAINED))
}

async fn order(world: &DemoWorld, state: RegionState) -> Result<()> {
    let region = DRAINED.name().into();
    carry_out(world, Command::SetRegionState { region, state, expect: Expect::Any }).await
}

/// Gives an order and waits until it is committed.
///
/// # Errors
/// Returns an error if it is refused, or is not committed in time.
pub(crate) async fn carry_out(world: &DemoWorld, command: Command) -> Result<()> {
    let control_plane = world.control_plane(ORDERED_AT).context("the region is up")?;
    let operator = Actor::Operator("demo".to_owned());
    // With an id, the order is proposed until its outcome is known, and carried out once.
    let request = Some(RequestId(fastrand::u128(..).to_le_bytes()));
    let until = Instant::now() + PATIENCE;
    let done = loop {
        // A busy machine may have made the leader look gone. An order waits for another one only a
        // moment.
        led(world).await?;
        let (command, operator) = (command.clone(), operator.clone());
        match control_plane.propose(command, operator, request, ORDER_LIMIT).await {
            Ok(done) => break done,
            Err(error) if Instant::now() > until => return Err(error.into()),
            Err(_) => {}
        }
    };
    let is_done = matches!(done.outcome, Outcome::Applied { .. } | Outcome::Unchanged);
    ensure!(is_done, "the order was not carried out: {:?}", done.outcome);
    Ok(())
}

/// Waits until all regions agree on a leader.
async fn led(world: &DemoWorld) -> Result<()> {
    until(|| leader(world).is_some(), "a leader").await
}

async fn until(mut is_so: impl FnMut() -> bool, what: &str) -> Result<()> {
    let look = async || is_so().then_some(()).ok_or("in vain");
    wait_for(&format!("waited {PATIENCE:?} for {what}"), PATIENCE, LOOK, look).await
}

#[cfg(test)]
impl Control {
    /// Returns an example.
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
