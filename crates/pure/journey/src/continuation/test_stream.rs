//! A stream's surroundings as plain data, and stories told against them.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use spillway_route::{PlanError, ShedReason};
use spillway_types::{Deadline, RegionName, ReplicaName, ReplicaSlot};

use super::{
    BreakCause, ContinuationRules, ContinuedStream, StreamBreak, StreamEvent, StreamReplica,
    StreamRest, StreamRetry, StreamSight, StreamStep, StreamTarget, Unasked,
};
use crate::{Ending, RefusedRequest};

/// Moment at which all stories begin.
pub(super) static START: LazyLock<Instant> = LazyLock::new(|| {
    #[expect(clippy::disallowed_methods, reason = "a test needs some starting moment")]
    Instant::now()
});

/// Failure of the replicas that a journey asked.
pub(super) const FAILED: StreamEvent = StreamEvent::NoReply(Ending::LastFailure);
/// Refusal, since no target is open at the moment.
pub(super) const NOT_NOW: StreamEvent = StreamEvent::NoReply(Ending::Refused(RefusedRequest {
    refusal: PlanError::AllBusy,
    was_tried: false,
    retry_at: None,
}));
/// Refusal by this node's queue.
pub(super) const SHED: StreamEvent = StreamEvent::NoReply(Ending::Shed {
    reason: ShedReason::QueueFull,
    predicted_ms: 0.0,
    not_before: None,
});

pub(super) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A replica of a test.
#[derive(Clone, Debug)]
pub(super) struct TestStreamReplica {
    pub(super) name: ReplicaName,
    pub(super) serves_model: bool,
    pub(super) continues_chats: bool,
}

/// Everything that a continuation may know, as data.
#[derive(Clone, Debug)]
pub(super) struct TestStream {
    pub(super) rules: ContinuationRules,
    pub(super) replicas: Vec<TestStreamReplica>,
    pub(super) regions: Vec<RegionName>,
    pub(super) silence_max: Duration,
    pub(super) deadline: Deadline,
    /// Retries in the budget at the beginning.
    pub(super) retries: u32,
}

impl TestStream {
    /// A stream in a region with replicas of these names, and no other region.
    pub(super) fn new(replicas: &[&str]) -> Self {
        let able = |name: &&str| TestStreamReplica {
            name: ReplicaName::from(*name),
            serves_model: true,
            continues_chats: true,
        };
        Self {
            rules: ContinuationRules { count_max: 3, tries_max: 3, needs_engine: false, deaths: 0 },
            replicas: replicas.iter().map(able).collect(),
            regions: Vec::new(),
            silence_max: ms(30_000),
            deadline: Deadline::after(*START, ms(60_000)),
            retries: 9,
        }
    }

    /// The stream of a chat, which these replicas cannot continue once its answer has begun.
    pub(super) fn with_unable(mut self, names: &[&str]) -> Self {
        self.rules.needs_engine = true;
        for replica in &mut self.replicas {
            replica.continues_chats = !names.contains(&replica.name.as_str());
        }
        self
    }

    pub(super) fn with_regions(mut self, names: &[&str]) -> Self {
        self.regions = names.iter().map(|name| RegionName::from(*name)).collect();
        self
    }

    pub(super) fn with_budget(self, retries: u32) -> Self {
        Self { retries, ..self }
    }

    /// Returns the names of targets that are not asked.
    pub(super) fn names(&self, unasked: &Unasked) -> Vec<String> {
        let replicas = unasked.replicas.iter().map(|slot| &self.replicas[slot.index()].name);
        replicas
            .map(ToString::to_string)
            .chain(unasked.regions.iter().map(ToString::to_string))
            .collect()
    }
}

impl StreamSight for TestStream {
    fn replicas(&self) -> impl Iterator<Item = StreamReplica<'_>> {
        self.replicas.iter().zip(0..).map(|(replica, slot)| StreamReplica {
            slot: ReplicaSlot(slot),
            name: &replica.name,
            serves_model: replica.serves_model,
            continues_chats: replica.continues_chats,
        })
    }
    fn regions(&self) -> impl Iterator<Item = &RegionName> {
        self.regions.iter()
    }
    fn silence_max(&self) -> Duration {
        self.silence_max
    }
    fn deadline(&self) -> Deadline {
        self.deadline
    }
}

/// A stream, its surroundings, its driver's budget, and the time.
#[derive(Clone, Debug)]
pub(super) struct StreamStory {
    pub(super) sight: TestStream,
    pub(super) stream: ContinuedStream,
    pub(super) now: Instant,
    /// Retries left in the budget.
    pub(super) budget: u32,
    /// Retries that the budget was asked for, and whether it allowed them.
    pub(super) asked: Vec<(StreamRetry, bool)>,
}

impl StreamStory {
    pub(super) fn of(sight: TestStream) -> Self {
        let stream = ContinuedStream::new(sight.rules);
        let budget = sight.retries;
        Self { sight, stream, now: *START, budget, asked: Vec::new() }
    }

    /// Returns the next step other than a retry. Retries before it are taken.
    pub(super) fn next(&mut self) -> StreamStep {
        loop {
            let step = self.step();
            let StreamStep::TakeRetry(retry) = step else { return step };
            let is_allowed = self.budget > 0;
            self.budget = self.budget.saturating_sub(1);
            self.asked.push((retry, is_allowed));
            self.tell(StreamEvent::Retry { is_allowed });
        }
    }

    /// Returns the next step of the stream.
    pub(super) fn step(&mut self) -> StreamStep {
        let step = self.stream.next(&self.sight, self.now);
        let again = self.stream.next(&self.sight, self.now);
        assert_eq!(step, again, "a step holds until an event");
        step
    }

    pub(super) fn tell(&mut self, event: StreamEvent) {
        self.stream.on(event, &self.sight, self.now);
    }
}

/// Checks a story step by step: each line has the step that the stream takes, and its result. A
/// pause passes by itself, and retries are taken without saying so.
#[track_caller]
pub(super) fn check(story: &mut StreamStory, steps: &[(&str, Option<StreamEvent>)]) {
    for (number, (expected, event)) in steps.iter().enumerate() {
        let step = story.next();
        assert_eq!(short(&story.sight, &step), *expected, "step {number} of {steps:?}");
        if let StreamStep::Pause(pause) = step {
            story.now += pause;
        }
        if let Some(event) = event {
            story.tell(event.clone());
        }
    }
}

/// A step in a few words, with the targets that are not asked.
pub(super) fn short(sight: &TestStream, step: &StreamStep) -> String {
    match step {
        StreamStep::Relay => "relay".to_owned(),
        StreamStep::TakeRetry(retry) => format!("take retry {retry:?}"),
        StreamStep::Try { unasked, .. } => {
            let names = sight.names(unasked);
            if names.is_empty() { "try".to_owned() } else { format!("try but {}", names.join(" ")) }
        }
        StreamStep::Pause(pause) => format!("pause {}", pause.as_millis()),
        StreamStep::End(end) => format!("end {end:?}"),
    }
}

/// A replica broke the stream off in the middle of its text.
pub(super) fn broke(replica: &str) -> Option<StreamEvent> {
    broke_with(Some(StreamTarget::Replica(replica.into())), StreamRest::Text)
}

/// A region broke the stream off in the middle of its text.
pub(super) fn lost(region: &str) -> Option<StreamEvent> {
    broke_with(Some(StreamTarget::Region(region.into())), StreamRest::Text)
}

pub(super) fn broke_with(target: Option<StreamTarget>, rest: StreamRest) -> Option<StreamEvent> {
    Some(of_cause(BreakCause::Stalled, target, rest))
}

/// A stream broke off for this cause, without the death of an engine.
pub(super) fn of_cause(
    cause: BreakCause,
    target: Option<StreamTarget>,
    rest: StreamRest,
) -> StreamEvent {
    StreamEvent::Broke(StreamBreak { target, rest, cause, is_death: false })
}

/// An engine died in the middle of the text.
pub(super) fn died(replica: &str) -> Option<StreamEvent> {
    Some(StreamEvent::Broke(StreamBreak {
        target: Some(StreamTarget::Replica(replica.into())),
        rest: StreamRest::Text,
        cause: BreakCause::Cut,
        is_death: true,
    }))
}

/// A replica sent a reply that is no stream.
pub(super) fn other(replica: &str) -> Option<StreamEvent> {
    Some(StreamEvent::OtherReply(Some(replica.into())))
}
