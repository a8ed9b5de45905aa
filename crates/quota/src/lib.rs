//! Limits that hold in all regions together.
//!
//! A limit is divided into *units* that nodes hold: no more is charged within the limit's window
//! than there are units held, so the sum of all charges stays within the limit whatever the network
//! does. [`Quotas`] is what requests meet: atomics only. docs/limits.md has the rules and their
//! proof.

mod book;
mod fair;
mod fate;
mod floors;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod holder;
mod kind;
mod limiter;
mod meter;
mod need;
mod outputs;
mod pace;
mod pool;
mod quotas;
mod rates;
mod request;
mod scope;
mod seen;
mod shares;
mod statement;
mod watch;
mod window;

pub use book::{Before, Book};
pub use fate::Fate;
pub use floors::{FLOORS_PERMILLE_DEFAULT, floors};
pub use holder::Holder;
pub use kind::{LimitKind, RequestWindow, UNITS_MAX, Units};
pub use limiter::{Demand, Holding, Usage};
pub use pool::{Lease, Pool, PoolTerms};
pub use quotas::{LimitTerms, Quotas};
pub use rates::{RateRoom, Rates};
pub use request::{QuotaAsk, QuotaHold, QuotaRefusal};
pub use scope::Scope;
pub use shares::{Ground, ROWS_MAX, ROWS_MAX_OLD, RunRow, Shares, StatementFault};
pub use statement::{LINES_MAX, OVERDUE_MAX, Overdue, Run, ShareLine, Statement};
