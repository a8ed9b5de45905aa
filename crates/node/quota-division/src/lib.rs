//! This node's part in dividing limits among all regions.
//!
//! The crate `quota` decides. Here it gets the agreed state, its statements are proposed, and data
//! that has to outlive the process is written to the data folder. Requests meet only
//! the quotas of `ClientState`.

mod debts;
mod live;
mod own;
mod saved;
mod spent;
mod task;
mod uptime;

pub use live::{FileLimits, live};
pub use own::pay_own;
pub use task::{Division, DivisionParts};
