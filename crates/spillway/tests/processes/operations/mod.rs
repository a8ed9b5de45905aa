//! Procedures of docs/guides/disaster-recovery.md and docs/guides/upgrade.md, carried out by `spillway` itself
//! with nodes that are processes.

mod disaster;
mod disk;
mod mistakes;
mod status;
mod teardown;
mod world;
