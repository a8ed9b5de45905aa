//! `spillway run` as a process that is told to stop: its output, lost requests and exit code.

mod alone;
mod looking;
mod operators;
mod rolling;
mod sharing;
mod signals;
