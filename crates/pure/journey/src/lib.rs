//! The journey of one request as a pure state machine.
//!
//! A [`Journey`] decides what happens to a request next: a replica is asked, a second one beside it,
//! another region, or the request waits, names another model, or ends. The driver calls
//! [`Journey::next`], carries out the one [`Step`] that comes back, and reports its result by
//! [`Journey::on`]. Everything that a decision reads comes in through [`Sight`], which changes
//! nothing: numbers, budgets and probes are taken by steps, and counters are raised from the
//! [`Notes`] of a journey. Time and randomness are arguments. A [`ContinuedStream`] decides what
//! happens to a stream whose slot fails: each try to continue it is a journey. The gateway drives
//! the machine and asks it for explanations; the simulator drives it in virtual time.

mod continuation;
mod decision;
mod ending;
mod event;
mod hedge;
mod journey;
mod notes;
mod overflow;
mod reply;
mod residency;
mod retry;
mod room;
mod route_rules;
mod sight;
mod stand_ins;
mod standing;
mod step;
mod tenant_share;

pub use continuation::{
    BreakCause, ContinuationRules, ContinuedStream, StreamBreak, StreamEnd, StreamEvent,
    StreamReplica, StreamRest, StreamRetry, StreamSight, StreamStep, StreamTarget, Unasked,
};
pub use decision::{ComparedCosts, Decision, RequestWay};
pub use ending::{Ending, RefusedRequest, RetryTime};
pub use event::{Event, RegionFailure};
pub use hedge::{HedgeResult, judge_hedge};
pub use journey::Journey;
pub use notes::Notes;
pub use overflow::{Overflow, OverflowEvent, OverflowSight, OverflowStep};
pub use reply::{
    EngineState, FailureForm, PartEnd, PieceKind, Reply, ReplyAction, ReplyEnd, ReplyEvent,
    ReplyFault, ReplyRules, ReplySource, SOURCE_LOOK, SourceSight, SourceState,
};
pub use residency::ResidencyDenial;
pub use retry::{RetrySafety, StatusClass};
pub use room::{AdapterRoom, Room, SlotSight};
pub use route_rules::RouteRules;
pub use sight::{
    Conversation, QueueSight, RegionSight, ReplicaGroup, ReplicaSight, RequestSight, RoomLoads,
    Sight,
};
pub use stand_ins::{ServedModel, StandIns};
pub use standing::{Claim, Position};
pub use step::{Connection, Step, WaitTerms};
pub use tenant_share::{KeptSlots, TenantKey, TenantSight, is_kept_away};
