//! Ids, units and the facts about one request that every other crate speaks of.
//!
//! Pure: no I/O, no clock, no randomness. Everything here is cheap to clone.

mod allowed;
mod base_path;
mod block_hashes;
mod cluster_ids;
mod compared;
mod country;
mod deadline;
mod failed_try;
mod gap_histogram;
mod hex_id;
mod holder;
mod ids;
mod inquiry;
mod kv_event;
mod link_local;
mod load_report;
mod model_load;
mod models_page;
mod name;
mod nearest;
mod outcome;
mod percent;
mod prediction;
mod reasons;
mod record_name;
mod request_record;
mod residency;
mod settings;
mod sign;
mod signals;
mod speed;
mod split_by;
mod standing;
mod steering;
mod tls_fault;
mod unix_time;

pub use allowed::Allowed;
pub use base_path::BasePath;
pub use block_hashes::BlockHashes;
pub use cluster_ids::{ClusterId, DiskId, NodeId};
pub use compared::Compared;
pub use country::{Country, NoCountry};
pub use deadline::Deadline;
pub use failed_try::{FailedTry, LeftOutReason, LeftOutRegion, TriedTarget};
pub use gap_histogram::{GAP_BOUNDS_S, GapHistogram};
pub use holder::Holder;
pub use ids::{
    ArmName, ModelName, ModelVersion, NodeName, PoolName, RegionName, ReplicaName, ReplicaSlot,
    RouteName, TenantName,
};
pub use inquiry::Inquiry;
pub use kv_event::{KvEvent, StoredBlocks};
pub use link_local::is_link_local;
pub use load_report::LoadReport;
pub use model_load::{ModelLoad, ShedState};
pub use models_page::{ModelsPage, ServedModel};
pub use nearest::{misspelt, nearest, plain};
pub use outcome::{
    ARM_ERRORS, End, EstimateReason, Hedge, Outcome, Shed, SplitArm, TokenCounts, TokenEstimate,
    TraceIds,
};
pub use percent::{NoPercent, Percent};
pub use prediction::Prediction;
pub use reasons::{continued, sentence};
pub use record_name::{RECORD_NAME_BYTES_MAX, is_record_name, to_record_name};
pub use request_record::{
    AttributeValue, ComparedRegions, Decimal, EndedRequest, Expected, LeftOutEntry, MeasuredMs,
    Predicted, RecordField, RequestEntry, TryEntry,
};
pub use residency::Residency;
pub use settings::Millis;
pub use sign::{ReplyForm, Sign, SignFault, SignKind, Worked, WorkedPart};
pub use signals::{Reading, Signals};
pub use speed::Speed;
pub use split_by::{SplitBy, UnknownSplitByError, is_token};
pub use standing::{Admission, DownCause, ModelStanding, RAMP_FULL, Standing};
pub use steering::{AwayReason, Steering};
pub use tls_fault::TlsFault;
pub use unix_time::unix_ms;
