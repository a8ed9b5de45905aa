//! Whole links with real sockets on loopback.

mod adverse_test;
mod control_test;
mod forward_test;
mod give_up_test;
mod join_test;
mod pressure_test;
mod raw;
mod refusal_test;
mod relay;
mod reload_test;
mod revoked_test;
mod rpc_test;
mod warm_test;
mod world;
