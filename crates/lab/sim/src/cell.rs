//! Cells: the workloads and worlds in which ways of routing are compared with each other.

mod conditions;
mod list;
mod machine;
mod map;

use std::time::Instant;

use serde::Deserialize;

pub use conditions::{Conditions, Traces};
use list::CELLS;
use machine::Machine;
use map::Map;

use crate::scenario::full_rate_per_s;
use crate::workload::{Course, Task, crowd, task_sessions};
use crate::{
    Demand, Fault, FaultKind, News, Operator, Record, RegionConfig, Scenario, Session, Slo,
    TraceError, TraceOptions, WorkloadKind, WorldConfig, read_azure_trace, read_trace,
};

/// Seconds of warm-up.
const WARM_UP_S: f64 = 60.0;

/// Seconds from the beginning at which faults begin and end.
const FAULT_S: (f64, f64) = (120.0, 180.0);
/// Factor by which a slow replica's steps take longer.
const SLOWNESS: f64 = 2.0;

/// World with a workload, by name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    name: String,
    about: String,
    group: String,
    #[serde(default)]
    map: Map,
    work: Work,
    /// Machine of each replica.
    #[serde(default)]
    machine: Machine,
    /// Replicas of each region.
    #[serde(default = "usual_replicas")]
    replicas: usize,
    /// Seconds until the load ends.
    #[serde(default = "usual_end_s")]
    end_s: f64,
    /// Faults of the cell.
    #[serde(default)]
    faults: Vec<FaultKind>,
    /// Settings that the operator gives Spillway.
    #[serde(default)]
    operator: Operator,
    /// True if one replica of each region is slow.
    #[serde(default)]
    is_slow: bool,
}

fn usual_replicas() -> usize {
    4
}

fn usual_end_s() -> f64 {
    300.0
}

/// Requests of a cell.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Work {
    /// Clients of each region who begin a task once they are done with the one before.
    Closed(Vec<(usize, Task)>),
    /// Clients as before, and a crowd that asks about one document for a while.
    Crowd(Vec<(usize, Task)>),
    /// Sessions that begin at a share of the replicas' full load, however they fare.
    Open { kind: WorkloadKind, loads: [f64; 3], course: Course },
    /// Conversations of Mooncake at so many times their speed.
    Mooncake { speed: f64 },
    /// Completions of code of Azure at so many times their speed.
    AzureCode { speed: f64 },
}

/// Error for a cell that can't be made.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    /// The cell plays a trace that is not there.
    #[error("the trace {0} is missing")]
    NoTrace(&'static str),
    /// The trace can't be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The conditions don't go with the cell's faults.
    #[error("a cell with faults has its own replicas, and nodes in each region")]
    Faults,
    /// The conditions name more or fewer regions than the cell has.
    #[error("the cell has {0} regions")]
    Regions(usize),
}

impl Cell {
    /// Returns all cells of the comparison.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &CELLS.compared
    }

    /// Returns further cells, which show how soon a burst, a cold start or the peak of a day is over,
    /// what becomes of more load than can be served, of faults, and of many regions.
    #[must_use]
    pub fn besides() -> &'static [Self] {
        &CELLS.besides
    }

    /// Returns the cell of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        CELLS.compared.iter().chain(&CELLS.besides).find(|cell| cell.name == name)
    }

    /// Returns the name, as in commands.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the description: a sentence without its full stop.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Returns the name of the group of cells that shows the same.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the number of regions.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.map.rtt_ms().len()
    }

    /// Returns the first and the last second of the faults; `None` if nothing breaks.
    #[must_use]
    pub fn faults_s(&self) -> Option<(f64, f64)> {
        (!self.faults.is_empty()).then_some(FAULT_S)
    }

    /// Returns the seconds from the first one that counts until routers should recover: from a ramp, a
    /// burst that is over, or cold caches. `None` if nothing of the kind happens.
    #[must_use]
    pub fn disturbed_s(&self) -> Option<f64> {
        let Work::Open { course, .. } = self.work else { return None };
        Some(course.disturbed_s()? - self.warm_up_s())
    }

    /// Returns the objective by which requests are judged.
    #[must_use]
    pub fn slo(&self) -> Slo {
        self.machine.slo()
    }

    /// Returns true if a request is one of the cell's crowd, whose prompts are longer than all others.
    #[must_use]
    pub fn is_of_crowd(&self, record: &Record) -> bool {
        matches!(self.work, Work::Crowd(_)) && record.prompt_tokens >= crowd::DOCUMENT_TOKENS
    }

    /// Returns the scenario of the cell. `origin` is any moment; results don't depend on it.
    ///
    /// # Errors
    ///
    /// Returns an error if the trace of the cell is missing or can't be read, or if the conditions
    /// don't fit the cell's regions.
    pub fn scenario(
        &self,
        conditions: &Conditions,
        seed: u64,
        origin: Instant,
        traces: &Traces,
    ) -> Result<Scenario, CellError> {
        let world = self.world(conditions, seed, origin)?;
        let sessions = self.sessions(seed, traces)?;
        Ok(Scenario { world, sessions })
    }

    fn world(
        &self,
        conditions: &Conditions,
        seed: u64,
        origin: Instant,
    ) -> Result<WorldConfig, CellError> {
        let replicas =
            conditions.replicas.clone().unwrap_or_else(|| vec![self.replicas; self.regions()]);
        let is_central = |central| central < self.regions();
        if replicas.len() != self.regions() || !conditions.central.is_none_or(is_central) {
            return Err(CellError::Regions(self.regions()));
        }
        let is_changed = conditions.replicas.is_some() || conditions.central.is_some();
        if is_changed && !self.faults.is_empty() {
            return Err(CellError::Faults);
        }
        let firsts = replicas.iter().scan(0, |next, &count| {
            let first = (count > 0).then_some(*next);
            *next += count;
            Some(first)
        });
        let slow = firsts.flatten().map(|first| (first, SLOWNESS));
        let (begin_s, end_s) = FAULT_S;
        let faults = self.faults.iter().map(|&kind| Fault { begin_s, end_s, kind });
        let region = |&replicas: &usize| RegionConfig { nodes: conditions.nodes, replicas };
        Ok(WorldConfig {
            operator: self.operator,
            tenants: conditions.tenants.clone(),
            slow: if self.is_slow { slow.collect() } else { Vec::new() },
            faults: faults.collect(),
            regions: replicas.iter().map(region).collect(),
            rtt_ms: self.map.rtt_ms(),
            engine: self.machine.engine(),
            central: conditions.central,
            news: News {
                signals_ms: conditions.signals_ms,
                kv_events_ms: conditions.kv_events_ms,
                lost: conditions.lost,
                jitter: conditions.jitter,
                rtt_error: conditions.rtt_error,
                speed_error: conditions.speed_error,
                ..News::default()
            },
            patience_s: self.slo().failed_ms / 1e3,
            warm_up_s: self.warm_up_s(),
            end_s: self.end_s,
            seed,
            origin,
        })
    }

    fn warm_up_s(&self) -> f64 {
        match self.work {
            // The time with cold caches is what such a cell shows.
            Work::Open { course: Course::Cold, .. } => 0.0,
            _ => WARM_UP_S,
        }
    }

    fn sessions(&self, seed: u64, traces: &Traces) -> Result<Vec<Session>, CellError> {
        let options = |speed| TraceOptions {
            regions: self.regions(),
            speed,
            prompt_tokens_max: Scenario::TRACE_TOKENS_MAX,
            seed,
        };
        Ok(match &self.work {
            Work::Closed(clients) => task_sessions(clients, self.end_s, seed),
            Work::Crowd(clients) => {
                let mut sessions = task_sessions(clients, self.end_s, seed);
                sessions.extend(crowd::sessions(self.regions(), seed));
                sessions
            }
            Work::Open { kind, loads, course } => {
                let full = full_rate_per_s(*kind) * self.replicas as f64;
                let peak = course.peak();
                // More regions than there are loads have the same ones again.
                let loads = loads.iter().cycle().take(self.regions());
                let demand = Demand {
                    rates_per_s: loads.map(|load| load * full * peak).collect(),
                    seconds: self.end_s,
                    seed,
                };
                course.thin(kind.sessions(&demand), self.regions(), seed)
            }
            Work::Mooncake { speed } => {
                let text = traces.mooncake.as_deref();
                let text = text.ok_or(CellError::NoTrace(Traces::MOONCAKE))?;
                read_trace(text, &options(*speed))?
            }
            Work::AzureCode { speed } => {
                let text = traces.azure_code.as_deref();
                let text = text.ok_or(CellError::NoTrace(Traces::AZURE_CODE))?;
                read_azure_trace(text, &options(*speed))?
            }
        })
    }
}

#[cfg(test)]
mod cell_test;
