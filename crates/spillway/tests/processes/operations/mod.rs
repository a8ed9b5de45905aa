//! Procedures of docs/disaster-recovery.md and docs/upgrade.md, carried out by `spillway` itself
//! with nodes that are processes.

mod disaster;
mod disk;
mod mistakes;
mod teardown;
mod world;
