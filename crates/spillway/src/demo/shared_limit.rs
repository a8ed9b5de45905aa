//! Scene of the demo: a limit that holds in all regions together while one is cut off.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use spillway_cluster_state::{Command, Expect, Item, Limit, LimitScope, RecordKey};
use spillway_harness::{LoadClient, open_loop, wait_for};

use crate::demo::control;
use crate::demo::region::DemoRegion;
use crate::demo::workload::{MODEL, short_request};
use crate::demo::world::DemoWorld;

/// Region that is cut off from both others, and goes on.
const CUT: DemoRegion = DemoRegion::ApNortheast;
/// Requests a minute that the limit allows in all regions together.
const ALLOWED: u32 = 60;
/// Requests that each region gets while one is cut off: two thirds of them are too many.
const ASKED_EACH: u32 = 60;
/// Interval between two requests of a region.
const GAP: Duration = Duration::from_millis(50);
/// Longest wait for each step: some elections on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Results of the limit.
#[derive(Debug, Serialize)]
pub(crate) struct SharedLimit {
    /// Requests a minute that the limit allows.
    allowed: u32,
    /// Region that was cut off.
    cut_off: &'static str,
    /// Requests that clients sent, in all regions.
    asked: u32,
    /// Requests that each region admitted.
    admitted: [u32; 3],
    /// Requests with another answer than a reply or a refusal for the limit.
    failed: u32,
}

/// Sets a limit, cuts a region off, and sends more requests to each region than are left for it.
pub(crate) async fn show(world: &DemoWorld) -> Result<SharedLimit> {
    let scope = LimitScope::Model(MODEL.into());
    let limit = Limit { requests_per_min: Some(ALLOWED), ..Limit::default() };
    let item = Item::Limit(scope.clone(), limit);
    control::carry_out(world, Command::Put { item, expect: Expect::Any }).await?;
    // Until it is divided, a node may use a new limit as a whole.
    let is_divided = || {
        let shares = DemoRegion::ALL.map(|it| world.share(it));
        !shares.contains(&0) && shares.iter().sum::<u64>() <= u64::from(ALLOWED)
    };
    until(is_divided, "shares of the limit").await?;

    world.cut(CUT, true);
    let knows = |from: DemoRegion| from.others().filter(|to| world.reaches(from, *to)).count();
    until(|| knows(CUT) == 0 && CUT.others().all(|it| !world.reaches(it, CUT)), "the cut").await?;
    let result = ask(world).await;
    world.cut(CUT, false);
    until(|| DemoRegion::ALL.into_iter().all(|it| knows(it) == 2), "the network").await?;

    let key = RecordKey::Limit(scope);
    control::carry_out(world, Command::Remove { key, expect: Expect::Any }).await?;
    let have_none = || DemoRegion::ALL.into_iter().all(|it| !world.has_limit(it));
    until(have_none, "the end of the limit").await?;
    Ok(result)
}

/// Sends the requests to all regions at a time, and counts the answers.
async fn ask(world: &DemoWorld) -> SharedLimit {
    let begin = Instant::now();
    let clients = world.doors().map(LoadClient::new);
    let due = (0..ASKED_EACH)
        .flat_map(|number| DemoRegion::ALL.map(|region| (begin + GAP * number, (region, number))));
    let answers = open_loop(due, move |(region, number): (DemoRegion, u32), due| {
        let client = clients[region.index()].clone();
        Some(async move { (region, client.send(&short_request(number), due).await.status()) })
    })
    .await;
    let mut result = SharedLimit {
        allowed: ALLOWED,
        cut_off: CUT.name(),
        asked: 3 * ASKED_EACH,
        admitted: [0; 3],
        failed: 0,
    };
    for (region, status) in answers {
        match status {
            200 => result.admitted[region.index()] += 1,
            429 => {}
            _ => result.failed += 1,
        }
    }
    result
}

async fn until(is_so: impl Fn() -> bool, what: &str) -> Result<()> {
    let look = async || is_so().then_some(()).ok_or("in vain");
    wait_for(&format!("waited {PATIENCE:?} for {what}"), PATIENCE, LOOK, look)
        .await
        .context("the limit was not shown")
}

impl SharedLimit {
    /// Returns what happens, for people.
    pub(crate) fn story() -> String {
        format!(
            "All regions agree on {ALLOWED} requests a minute for {MODEL}. Then {} is cut off from both \
             others, and each region gets {ASKED_EACH} requests in {} s. No request waits for \
             another region.",
            CUT.name(),
            (GAP * ASKED_EACH).as_secs(),
        )
    }

    /// Checks that no more requests than allowed were admitted, and some also where no other region
    /// can be asked.
    ///
    /// # Errors
    /// Returns an error if that is not so.
    pub(crate) fn check(&self) -> Result<()> {
        let all: u32 = self.admitted.iter().sum();
        ensure!(all <= self.allowed, "{all} requests were admitted, and {} allowed", self.allowed);
        ensure!(self.admitted[CUT.index()] > 0, "the region that was cut off admitted none");
        Ok(())
    }

    /// Returns the result in one line.
    pub(crate) fn headline(&self) -> String {
        let Self { allowed, admitted, .. } = self;
        let all: u32 = admitted.iter().sum();
        let [us, eu, ap] = admitted;
        format!("{all} requests admitted of {allowed} allowed: {us} + {eu} + {ap}")
    }

    pub(crate) fn text(&self) -> String {
        let Self { allowed, cut_off, asked, admitted, failed } = self;
        let all: u32 = admitted.iter().sum();
        let each = DemoRegion::ALL.iter().zip(admitted);
        let each: Vec<String> =
            each.map(|(region, count)| format!("{count} in {}", region.name())).collect();
        format!(
            "A limit of {allowed} requests a minute, while {cut_off} was cut off:\n\x20 {all} of {asked} \
             admitted: {};\n\x20 {} refused with 429, {failed} failed\n",
            each.join(", "),
            asked - all - failed,
        )
    }
}

#[cfg(test)]
impl SharedLimit {
    /// Returns an example.
    pub(crate) fn sample() -> Self {
        Self { allowed: 60, cut_off: CUT.name(), asked: 180, admitted: [20; 3], failed: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_held_only_if_no_more_were_admitted_and_some_where_the_cut_is() {
        assert!(SharedLimit::sample().check().is_ok());
        assert!(SharedLimit { admitted: [20, 21, 20], ..SharedLimit::sample() }.check().is_err());
        assert!(SharedLimit { admitted: [30, 30, 0], ..SharedLimit::sample() }.check().is_err());
    }
}
