//! `spillway run` as a process that is asked to stop: its output, lost requests and exit code.

pub(crate) mod alone;
mod files;
mod logs;
mod looking;
mod operators;
mod rolling;
mod sharing;
mod signals;
