//! Requests as they come in: read, checked, and prepared for replicas; and the state they share.
//!
//! A [`prepared::Prepared`] request knows its route, its prompt and its body. `spillway-journey`
//! decides what happens to it next, and `spillway-proxy` carries that out.

pub mod affinity;
pub mod asked_timeout;
pub mod continuation_terms;
pub mod cors;
pub mod cost;
pub mod fallback;
pub mod flavour;
pub mod gateway;
pub mod grpc;
pub mod head;
pub mod headers;
pub mod intake;
pub mod local;
pub mod methods;
pub mod model_lookups;
pub mod opaque;
pub mod path;
pub mod prepare;
pub mod prepared;
pub mod prompt;
pub mod rates;
pub mod readiness_polls;
pub mod reply_hasher;
pub mod steering_answer;
pub mod stored;
pub mod surroundings;
pub mod target;
#[cfg(test)]
mod test_around;
mod unknown_model;
mod unnamed;
