//! Phase of the demo: a load, an outage during it, and the outcomes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use spillway_harness::open_loop;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::demo::client::ask;
use crate::demo::region::DemoRegion;
use crate::demo::sample::{Sample, Samples};
use crate::demo::view::DemoView;
use crate::demo::workload::{Loads, arrivals};
use crate::demo::world::{DemoFigures, DemoWorld};

/// Resolution of the times at which a region is lost and the others have noticed.
const LOOK: Duration = Duration::from_millis(10);

/// Plan of a phase.
#[derive(Clone, Debug)]
pub(crate) struct DemoStage {
    /// Place among the phases and scenes, from 1.
    pub(crate) number: u32,
    pub(crate) title: &'static str,
    /// Description of the events, for people.
    pub(crate) story: String,
    pub(crate) loads: Loads,
    pub(crate) seed: u64,
    /// Time for which requests come.
    pub(crate) length: Duration,
    /// Region that is lost, and the time of the loss after the begin.
    pub(crate) loss: Option<(DemoRegion, Duration)>,
}

/// Outcome of a phase.
#[derive(Debug)]
pub(crate) struct StageOutcome {
    pub(crate) samples: Vec<Sample>,
    /// Figures of the nodes at the end.
    pub(crate) figures: [DemoFigures; 3],
    pub(crate) loss: Option<Loss>,
}

/// A region that was lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub(crate) region: DemoRegion,
    pub(crate) at: Instant,
    /// Time at which the last of the other regions knew that it is unreachable.
    pub(crate) noticed: Option<Instant>,
}

impl DemoStage {
    /// Runs the phase.
    pub(crate) async fn run(
        &self,
        world: &mut DemoWorld,
        view: &mut DemoView,
    ) -> Result<StageOutcome> {
        view.begin(self.number, self.title, &self.story)?;
        let samples = Arc::new(Samples::default());
        let (started, doors, ended) = (Instant::now(), world.doors(), Arc::clone(&samples));
        let arrivals = arrivals(self.seed, self.loads, self.length).into_iter();
        let arrivals = arrivals.map(move |arrival| (started + arrival.at, arrival));
        let mut load = JoinSet::new();
        load.spawn(open_loop(arrivals, move |arrival, due| {
            let samples = Arc::clone(&ended);
            Some(async move { samples.add(ask(&arrival, due, doors).await) })
        }));
        let mut loss = None;
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(ended) = load.join_next() => {
                    ended?;
                    break;
                }
                _ = looks.tick() => {}
            }
            self.follow_loss(world, started, &mut loss).await;
            view.show(world, &samples, self, started)?;
        }
        Ok(StageOutcome {
            samples: samples.all(),
            figures: DemoRegion::ALL.map(|r| world.figures(r)),
            loss,
        })
    }

    async fn follow_loss(&self, world: &mut DemoWorld, started: Instant, loss: &mut Option<Loss>) {
        match (loss, self.loss) {
            (none @ None, Some((region, after))) if started.elapsed() >= after => {
                *none = Some(Loss { region, at: Instant::now(), noticed: None });
                world.lose(region).await;
            }
            (Some(Loss { region, noticed: noticed @ None, .. }), _) => {
                let is_out = region.others().all(|other| !world.reaches(other, *region));
                *noticed = is_out.then(Instant::now);
            }
            _ => {}
        }
    }
}
