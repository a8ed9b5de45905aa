//! Authentication and authorization: keys, their permissions, and claims of trusted proxies.
//!
//! A request's key is looked up in one immutable [`KeyTable`], which the node swaps; lookups never
//! block. Tenant, models, regions and priority of a request come from its [`Grant`] alone.

mod authenticator;
mod claims;
mod counts;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod grant;
mod key_news;
mod mode;
mod presented;
mod table;

pub use authenticator::Authenticator;
pub use counts::{AccessResult, TenantTally};
pub use grant::{Grant, RouteRules};
pub use key_news::{KEY_WAIT_MAX, KeyNews};
pub use mode::AccessMode;
pub use table::{KeyTable, TenantTerms};

pub use claims::{TENANT_CLAIM, is_claim, is_own};
pub use mode::AccessSwitch;
pub use presented::{CLIENT_KEYS, is_key_of_ours};
