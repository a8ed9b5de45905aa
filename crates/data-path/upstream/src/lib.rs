//! Facts that requests read, and the way to replicas: the immutable view, regions, and connections.
//!
//! A [`view::View`] is never changed: each change makes a new one. Counters beside it are atomic, so
//! that no request waits for another one.

pub mod affinity_moves;
pub mod concurrency;
pub mod connection;
pub mod continuations;
pub mod control_age;
pub mod conversations;
mod fair_table;
pub mod group_memory;
pub mod hedging;
pub mod hold_times;
pub mod home_news;
pub mod knowledge;
pub mod kv_session;
pub mod learning;
pub mod live_loads;
pub mod loaded_adapters;
pub mod locations;
pub mod model_cards;
pub mod names;
pub mod overflow;
pub mod pending_guests;
pub mod place;
pub mod queue_spec;
pub mod region_steering;
pub mod regions;
pub mod remote;
pub mod replica;
pub mod replica_loads;
pub mod replica_spec;
pub mod route_group;
pub mod route_spec;
pub mod session;
pub mod session_homes;
pub mod settings;
pub mod shared_region_circuit_breaker;
pub mod split;
pub mod stored_responses;
pub mod tenant_rests;
pub mod tenants;
pub mod usage_reports;
pub mod versions;
pub mod view;
pub mod wait_queues;
