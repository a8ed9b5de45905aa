//! `spillway certs` over the whole life of a cluster's certificates, against real nodes.

mod foreign;
mod listener;
mod refused;
mod requests;
mod rotation;
mod untimely;
mod world;
