//! The admin API: what operators read and change of the state that all nodes agree on.
//!
//! [`Admin::answer`] answers requests for paths below `/v1/`. Endpoints stand in one table, from
//! which requests are routed, rights are checked, and the OpenAPI document is made. Reads say which
//! entry they have seen and how old they can be; writes can be conditional, repeatable and dry.

mod access;
mod admin;
mod answer;
mod call;
mod config;
mod endpoint;
mod error;
mod explain;
mod fault;
mod forms;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod listener;
mod openapi;
mod own_limits;
mod patterns;
mod query;
mod records;
mod reply;
mod resource;
mod secrets;
mod token_file;

pub use admin::Admin;
pub use config::{AdminConfig, AdminRole, ConfigToken};
pub use explain::{Explain, ExplainFault, ExplainRequest, Explaining};
pub use listener::{ListenerFault, check_listener, connection_builder};
pub use openapi::openapi;
pub use own_limits::OwnLimits;
pub use reply::{Body, Reply};
pub use token_file::{TokenFileFault, parse_token_file};

#[cfg(test)]
mod admin_test;
