//! Limits that hold in all regions together.
//!
//! A limit is divided into *units* that nodes hold. A node charges no more within the limit's
//! window than the units it holds, so the sum of all charges stays within the limit even if the
//! network loses or delays messages. [`Quotas`] is the part that requests use: it has only atomics.
//! docs/explanation/limits.md has the rules and their proof.

mod agreed_limits;
mod bits;
mod derived;
mod fair;
mod fate;
mod floors;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod holder;
mod kind;
mod limiter;
mod marks;
mod meter;
mod need;
mod outputs;
mod own_limits;
mod pace;
mod pool;
mod quota_table;
mod quotas;
mod rates;
mod reach;
mod request;
mod rows;
mod scope;
mod seen;
mod shares;
mod statement;
mod terms;
mod watch;
mod window;
mod worth;

pub use agreed_limits::{AgreedLimits, Before};
pub use fate::Fate;
pub use floors::{FLOORS_PERMILLE_DEFAULT, floors};
pub use holder::Holder;
pub use kind::{LimitKind, RequestWindow, UNITS_MAX, Units};
pub use limiter::{Holding, LimitUsage, RateRoom};
pub use own_limits::OwnLimits;
pub use pool::{Pool, PoolLease, PoolTerms};
pub use quotas::Quotas;
pub use rates::Rates;
pub use request::{QuotaAsk, QuotaError, QuotaHold};
pub use scope::Scope;
pub use shares::{Ground, ROWS_MAX, RunRow, Shares, StatementError};
pub use statement::{LINES_MAX, OVERDUE_MAX, Overdue, Run, ShareLine, Statement};
pub use terms::LimitTerms;
